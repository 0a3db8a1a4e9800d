"""BERT and RoBERTa: paddlenlp's encoders, corrected to the reference, and their forward pass.

Shape legend: B samples, S tokens, C hidden size.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import paddle
from paddle import nn
from paddlenlp.transformers import BertConfig, BertModel, RobertaConfig, RobertaModel

from sot_paddle.backbones.families import BERT, ROBERTA
from sot_paddle.backbones.layers import LayerNorm
from sot_paddle.backbones.text import ACTIVATION_FUNCTIONS, TextEncoder
from sot_paddle.config import EncoderConfig
from sot_paddle.features import Features, Taps, record


def paddlenlp_options(config: EncoderConfig) -> dict[str, Any]:
    """Options of a paddlenlp configuration.

    PADDLE: paddlenlp looks the activation up in paddle.nn.functional, which lacks gelu_new:
    :meth:`CorrectedEncoder.correct` sets it.
    """
    fields = dataclasses.asdict(config)
    fields.pop("freeze_encoder")
    return {**fields, "hidden_act": "gelu"}


class CorrectedEncoder(TextEncoder):
    """A paddlenlp encoder without pooler, made equal to transformers'.

    Corrections: no gradient for the padding row of an embedding, layer norm epsilon checked on
    every layer, a missing attention mask means that every position is valid (paddlenlp would
    derive one from the padding id).

    Source: B.1; the differences are listed in ``docs/differences.md``.
    """

    def correct(
        self, config: EncoderConfig, *, padded: Iterable[nn.Embedding], positions: int
    ) -> None:
        """Apply the corrections, once, when paddlenlp has built the encoder; see `settle`."""
        self.config.hidden_act = config.hidden_act
        for layer in self.encoder.layers:
            layer.activation = ACTIVATION_FUNCTIONS[config.hidden_act]
        del self.pooler
        for layer in self.sublayers():
            if isinstance(layer, nn.LayerNorm):
                layer._epsilon = config.layer_norm_eps
        self.settle(config, positions=positions, padded=padded)

    def _encode(
        self,
        ids: paddle.Tensor,
        types: paddle.Tensor | None,
        mask: paddle.Tensor | None,
        taps: Taps | None,
    ) -> Features:
        hidden = self.embeddings(input_ids=ids, token_type_ids=types)
        record(taps, "embeddings", hidden)
        bias = None
        if mask is not None:
            visible = mask.astype(hidden.dtype).unsqueeze([1, 2])  # (B, 1, 1, S)
            bias = (1.0 - visible) * -1e4  # REF: B.2, as the original text release
        for index, layer in enumerate(self.encoder.layers):
            hidden = record(taps, f"layers.{index}", layer(hidden, bias))
        words_mask = None if mask is None else mask[:, 1:].astype("bool")
        return Features(hidden[:, 0], hidden[:, 1:], words_mask)


class BertEncoder(CorrectedEncoder, BertModel):
    """paddlenlp's BertModel without pooler, made equal to transformers' BertModel."""

    def __init__(self, config: EncoderConfig) -> None:
        BertModel.__init__(self, BertConfig(**paddlenlp_options(config)))
        self.correct(
            config, padded=[self.embeddings.word_embeddings], positions=BERT.position_limit(config)
        )


class RobertaEncoder(CorrectedEncoder, RobertaModel):
    """paddlenlp's RobertaModel without pooler, made equal to transformers' RobertaModel.

    The first token has position ``pad_token_id + 1``, padding has position ``pad_token_id``.
    Further corrections: the padding row of the word embedding is used in the forward pass, the
    padding rows of word and position embedding get no gradient, and layer norms are those of the
    project, whose epsilon of 1e-5 is exact in float64.
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
