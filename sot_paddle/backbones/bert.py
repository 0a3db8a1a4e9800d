"""BERT: paddlenlp's encoder, corrected to the reference."""

from __future__ import annotations

from paddlenlp.transformers import BertConfig, BertModel

from sot_paddle.backbones.bert_family import BERT
from sot_paddle.backbones.paddlenlp_encoder import CorrectedEncoder, paddlenlp_options
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
