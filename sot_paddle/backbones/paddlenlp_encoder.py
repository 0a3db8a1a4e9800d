"""What paddlenlp's encoders have in common: corrections to the reference, and the forward pass.

Shape legend: B samples, S tokens, C hidden size.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import paddle
from paddle import nn

from sot_paddle.backbones.inputs import TextCheck
from sot_paddle.backbones.text import ACTIVATION_FUNCTIONS, zero_row_hook
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


class CorrectedEncoder(nn.Layer):
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
            config: dimensions.
            padded: embeddings whose row ``pad_token_id`` is used and not trained.
            positions: tokens of a row at most.
        """
        self.config.hidden_act = config.hidden_act
        for layer in self.encoder.layers:
            layer.activation = ACTIVATION_FUNCTIONS[config.hidden_act]
        del self.pooler
        self.check_inputs = TextCheck(config.vocab_size, config.type_vocab_size, positions)
        for layer in self.sublayers():
            if isinstance(layer, nn.LayerNorm):
                layer._epsilon = config.layer_norm_eps
        if config.freeze_encoder:
            for parameter in self.parameters():
                parameter.stop_gradient = True
        else:
            self.padding_hooks = [
                embedding.weight.register_hook(zero_row_hook(config.pad_token_id))
                for embedding in padded
            ]

    def forward(
        self,
        input_ids: paddle.Tensor,
        token_type_ids: paddle.Tensor | None = None,
        attention_mask: paddle.Tensor | None = None,
        taps: Taps | None = None,
    ) -> Features:
        """Encode token ids.

        Args:
            input_ids: (B, S) int64 or int32, S at most the limit of positions.
            token_type_ids: (B, S) int64 or int32, zeros when None.
            attention_mask: (B, S) bool, integer or float, 1 where valid and 0 where not, all valid
                when None.
            taps: collects "embeddings" and "layers.{i}", each (B, S, C).

        Returns:
            Features: class token (B, C), words (B, S - 1, C), mask (B, S - 1).

        Raises:
            ValueError: what `sot_paddle.backbones.inputs.TextCheck` refuses: a sequence longer than
                the position table, inputs of different shapes (they would be broadcast silently),
                ids or types that the tables do not have, a mask of other values than 0 and 1.
        """
        self.check_inputs(input_ids, token_type_ids, attention_mask, training=self.training)
        hidden = self.embeddings(input_ids=input_ids, token_type_ids=token_type_ids)
        record(taps, "embeddings", hidden)
        bias = None
        if attention_mask is not None:
            visible = attention_mask.astype(hidden.dtype).unsqueeze([1, 2])  # (B, 1, 1, S)
            bias = (1.0 - visible) * -1e4  # REF: B.2, as the original text release
        for index, layer in enumerate(self.encoder.layers):
            hidden = record(taps, f"layers.{index}", layer(hidden, bias))
        words_mask = None if attention_mask is None else attention_mask[:, 1:].astype("bool")
        return Features(hidden[:, 0], hidden[:, 1:], words_mask)
