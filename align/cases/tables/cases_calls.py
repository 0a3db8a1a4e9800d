"""The part of the table with calls that no step of a whole model makes; no logic."""

from __future__ import annotations

from align.cases.kinds.case_kinds import Case, ImageBatch
from align.cases.kinds.case_kinds_calls import PlainCallCase, PublishedCase
from align.cases.kinds.function_case import FunctionCase
from align.cases.kinds.image_case_kinds import DrawnImagesCase

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
_SOT = {
    "img_size": 28,
    "embed_dim": 20,
    "depth": 1,
    "num_heads": 4,
    "mlp_ratio": 1.5,
    "token_type": "linear",
    "head_num_heads": 3,
    "wr_dim": 4,
    "head_dropout": 0.0,
}
_SWIN = {
    "img_size": 24,
    "embed_dim": 12,
    "depths": (1, 1),
    "num_heads": (2, 3),
    "window_size": 3,
    "mlp_ratio": 2.0,
}
_FLOAT64 = ("float64",)


def _images(name: str, model: str, options: dict, size: int) -> PlainCallCase:
    return PlainCallCase(
        name,
        model,
        options,
        steps=("forward",),
        subject="images",
        num_classes=5,
        batch=ImageBatch(samples=2, size=size),
        dtypes=_FLOAT64,
        train=False,
    )


_PLAIN_CALLS = (
    *(
        PlainCallCase(
            f"plain_call_bert_{fusion}",
            options={**_BERT, "pooling": "mgcrp", "fusion": fusion, "mask_padding": True},
            steps=("forward",),
            train=False,
            dtypes=_FLOAT64,
        )
        for fusion in ("sum_fc", "aggre_all")
    ),
    _images("plain_call_sot", "sot_tiny", _SOT, 28),
    _images("plain_call_swin", "swin_tiny", _SWIN, 24),
)

_FUNCTIONS = (
    FunctionCase(
        "function_uncentred",
        "cross_covariance",
        (4, 7, 5),
        ("cross_covariance", {"centering": "scalar"}),
        {"centering": "none"},
        inputs=2,
    ),
    FunctionCase(
        "function_uncentred_masked",
        "cross_covariance",
        (4, 7, 5),
        ("cross_covariance", {"centering": "channel"}),
        {"centering": "none"},
        inputs=2,
        valid=(7, 5, 1, 0),
    ),
    FunctionCase(
        "function_svpn_exact",
        "sv_power_norm_exact",
        (3, 6, 4),
        ("sv_power_norm_exact", {"alpha": 0.5}),
        {"alpha": 0.4},
    ),
    FunctionCase(
        "function_sqrt_exact",
        "matrix_sqrt_exact",
        (3, 7, 4),
        ("matrix_sqrt", {"num_iter": 3}),
        symmetric=True,
        steps=(
            "forward",
        ),  # of a symmetric matrix each eigh reads another triangle on the way back
    ),
)

_SVPN = {"type": "svPN", "alpha": 0.4, "iterNum": 1, "svNum": 1, "regular": None, "input_dim": 4}
_MGCRP = {"dim": 12, "num_heads": 3, "wr_dim": 4, "qkv_bias": True, "normalization": _SVPN}
_LN = {**_MGCRP, "normalization": {"type": "LN"}}
_GCP = {"dim": 12, "num_heads": 3, "qkv_dim": 2}
_OURS = {"pooling": "mgcrp", "head_num_heads": 3, "wr_dim": 4, "qkv_bias": True, "alpha": 0.4}
_SQRT = {**_MGCRP, "normalization": {"type": "sqrt_d"}}
_NO_NORM = {**_MGCRP, "normalization": None}


_PUBLISHED = (
    PublishedCase(
        "published_mgcrp_sum_loss",
        "Classifier",
        {"type": "MGCrP", "fusion_type": "sum_loss", "args": _MGCRP},
        {**_OURS, "fusion": "sum_loss"},
        fault={
            "type": "MGCrP",
            "fusion_type": "sum_loss",
            "args": {**_MGCRP, "normalization": {**_SVPN, "alpha": 0.5}},
        },
    ),
    PublishedCase(
        "published_mgcrp_sqrt_concat",
        "Classifier",
        {"type": "MGCrP", "fusion_type": "concat", "args": _SQRT},
        {**_OURS, "fusion": "concat", "normalization": "sqrt_d"},
        fault={"type": "MGCrP", "fusion_type": "concat", "args": _NO_NORM},
    ),
    PublishedCase(
        "published_mgcrp_no_norm_aggre_all",
        "Classifier",
        {"type": "MGCrP", "fusion_type": "aggre_all", "args": _NO_NORM},
        {**_OURS, "fusion": "aggre_all", "normalization": "none"},
        fault={"type": "MGCrP", "fusion_type": "aggre_all", "args": _SQRT},
    ),
    PublishedCase(
        "published_gap",
        "Classifier",
        {"type": "GAP", "fusion_type": "aggre_all"},
        {"pooling": "gap", "fusion": "aggre_all"},
    ),
    PublishedCase(
        "published_gap_with_arguments",
        "Classifier",
        {"type": "GAP", "fusion_type": "sum_fc", "args": _MGCRP},  # of which only dim counts
        {"pooling": "gap", "fusion": "sum_fc"},
    ),
    PublishedCase(
        "published_words_gcp",
        "OnlyVisualTokensClassifier",
        {"type": "GCP", "args": _GCP},
        {"pooling": "gcp", "head_num_heads": 3, "qkv_dim": 2, "fusion": "word_tokens"},
    ),
    *(
        PublishedCase(
            f"published_tokens_{ours}",
            "TokenEmbed",
            {"type": published, **more},
            {"token_type": ours, **options},
        )
        for published, ours, more, options in (
            ("DenseNet", "densenet", {}, {}),
            ("ResNet", "resnet", {"embedding_dim": 16}, {"token_dim": 16}),
            ("Naive_linear", "linear", {}, {}),
            ("Non-local", "nonlocal", {"large_output": True}, {}),  # which it ignores
        )
    ),
)

_IMAGES = (
    # no crop of the whole area fits unless it has the picture's own shape: the central one is left
    DrawnImagesCase(
        "data_crop_whole_area",
        {
            "scale": (1.0, 1.0),
            "aa": None,
            "color_jitter": 0.0,
            "mixup": 0.0,
            "cutmix": 0.0,
            "reprob": 0.0,
        },
    ),
)

CALLS: tuple[Case, ...] = (*_PLAIN_CALLS, *_FUNCTIONS, *_PUBLISHED, *_IMAGES)
