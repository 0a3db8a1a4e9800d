"""BERT with convolutions in its attention, with a composed head.

Legend: B batch, S tokens, C hidden size, E embedding size, H heads, D channels of a head, k tokens
to each side, R = 2 k + 1.

Source: specs E.1 and E.2.
"""

from dataclasses import dataclass

import torch
from torch import nn

from sot_torch_ref.backbones.text import EncoderConfig, TextClassifier, build_text

NEVER = -10000.0
"""Added to a score that must not count."""
SPAN = 4
"""Tokens to each side of the span-based convolution."""
RELATIVE = ("convfixed", "convq", "convk")


@dataclass(frozen=True)
class ConvEncoderConfig(EncoderConfig):
    """Encoder keys; see specs E for the texts.

    Attributes:
        embedding_size: E.
        attention_kernel: "dot_product", "convbert", or terms joined by "_" and k.
        attention_head_size: D; -1 = C / H.
        qk: "linear", or "convolution..." with k and groups.
        value_forward: "feedforward", or "convolution..." with k and groups.
        remove_qk: Queries and keys are the hidden states.
        remove_position_embeddings: No absolute positions.
    """

    embedding_size: int = 128
    attention_kernel: str = "dot_product"
    attention_head_size: int = -1
    qk: str = "linear"
    value_forward: str = "feedforward"
    remove_qk: bool = False
    remove_position_embeddings: bool = False

    @property
    def head_size(self) -> int:
        """D."""
        if self.attention_head_size > 0:
            return self.attention_head_size
        return self.hidden_size // self.num_attention_heads

    @property
    def all_heads(self) -> int:
        """H D."""
        return self.head_size * self.num_attention_heads


def activation_of(config: EncoderConfig) -> nn.Module:
    """The activation by transformers' name."""
    from transformers.activations import ACT2FN  # here: it takes seconds to import

    return ACT2FN[config.hidden_act]


class Projection(nn.Module):
    """Queries, keys or values.

    Args:
        config: Sizes.
        text: "linear" or "feedforward", or "convolution[_depth][_mixed][_no_act] k g".
        width: Channels that come out.
    """

    def __init__(self, config: ConvEncoderConfig, text: str, width: int) -> None:
        super().__init__()
        kind, *numbers = text.split()
        self.convolved = kind.startswith("convolution")
        self.mixed, self.depth = "mixed" in kind, "depth" in kind
        if not self.convolved:
            self.linear = nn.Linear(config.hidden_size, width)
            return
        reach, groups = (int(number) for number in numbers)
        share = width // 2 if self.mixed else width
        size = {"kernel_size": 2 * reach + 1, "padding": reach}
        if self.depth:
            channels = config.hidden_size
            self.conv = nn.Conv1d(channels, config.all_heads, groups=channels, **size)
            self.activation = nn.Identity() if "no_act" in kind else activation_of(config)
            self.pointwise = nn.Linear(config.all_heads, share)
        else:
            self.conv = nn.Conv1d(config.hidden_size, share, groups=groups, **size)
        if self.mixed:
            self.linear = nn.Linear(config.hidden_size, width - share)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Map (B, S, C) to (B, S, width)."""
        if not self.convolved:
            return self.linear(hidden)
        out = self.conv(hidden.transpose(1, 2)).transpose(1, 2)
        if self.depth:
            out = self.pointwise(self.activation(out))
        return torch.cat((out, self.linear(hidden)), dim=2) if self.mixed else out


class Spans(nn.Module):
    """Half of the heads of the kernel "convbert".

    Args:
        config: Sizes.
    """

    def __init__(self, config: ConvEncoderConfig) -> None:
        super().__init__()
        channels, half = config.hidden_size, config.all_heads // 2
        width = 2 * SPAN + 1
        self.heads = config.num_attention_heads // 2
        self.conv = nn.Conv1d(channels, channels, width, padding=SPAN, groups=channels)
        self.pointwise = nn.Linear(channels, half)
        self.kernel = nn.Linear(half, self.heads * width)

    def forward(self, hidden: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
        """Scores (B, H / 2, S, S); the weights are those made at the key's position."""
        key = self.pointwise(self.conv(hidden.transpose(1, 2)).transpose(1, 2))
        samples, length = hidden.shape[:2]
        weights = self.kernel(key * query).view(samples, length, self.heads, 2 * SPAN + 1)
        scores = hidden.new_full((samples, self.heads, length, length), NEVER)
        for i in range(length):
            for j in range(max(0, i - SPAN), min(length, i + SPAN + 1)):
                scores[:, :, i, j] = weights[:, j, :, j - i + SPAN]
        return scores


class SelfAttention(nn.Module):
    """Attention with the terms that its kernel names.

    Args:
        config: Sizes and kernel.
    """

    def __init__(self, config: ConvEncoderConfig) -> None:
        super().__init__()
        names, *numbers = config.attention_kernel.split()
        words = names.split("_")
        self.relative = [word for word in RELATIVE if word in words]
        self.spans = "convbert" in words
        self.dotted = "qk" in words or "dot" in words or not self.relative
        self.heads, self.size = config.num_attention_heads, config.head_size
        self.zeroes = self.spans or "conv" in config.qk or "conv" in config.value_forward
        self.reach = int(numbers[0]) if numbers else 0
        width = config.all_heads // 2 if self.spans else config.all_heads
        if not config.remove_qk:
            if self.dotted or "convq" in words:
                self.query = Projection(config, config.qk, width)
            if self.dotted or "convk" in words:
                self.key = Projection(config, config.qk, width)
        self.value = Projection(config, config.value_forward, config.all_heads)
        count = 2 * self.reach + 1
        shapes = {"convfixed": (1, self.heads, 1, count)}
        for name in self.relative:
            start = torch.empty(shapes.get(name, (self.size, count)))
            if name == "convfixed":
                nn.init.zeros_(start)
            else:
                nn.init.kaiming_uniform_(start, a=5**0.5)
            setattr(self, name, nn.Parameter(start))
        if self.spans:
            self.span = Spans(config)
        self.convolved = "convolution" in words
        if self.convolved:
            channels = config.all_heads
            self.convolution = nn.Conv1d(
                channels, channels, count, padding=self.reach, groups=channels
            )
            self.factor = nn.Parameter(torch.ones(self.heads), requires_grad="scaled" in words)
        self.drop = nn.Dropout(config.attention_probs_dropout_prob)
        self.out = nn.Linear(config.all_heads, config.hidden_size)

    def split(self, states: torch.Tensor) -> torch.Tensor:
        """(B, S, h D) as (B, h, S, D)."""
        return states.unflatten(2, (-1, self.size)).transpose(1, 2)

    def forward(self, hidden: torch.Tensor, valid: torch.Tensor | None) -> torch.Tensor:
        """Map (B, S, C) to (B, S, C).

        Args:
            hidden: (B, S, C).
            valid: (B, S), 1 = valid, or None.
        """
        if self.zeroes and valid is not None:
            hidden = hidden * valid[:, :, None]
        query = self.query(hidden) if hasattr(self, "query") else hidden
        key = self.key(hidden) if hasattr(self, "key") else hidden
        value = self.value(hidden)
        scores = self.scores(query, key)
        if self.spans:
            scores = torch.cat((scores, self.span(hidden, query)), dim=1)
        if valid is not None:
            scores = scores + (1.0 - valid[:, None, None, :]) * NEVER
        context = self.drop(scores.softmax(dim=3)) @ self.split(value)  # (B, H, S, D)
        if self.convolved:
            kept = value if valid is None else value * valid[:, :, None]
            local = self.split(self.convolution(kept.transpose(1, 2)).transpose(1, 2))
            context = context + self.factor.view(1, -1, 1, 1) * local
        return self.out(context.transpose(1, 2).flatten(2))

    def scores(self, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        """Sum of the terms, (B, H, S, S)."""
        q, k = self.split(query), self.split(key)
        place = torch.arange(q.shape[2])
        seen = (place[None, :] - place[:, None]).clamp(-self.reach, self.reach) + self.reach
        scale, total = self.size**0.5, 0.0
        if self.dotted:
            total = q @ k.transpose(2, 3) / scale
        if "convfixed" in self.relative:
            total = total + self.convfixed[:, :, 0, :][:, :, seen]
        if "convq" in self.relative:
            total = total + torch.einsum("bhid,dij->bhij", q, self.convq[:, seen]) / scale
        if "convk" in self.relative:
            total = total + torch.einsum("bhjd,dji->bhij", k, self.convk[:, seen]) / scale
        return total


class Block(nn.Module):
    """Attention and feed-forward layers, each with a residual connection and a layer norm after it.

    Args:
        config: Sizes and kernel.
    """

    def __init__(self, config: ConvEncoderConfig) -> None:
        super().__init__()
        self.self_attn = SelfAttention(config)
        self.attention_LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.linear1 = nn.Linear(config.hidden_size, config.intermediate_size)
        self.activation = activation_of(config)
        self.linear2 = nn.Linear(config.intermediate_size, config.hidden_size)
        self.output_LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.drop = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, hidden: torch.Tensor, valid: torch.Tensor | None) -> torch.Tensor:
        """Map (B, S, C) to (B, S, C)."""
        hidden = self.attention_LayerNorm(hidden + self.drop(self.self_attn(hidden, valid)))
        return self.output_LayerNorm(
            hidden + self.drop(self.linear2(self.activation(self.linear1(hidden))))
        )


class Embeddings(nn.Module):
    """Words, types and positions.

    Args:
        config: Sizes.
    """

    def __init__(self, config: ConvEncoderConfig) -> None:
        super().__init__()
        size = config.embedding_size
        self.word_embeddings = nn.Embedding(config.vocab_size, size, config.pad_token_id)
        if not config.remove_position_embeddings:
            self.position_embeddings = nn.Embedding(config.max_position_embeddings, size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, size)
        self.LayerNorm = nn.LayerNorm(size, eps=config.layer_norm_eps)
        self.drop = nn.Dropout(config.hidden_dropout_prob)
        if size != config.hidden_size:
            self.projection = nn.Linear(size, config.hidden_size)

    def forward(self, ids: torch.Tensor, types: torch.Tensor | None) -> torch.Tensor:
        """Map (B, S) to (B, S, C)."""
        types = torch.zeros_like(ids) if types is None else types
        total = self.word_embeddings(ids) + self.token_type_embeddings(types)
        if hasattr(self, "position_embeddings"):
            total = total + self.position_embeddings(torch.arange(ids.shape[1]))
        total = self.drop(self.LayerNorm(total))
        return self.projection(total) if hasattr(self, "projection") else total


class ConvBertEncoder(nn.Module):
    """Embeddings and blocks.

    Args:
        config: Sizes and kernel.
    """

    def __init__(self, config: ConvEncoderConfig) -> None:
        super().__init__()
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.num_hidden_layers))
        for module in self.modules():  # convolutions keep torch's own start
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, 0.0, config.initializer_range)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def forward(
        self, ids: torch.Tensor, types: torch.Tensor | None, valid: torch.Tensor | None
    ) -> tuple[torch.Tensor, ...]:
        """The embedding output, then one state (B, S, C) for each block."""
        states = [self.embeddings(ids, types)]
        if valid is not None:
            valid = valid.to(states[0].dtype)
        for layer in self.layers:
            states.append(layer(states[-1], valid))
        return tuple(states)


class ConvBertClassifier(TextClassifier):
    """Encoder and head.

    Attributes:
        conv_bert: The encoder.
    """

    options = ConvEncoderConfig
    prefix = "conv_bert"

    @staticmethod
    def build_encoder(config: ConvEncoderConfig) -> nn.Module:
        """The encoder of these sizes."""
        return ConvBertEncoder(config)

    def call_encoder(
        self, input_ids: torch.Tensor, token_type_ids: torch.Tensor | None, valid: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """Hidden states of the encoder."""
        return self.conv_bert(input_ids, token_type_ids, valid)


def build_conv_bert(name: str, num_classes: int = 2, **overrides: object) -> nn.Module:
    """The model by name; see ``registry.create_model``.

    Args:
        name: Ends in ``_mgcrp`` for the second-order head of the text release; BERT's pooler head
            otherwise.
        num_classes: Number K of scores.
        **overrides: Encoder and head keys.
    """
    keys = {
        "pooling": "mgcrp_qk" if name.endswith("_mgcrp") else "pooler",
        "vocab_size": 30004,
        "max_position_embeddings": 128,
        "pad_token_id": 30002,
    }
    return build_text(ConvBertClassifier, num_classes, keys, overrides)
