"""The published tables of fine-tuning on all of GLUE, and its seeds (specs.md E.4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SEEDS = (42, 97, 834, 622, 329, 75, 213, 101, 123, 57)
ORDER = ("MNLI", "CoLA", "SST-2", "MRPC", "STS-B", "QQP", "QNLI", "RTE", "WNLI")
FROM_MNLI = ("RTE", "STS-B", "MRPC")
"""Tasks that start from the encoder that MNLI has tuned."""


@dataclass(frozen=True)
class Recipe:
    """How a task is fine-tuned.

    Attributes:
        learning_rate: its peak.
        batch_size: examples of an optimizer step.
        max_steps: optimizer steps.
        warmup_steps: of them.
    """

    learning_rate: float
    batch_size: int
    max_steps: int
    warmup_steps: int


_ELECTRA = {
    "MNLI": (128, 12121, 1212),
    "QQP": (128, 11200, 1120),
    "QNLI": (32, 9835, 983),
    "SST-2": (32, 6409, 640),
    "CoLA": (32, 851, 85),
    "STS-B": (32, 1836, 183),
    "MRPC": (32, 343, 34),
    "RTE": (32, 777, 77),
    "WNLI": (32, 100, 10),
}
_STABLE = {
    **{"MNLI": 24243, "CoLA": 567, "SST-2": 4273, "MRPC": 229, "STS-B": 367},
    **{"QQP": 22400, "QNLI": 6557, "RTE": 155, "WNLI": 100},
}

TABLES: Mapping[str, Mapping[str, Recipe]] = {
    "electra": {
        task: Recipe(1e-4 if task == "QNLI" else 3e-4, *row) for task, row in _ELECTRA.items()
    },
    "electra_base": {task: Recipe(1e-4, *row) for task, row in _ELECTRA.items()},
    "stable": {task: Recipe(2e-5, 16, 20 * steps, 2 * steps) for task, steps in _STABLE.items()},
}
"""``--hyperparams`` -> task -> recipe."""


def seed_of(repetition: int, seed: int) -> int:
    """The seed of a repetition: of the list, and moved by another ``--seed`` than 42."""
    return SEEDS[repetition] + (seed if seed != SEEDS[0] else 0)
