"""RoBERTa: paddlenlp's encoder, corrected to the reference."""

from __future__ import annotations

from paddle import nn
from paddlenlp.transformers import RobertaConfig, RobertaModel

from sot_paddle.backbones.bert_family import ROBERTA
from sot_paddle.backbones.layers import LayerNorm
from sot_paddle.backbones.paddlenlp_encoder import CorrectedEncoder, paddlenlp_options
from sot_paddle.config import EncoderConfig


class RobertaEncoder(CorrectedEncoder, RobertaModel):
    """paddlenlp's RobertaModel without pooler, made equal to transformers' RobertaModel.

    The first token has position ``pad_token_id + 1``, padding has position ``pad_token_id``.
    Further corrections: the padding row of the word embedding is used in the forward pass, the
    padding rows of word and position embedding get no gradient, and layer norms are those of the
    project, whose epsilon of 1e-5 is exact in float64.

    Args:
        config: dimensions.
    """

    def __init__(self, config: EncoderConfig) -> None:
        RobertaModel.__init__(self, RobertaConfig(**paddlenlp_options(config)))
        # PADDLE: paddlenlp gives the embedding a padding_idx, which zeroes its output
        self.embeddings.word_embeddings._padding_idx = None
        for layer in [self.embeddings, *self.encoder.layers]:
            for name, norm in list(layer.named_children()):
                if isinstance(norm, nn.LayerNorm):
                    setattr(
                        layer, name, LayerNorm(config.hidden_size, epsilon=config.layer_norm_eps)
                    )
        tables = [self.embeddings.word_embeddings, self.embeddings.position_embeddings]
        self.correct(config, padded=tables, positions=ROBERTA.position_limit(config))
