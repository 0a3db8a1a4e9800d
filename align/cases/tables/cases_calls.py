"""The part of the table with calls that no step of a whole model makes; no logic."""

from __future__ import annotations

from typing import Any

from align.cases.kinds.case_kinds import ImageBatch, ModelCase, ValueCase, value_cases
from align.cases.tables.model_options import BERT, SOT, SWIN

_FLOAT64 = ("float64",)


def _plain_call(name: str, model: str, options: dict[str, Any], **more: Any) -> ModelCase:
    return ModelCase(
        f"plain_call_{name}",
        model,
        options,
        steps=("forward",),
        train=False,
        dtypes=_FLOAT64,
        values="model_values:plain_call",
        **more,
    )


def _of_images(size: int) -> dict[str, Any]:
    return {
        "subject": "images",
        "num_classes": 5,
        "batch": ImageBatch(samples=2, size=size),
    }


_GPT = {**BERT, "intermediate_size": 80, "type_vocab_size": 1}
_PLAIN_CALLS = (
    *(
        _plain_call(
            f"bert_{fusion}",
            "bert_base_mgcrp",
            {**BERT, "pooling": "mgcrp", "fusion": fusion, "mask_padding": True},
        )
        for fusion in ("sum_fc", "aggre_all")
    ),
    _plain_call("gpt", "openai_gpt", {**_GPT, "layer_norm_eps": 1e-3}),
    _plain_call("gpt_words", "openai_gpt_mgcrp", {**_GPT, "mask_padding": True}),
    _plain_call(
        "conv_bert",
        "conv_bert_base_mgcrp",
        {
            **{**BERT, "embedding_size": BERT["hidden_size"], "pad_token_id": 0},
            **{"layer_norm_eps": 1e-3, "mask_padding": True},
        },
    ),
    _plain_call("sot", "sot_tiny", {"img_size": 28, **SOT}, **_of_images(28)),
    _plain_call(
        "swin",
        "swin_tiny",
        {**SWIN, "img_size": 24, "depths": (1, 1), "window_size": 3},
        **_of_images(24),
    ),
)


def _exported(name: str, model: str, options: dict[str, Any], **more: Any) -> ModelCase:
    return ModelCase(
        f"exported_{name}",
        model,
        options,
        steps=("forward",),
        train=False,
        values="model_values:exported",
        **{"dtypes": _FLOAT64, **more},
    )


_FLOAT32 = ("float32",)
_MASKED = {**BERT, "mask_padding": True}
_PADDED = {**SWIN, "img_size": 20, "window_size": 4}
_EXPORTS = (
    _exported("bert_mgcrp", "bert_base_mgcrp", {**_MASKED, "pooling": "mgcrp", "vec": "triu"}),
    _exported("bert_mgcrp_qk", "bert_base_mgcrp", BERT),
    _exported("bert_gcp_text", "bert_base_mgcrp", {**BERT, "pooling": "gcp_text"}),
    _exported("bert_spans", "bert_base", {**BERT, "pooling": "spans"}, num_classes=2),
    _exported("bert_onnx", "bert_base_mgcrp", _MASKED, dtypes=_FLOAT32, given={"as_onnx": True}),
    _exported(
        "gpt",
        "openai_gpt_mgcrp",
        {**_GPT, "pooling": "mgcrp", "num_hidden_layers": 6},  # padding is pooled too
        dtypes=_FLOAT32,
        given={"types": False, "mask": "bool"},
    ),
    _exported(
        "gpt_words",
        "openai_gpt_mgcrp",
        {**_GPT, "mask_padding": True},
        dtypes=_FLOAT32,
        given={"types": False, "mask": "bool"},
    ),
    _exported(
        "gpt_onnx",
        "openai_gpt",
        {**_GPT, "initializer_range": 0.5},  # so large that both forms of GELU differ
        dtypes=_FLOAT32,
        given={"types": False, "as_onnx": True},
    ),
    _exported("sot", "sot_tiny", {"img_size": 28, **SOT}, dtypes=_FLOAT32, **_of_images(28)),
    _exported("swin_padded", "swin_tiny", _PADDED, dtypes=_FLOAT32, **_of_images(20)),
)

_PREDICTIONS = value_cases(
    "score_values:predicted",
    {
        "predicted_shares": {"classes": 4, "size": 2.0},
        "predicted_shares_far_apart": {"classes": 3, "size": 400.0},
    },
    steps=("metric",),
)

_SVPN = {"type": "svPN", "alpha": 0.4, "iterNum": 1, "svNum": 1, "regular": None, "input_dim": 4}
_TRIANGLE = {"type": "svPN", "iterNum": 3, "svNum": 2, "init_weight": "one", "vec": "triu"}
_MGCRP = {"dim": 12, "num_heads": 3, "wr_dim": 4, "qkv_bias": True, "normalization": _SVPN}
_GCP = {"dim": 12, "num_heads": 5, "qkv_dim": 2}
_OURS = {"pooling": "mgcrp", "head_num_heads": 3, "wr_dim": 4, "qkv_bias": True, "alpha": 0.4}
_TWO_VALUES = {**_OURS, "alpha": 0.5, "num_iter": 3, "num_sv": 2, "start": "one"}
_SQRT = {**_MGCRP, "normalization": {"type": "sqrt_d"}}
_NO_NORM = {**_MGCRP, "normalization": None}


def _classifier(pooling: str, fusion: str, *arguments: dict[str, Any]) -> dict[str, Any]:
    """The original's dictionary of a classifier; its head's arguments where it has some."""
    described: dict[str, Any] = {"type": pooling, "fusion_type": fusion}
    for given in arguments:
        described["args"] = given
    return described


_CLASSIFIERS = {
    "mgcrp_sum_loss": {
        "dictionary": _classifier("MGCrP", "sum_loss", _MGCRP),
        "options": {**_OURS, "fusion": "sum_loss"},
        "fault": _classifier(
            "MGCrP", "sum_loss", {**_MGCRP, "normalization": {**_SVPN, "alpha": 0.5}}
        ),
    },
    "mgcrp_sqrt_concat": {
        "dictionary": _classifier("MGCrP", "concat", _SQRT),
        "options": {**_OURS, "fusion": "concat", "normalization": "sqrt_d"},
        "fault": _classifier("MGCrP", "concat", _NO_NORM),
    },
    "mgcrp_no_norm_aggre_all": {
        "dictionary": _classifier("MGCrP", "aggre_all", _NO_NORM),
        "options": {**_OURS, "fusion": "aggre_all", "normalization": "none"},
        "fault": _classifier("MGCrP", "aggre_all", _SQRT),
    },
    "mgcrp_triangle": {
        "dictionary": _classifier("MGCrP", "sum_fc", {**_MGCRP, "normalization": _TRIANGLE}),
        "options": {**_TWO_VALUES, "vec": "triu", "fusion": "sum_fc"},
    },
    "mgcrp_dropout": {
        "dictionary": _classifier(
            "MGCrP", "sum_fc", {**_MGCRP, "normalization": {**_SVPN, "regular": 0.3, "vec": None}}
        ),
        "options": {**_OURS, "fusion": "sum_fc", "head_dropout": 0.3},
        "train": False,
    },
    **{
        f"mgcrp_{ours}": {
            "dictionary": _classifier(
                "MGCrP", "sum_fc", {**_MGCRP, "normalization": {"type": published}}
            ),
            "options": {**_OURS, "fusion": "sum_fc", "normalization": ours},
        }
        for published, ours in (("sqrt_t", "sqrt_t"), ("ePN", "epn"), ("LN", "ln"), (None, "none"))
    },
    "mgcrp_defaults": {
        "dictionary": {"type": "MGCrP"},
        "options": {
            **{"pooling": "mgcrp", "head_num_heads": 8, "wr_dim": 16, "qkv_bias": False},
            **{"normalization": "none", "fusion": "sum_fc"},
        },
    },
    "fc": {"dictionary": _classifier("fc", "sum_loss"), "options": {"pooling": "fc"}},
    "class_token": {"dictionary": {"type": None}, "options": {"pooling": "none"}},
    "gap": {
        "dictionary": _classifier("GAP", "aggre_all"),
        "options": {"pooling": "gap", "fusion": "aggre_all"},
    },
    "gap_with_arguments": {
        "dictionary": _classifier("GAP", "sum_fc", _MGCRP),  # of which only dim counts
        "options": {"pooling": "gap", "fusion": "sum_fc"},
    },
}
_WORDS = {
    "named": "OnlyVisualTokensClassifier",
    "dictionary": {"type": "GCP", "args": _GCP},
    "options": {"pooling": "gcp", "head_num_heads": 5, "qkv_dim": 2, "fusion": "word_tokens"},
}
_PUBLISHED = value_cases(
    "published_values:layer",
    {
        **{
            f"published_{name}": {"named": "Classifier", **row}
            for name, row in _CLASSIFIERS.items()
        },
        "published_words_gcp": _WORDS,
        **{
            f"published_tokens_{name}": {
                "named": "TokenEmbed",
                "dictionary": {"type": published, **more},
                "options": {"token_type": name.partition("_")[0], **options},
            }
            for name, published, more, options in (
                ("densenet", "DenseNet", {"large_output": True}, {"large_output": True}),
                ("densenet_bn", "DenseNet", {"dense_norm": "bn"}, {"dense_norm": "bn"}),
                ("resnet", "ResNet", {"embedding_dim": 16}, {"token_dim": 16}),
                ("resnet_12", "ResNet", {"token_dim": 12}, {"token_dim": 12}),
                ("inception", "Inception", {}, {}),
                ("linear", "Naive_linear", {"large_output": True}, {}),  # which it ignores
                ("nonlocal", "Non-local", {"large_output": True}, {}),  # which it ignores
            )
        },
    },
    steps=("forward",),
    dtypes=_FLOAT64,
)

_DROPS = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.2}
_BOTH_PASSES = {"attention": 2, "gelu_of_sum": 2, "sv_power_norm": 2}
"""Calls of the native operators: one pass with and one without dropout and gradients."""
_OF_TEXT = {"pair_covariance": 2, "token_norm": 2, "token_shift": 2, "layer_norm_of_sum": 4}
_OF_IMAGES = {**_BOTH_PASSES, "layer_norm": 6, "head_covariance": 2, "dropout": 4}
_OF_TOKENS = {"stem": 2, "dense_block": 6, "transition": 6}
_NATIVE = value_cases(
    "model_values:accelerated",
    {
        "accelerated_text": {
            "model": "bert_base",
            "options": {**BERT, **_DROPS, "pooling": "mgcrp_qk", "mask_padding": True},
            "native": {**_BOTH_PASSES, **_OF_TEXT, "add_bias": 14, "layer_norm": 2, "dropout": 1},
            "replaced": ("gelu", "layer_norm", "linear", "softmax", "dropout"),
        },
        "accelerated_images": {
            "model": "deit_tiny_sot",
            "options": {**SOT, "img_size": 32, "drop_rate": 0.1, "attn_drop_rate": 0.2},
            "native": {**_OF_IMAGES, "add_bias": 10},
        },
        "accelerated_tokens": {
            "model": "sot_tiny",
            "options": {**SOT, "img_size": 32, "token_type": "densenet", "drop_rate": 0.1},
            "native": {**_OF_IMAGES, **_OF_TOKENS, "add_bias": 8},
            "replaced": ("conv2d", "relu", "max_pool2d", "batch_norm", "avg_pool2d"),
        },
        "accelerated_windows": {
            "model": "swin_tiny",
            "options": {**SWIN, "img_size": 24, "window_size": 3, "attn_drop_rate": 0.2},
            "native": {
                **{"add_bias": 20, "attention": 3, "dropout": 3, "layer_norm": 18},
                "gelu_of_sum": 6,
            },
        },
    },
    steps=("training",),
    dtypes=("float32",),
)

_CHOICES = tuple(
    ValueCase(name, values, {}, steps=("forward",), dtypes=("float32",))
    for name, values in (
        ("accelerated_choices", "native.native_choices:asked"),
        ("accelerated_layers", "native.native_calls:counted"),
    )
)

CALLS = (*_PLAIN_CALLS, *_EXPORTS, *_PREDICTIONS, *_PUBLISHED, *_NATIVE, *_CHOICES)
