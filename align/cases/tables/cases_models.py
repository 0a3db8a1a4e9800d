"""The part of the table with models in unusual shapes and states; no logic.

Grids that need padding, other windows, evaluation of two losses, sentences with one word or none,
another padding id, every activation, tables made for another size, what is built and what is drawn.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from align.cases.kinds.case_kinds import DTYPES, Batch, Case, ImageBatch, ModelCase, TimmCase
from align.cases.kinds.case_kinds_models import (
    DrawnCase,
    PaddingCase,
    ResizedCase,
    StatisticsCase,
    ZeroMatrixCase,
)

_BERT = {
    "hidden_size": 20,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 28,
    "vocab_size": 30,
    "max_position_embeddings": 16,
    "q_dim": 7,
    "k_dim": 5,
    "head_num_heads": 3,
    "wr_dim": 4,
    "qkv_dim": 6,
    "head_dropout": 0.0,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
_SWIN = {"embed_dim": 12, "depths": (2, 1), "num_heads": (2, 3), "mlp_ratio": 2.0}
_SOT = {
    "embed_dim": 20,
    "depth": 1,
    "num_heads": 4,
    "mlp_ratio": 1.5,
    "token_type": "linear",
    "head_num_heads": 3,
    "wr_dim": 4,
    "head_dropout": 0.0,
}
_FEW_WORDS = Batch(lengths=(7, 2, 1, 5), length=8)  # of a class token and 6, 1, 0 and 4 words
_PADDED = Batch()
_FLOAT64 = ("float64",)


def _text(name: str, train: bool = True, batch: Batch = _PADDED, **options: Any) -> ModelCase:
    return ModelCase(name, options={**_BERT, **options}, train=train, batch=batch, dtypes=_FLOAT64)


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
    _image("swin_padded_grid", "swin_tiny", 20, window_size=4, **_SWIN),
    _image("swin_window_8", "swin_tiny", 36, window_size=8, **_SWIN),  # 9 x 9 tokens
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
    _image("sot_sum_loss_eval", "sot_tiny", 28, train=False, fusion="sum_loss", **_SOT),
    _text("bert_pad_id", pad_token_id=5),
    _image("sot_qk_scale", "sot_tiny", 28, qk_scale=0.7, **_SOT),
    _image("sot_linear_224", "sot_tiny", 224, **_SOT),
)


def _resized(
    name: str, model: str, size: int, old: int, options: dict[str, Any], **windows: int
) -> ResizedCase:
    return ResizedCase(
        name,
        model,
        {"img_size": size, **options, **windows},
        subject="images",
        num_classes=3,
        train=False,
        batch=ImageBatch(samples=1, size=size),
        dtypes=_FLOAT64,
        source={"img_size": old, **({"window_size": 7} if windows else {})},
        sizes={"img_size": size, **windows},
    )


_RESNET = {"token_type": "resnet", "token_dim": 8}
_DEIT = {"embed_dim": 6, "depth": 1, "num_heads": 1, "mlp_ratio": 1.0}
_RESIZED = (
    _resized("resized_positions_384", "deit_tiny", 384, 224, _DEIT),  # 14 x 14 to 24 x 24 tokens
    _resized("resized_positions_160", "deit_tiny", 160, 224, _DEIT),  # shrunk: the kernel stretches
    _resized("resized_windows_8", "swin_tiny", 64, 56, {**_SWIN, "depths": (1, 1)}, window_size=8),
    dataclasses.replace(
        _resized("resized_sinusoid", "sot_tiny", 32, 24, {**_SOT, **_RESNET}), dtypes=DTYPES
    ),
)

MODELS: tuple[Case, ...] = (*_GRIDS, *_WORDS, *_OPTIONS)
OF_TWO_SIZES = _RESIZED

STATISTICS = (
    StatisticsCase(
        "statistics_resnet",
        "sot_tiny",
        {"img_size": 32, **_SOT, **_RESNET},  # it has both momenta, .9 and .99
        subject="images",
        batch=ImageBatch(),
    ),
)
ZERO_MATRICES = (
    *(
        ZeroMatrixCase(f"zero_matrix_{norm}_{rule}", norm, rule)
        for norm in ("svpn", "mpn")
        for rule in ("nan", "zero")
    ),
    ZeroMatrixCase("zero_matrix_epn", "epn"),
)
PADDING = (
    PaddingCase("data_padding", "max_length", 7, "float32"),
    PaddingCase("data_padding_longest", "longest", 3, "int64"),
    PaddingCase("data_padding_unlabelled", "longest", 0, None),
)
_DRAWING = {"drop_rate": 0.2, "attn_drop_rate": 0.3, "drop_path_rate": 0.4, "mlp_ratio": 1.0}
_MANY = Batch(lengths=(6, 4) * 200, length=6)
DRAWN = (
    DrawnCase(
        "drawn_vit",
        "deit_tiny_sot",
        {
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
        },
        subject="images",
        num_classes=3,
        batch=ImageBatch(samples=1000, size=8),
    ),
    DrawnCase(
        "drawn_swin",
        "swin_tiny",
        {
            **_DRAWING,
            "img_size": 8,
            "patch_size": 2,
            "embed_dim": 4,
            "depths": (2, 1),
            "num_heads": (2, 1),
            "window_size": 2,
        },
        subject="images",
        num_classes=3,
        batch=ImageBatch(samples=1000, size=8),
    ),
    DrawnCase(
        "drawn_vit_pooler",  # the rate of its head, which is not given, is that of the tokens
        "deit_tiny",
        {"drop_rate": 0.2, "pooling": "pooler", "img_size": 8, "patch_size": 4, **_DEIT},
        subject="images",
        num_classes=3,
        batch=ImageBatch(samples=500, size=8),
    ),
    *(  # the heads' own rates, which are not given
        DrawnCase(
            f"drawn_{name}",
            model,
            {
                **{key: value for key, value in _BERT.items() if key != "head_dropout"},
                "hidden_dropout_prob": 0.2,
                "attention_probs_dropout_prob": 0.3,
            },
            batch=_MANY,
        )
        for name, model in (("bert", "bert_base"), ("bert_mgcrp", "bert_base_mgcrp"))
    ),
)
TIMM = (
    TimmCase(
        "timm_swin_padded_grid",
        "swin_tiny",
        {"img_size": 20, "window_size": 4, **_SWIN},
        subject="images",
        batch=ImageBatch(samples=2, size=20),
        num_classes=5,
        dtypes=_FLOAT64,
        timm_model="swin_tiny_patch4_window7_224",
        timm_options={"img_size": 20, "window_size": 4, **_SWIN, "drop_path_rate": 0.0},
        layout="swin_timm",
        hooks={
            "stages.0.blocks.0": "layers.0.blocks.0",
            "stages.0.blocks.1": "layers.0.blocks.1",
            "stages.1.downsample": "layers.1.downsample",
            "stages.1.blocks.0": "layers.1.blocks.0",
            "norm": "norm",
        },
    ),
)
OTHER_KINDS = (*TIMM, *OF_TWO_SIZES, *STATISTICS, *ZERO_MATRICES, *PADDING, *DRAWN)
