"""Evaluation: cases as data; no logic."""

from __future__ import annotations

from align.cases.kinds.case_kinds import ModelCase
from align.cases.tables.model_options import encoder

_ENCODER = {
    **encoder(20, 1, 28, 100, 16),
    "q_dim": 7,
    "k_dim": 5,
    "mask_padding": True,
    "head_dropout": 0.5,
    "hidden_dropout_prob": 0.5,
    "attention_probs_dropout_prob": 0.5,
}
_EVALUATIONS = tuple(
    ModelCase(
        f"evaluation_{task}",
        options=_ENCODER,
        steps=("metric",),
        num_classes=classes,
        dtypes=("float64",),
        values="evaluation_values:text",
        given={"task": task},
    )
    for task, classes in (("mrpc", 2), ("mnli", 3), ("sts-b", 1))
)
_EVALUATIONS += (
    ModelCase(
        "evaluation_spans",
        options={**_ENCODER, "pooling": "spans"},
        steps=("metric",),
        num_classes=2,
        dtypes=("float64",),
        values="evaluation_values:spans",
    ),
)

IMAGE_DATA = _EVALUATIONS
