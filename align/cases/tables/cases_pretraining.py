"""The part of the table with pre-training: instances, masking, heads and losses; no logic."""

from __future__ import annotations

from align.cases.kinds.case_kinds import value_cases

PRETRAINING = (
    *value_cases(
        "pretraining.instance_values:instances",
        {
            "data_instances": {"max_seq_length": 24, "max_predictions": 3},
            "data_instances_one_document": {
                "max_seq_length": 16,
                "max_predictions": 20,
                "documents": 1,
            },
        },
        steps=("data",),
    ),
)
