"""Small cases without a model, for the tests of what runs them; no tests here."""

from __future__ import annotations

from typing import Any

from align.cases.kinds.case_kinds import DTYPES, ValueCase


def loss_case(name: str = "loss", dtypes: tuple[str, ...] = DTYPES, **given: Any) -> ValueCase:
    """A loss on random logits."""
    return ValueCase(name, "loss_values:task", given, steps=("loss",), dtypes=dtypes)


def metric_case(name: str = "metric", task: str = "cola") -> ValueCase:
    """The metrics of a GLUE task."""
    return ValueCase(name, "score_values:glue", {"task": task}, steps=("metric",))


def rates_case(schedule: str = "linear", warmup: int = 3, name: str = "rates") -> ValueCase:
    """A schedule of twelve steps."""
    given = {"schedule": schedule, "learning_rate": 1e-3}
    given |= {"warmup_steps": warmup, "total_steps": 12}
    return ValueCase(name, "rate_values:by_step", given, steps=("learning_rate",))


def data_case(max_length: int = 24, name: str = "data", **given: Any) -> ValueCase:
    """Encoded sentences."""
    return ValueCase(name, "token_values:sentences", {"max_length": max_length, **given})
