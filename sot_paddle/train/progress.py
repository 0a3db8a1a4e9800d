"""A training run's running sums, and whether two runs are the same one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Progress:
    """Running sums that a resumed run continues.

    Attributes:
        window: losses of the steps since the last log line.
        loss_sum: sum of the losses of all steps.
        best_metric: best value of the main metric so far, None before the first evaluation.
        best_step: step of that evaluation.
        since_best: evaluations since then.
        evaluations: metrics by step (as text, for JSON).
        evaluation_data: fingerprint of the data they were measured on.
    """

    window: list[float] = field(default_factory=list)
    loss_sum: float = 0.0
    best_metric: float | None = None
    best_step: int = 0
    since_best: int = 0
    evaluations: dict[str, dict[str, float]] = field(default_factory=dict)
    evaluation_data: str = ""


def check_identity(saved: Mapping[str, Any], current: Mapping[str, Any], where: Path) -> None:
    """Refuse to continue a run with other options or data.

    Raises:
        ValueError: naming every difference.
    """
    saved, current = _flat(saved), _flat(json.loads(json.dumps(current)))
    keys = sorted(set(saved) | set(current))
    differing = [key for key in keys if saved.get(key) != current.get(key)]
    if differing:
        shown = "; ".join(
            f"{key}: {saved.get(key)!r} there, {current.get(key)!r} now" for key in differing
        )
        raise ValueError(
            f"{where} belongs to a run with other options ({shown}): repeat those options to "
            "continue it, choose another --output_dir, or start afresh with --overwrite_output_dir"
        )


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Options with those of nested mappings spelt ``outer.inner``."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}.{name}": inner for name, inner in value.items()}
        else:
            flat[key] = value
    return flat
