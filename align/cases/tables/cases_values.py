"""What is compared without a model: text data, losses, metrics, functions; no logic."""

from __future__ import annotations

from align.cases.kinds.case_kinds import value_cases

_FLOAT64 = ("float64",)

_RESAMPLING = value_cases(
    "resized_weights:bicubic",
    {"function_bicubic": {"sizes": ((1, 3), (2, 7), (5, 4), (7, 3), (13, 4), (14, 10), (6, 11))}},
    steps=("forward",),
    dtypes=_FLOAT64,
)

VALUES = (*_RESAMPLING,)
