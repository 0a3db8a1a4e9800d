"""BERT with convolutions in its attention: every kernel and projection, training; no logic.

Each of them in both precisions: scores, all gradients, single updates and training steps; of some
the quick suite has scores and gradients in float64. Rows are shorter than the table of positions,
padded in the middle of the kernels' reach.
"""

from __future__ import annotations

from typing import Any

from align.cases.kinds.case_kinds import Case, ModelCase, Recipe
from align.cases.tables.model_options import HEAD, dropped_text_case, encoder

_TINY: dict[str, Any] = {
    **encoder(12, 1, 20, 30, 18),
    **HEAD,
    "embedding_size": 9,
    "pad_token_id": 28,
    "initializer_range": 0.2,
}
_SMALL: dict[str, Any] = {
    **encoder(48, 2, 96, 100, 64),
    "q_dim": 12,
    "k_dim": 8,
    "embedding_size": 20,
    "pad_token_id": 98,
}
_KERNELS = (
    *("convfixed 2", "convq 2", "convk 2", "convfixed_convq 1", "convfixed_convk 3"),
    *("convq_convk 2", "convfixed_convq_convk 2", "qk_convfixed_convq_convk 2"),
    *("dot_product", "qk_convfixed 2", "qk_convq 2", "qk_convk 12", "qk_convfixed_convq 1"),
    *("qk_convfixed_convk 2", "qk_convq_convk 3", "convolution 2", "convolution_scaled 1"),
    *("convq_convolution_scaled 2", "convfixed_convk_convolution 2", "convbert"),
)
"""The first five raise in the public code."""
_PROJECTIONS: dict[str, dict[str, Any]] = {
    "plain": {"qk": "convolution 1 2", "value_forward": "convolution 2 3"},
    "depth": {"qk": "convolution_depth 2 1", "value_forward": "convolution_depth_no_act 1 1"},
    "mixed": {"qk": "convolution_mixed 1 1", "value_forward": "convolution_mixed 2 2"},
    "depth_mixed": {
        "qk": "convolution_depth_mixed_no_act 1 1",
        "value_forward": "convolution_depth_mixed 2 1",
    },
    "value_with_convbert": {"attention_kernel": "convbert", "value_forward": "convolution 1 1"},
    "remove_qk": {"remove_qk": True, "attention_kernel": "qk_convq_convk 2"},
    "no_positions": {"remove_position_embeddings": True, "attention_kernel": "dot_convfixed 2"},
    "wide_heads": {"attention_head_size": 6, "attention_kernel": "qk_convq 2"},
    "same_embedding": {"embedding_size": 12, "attention_kernel": "convk 2"},
    "two_wide_depth": {"attention_head_size": 6, "value_forward": "convolution_depth 1 1"},
}

_QUICK = (
    "qk_convfixed_convq_convk 2",
    *("convolution 2", "two_wide_depth"),
    "convq_convolution_scaled 2",
    "convbert",
    *("depth", "depth_mixed", "mixed", "no_positions", "remove_qk", "wide_heads"),
)
_OPTIONS = (
    *((kernel, kernel.replace(" ", "_"), {"attention_kernel": kernel}) for kernel in _KERNELS),
    *((name, f"with_{name}", options) for name, options in _PROJECTIONS.items()),
)
_ALL = ("forward", "backward", "optimizer", "training")
_RECIPE = Recipe(clip_norm=0.1)
"""The gradients of so small a model are never longer than 1."""

_PARTS = (
    ("", "float64", _ALL[:2]),
    ("_trained", "float64", _ALL[2:]),
    ("_float32", "float32", _ALL),
)

CONV_MODELS: tuple[Case, ...] = (
    *(
        ModelCase(
            f"conv_bert_{name}{end}",
            "conv_bert_base",
            {**_TINY, **options},
            steps=steps,
            recipe=_RECIPE,
            dtypes=(dtype,),
            quick=not end and key in _QUICK,
        )
        for key, name, options in _OPTIONS
        for end, dtype, steps in _PARTS
    ),
    ModelCase(
        "conv_bert_plain",
        "conv_bert_base",
        {**_SMALL, "attention_kernel": "qk_convfixed_convq_convk 4"},
        steps=_ALL,
        quick=False,
    ),
    ModelCase(
        "conv_bert_plain_eval",
        "conv_bert_base",
        {**_SMALL, "attention_kernel": "convbert"},
        train=False,
        quick=False,
    ),
    ModelCase(
        "conv_bert_mgcrp",
        "conv_bert_base_mgcrp",
        {**_SMALL, "attention_kernel": "convq_convolution_scaled 3"},
        steps=_ALL,
        quick=False,
    ),
    ModelCase(
        "conv_bert_mgcrp_projections",
        "conv_bert_base_mgcrp",
        {**_SMALL, **_PROJECTIONS["depth_mixed"], "mask_padding": True},
        steps=_ALL,
        quick=False,
    ),
    dropped_text_case("conv_bert", "conv_bert_base", _TINY),
    ModelCase(
        "conv_bert_frozen_encoder",
        "conv_bert_base_mgcrp",
        {**_TINY, "attention_kernel": "convbert", "freeze_encoder": True},
        steps=("backward",),
        dtypes=("float64",),
    ),
)
