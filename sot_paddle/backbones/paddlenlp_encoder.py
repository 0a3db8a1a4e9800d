"""What paddlenlp's encoders have in common: corrections to the reference, and the forward pass.

Shape legend: B samples, S tokens, C hidden size.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import paddle
from paddle import nn

from sot_paddle.backbones.text import ACTIVATION_FUNCTIONS
from sot_paddle.backbones.text_encoder import TextEncoder
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
        """Apply the corrections, once, when paddlenlp has built the encoder.

        Args:
            padded: embeddings whose row ``pad_token_id`` is used and not trained.
            positions: tokens of a row at most.
        """
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
