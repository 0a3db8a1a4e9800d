"""BERT with convolutions in its attention ("Convolutions and self-attention").

Not the ConvBERT of paddlenlp and transformers, whose span-based convolution is one of its kernels.

Shape legend: B samples, S tokens, C hidden size, E size of the embeddings, H heads, d channels of
a head, R = 2 k + 1 relative positions.
"""

from __future__ import annotations

import functools
import math
import operator

import paddle
from paddle import nn

from sot_paddle import options
from sot_paddle.backbones.attention import (
    SPAN_REACH,
    UNSEEN,
    Kernel,
    Projection,
    dot,
    fixed,
    from_key,
    from_query,
    parse_kernel,
    parse_projection,
    relative_places,
    spans,
)
from sot_paddle.backbones.layers import LayerNorm, embedding
from sot_paddle.backbones.text import ACTIVATION_FUNCTIONS, TextEncoder
from sot_paddle.config import EncoderConfig, require_positive
from sot_paddle.features import Features, Taps, record
from sot_paddle.heads.pooling import linear


@options.record
class ConvEncoderConfig(EncoderConfig):
    """Options of the encoder, under the original's names. Source: specs.md E."""

    embedding_size: int = options.option(128, "E; a linear layer follows where it is not C", low=1)
    attention_kernel: str = options.option("dot_product", "see `attention.parse_kernel`")
    attention_head_size: int = options.option(-1, "d; -1: C / H", low=-1)
    qk: str = options.option("linear", "of queries and keys, see `attention.parse_projection`")
    value_forward: str = options.option("feedforward", "of values, the same")
    remove_qk: bool = options.option(False, "queries and keys are the hidden states themselves")
    remove_position_embeddings: bool = options.option(False, "tokens without absolute positions")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.attention_head_size != -1:
            require_positive("attention_head_size", self.attention_head_size)
        kernel, qk, value = self.kernel, self.qk_projection, self.value_projection
        if self.remove_qk and self.width != self.hidden_size:
            raise ValueError(
                f"remove_qk needs heads that fill hidden_size, {self.hidden_size}, got "
                f"{self.num_attention_heads} x {self.head_size}"
            )
        if self.remove_qk and qk.reach:
            raise ValueError(f"remove_qk leaves no queries and keys for qk {self.qk!r}: drop one")
        if kernel.spans and (self.remove_qk or qk.reach):
            raise ValueError("attention_kernel convbert makes queries and keys of its own: drop qk")
        halved = kernel.spans or qk.mixed or value.mixed
        if halved and self.num_attention_heads % 2:
            raise ValueError(
                "convbert and mixed projections halve the heads: num_attention_heads must be "
                f"even, got {self.num_attention_heads}"
            )

    @property
    def head_size(self) -> int:
        """d."""
        size = self.attention_head_size
        return self.hidden_size // self.num_attention_heads if size == -1 else size

    @property
    def width(self) -> int:
        """H d, channels of all heads."""
        return self.num_attention_heads * self.head_size

    @property
    def kernel(self) -> Kernel:
        """What the scores are made of."""
        return parse_kernel(self.attention_kernel)

    @property
    def qk_projection(self) -> Projection:
        """How queries and keys are made."""
        return parse_projection("qk", self.qk)

    @property
    def value_projection(self) -> Projection:
        """How values are made."""
        return parse_projection("value_forward", self.value_forward)


def conv1d(in_dim: int, out_dim: int, reach: int, groups: int) -> nn.Conv1D:
    """Convolution over (B, S, C), ``reach`` tokens to each side, torch's initialisation, S kept."""
    if in_dim % groups or out_dim % groups:
        raise ValueError(
            f"qk or value_forward: {groups} groups must divide {in_dim} and {out_dim} channels"
        )
    width = 2 * reach + 1
    bound = 1.0 / math.sqrt(in_dim // groups * width)
    uniform = paddle.ParamAttr(initializer=nn.initializer.Uniform(-bound, bound))
    return nn.Conv1D(
        in_dim,
        out_dim,
        width,
        padding=reach,
        groups=groups,
        weight_attr=uniform,
        bias_attr=uniform,
        data_format="NLC",
    )


class TokenProjection(nn.Layer):
    """Queries, keys or values of the hidden states, with ``width`` channels."""

    def __init__(self, config: ConvEncoderConfig, projection: Projection, width: int) -> None:
        super().__init__()
        self.projection = projection
        dim, std = config.hidden_size, config.initializer_range
        convolved = 0
        if projection.reach:
            convolved = width // 2 if projection.mixed else width
            if projection.depth:
                self.conv = conv1d(dim, config.width, projection.reach, dim)
                self.pointwise = linear(config.width, convolved, std=std)
                self.activation = ACTIVATION_FUNCTIONS[config.hidden_act]
            else:
                self.conv = conv1d(dim, convolved, projection.reach, projection.groups)
        if convolved < width:
            self.linear = linear(dim, width - convolved, std=std)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Map (B, S, C) to (B, S, width); what is convolved comes first."""
        projection = self.projection
        if not projection.reach:
            return self.linear(x)
        local = self.conv(x)
        if projection.depth:
            local = self.pointwise(self.activation(local) if projection.activated else local)
        return paddle.concat([local, self.linear(x)], axis=-1) if projection.mixed else local


class SpanScores(nn.Layer):
    """Scores of the heads that are span-based dynamic convolutions."""

    def __init__(self, config: ConvEncoderConfig) -> None:
        super().__init__()
        self.heads = config.num_attention_heads // 2
        dim, half, std = config.hidden_size, config.width // 2, config.initializer_range
        self.conv = conv1d(dim, dim, SPAN_REACH, dim)
        self.pointwise = linear(dim, half, std=std)
        self.kernel = linear(half, self.heads * (2 * SPAN_REACH + 1), std=std)

    def forward(self, x: paddle.Tensor, query: paddle.Tensor) -> paddle.Tensor:
        """Map hidden states (B, S, C) and queries (B, S, H d / 2) to (B, H / 2, S, S)."""
        weights = self.kernel(self.pointwise(self.conv(x)) * query)
        return spans(weights.reshape([*x.shape[:2], self.heads, -1]))


class ConvAttention(nn.Layer):
    """Attention whose scores are a sum of terms, and whose projections may be convolutions.

    Source: specs.md E.1 and E.2.
    """

    def __init__(self, config: ConvEncoderConfig) -> None:
        super().__init__()
        kernel = config.kernel
        self.kernel, self.num_heads = kernel, config.num_attention_heads
        self.head_size = config.head_size
        width, std = config.width, config.initializer_range
        local = config.qk_projection.reach or config.value_projection.reach or kernel.spans
        self.hides_padding = bool(local)
        inner = width // 2 if kernel.spans else width
        for name, needed in zip(("query", "key"), kernel.needs, strict=True):
            if needed and not config.remove_qk:
                self.add_sublayer(name, TokenProjection(config, config.qk_projection, inner))
        self.value = TokenProjection(config, config.value_projection, width)
        reach = 2 * kernel.reach + 1
        bound = 1.0 / math.sqrt(reach)
        uniform = nn.initializer.Uniform(-bound, bound)
        for name in kernel.terms:
            if name == "convfixed":
                zero, shape = nn.initializer.Constant(0.0), [1, self.num_heads, 1, reach]
                self.convfixed = self.create_parameter(shape, default_initializer=zero)
            elif name != "qk":
                weight = self.create_parameter([self.head_size, reach], default_initializer=uniform)
                self.add_parameter(name, weight)
        if kernel.spans:
            self.span = SpanScores(config)
        if kernel.convolution:
            self.convolution = conv1d(width, width, kernel.reach, width)
            ones = nn.initializer.Constant(1.0)
            self.factor = self.create_parameter([self.num_heads], default_initializer=ones)
            self.factor.stop_gradient = not kernel.scaled
        self.drop = nn.Dropout(config.attention_probs_dropout_prob)
        self.out = linear(width, config.hidden_size, std=std)

    def forward(
        self, x: paddle.Tensor, bias: paddle.Tensor | None, valid: paddle.Tensor | None
    ) -> paddle.Tensor:
        """Attend among the tokens of (B, S, C); same shape.

        Args:
            bias: (B, 1, 1, S) added to the scores, or None.
            valid: (B, S, 1), 1 where valid and 0 where not, or None.
        """
        if self.hides_padding and valid is not None:
            x = x * valid
        projected = {
            name: getattr(self, name)(x) if hasattr(self, name) else x for name in ("query", "key")
        }
        value = self.value(x)  # (B, S, H d)
        scores = self._scores(x, projected["query"], projected["key"])
        if bias is not None:
            scores = scores + bias
        weights = self.drop(nn.functional.softmax(scores, axis=-1))
        context = paddle.matmul(weights, self._heads(value)).transpose([0, 2, 1, 3])  # (B, S, H, d)
        if self.kernel.convolution:
            seen = value if valid is None else value * valid
            local = self.convolution(seen).reshape(context.shape)
            context = context + local * self.factor.unsqueeze(1)
        return self.out(context.reshape(value.shape))

    def _heads(self, x: paddle.Tensor) -> paddle.Tensor:
        """(B, S, h d) as (B, h, S, d)."""
        return x.reshape([*x.shape[:2], -1, self.head_size]).transpose([0, 2, 1, 3])

    def _scores(self, x: paddle.Tensor, query: paddle.Tensor, key: paddle.Tensor) -> paddle.Tensor:
        """(B, H, S, S), or (1, H, S, S) where nothing depends on the sample."""
        queries, keys = self._heads(query), self._heads(key)
        places = relative_places(x.shape[1], self.kernel.reach)
        makers = {
            "qk": lambda: dot(queries, keys),
            "convfixed": lambda: fixed(self.convfixed, places),
            "convq": lambda: from_query(queries, self.convq, places),
            "convk": lambda: from_key(keys, self.convk, places),
        }
        total = functools.reduce(operator.add, (makers[name]() for name in self.kernel.terms))
        if self.kernel.spans:
            return paddle.concat([total, self.span(x, query)], axis=1)
        return total


class ConvBertLayer(nn.Layer):
    """``n = LN(x + attention(x))``, then ``LN(n + MLP(n))``."""

    def __init__(self, config: ConvEncoderConfig) -> None:
        super().__init__()
        dim, std = config.hidden_size, config.initializer_range
        self.self_attn = ConvAttention(config)
        self.norm1 = LayerNorm(dim, epsilon=config.layer_norm_eps)
        self.linear1 = linear(dim, config.intermediate_size, std=std)
        self.linear2 = linear(config.intermediate_size, dim, std=std)
        self.norm2 = LayerNorm(dim, epsilon=config.layer_norm_eps)
        self.activation = ACTIVATION_FUNCTIONS[config.hidden_act]
        self.drop = nn.Dropout(config.hidden_dropout_prob)

    def forward(
        self, x: paddle.Tensor, bias: paddle.Tensor | None, valid: paddle.Tensor | None
    ) -> paddle.Tensor:
        """Map (B, S, C) to (B, S, C); the others as in ConvAttention."""
        x = self.norm1(x + self.drop(self.self_attn(x, bias, valid)))
        inner = self.linear2(self.activation(self.linear1(x)))
        return self.norm2(x + self.drop(inner))


class ConvBertEmbeddings(nn.Layer):
    """Words, types and positions, layer norm, dropout, and a linear layer from E to C."""

    def __init__(self, config: ConvEncoderConfig) -> None:
        super().__init__()
        size, std = config.embedding_size, config.initializer_range
        self.word_embeddings = embedding(config.vocab_size, size, std)
        if not config.remove_position_embeddings:
            self.position_embeddings = embedding(config.max_position_embeddings, size, std)
        self.token_type_embeddings = embedding(config.type_vocab_size, size, std)
        self.layer_norm = LayerNorm(size, epsilon=config.layer_norm_eps)
        self.drop = nn.Dropout(config.hidden_dropout_prob)
        self.has_positions = not config.remove_position_embeddings
        self.widened = size != config.hidden_size
        if self.widened:
            self.projection = linear(size, config.hidden_size, std=std)

    def forward(self, ids: paddle.Tensor, types: paddle.Tensor | None) -> paddle.Tensor:
        """Map ids (B, S) and types (B, S) or None to (B, S, C)."""
        types = paddle.zeros_like(ids) if types is None else types
        total = self.word_embeddings(ids) + self.token_type_embeddings(types)  # (B, S, E)
        if self.has_positions:
            total = total + self.position_embeddings.weight[: ids.shape[1]]
        total = self.drop(self.layer_norm(total))
        return self.projection(total) if self.widened else total


class ConvBertEncoder(TextEncoder):
    """The encoder without a head; the class token is the first one.

    Rows may be shorter than ``max_position_embeddings`` (the public code needs that very length).
    Without position embeddings nothing has that size, and it may be any number.

    Raises:
        ValueError: kernels that do not fit the dimensions.

    Source: specs.md E.1 and E.2.
    """

    def __init__(self, config: ConvEncoderConfig) -> None:
        super().__init__()
        self.embeddings = ConvBertEmbeddings(config)
        self.layers = nn.LayerList(ConvBertLayer(config) for _ in range(config.num_hidden_layers))
        self.settle(
            config,
            positions=config.max_position_embeddings,
            padded=[self.embeddings.word_embeddings],
        )

    def _encode(
        self,
        ids: paddle.Tensor,
        types: paddle.Tensor | None,
        mask: paddle.Tensor | None,
        taps: Taps | None,
    ) -> Features:
        hidden = record(taps, "embeddings", self.embeddings(ids, types))
        bias = valid = words_mask = None
        if mask is not None:
            valid = mask.astype(hidden.dtype).unsqueeze(2)  # (B, S, 1)
            bias = (1.0 - valid).transpose([0, 2, 1]).unsqueeze(1) * UNSEEN  # (B, 1, 1, S)
            words_mask = mask[:, 1:].astype("bool")
        for index, layer in enumerate(self.layers):
            hidden = record(taps, f"layers.{index}", layer(hidden, bias, valid))
        return Features(hidden[:, 0], hidden[:, 1:], words_mask)
