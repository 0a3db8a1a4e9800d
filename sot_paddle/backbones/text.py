"""What the encoders of language models have in common, and a language model with a head.

Shape legend: B samples, S tokens, C hidden size, K classes.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import paddle
from paddle import nn
from paddle.nn import functional as F

from sot_paddle.backbones.families import TextBackbone
from sot_paddle.backbones.inputs import check_tokens
from sot_paddle.config import LAYERS, EncoderConfig, HeadConfig
from sot_paddle.features import Features, Taps, record
from sot_paddle.heads import build_head
from sot_paddle.ops.functions import gelu

_tanh_gelu = functools.partial(F.gelu, approximate=True)

ACTIVATION_FUNCTIONS: Mapping[str, Callable[[paddle.Tensor], paddle.Tensor]] = {
    "gelu": gelu,  # the erf form
    "gelu_new": _tanh_gelu,
    "gelu_pytorch_tanh": _tanh_gelu,
    "relu": F.relu,
    "silu": F.silu,
    "tanh": F.tanh,
}
"""Name of ``sot_paddle.config.ACTIVATIONS`` -> its function."""


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


class TextClassifier(nn.Layer):
    """A language model with a classification head for K classes; 1 means regression.

    Raises:
        ValueError: a head that cannot work.
    """

    def __init__(
        self,
        backbone: TextBackbone,
        encoder: EncoderConfig,
        head: HeadConfig,
        num_classes: int,
        *,
        name: str = "",
    ) -> None:
        super().__init__()
        self.name, self.num_classes, self.backbone = name, num_classes, backbone
        self.encoder_config = self.backbone_config = encoder
        self.head_config = head
        if head.pooling == LAYERS and not backbone.first_token:
            raise ValueError(
                f"pooling {LAYERS!r} takes the first token of a row, which is no class token of "
                f"{backbone.architecture}"
            )
        self.add_sublayer(backbone.prefix, backbone.encoder(encoder))
        self.head = build_head(
            head,
            dim=encoder.hidden_size,
            num_classes=num_classes,
            pooler_dropout=encoder.hidden_dropout_prob,
            initializer_range=encoder.initializer_range,
            num_layers=encoder.num_hidden_layers,
        )

    def features(
        self,
        input_ids: paddle.Tensor,
        token_type_ids: paddle.Tensor | None = None,
        attention_mask: paddle.Tensor | None = None,
        taps: Taps | None = None,
    ) -> Features:
        """Encode token ids, see :meth:`forward`; taps are "embeddings" and "layers.{i}"."""
        needs_layers = self.head_config.pooling == LAYERS
        taps = {} if needs_layers and taps is None else taps
        encoder = getattr(self, self.backbone.prefix)
        features = encoder(input_ids, token_type_ids, attention_mask, taps)
        if not needs_layers:
            return features
        layers = range(self.encoder_config.num_hidden_layers)
        hidden = tuple(taps[f"layers.{layer}"] for layer in layers)
        return dataclasses.replace(features, hidden=hidden)

    def forward(
        self,
        input_ids: paddle.Tensor,
        token_type_ids: paddle.Tensor | None = None,
        attention_mask: paddle.Tensor | None = None,
        return_taps: bool = False,
    ):
        """Classify token sequences.

        Args:
            input_ids: (B, S) integer.
            token_type_ids: (B, S) integer or None (zeros).
            attention_mask: (B, S), 1 where valid, or None (all valid).

        Returns:
            Logits (B, K); with fusion ``sum_loss`` in training mode the pair (class-token
            logits, word logits). With ``return_taps`` a tuple (that, dict of taps).
        """
        taps: Taps | None = {} if return_taps else None
        features = self.features(input_ids, token_type_ids, attention_mask, taps)
        logits = self.head(features, taps)
        record(taps, "logits", sum(logits) if isinstance(logits, tuple) else logits)
        return (logits, taps) if return_taps else logits
