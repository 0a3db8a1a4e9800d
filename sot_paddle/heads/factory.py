"""Turn the strings of a :class:`sot_paddle.config.HeadConfig` into a head, once."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from paddle import nn

from sot_paddle.config import (
    LAYERS,
    NORMALIZATIONS,
    OWN_CLASSIFIERS,
    SPANS,
    WORD_POOLINGS,
    HeadConfig,
    pooling_as_typed,
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


def word_pooling(dim: int, config: HeadConfig) -> nn.Layer:
    """The pooling of a configuration, with its power norm."""

    def norm(columns: int) -> nn.Layer:
        name = config.normalization or NORMALIZATIONS[config.pooling][0]
        return _NORMS[name](columns, config)

    return getattr(pooling, WORD_POOLINGS[config.pooling])(dim, config, norm)


_FUSIONS: Mapping[str, Callable[..., nn.Layer]] = {
    "sum_fc": fusion.SumHead,
    "concat": fusion.ConcatHead,
    "aggre_all": fusion.AllTokensHead,
    "sum_loss": fusion.SumLossHead,
    "word_tokens": fusion.WordHead,
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
    pools_words = config.pooling in WORD_POOLINGS
    if not pools_words and config.fusion is not None:
        typed = pooling_as_typed(config.pooling)
        raise ValueError(f"{typed} pools no words: leave fusion out, got {config.fusion!r}")
    kind = "none" if config.fusion == "class_token" else config.pooling
    if not has_class_token and kind not in WORD_POOLINGS:
        what = "fusion 'class_token'" if pools_words else f"pooling {kind!r}"
        raise ValueError(
            f"{what} needs the class token, and this backbone has none; "
            f"use pooling {' or '.join(map(repr, WORD_POOLINGS))}"
        )
    defaults = dict.fromkeys(("pooler", "two_layer", LAYERS), pooler_dropout)
    dropout = {**defaults, "mgcrp_qk": TEXT_DROPOUT}.get(kind, 0.0)
    dropout = dropout if config.head_dropout is None else config.head_dropout
    if kind in _CLASS_TOKEN_HEADS:
        starts = {"std": initializer_range} if kind in OWN_CLASSIFIERS else {}
        return _CLASS_TOKEN_HEADS[kind](dim, num_classes, dropout=dropout, **starts)
    if kind == SPANS:
        if num_classes != 2:
            raise ValueError(
                f"pooling {SPANS!r} scores the start and the end of an answer: it needs "
                f"num_classes 2, got {num_classes}"
            )
        return fusion.SpanHead(dim, dropout=dropout, std=initializer_range)
    if kind == LAYERS:
        return fusion.LayerTokensHead(
            dim,
            num_classes,
            layers=_layers_of(config, num_layers),
            pooling=config.layer_pooling,
            dropout=dropout,
            std=initializer_range,
        )
    if not has_class_token and config.fusion not in (None, "word_tokens", "aggre_all"):
        raise ValueError(
            f"fusion {config.fusion!r} needs a class token, and this backbone has none; "
            "use fusion 'word_tokens'"
        )
    fused = "word_tokens" if not has_class_token else config.fusion or "sum_fc"
    return _FUSIONS[fused](
        word_pooling(dim, config),
        num_classes,
        dim=dim,
        dropout=dropout,
        mask_padding=config.mask_padding,
    )


def _layers_of(config: HeadConfig, num_layers: int) -> tuple[int, ...]:
    """Numbers of the layers whose class tokens are classified, of so many."""
    if not num_layers:
        raise ValueError(
            f"pooling {LAYERS!r} classifies the class token of a language model's layers: it needs "
            "such a backbone"
        )
    layers = config.layers or tuple(range(num_layers))
    if max(layers) >= num_layers:
        raise ValueError(
            f"layers must be numbers from 0 to {num_layers - 1} of this model, got {layers}"
        )
    return layers
