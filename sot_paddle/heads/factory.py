"""Turn the strings of a :class:`sot_paddle.config.HeadConfig` into a head, once."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping

from paddle import nn

from sot_paddle.config import (
    CLASS_TOKEN_POOLINGS,
    LAYERS,
    NORMALIZATIONS,
    SPANS,
    WORD_POOLINGS,
    HeadConfig,
)
from sot_paddle.heads import fusion, pooling, power_norm

TEXT_DROPOUT = 0.8
"""Dropout of the text release's head by default (its RTE setting)."""


def _svpn(dim: int, config: HeadConfig) -> nn.Layer:
    return power_norm.SvPN(
        dim,
        alpha=config.alpha,
        num_iter=config.num_iter,
        num_sv=config.num_sv,
        start=config.start,
        on_zero=config.resolved_on_zero,
    )


_NORMS: Mapping[str, Callable[[int, HeadConfig], nn.Layer]] = {
    "svpn": _svpn,
    "sqrt_d": lambda dim, config: power_norm.ScaleNorm(dim, learnable=False),
    "sqrt_t": lambda dim, config: power_norm.ScaleNorm(dim, learnable=True),
    "epn": lambda dim, config: power_norm.EntrywisePowerNorm(),
    "ln": lambda dim, config: power_norm.RowLayerNorm(dim),
    "none": lambda dim, config: nn.Identity(),
    "mpn": lambda dim, config: power_norm.MatrixSqrt(
        num_iter=config.mpn_iter, on_zero=config.resolved_on_zero
    ),
}


def _word_pooling(dim: int, config: HeadConfig) -> nn.Layer:
    """The pooling of a configuration, with its power norm."""

    def norm(columns: int) -> nn.Layer:
        name = config.normalization or NORMALIZATIONS[config.pooling][0]
        return _NORMS[name](columns, config)

    return getattr(pooling, WORD_POOLINGS[config.pooling]).from_config(dim, config, norm)


_FUSIONS: Mapping[str, Callable[..., nn.Layer]] = {
    "sum_fc": fusion.SumHead,
    "concat": fusion.ConcatHead,
    "aggre_all": fusion.AllTokensHead,
    "sum_loss": fusion.SumLossHead,
}

_CLASS_TOKEN_HEADS: Mapping[str, Callable[..., nn.Layer]] = {
    "pooler": fusion.PoolerHead,
    "two_layer": fusion.TwoLayerHead,
    "score": fusion.ScoreHead,
    "fc": fusion.ExpandedHead,
    "none": fusion.ClassTokenHead,
}


def build_head(
    config: HeadConfig,
    *,
    dim: int,
    num_classes: int,
    has_class_token: bool = True,
    pooler_dropout: float = 0.0,
    initializer_range: float = 0.02,
    num_layers: int = 0,
) -> nn.Layer:
    """Build a classification head: a Layer that maps Features of C channels to logits (B, K).

    Args:
        num_classes: K, at least 1 (1 is regression).
        pooler_dropout: dropout of a language model's own classifier (``pooler``, ``two_layer``)
            and of ``layers`` when ``head_dropout`` is None.
        initializer_range: standard deviation of the weights of such a classifier at the start.
        num_layers: layers whose outputs the features will carry, 0 where they carry none.

    Raises:
        ValueError: a combination that cannot work.

    Source: A.6, B.1, B.4.
    """
    if not isinstance(num_classes, int) or isinstance(num_classes, bool):
        raise ValueError(f"num_classes must be an integer, got {num_classes!r}")
    if num_classes < 1:
        raise ValueError(f"num_classes must be at least 1, got {num_classes}")
    has_own_head = config.pooling in (*CLASS_TOKEN_POOLINGS, SPANS, LAYERS)
    kind = "none" if config.fusion == "class_token" and not has_own_head else config.pooling
    defaults = dict.fromkeys(("pooler", "two_layer", LAYERS), pooler_dropout)
    dropout = {**defaults, "mgcrp_qk": TEXT_DROPOUT}.get(kind, 0.0)
    dropout = dropout if config.head_dropout is None else config.head_dropout
    args = {"dropout": dropout, "std": initializer_range}
    if kind == SPANS:
        return _span_head(config, dim, num_classes, has_class_token, args)
    if kind == LAYERS:
        return _layer_head(config, dim, num_classes, num_layers, args)
    if kind in CLASS_TOKEN_POOLINGS:
        return _class_token_head(kind, config, dim, num_classes, has_class_token, args)
    options = {"dropout": dropout, "mask_padding": config.mask_padding}
    if not has_class_token and config.fusion not in (None, "word_tokens", "aggre_all"):
        raise ValueError(
            f"fusion {config.fusion!r} needs a class token, and this backbone has none; "
            "use fusion 'word_tokens'"
        )
    tokens = _word_pooling(dim, config)
    if not has_class_token or config.fusion == "word_tokens":
        return fusion.WordHead(tokens, num_classes, **options)
    return _FUSIONS[config.fusion or "sum_fc"](tokens, num_classes, dim=dim, **options)


def _span_head(
    config: HeadConfig, dim: int, num_classes: int, has_class_token: bool, args: Mapping[str, float]
) -> nn.Layer:
    if not has_class_token or num_classes != 2 or config.fusion is not None:
        raise ValueError(
            f"pooling {SPANS!r} scores the start and the end of an answer: it needs a class token, "
            f"num_classes 2 and no fusion, got {num_classes} and {config.fusion!r}"
        )
    return fusion.SpanHead(dim, **args)


def _layer_head(
    config: HeadConfig, dim: int, num_classes: int, num_layers: int, args: Mapping[str, float]
) -> nn.Layer:
    if not num_layers or config.fusion is not None:
        raise ValueError(
            f"pooling {LAYERS!r} classifies the class token of a language model's layers: it needs "
            f"such a backbone and no fusion, got fusion {config.fusion!r}"
        )
    layers = config.layers or tuple(range(num_layers))
    if max(layers) >= num_layers:
        raise ValueError(
            f"layers must be numbers from 0 to {num_layers - 1} of this model, got {layers}"
        )
    return fusion.LayerTokensHead(
        dim, num_classes, layers=layers, pooling=config.layer_pooling, **args
    )


def _class_token_head(
    kind: str,
    config: HeadConfig,
    dim: int,
    num_classes: int,
    has_class_token: bool,
    args: Mapping[str, float],
) -> nn.Layer:
    ignores_fusion = config.pooling in CLASS_TOKEN_POOLINGS
    if not has_class_token:
        what = f"pooling {config.pooling!r}" if ignores_fusion else "fusion 'class_token'"
        raise ValueError(
            f"{what} uses the class token only, and this backbone has none; "
            f"use pooling {' or '.join(map(repr, WORD_POOLINGS))}"
        )
    if ignores_fusion and config.fusion is not None:
        warnings.warn(
            f"pooling {config.pooling!r} uses the class token only: fusion {config.fusion!r} "
            "is ignored",
            UserWarning,
            stacklevel=3,
        )
    accepted = args if kind in ("pooler", "two_layer", "score") else {"dropout": args["dropout"]}
    return _CLASS_TOKEN_HEADS[kind](dim, num_classes, **accepted)
