"""BERT: paddlenlp's encoder, corrected to the reference."""

from __future__ import annotations

from paddlenlp.transformers import BertConfig, BertModel

from sot_paddle.backbones.paddlenlp_encoder import CorrectedEncoder, paddlenlp_options
from sot_paddle.backbones.text import TextBackbone
from sot_paddle.config import EncoderConfig


class BertEncoder(CorrectedEncoder, BertModel):
    """paddlenlp's BertModel without pooler, made equal to transformers' BertModel.

    Args:
        config: dimensions; two token types by default, where paddlenlp has 16.
    """

    def __init__(self, config: EncoderConfig) -> None:
        BertModel.__init__(self, BertConfig(**paddlenlp_options(config)))
        self.correct(
            config, padded=[self.embeddings.word_embeddings], positions=BERT.position_limit(config)
        )


LARGE = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}
"""Sizes of BERT-large, of which RoBERTa-large and SpanBERT-large have the same."""

BERT = TextBackbone(
    architecture="bert",
    model_type="bert",
    prefix="bert",
    encoder=BertEncoder,
    presets={"bert_base": {}, "bert_large": LARGE},
    plain="pooler",
    norms=r"bert\..*\b(layer_norm|norm1|norm2)\.weight",
    layers=r"bert\.encoder\.layers\.(\d+)\.",
    tokenizer="wordpiece",
)
