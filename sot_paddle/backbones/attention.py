"""Attention kernels of "Convolutions and self-attention": pure functions, and their names.

A kernel adds a term to the scores ``A[i, j]`` of query i and key j. Relative positions reach k
tokens to each side; tokens further apart share the outermost weight, ``rho(i, j) =
clip(j - i, -k, k) + k``.

Shape legend: B samples, H heads, S tokens, d channels of a head, R = 2 k + 1 relative positions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import paddle

SPAN_REACH = 4
"""Tokens to each side that a span-based dynamic convolution sees."""
UNSEEN = -1e4
"""Added to the scores of tokens that must not be seen (REF: the original's constant)."""


def relative_places(length: int, reach: int) -> paddle.Tensor:
    """``rho(i, j)`` of every pair of S tokens, (S, S) int64 from 0 to 2 k, k the reach."""
    tokens = np.arange(length)
    return paddle.to_tensor(np.clip(tokens[None] - tokens[:, None], -reach, reach) + reach)


def _at(table: paddle.Tensor, places: paddle.Tensor) -> paddle.Tensor:
    """``table[..., i, places[i, j]]``: (B, H, S, R) and (S, S) to (B, H, S, S)."""
    index = places.expand([*table.shape[:2], *places.shape])
    return paddle.take_along_axis(table, index, 3)


def dot(query: paddle.Tensor, key: paddle.Tensor) -> paddle.Tensor:
    """``q_i . k_j / sqrt(d)``: queries and keys (B, H, S, d) to (B, H, S, S)."""
    return paddle.matmul(query, key, transpose_y=True) / math.sqrt(query.shape[-1])


def fixed(weight: paddle.Tensor, places: paddle.Tensor) -> paddle.Tensor:
    """``c[h, rho(i, j)]``, a convolution with the same weights everywhere; not scaled.

    Maps c (1, H, 1, R) and :func:`relative_places` (S, S) to (1, H, S, S).
    """
    return _at(weight, places)


def from_query(query: paddle.Tensor, weight: paddle.Tensor, places: paddle.Tensor) -> paddle.Tensor:
    """``q_i . P[:, rho(i, j)] / sqrt(d)``, a convolution whose weights the query makes.

    Maps q (B, H, S, d), P (d, R), which the heads share, and places (S, S) to (B, H, S, S).
    """
    return _at(paddle.matmul(query, weight), places) / math.sqrt(query.shape[-1])


def from_key(key: paddle.Tensor, weight: paddle.Tensor, places: paddle.Tensor) -> paddle.Tensor:
    """``k_j . M[:, rho(j, i)] / sqrt(d)``: the position is that of the query seen from the key.

    Maps k (B, H, S, d), M (d, R), which the heads share, and places (S, S) to (B, H, S, S).
    """
    return from_query(key, weight, places).transpose([0, 1, 3, 2])


def spans(weights: paddle.Tensor) -> paddle.Tensor:
    """Span-based dynamic convolution: weights that a token makes, placed around it.

    QUIRK: ``A[i, j]`` takes the weights made at the key j, entry ``j - i + 4``, not those of the
    query (specs.md E.1).

    Args:
        weights: (B, S, H, 9), from each token.

    Returns:
        (B, H, S, S), `UNSEEN` where the two are more than four tokens apart.
    """
    length = weights.shape[1]
    places = relative_places(length, SPAN_REACH).T  # [j, i]: clip(j - i) + 4, seen as (key, query)
    scores = _at(weights.transpose([0, 2, 1, 3]), places)  # (B, H, key, query)
    tokens = np.arange(length)
    far = np.abs(tokens[None] - tokens[:, None]) > SPAN_REACH
    mask = paddle.to_tensor(far)
    scores = paddle.where(mask, paddle.full([], UNSEEN, scores.dtype), scores)
    return scores.transpose([0, 1, 3, 2])


TERMS = ("qk", "convfixed", "convq", "convk")
"""Names in an ``attention_kernel``: :func:`dot`, :func:`fixed`, :func:`from_query` and
:func:`from_key`. All combinations work, also those that the public code cannot run (specs.md,
decision 6)."""


@dataclass(frozen=True)
class Kernel:
    """What an ``attention_kernel`` means."""

    terms: tuple[str, ...]  # names of `TERMS` that make the scores
    reach: int  # k of every relative position and of the convolution
    convolution: bool  # whether a convolution of the values is added to what attention gives
    scaled: bool  # whether a factor of each head on it is trained; else it is 1
    spans: bool  # whether half of the heads are span-based dynamic convolutions

    @property
    def needs(self) -> tuple[bool, bool]:
        """Whether queries and keys are used."""
        terms = set(self.terms)
        return not terms.isdisjoint({"qk", "convq"}), not terms.isdisjoint({"qk", "convk"})


def parse_kernel(text: str) -> Kernel:
    """Read an ``attention_kernel``, such as ``"qk_convq_convk 8"``.

    Args:
        text: names of `TERMS`, ``convolution`` or ``convolution_scaled`` joined by ``_``, then the
            reach; or ``dot_product``, or ``convbert``. Without a term of `TERMS` the scores are
            the plain dot product.

    Raises:
        ValueError: an unknown word, or a reach that is missing, no number, or not needed.

    Source: specs.md E.1.
    """
    words, numbers = _words(text)
    is_span, is_convolution = words == {"convbert"}, "convolution" in words
    allowed = {*TERMS, "dot", "product", "convolution", *(("scaled",) if is_convolution else ())}
    is_local = is_convolution or not words.isdisjoint(TERMS[1:])
    if not (is_span or words <= allowed) or len(numbers) != int(is_local):
        raise ValueError(
            f"attention_kernel: expected 'dot_product', 'convbert', or names of {', '.join(TERMS)} "
            "and convolution or convolution_scaled joined by '_', then, but for qk alone, the "
            f"tokens to each side from 1 on, as 'qk_convq_convk 8', got {text!r}"
        )
    terms = tuple(name for name in TERMS if name in words or (name == "qk" and "dot" in words))
    return Kernel(
        terms=terms or ("qk",),
        reach=numbers[0] if is_local else 0,
        convolution=is_convolution,
        scaled="scaled" in words,
        spans=is_span,
    )


@dataclass(frozen=True)
class Projection:
    """How queries, keys or values are made of the hidden states."""

    reach: int = 0  # k of the convolution, 0 for a linear layer
    groups: int = 1  # of the convolution, where it is not depthwise
    depth: bool = False  # a depthwise convolution, then a linear layer
    mixed: bool = False  # convolved for the first half of the heads, linear for the others
    activated: bool = True  # whether the activation stands between the two of ``depth``


def parse_projection(option: str, text: str) -> Projection:
    """Read a ``qk`` or ``value_forward``, such as ``"convolution_depth_mixed 4 1"``.

    Args:
        text: ``linear`` (queries and keys) or ``feedforward`` (values); or ``convolution``, words
            of ``depth``, ``mixed`` and ``no_act`` joined by ``_``, then reach and groups.

    Raises:
        ValueError: anything else.

    Source: specs.md E.2.
    """
    plain = "linear" if option == "qk" else "feedforward"
    if text == plain:
        return Projection()
    words, numbers = _words(text)
    is_known = words <= {"convolution", "depth", "mixed", "no", "act"} and "convolution" in words
    if not is_known or ("no" in words) != ("act" in words) or len(numbers) != 2:
        raise ValueError(
            f"{option}: expected {plain!r}, or 'convolution' with _depth, _mixed or _no_act, then "
            "the tokens to each side and the groups, both from 1 on, as 'convolution_depth 4 1', "
            f"got {text!r}"
        )
    reach, groups = numbers
    return Projection(reach, groups, "depth" in words, "mixed" in words, "no" not in words)


def _words(text: str) -> tuple[set[str], list[int]]:
    """The names of a text, and the whole numbers from 1 on that follow them; others are names."""
    first, *rest = text.split() or [""]
    numbers = [int(word) for word in rest if word.isascii() and word.isdigit() and int(word) > 0]
    return set(first.split("_")) | (set(rest) if len(numbers) < len(rest) else set()), numbers
