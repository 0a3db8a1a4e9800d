"""What the encoders of language models have in common: their inputs, and what is trained.

Shape legend: B samples, S tokens, C hidden size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import paddle
from paddle import nn

from sot_paddle.backbones.inputs import check_tokens
from sot_paddle.config import EncoderConfig
from sot_paddle.features import Features, Taps


class TextEncoder(nn.Layer):
    """Token ids to hidden states, without a head; a subclass says how.

    It has ``_encode(ids, types, mask, taps)``, of what :meth:`forward` takes, checked.
    """

    padding_hooks: Sequence[Any] = ()  # they keep gradients from the padding rows of embeddings

    def settle(
        self, config: EncoderConfig, *, positions: int, padded: Iterable[nn.Embedding] = ()
    ) -> None:
        """Say what may come in and what is trained, once, when the layers are built.

        Args:
            positions: tokens of a row at most.
            padded: embeddings whose row ``pad_token_id`` is used and not trained.
        """
        self._limits = {
            "vocab_size": config.vocab_size,
            "type_vocab_size": config.type_vocab_size,
            "max_positions": positions,
        }
        if config.freeze_encoder:
            for parameter in self.parameters():
                parameter.stop_gradient = True
        else:
            hook = zero_row_hook(config.pad_token_id)
            self.padding_hooks = [embedding.weight.register_hook(hook) for embedding in padded]

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
            ValueError: what `sot_paddle.backbones.inputs.check_tokens` refuses: a sequence longer
                than the position table, inputs of different shapes (they would be broadcast
                silently), ids or types that the tables do not have, a mask of other values than 0
                and 1.
        """
        check_tokens(input_ids, token_type_ids, attention_mask, **self._limits)
        return self._encode(input_ids, token_type_ids, attention_mask, taps)


def zero_row_hook(row: int) -> Callable[[paddle.Tensor], paddle.Tensor]:
    """Gradient hook that zeroes one row.

    REF: torch's Embedding(padding_idx) uses the row in the forward pass and gives it no
    gradient. PADDLE: paddlenlp trains it, and Paddle's own padding_idx zeroes the output.
    """

    def hook(gradient: paddle.Tensor) -> paddle.Tensor:
        with paddle.no_grad():
            gradient = gradient.detach()
            gradient[row] = 0.0
        return gradient

    return hook
