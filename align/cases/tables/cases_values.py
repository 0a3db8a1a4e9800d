"""What is compared without a model: text data, losses, metrics, functions; no logic."""

from __future__ import annotations

from align.cases.kinds.case_kinds import value_cases

_FLOAT64 = ("float64",)

_LONGEST = {"pad": "longest"}

_FEEDING = value_cases(
    "fed_values:shares",
    {
        "data_feeding_unequal_shares": {},
        "data_feeding_a_share_of_nothing": {"rows": 13, "batch": 6, "processes": 3, **_LONGEST},
        "data_feeding_resumed": {"epochs": 3, "start": (1, 1), "pad_id": 3},
    },
)

_POSITIONS = value_cases(
    "fed_values:positions", {"data_positions_of_steps": {"batches": 8, "accumulation": 3}}
)
_RESAMPLING = value_cases(
    "resized_weights:bicubic",
    {"function_bicubic": {"sizes": ((1, 3), (2, 7), (5, 4), (7, 3), (13, 4), (14, 10), (6, 11))}},
    steps=("forward",),
    dtypes=_FLOAT64,
)

VALUES = (
    *_RESAMPLING,
    *_FEEDING,
    *_POSITIONS,
)
