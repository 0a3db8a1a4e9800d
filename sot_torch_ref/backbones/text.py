"""Language models of transformers with a composed head.

Legend: B batch, S tokens with the class token, C hidden size, L layers, K classes.

The encoder is transformers' model with eager attention and without its pooler: the pooler belongs
to the head. Its state names stay those of transformers.
"""

import difflib
from dataclasses import dataclass, fields

import torch
from torch import nn

from sot_torch_ref.features import Features
from sot_torch_ref.heads.factory import (
    HeadConfig,
    build_head,
    require_choice,
    require_count,
    require_flag,
    require_positive,
    require_probability,
)
from sot_torch_ref.heads.fusion import Logits
from sot_torch_ref.heads.pooling import Taps

ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "tanh")
COUNTS = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
)


@dataclass(frozen=True)
class EncoderConfig:
    """Encoder keys of ``create_model``; the defaults are those of BERT base.

    Attributes:
        vocab_size, type_vocab_size, max_position_embeddings: Rows of the three embeddings.
        hidden_size, num_hidden_layers, num_attention_heads, intermediate_size: C, L, heads, MLP.
        hidden_act: "gelu" (exact erf form), "gelu_new" and "gelu_pytorch_tanh" (tanh form), "relu",
            "silu" or "tanh".
        layer_norm_eps: Epsilon of every layer norm of the encoder.
        hidden_dropout_prob, attention_probs_dropout_prob: In [0, 1).
        initializer_range: Standard deviation of linear and embedding weights.
        pad_token_id: Row of the word embeddings that starts at zero and gets no gradient.
        freeze_encoder: Whether the encoder's parameters are left untrained.

    Raises:
        ValueError: A value out of range or of the wrong type.

    Source: specs "Global cross-framework cautions" and B.2.
    """

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    hidden_act: str = "gelu"
    layer_norm_eps: float = 1e-12
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    initializer_range: float = 0.02
    pad_token_id: int = 0
    freeze_encoder: bool = False

    def __post_init__(self) -> None:
        for name in COUNTS:
            require_count(name, getattr(self, name))
        require_choice("hidden_act", self.hidden_act, ACTIVATIONS)
        require_positive("layer_norm_eps", self.layer_norm_eps)
        require_positive("initializer_range", self.initializer_range)
        require_probability("hidden_dropout_prob", self.hidden_dropout_prob)
        require_probability("attention_probs_dropout_prob", self.attention_probs_dropout_prob)
        require_flag("freeze_encoder", self.freeze_encoder)
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                "hidden_size must be a multiple of num_attention_heads, got "
                f"{self.hidden_size} and {self.num_attention_heads}"
            )
        if type(self.pad_token_id) is not int or self.pad_token_id not in range(self.vocab_size):
            raise ValueError(
                f"pad_token_id must be an integer from 0 to {self.vocab_size - 1}, "
                f"got {self.pad_token_id!r}"
            )


HEAD_KEYS = tuple(field.name for field in fields(HeadConfig))


class TextClassifier(nn.Module):
    """Encoder and head; a subclass says which encoder, and where the class token stands.

    Attributes:
        options: Record of its encoder keys.
        prefix: Name of the attribute that holds the encoder.
        head: Module, Features -> (logits, taps).

    Args:
        encoder: Encoder keys.
        head: Head keys.
        num_classes: Number K of scores.
    """

    options: type[EncoderConfig] = EncoderConfig
    prefix = ""

    def __init__(self, encoder: EncoderConfig, head: HeadConfig, num_classes: int) -> None:
        super().__init__()
        self.encoder_config, self.head_config = encoder, head
        built_head = build_head(  # first: it refuses bad keys before the slow part
            head,
            hidden_size=encoder.hidden_size,
            num_classes=num_classes,
            encoder_dropout=encoder.hidden_dropout_prob,
            init_std=encoder.initializer_range,
            num_layers=encoder.num_hidden_layers,
        )
        self.add_module(self.prefix, self.build_encoder(encoder))
        self.head = built_head
        if encoder.freeze_encoder:
            self.encoder.requires_grad_(False)

    @staticmethod
    def build_encoder(config: EncoderConfig) -> nn.Module:
        """transformers' model of these sizes."""
        raise NotImplementedError

    @property
    def encoder(self) -> nn.Module:
        """transformers' model."""
        return getattr(self, self.prefix)

    @property
    def position_limit(self) -> int:
        """Tokens of a row at most."""
        return self.encoder_config.max_position_embeddings

    def call_encoder(
        self, input_ids: torch.Tensor, token_type_ids: torch.Tensor | None, valid: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """Hidden states of transformers' model: the embedding output, then one per layer."""
        return self.encoder(
            input_ids=input_ids,
            token_type_ids=token_type_ids,
            attention_mask=valid,
            output_hidden_states=True,
            return_dict=True,
        ).hidden_states

    def split(self, last: torch.Tensor, attention_mask: torch.Tensor | None) -> Features:
        """Last hidden states (B, S, C) as class token and words; the class token stands first."""
        mask = None if attention_mask is None else attention_mask[:, 1:].bool()
        return Features(cls=last[:, 0], words=last[:, 1:], mask=mask)

    def encode(
        self,
        input_ids: torch.Tensor,
        token_type_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
    ) -> tuple[Features, Taps]:
        """Run the encoder.

        Args:
            input_ids: Token ids (B, S), S >= 2 for heads that pool words.
            token_type_ids: Segment ids (B, S); None = all 0.
            attention_mask: (B, S), 1 = valid; None = all valid.

        Returns:
            Features of the last layer, and the taps "embeddings", "layers.0", ...

        Raises:
            ValueError: Shapes that do not fit, or more tokens than positions.
        """
        self._check_inputs(input_ids, token_type_ids, attention_mask)
        valid = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        states = self.call_encoder(input_ids, token_type_ids, valid)
        assert len(states) == self.encoder_config.num_hidden_layers + 1
        taps = {"embeddings": states[0]}
        taps.update({f"layers.{index}": state for index, state in enumerate(states[1:])})
        features = self.split(states[-1], attention_mask)
        return features._replace(hidden=tuple(states[1:])), taps

    def forward(
        self,
        input_ids: torch.Tensor,
        token_type_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        return_taps: bool = False,
    ) -> Logits | tuple[Logits, Taps]:
        """Scores of a batch.

        Args:
            input_ids: Token ids (B, S).
            token_type_ids: Segment ids (B, S); None = all 0.
            attention_mask: (B, S), 1 = valid; None = all valid.
            return_taps: Whether to return the intermediate results by name as well.

        Returns:
            Logits (B, K), or with ``return_taps`` the pair (logits, taps). With the fusion
            "sum_loss" in train mode the logits are the pair (cls_logits, word_logits).

        Raises:
            ValueError: See ``encode``.
        """
        features, taps = self.encode(input_ids, token_type_ids, attention_mask)
        logits, head_taps = self.head(features)
        if not return_taps:
            return logits
        taps.update({f"head.{name}": tap for name, tap in head_taps.items() if name != "logits"})
        taps["logits"] = head_taps["logits"]
        return logits, taps

    def _check_inputs(
        self,
        input_ids: torch.Tensor,
        token_type_ids: torch.Tensor | None,
        attention_mask: torch.Tensor | None,
    ) -> None:
        limit = self.position_limit
        if input_ids.ndim != 2 or not 1 <= input_ids.shape[1] <= limit:
            raise ValueError(
                f"input_ids must have shape (B, S) with S from 1 to {limit}, got "
                f"{tuple(input_ids.shape)}; truncate the text or raise max_position_embeddings"
            )
        others = {"token_type_ids": token_type_ids, "attention_mask": attention_mask}
        for name, value in others.items():
            if value is not None and value.shape != input_ids.shape:
                raise ValueError(
                    f"{name} must have the shape of input_ids {tuple(input_ids.shape)}, "
                    f"got {tuple(value.shape)}"
                )


def build_text(
    kind: type[TextClassifier],
    num_classes: int,
    defaults: dict[str, object],
    overrides: dict[str, object],
) -> TextClassifier:
    """Build a model from flat keys.

    Args:
        kind: Class of the model.
        num_classes: Number K of scores.
        defaults: Keys of the model by its name.
        overrides: Keys of the caller.

    Raises:
        ValueError: Unknown override (the near ones are listed), or a value that does not fit.
    """
    encoder_keys = tuple(field.name for field in fields(kind.options))
    known = encoder_keys + HEAD_KEYS
    for name in overrides:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3) or sorted(known)
            raise ValueError(f"unknown override {name!r}; did you mean: {', '.join(near)}?")
    keys = {**defaults, **overrides}
    encoder = kind.options(**{name: keys[name] for name in encoder_keys if name in keys})
    head = HeadConfig(**{name: keys[name] for name in HEAD_KEYS if name in keys})
    return kind(encoder, head, num_classes)


LARGE = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}
"""Sizes of the large models."""
