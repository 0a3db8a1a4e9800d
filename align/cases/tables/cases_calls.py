"""The part of the table with calls that no step of a whole model makes; no logic."""

from __future__ import annotations

from typing import Any

from align.cases.kinds.case_kinds import ImageBatch, ModelCase
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

CALLS = (*_PLAIN_CALLS, *_EXPORTS)
