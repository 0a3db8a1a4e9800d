"""The part of the table with models in unusual shapes and states; no logic.

Grids that need padding, other windows, evaluation of two losses, sentences with one word or none,
another padding id, every activation, tables made for another size, what is built and what is drawn.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from align.cases.kinds.case_kinds import (
    DTYPES,
    Batch,
    Case,
    ImageBatch,
    ModelCase,
)
from align.cases.tables.cases_vision import timm_swin
from align.cases.tables.model_options import BERT, SOT, SWIN, dropped_case, dropped_text_case

_FEW_WORDS = Batch(lengths=(7, 2, 1, 5), length=8)  # of a class token and 6, 1, 0 and 4 words
_PADDED = Batch()
_FLOAT64 = ("float64",)


def _text(name: str, train: bool = True, batch: Batch = _PADDED, **options: Any) -> ModelCase:
    return ModelCase(name, options={**BERT, **options}, train=train, batch=batch, dtypes=_FLOAT64)


def _image(name: str, model: str, size: int, train: bool = True, **options: Any) -> ModelCase:
    return ModelCase(
        name,
        model,
        {"img_size": size, **options},
        subject="images",
        num_classes=5,
        train=train,
        batch=ImageBatch(samples=2, size=size),
        dtypes=_FLOAT64,
    )


_GRIDS = (
    # 5 x 5 tokens in windows of 4, shifted by 2: padded to 8 x 8; merged to 3 x 3, which is odd too
    _image("swin_padded_grid", "swin_tiny", 20, window_size=4, **SWIN),
    _image("swin_window_8", "swin_tiny", 36, window_size=8, **SWIN),  # 9 x 9 tokens
)

_WORDS = tuple(
    _text(f"head_{name}_few_words", batch=_FEW_WORDS, mask_padding=True, **options)
    for name, options in (
        ("mgcrp", {"pooling": "mgcrp", "centering": "channel"}),
        ("mgcrp_epn", {"pooling": "mgcrp", "normalization": "epn"}),
        ("mgcrp_qk", {"pooling": "mgcrp_qk"}),
        ("gap", {"pooling": "gap"}),
        ("gcp", {"pooling": "gcp", "covariance_scale": "tokens"}),
    )
)

_OPTIONS = (
    _text("head_mgcrp_sum_loss_eval", train=False, pooling="mgcrp", fusion="sum_loss"),
    _image("sot_sum_loss_eval", "sot_tiny", 28, train=False, fusion="sum_loss", **SOT),
    _text("bert_pad_id", pad_token_id=5),
    _image("sot_qk_scale", "sot_tiny", 28, qk_scale=0.7, **SOT),
    _image("sot_linear_224", "sot_tiny", 224, **SOT),
)


def _resized(
    name: str, model: str, size: int, old: int, options: dict[str, Any], **windows: int
) -> ModelCase:
    return ModelCase(
        name,
        model,
        {"img_size": size, **options, **windows},
        steps=("weights",),
        subject="images",
        num_classes=3,
        train=False,
        batch=ImageBatch(samples=1, size=size),
        dtypes=_FLOAT64,
        values="resized_weights:resized",
        given={
            "source": {"img_size": old, **({"window_size": 7} if windows else {})},
            "sizes": {"img_size": size, **windows},
        },
    )


_RESNET = {"token_type": "resnet", "token_dim": 8}
_DEIT = {"embed_dim": 6, "depth": 1, "num_heads": 1, "mlp_ratio": 1.0}
_RESIZED = (
    _resized("resized_positions_384", "deit_tiny", 384, 224, _DEIT),  # 14 x 14 to 24 x 24 tokens
    _resized("resized_positions_160", "deit_tiny", 160, 224, _DEIT),  # shrunk: the kernel stretches
    _resized("resized_windows_8", "swin_tiny", 64, 56, {**SWIN, "depths": (1, 1)}, window_size=8),
    dataclasses.replace(
        _resized("resized_sinusoid", "sot_tiny", 32, 24, {**SOT, **_RESNET}), dtypes=DTYPES
    ),
)

MODELS: tuple[Case, ...] = (*_GRIDS, *_WORDS, *_OPTIONS)
OF_TWO_SIZES = _RESIZED

STATISTICS = (
    ModelCase(
        "statistics_resnet",
        "sot_tiny",
        {"img_size": 32, **SOT, **_RESNET},  # it has both momenta, .9 and .99
        steps=("forward",),
        subject="images",
        batch=ImageBatch(),
        dtypes=("float32",),
        values="model_values:running_statistics",
    ),
)


def _eight_pixels(samples: int) -> dict[str, Any]:
    return {
        "subject": "images",
        "num_classes": 3,
        "batch": ImageBatch(samples=samples, size=8),
    }


_DRAWING = {"drop_rate": 0.2, "attn_drop_rate": 0.3, "drop_path_rate": 0.4, "mlp_ratio": 1.0}
_VIT = {
    **_DRAWING,
    "token_type": "patch",
    "img_size": 8,
    "patch_size": 4,
    "embed_dim": 6,
    "depth": 3,
    "num_heads": 2,
    "head_num_heads": 2,
    "wr_dim": 3,
    "head_dropout": 0.5,
}
_WINDOWS = {
    **_DRAWING,
    "img_size": 8,
    "patch_size": 2,
    "embed_dim": 4,
    "depths": (2, 1),
    "num_heads": (2, 1),
    "window_size": 2,
}
# the rates of the heads, which are not given: of images that of the tokens, of text their own
_POOLER = {"drop_rate": 0.2, "pooling": "pooler", "img_size": 8, "patch_size": 4, **_DEIT}
DRAWN = (
    dropped_case("vit", "deit_tiny_sot", _VIT, **_eight_pixels(1000)),
    dropped_case("swin", "swin_tiny", _WINDOWS, **_eight_pixels(1000)),
    dropped_case("vit_pooler", "deit_tiny", _POOLER, **_eight_pixels(500)),
    *(
        dropped_case(
            f"vit_{pooling}",
            "deit_tiny",
            {**_POOLER, "pooling": pooling, "head_dropout": 0.4},
            **_eight_pixels(500),
        )
        for pooling in ("fc", "none")
    ),
    *(
        dropped_text_case(name, model, BERT)
        for name, model in (("bert", "bert_base"), ("bert_mgcrp", "bert_base_mgcrp"))
    ),
)
TIMM = (
    timm_swin(
        "timm_swin_padded_grid",
        {"img_size": 20, "window_size": 4, **SWIN},
        (2, 1),
        batch=ImageBatch(samples=2, size=20),
        dtypes=_FLOAT64,
    ),
)
OTHER_KINDS = (*TIMM, *OF_TWO_SIZES, *STATISTICS, *DRAWN)
