"""A pair that passes walks through the files that docs/architecture.md names, in that order."""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path

import numpy as np
import torch
from paddle import nn

import align

PACKAGE = Path(align.__file__).parent
PAGE = PACKAGE.parent / "docs" / "architecture.md"


def compare():
    """Forward, loss, backward, two steps of sgd, in float64."""
    given = {"loss": "cross_entropy", "labels": np.array([0, 2, 1, 1, 0, 2])}
    inputs = np.random.default_rng(0).normal(size=(6, 4))
    theirs = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3))
    ours = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    return align.compare(theirs, ours, inputs, **given, optimizer="sgd", steps=2, dtype="float64")


def walked() -> list[str]:
    """Files of align whose functions run, in the order of their first call."""
    found: dict[str, None] = {}

    def watch(frame, event: str, _) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            path = Path(frame.f_code.co_filename)
            if PACKAGE in path.parents:
                found.setdefault(path.relative_to(PACKAGE).as_posix())

    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        assert compare().passed
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return [name for name in found if name != "__init__.py"]  # which only finds `compare`


def test_the_walk_is_the_documented_one() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## The way of one comparison")[2]
    documented = re.findall(r"^- `([\w/]+\.py)`", section.partition("\n## ")[0], re.MULTILINE)
    assert compare().passed  # everything is imported now
    assert walked() == documented
