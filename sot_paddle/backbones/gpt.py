"""GPT-1 of OpenAI: a causal transformer whose normalisation follows each residual connection.

Shape legend: B samples, S tokens, C hidden size.
"""

from __future__ import annotations

import math

import paddle
from paddle import nn

from sot_paddle.backbones.families import GPT, GPT_ACTIVATIONS
from sot_paddle.backbones.layers import Attention, LayerNorm, embedding
from sot_paddle.backbones.text import ACTIVATION_FUNCTIONS, TextEncoder
from sot_paddle.config import EncoderConfig, require_one_of
from sot_paddle.features import Features, Taps, record
from sot_paddle.heads.pooling import linear

_FUTURE = -1e4
_ROOT = math.sqrt(2.0 / math.pi)


class GptMlp(nn.Layer):
    """Linear to 4 C, activation, linear back to C, dropout."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        dim, std = config.hidden_size, config.initializer_range
        self.fc1 = linear(dim, config.intermediate_size, std=std)
        self.fc2 = linear(config.intermediate_size, dim, std=std)
        self.activation = ACTIVATION_FUNCTIONS[config.hidden_act]
        self._by_tanh = config.hidden_act == "gelu_new"
        self.drop = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Map (B, S, C) to (B, S, C)."""
        return self.drop(self.fc2(self.activation(self.fc1(x))))

    def open_forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """What :meth:`forward` computes in evaluation, in an export.

        PADDLE: paddle2onnx translates gelu's approximation by tanh as gelu itself.
        """
        x = self.fc1(x)
        if self._by_tanh:
            x = 0.5 * x * (1.0 + paddle.tanh(_ROOT * (x + 0.044715 * x * x * x)))
        else:
            x = self.activation(x)
        return self.fc2(x)


class GptBlock(nn.Layer):
    """``n = LN(x + attention(x))``, then ``LN(n + MLP(n))``."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        dim, epsilon = config.hidden_size, config.layer_norm_eps
        self.attn = Attention(
            dim,
            config.num_attention_heads,
            qkv_bias=True,
            attn_drop=config.attention_probs_dropout_prob,
            proj_drop=config.hidden_dropout_prob,
            std=config.initializer_range,
        )
        self.norm1 = LayerNorm(dim, epsilon=epsilon)
        self.mlp = GptMlp(config)
        self.norm2 = LayerNorm(dim, epsilon=epsilon)

    def forward(self, x: paddle.Tensor, bias: paddle.Tensor) -> paddle.Tensor:
        """Map (B, S, C) to (B, S, C); ``bias`` as in Attention."""
        x = self.norm1(x + self.attn(x, bias))
        return self.norm2(x + self.mlp(x))


class GptEncoder(TextEncoder):
    """GPT-1 without a head, equal to transformers' OpenAIGPTModel.

    The class token is the last valid one of each row, which is padded on the right; the words are
    the others in order, padding included. Token types are zeros, or None.

    Raises:
        ValueError: feed-forward layers of another width than four times C, an activation that
            transformers' model cannot have, or several token types.

    Source: decision 8 of the specification for the tokens.
    """

    unread_inputs = ("token_type_ids",)
    """What it takes and does not look at: no input of an export."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        activations = sorted(set(GPT_ACTIVATIONS.values()))
        require_one_of("hidden_act of a GPT", config.hidden_act, activations)
        width = GPT.inner_factor * config.hidden_size
        if config.intermediate_size != width or config.type_vocab_size != 1:
            raise ValueError(
                f"a GPT has intermediate_size {GPT.inner_factor} * hidden_size = {width} and "
                f"type_vocab_size 1, got {config.intermediate_size} and {config.type_vocab_size}"
            )
        dim, std = config.hidden_size, config.initializer_range
        self.word_embeddings = embedding(config.vocab_size, dim, std)
        self.position_embeddings = embedding(config.max_position_embeddings, dim, std)
        self.drop = nn.Dropout(config.hidden_dropout_prob)
        self.layers = nn.LayerList(GptBlock(config) for _ in range(config.num_hidden_layers))
        self.settle(config, positions=config.max_position_embeddings)

    def _encode(
        self,
        ids: paddle.Tensor,
        types: paddle.Tensor | None,
        mask: paddle.Tensor | None,
        taps: Taps | None,
    ) -> Features:
        ones = paddle.ones_like(ids, dtype="int64")
        places = paddle.cumsum(ones, axis=1) - 1  # (B, S), also of an open length
        positions = self.position_embeddings
        is_open = not paddle.in_dynamic_mode()
        placed = positions(places) if is_open else positions.weight[: ids.shape[1]]
        hidden = record(taps, "embeddings", self.drop(self.word_embeddings(ids) + placed))
        bias = _bias(places, mask, hidden.dtype)
        for index, layer in enumerate(self.layers):
            hidden = record(taps, f"layers.{index}", layer(hidden, bias))
        return _split(hidden, places, mask)


def _bias(places: paddle.Tensor, mask: paddle.Tensor | None, dtype: paddle.dtype) -> paddle.Tensor:
    """What is added to the scores, (1, B, S, S), of the places and the mask of tokens, (B, S) each.

    REF: transformers replaces the scores of the future by -1e4 and adds the dtype's minimum at
    padding. Of a row that is padding from its first token on, all scores are then that minimum,
    and the row, which says nothing, hands its gradient to the scores of the future too.
    """
    is_later = (places.unsqueeze(1) > places.unsqueeze(2)).astype(dtype)  # (B, S, S)
    bias = is_later.unsqueeze(0) * _FUTURE
    if mask is None:
        return bias
    padding = 1.0 - mask.astype(dtype).unsqueeze([0, 2])  # (1, B, 1, S)
    return bias + padding * paddle.finfo(dtype).min


def _split(hidden: paddle.Tensor, places: paddle.Tensor, mask: paddle.Tensor | None) -> Features:
    """Hidden states (B, S, C) as class token, words and their mask."""
    if mask is None:
        return Features(hidden[:, -1], hidden[:, :-1])
    valid = mask.astype("int64")
    last = (places * valid).max(axis=1, keepdim=True)  # (B, 1), 0 for a row without a valid token
    is_last = (places == last).astype(hidden.dtype).unsqueeze(2)
    before = places[:, :-1] < last  # (B, S - 1)
    words = paddle.where(before.unsqueeze(2), hidden[:, :-1], hidden[:, 1:])  # (B, S - 1, C)
    words_mask = paddle.where(before, valid[:, :-1], valid[:, 1:]).astype("bool")
    return Features((hidden * is_last).sum(axis=1), words, words_mask)
