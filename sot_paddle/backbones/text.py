"""What every language model shares: the record of a backbone, and the model with a head.

Shape legend: B samples, S tokens, C hidden size, K classes.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import paddle
from paddle import nn
from paddle.nn import functional as F

from sot_paddle.config import LAYERS, EncoderConfig, HeadConfig, require_type, sort_options
from sot_paddle.features import Features, Taps, record
from sot_paddle.heads import build_head
from sot_paddle.ops.gelu import gelu

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


@dataclass(frozen=True, kw_only=True)
class TextBackbone:
    """Everything that the rest of the project must know about a language model.

    Attributes:
        architecture: what ``--model_type`` calls it.
        model_type: what its checkpoint's config.json calls it.
        original_type: what its original's own checkpoints call it, where that differs.
        prefix: first part of the names of its parameters.
        encoder: option record -> Layer that maps ids, types and mask to Features.
        options: the option record.
        presets: registry name -> options that differ from the record's defaults, smallest first.
        plain: pooling of its own classifier.
        norms: pattern of the names of its normalisation weights, which do not decay.
        layers: pattern of the beginnings of the names of a layer's parameters, with its number, in
            the order of computation, as its group.
        first_token: whether the class token is the first one of a row.
        config_keys: option -> keys of the checkpoint's config.json, the first of which is read,
            where they are not the option's name; none for an option that it does not state.
        config_values: option -> value in the config.json -> value here, where they differ.
        inner_factor: ``intermediate_size`` over ``hidden_size`` where the config.json does not
            state the former.
        tokenizer: family of its tokenizer, a key of `data.tokenizer_families.FAMILIES`.
        positions_after_padding: whether the first position is row ``pad_token_id + 1`` of the
            position table, not row 0.
    """

    architecture: str
    model_type: str
    prefix: str
    encoder: Callable[[Any], nn.Layer]
    options: type[EncoderConfig] = EncoderConfig
    presets: Mapping[str, Mapping[str, Any]]
    plain: str
    norms: str
    layers: str
    first_token: bool = True
    config_keys: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    config_values: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    inner_factor: int | None = None
    tokenizer: str
    positions_after_padding: bool = False
    original_type: str = ""

    def position_offset(self, config: EncoderConfig) -> int:
        """Rows of the position table before the one of a row's first token."""
        return config.pad_token_id + 1 if self.positions_after_padding else 0

    def position_limit(self, config: EncoderConfig) -> int:
        """Tokens of a row at most."""
        return config.max_position_embeddings - self.position_offset(config)

    def defaults(self, name: str) -> dict[str, Any]:
        """All options of an encoder of that registry name."""
        return dataclasses.asdict(self.options(**self.presets[name]))

    def preset_for(self, options: Mapping[str, Any], hint: str = "") -> str:
        """The registry name for a checkpoint.

        Args:
            options: of the encoder, as far as they are known.
            hint: a name of the checkpoint; one that begins with a preset's asks for it.

        Returns:
            The smallest preset that is as deep, the deepest where none is.
        """
        depths = {name: self.defaults(name)["num_hidden_layers"] for name in self.presets}
        known = options.get("num_hidden_layers", 0)
        deep = [name for name, depth in depths.items() if depth >= known] or list(depths)[-1:]
        named = [name for name in depths if hint.replace("-", "_").startswith(name)]
        return max([deep[0], *named], key=depths.__getitem__)

    def read_config(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Options of the encoder that a config.json states."""
        found = {}
        for field in dataclasses.fields(self.options):
            keys = self.config_keys.get(field.name, (field.name,))
            if keys and keys[0] in config:
                value = config[keys[0]]
                known = self.config_values.get(field.name, {})
                value = known[value] if isinstance(value, str) and value in known else value
                require_type(self.options, field.name, value, where=f"config.json: {keys[0]}")
                found[field.name] = value
        if self.inner_factor and "hidden_size" in found:
            found["intermediate_size"] = self.inner_factor * found["hidden_size"]
        return found

    def write_config(self, config: EncoderConfig) -> dict[str, Any]:
        """Every option of an encoder, under the keys of its config.json."""
        options = dataclasses.asdict(config)
        options.pop("freeze_encoder")
        stated = {}
        for name, value in options.items():
            theirs = {ours: key for key, ours in self.config_values.get(name, {}).items()}
            keys = self.config_keys.get(name, (name,))
            stated.update(dict.fromkeys(keys, theirs.get(value, value)))
        return stated


class TextClassifier(nn.Layer):
    """A language model with a classification head.

    Args:
        backbone: what is known about the language model.
        encoder: its dimensions.
        head: options of the head.
        num_classes: K; 1 means regression.
        name: the registry name it was built under, kept for checkpoints.

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
        encoder = getattr(self, self.backbone.prefix)
        if self.head_config.pooling != LAYERS:
            return encoder(input_ids, token_type_ids, attention_mask, taps)
        taps = {} if taps is None else taps
        features = encoder(input_ids, token_type_ids, attention_mask, taps)
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
            return_taps: also return the named intermediate tensors.

        Returns:
            Logits (B, K); with fusion ``sum_loss`` in training mode the pair (class-token
            logits, word logits). With ``return_taps`` a tuple (that, dict of taps).
        """
        taps: Taps | None = {} if return_taps else None
        features = self.features(input_ids, token_type_ids, attention_mask, taps)
        logits = self.head(features, taps)
        record(taps, "logits", sum(logits) if isinstance(logits, tuple) else logits)
        return (logits, taps) if return_taps else logits


def build_text(
    backbone: TextBackbone, preset: str, num_classes: int, options: Mapping[str, Any], *, name: str
) -> TextClassifier:
    """Sort flat options into the records of encoder and head, and build the model.

    Args:
        backbone: what is known about the language model.
        preset: a name of its presets.
        num_classes: K.
        options: option name to value, over the preset's.
        name: the registry name, also for error messages.

    Raises:
        ValueError: an unknown option (the near ones are listed), a wrong type, a value out of
            range, or a head that cannot work.
    """
    given = {**backbone.presets[preset], "pooling": backbone.plain, **options}
    records = sort_options(backbone.options, given, where=name)
    return TextClassifier(backbone, *records, num_classes, name=name)
