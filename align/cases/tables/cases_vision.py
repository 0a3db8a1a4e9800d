"""The vision part of the table: every model family and token embedding; no logic.

Small images and tiny, all different dimensions; the three full SoT models once, in float64.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from align.cases.kinds.case_kinds import (
    Case,
    EpochSchedule,
    ImageBatch,
    ModelCase,
    Recipe,
    TimmCase,
)
from align.cases.tables.model_options import IMAGE_HEAD

_SOT = {"img_size": 32, "embed_dim": 20, "depth": 2, "num_heads": 4, "mlp_ratio": 1.5, **IMAGE_HEAD}
_DEIT = {"img_size": 32, "embed_dim": 18, "depth": 3, "num_heads": 3, "mlp_ratio": 2.0}
_SWIN = {"img_size": 56, "embed_dim": 12, "depths": (2, 2), "num_heads": (2, 3), "mlp_ratio": 2.0}
_SWIN_SMALL_WINDOW = {**_SWIN, "img_size": 48, "window_size": 3}
_SWIN_LEAST = {**_SWIN_SMALL_WINDOW, **IMAGE_HEAD, "img_size": 24}  # 6 x 6 tokens, then one window
_IMAGES = ImageBatch()
_LARGER = ImageBatch(samples=3, size=56)

_RECIPE = Recipe(
    optimizer="adamw",
    steps=10,
    learning_rate=1e-3,
    weight_decay=2.0**-5,  # float32 holds it exactly: Paddle stores the coefficient in float32
    clip_norm=None,
    decay="vision",
    by_epoch=EpochSchedule(epochs=6, warmup_epochs=2, cooldown_epochs=1, steps=2),
    ema_decay=0.9,
)


def _images(
    name: str,
    model: str,
    options: Mapping[str, Any],
    *,
    batch: ImageBatch = _IMAGES,
    num_classes: int = 5,
    **more: Any,
) -> ModelCase:
    return ModelCase(
        name, model, options, subject="images", batch=batch, num_classes=num_classes, **more
    )


def _convolutional(name: str, model: str, options: Mapping[str, Any], **more: Any):
    """Everything in float64, and in float32 the forward pass.

    In float32 rounding flips choices of ReLU and max-pooling in a token embedding, on either side
    by chance, and a flipped choice moves gradients by up to some per cent (A.7).
    """
    return (
        _images(name, model, options, dtypes=("float64",), **more),
        _images(f"{name}_float32", model, options, steps=("forward",), dtypes=("float32",), **more),
    )


_EMBEDDINGS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("densenet", {}),
    ("densenet_bn", {"dense_norm": "bn"}),
    ("resnet", {"token_type": "resnet", "token_dim": 16}),
    ("inception", {"token_type": "inception"}),
    ("nonlocal", {"token_type": "nonlocal"}),
)

_TOKENS = tuple(
    case
    for name, options in _EMBEDDINGS
    for train in (True, False)
    for case in _convolutional(
        f"sot_{name}{'' if train else '_eval'}", "sot_tiny", {**_SOT, **options}, train=train
    )
)

_TRAINING = tuple(
    _images(
        f"training_{name}",
        model,
        options,
        batch=batch,
        steps=("optimizer", "training"),
        recipe=_RECIPE,
        dtypes=("float64",),
    )
    for name, model, options, batch in (
        ("sot", "sot_tiny", _SOT, _IMAGES),
        ("sot_resnet", "sot_tiny", {**_SOT, "token_type": "resnet", "token_dim": 16}, _IMAGES),
        ("deit", "deit_tiny", _DEIT, _IMAGES),
        ("swin_sot", "swin_tiny_sot", _SWIN_LEAST, ImageBatch(3, 24)),
    )
)

_FAMILIES = (
    _images("sot_linear", "sot_tiny", {**_SOT, "token_type": "linear"}),
    _images("sot_linear_eval", "sot_tiny", {**_SOT, "token_type": "linear"}, train=False),
    *_convolutional("sot_small_dims", "sot_small", {**_SOT, "num_heads": 2}),
    *_convolutional("sot_base_dims", "sot_base", {**_SOT, "depth": 3}),
    *_convolutional(
        "sot_learned_position", "sot_tiny", {**_SOT, "position": "learned", "qkv_bias": True}
    ),
    *_convolutional(
        "sot_112_pixels", "sot_tiny", {**_SOT, "img_size": 112}, batch=ImageBatch(2, 112)
    ),
    *_convolutional(
        "sot_160_pixels",
        "sot_tiny",
        {**_SOT, "img_size": 160},
        batch=ImageBatch(2, 160),
        quick=False,
    ),
    *_convolutional(
        "sot_gcp_concat",
        "sot_tiny",
        {**_SOT, "pooling": "gcp", "qkv_dim": 5, "fusion": "concat"},
    ),
    *_convolutional("sot_sum_loss", "sot_tiny", {**_SOT, "fusion": "sum_loss"}),
    _images("deit_plain", "deit_tiny", _DEIT),
    _images("deit_small_plain", "deit_small", {**_DEIT, "depth": 2}),
    _images("deit_base_plain", "deit_base", {**_DEIT, "depth": 2}),
    *_convolutional("deit_sot", "deit_tiny_sot", {**_DEIT, **IMAGE_HEAD}),
    *_convolutional("deit_sot_eval", "deit_tiny_sot", {**_DEIT, **IMAGE_HEAD}, train=False),
    _images("deit_plain_eval", "deit_tiny", _DEIT, train=False),
    *_convolutional("deit_small_sot_dims", "deit_small_sot", {**_DEIT, **IMAGE_HEAD, "depth": 1}),
    *_convolutional("deit_base_sot_dims", "deit_base_sot", {**_DEIT, **IMAGE_HEAD, "depth": 1}),
    _images("swin_plain", "swin_tiny", _SWIN, batch=_LARGER),
    _images("swin_small_window", "swin_tiny", _SWIN_SMALL_WINDOW, batch=ImageBatch(3, 48)),
    _images("swin_base_plain", "swin_base", {**_SWIN, "depths": (2, 1)}, batch=_LARGER),
    *_convolutional("swin_sot", "swin_tiny_sot", {**_SWIN, **IMAGE_HEAD}, batch=_LARGER),
    *_convolutional(
        "swin_sot_eval", "swin_tiny_sot", {**_SWIN, **IMAGE_HEAD}, batch=_LARGER, train=False
    ),
    _images("swin_plain_eval", "swin_tiny", _SWIN, batch=_LARGER, train=False),
    *_convolutional("sot_large_output", "sot_tiny", {**_SOT, "large_output": True}),
    *_convolutional(
        "sot_inception_large_output",
        "sot_tiny",
        {**_SOT, "token_type": "inception", "large_output": True, "img_size": 16},
        batch=ImageBatch(size=16),
    ),
    *_convolutional(
        "swin_base_sot_dims",
        "swin_base_sot",
        {**_SWIN, **IMAGE_HEAD, "depths": (1, 1)},
        batch=_LARGER,
    ),
)

_FULL = tuple(
    _images(
        f"{model}_full",
        model,
        {"head_dropout": 0.0},
        batch=ImageBatch(samples, size=224),
        num_classes=1000,
        dtypes=("float64",),
        quick=False,
    )
    for model, samples in (("sot_tiny", 2), ("sot_small", 1), ("sot_base", 1))
)


def _timm(name: str, family: str, options: Mapping[str, Any], **more: Any) -> TimmCase:
    """A plain model against timm's own; its last norm is compared in every case."""
    hooks = {**more.pop("hooks"), "norm": "norm"}
    shared = {"subject": "images", "num_classes": 5, "layout": f"{family}_timm", "hooks": hooks}
    return TimmCase(name, f"{family}_tiny", options, **{**shared, **more})


def _timm_deit(name: str, options: Mapping[str, Any], depth: int, **more: Any) -> TimmCase:
    hooks = {f"blocks.{index}": f"blocks.{index}" for index in range(depth)}
    named = {"timm_model": "deit_tiny_patch16_224", "timm_options": options}
    return _timm(name, "deit", options, hooks=hooks, **named, **more)


def timm_swin(
    name: str,
    options: Mapping[str, Any],
    depths: tuple[int, ...],
    *,
    downsample: bool = True,
    **more: Any,
) -> TimmCase:
    """A Swin of these depths against timm's; the last merging of patches is compared if asked."""
    hooks = {
        f"stages.{stage}.blocks.{block}": f"layers.{stage}.blocks.{block}"
        for stage, depth in enumerate(depths)
        for block in range(depth)
    }
    if downsample:
        last = len(depths) - 1
        hooks[f"stages.{last}.downsample"] = f"layers.{last}.downsample"
    given = {**options, "drop_path_rate": 0.0}
    named = {"timm_model": "swin_tiny_patch4_window7_224", "timm_options": given}
    return _timm(name, "swin", options, hooks=hooks, **named, **more)


_PUBLISHED_SIZE: dict[str, Any] = {
    "batch": ImageBatch(samples=2, size=224),
    "num_classes": 1000,
    "dtypes": ("float64",),
    "quick": False,
}
_TIMM = (
    _timm_deit("timm_deit", _DEIT, 3, batch=_IMAGES),
    timm_swin("timm_swin", _SWIN, (2, 2), batch=_LARGER),
    _timm_deit("timm_deit_full", {}, 12, **_PUBLISHED_SIZE),
    timm_swin("timm_swin_full", {}, (2, 2, 6, 2), downsample=False, **_PUBLISHED_SIZE),
)

VISION: tuple[Case, ...] = (
    *_TOKENS,
    *_FAMILIES,
    *_TRAINING,
    *_FULL,
    *_TIMM,
)
