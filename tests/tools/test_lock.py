"""The lock of `make setup` holds what pyproject.toml requires, in its ranges, and nothing else."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.tools import tool_runs

LINES = (Path(__file__).resolve().parents[2] / "requirements.txt").read_text("utf-8").splitlines()
LOCKED = dict(line.split("==") for line in LINES if "==" in line)
lock = tool_runs.load("lock")


def required_by(name: str) -> list[str]:
    return importlib.metadata.requires(name) or []


def test_the_lock_holds_what_is_needed_and_nothing_else():
    assert set(LOCKED) == lock.needed_packages(required_by)


def test_every_version_is_one_that_the_packages_allow():
    requirements = [Requirement(line) for line in lock.direct_requirements()]
    requirements += [Requirement(line) for name in LOCKED for line in required_by(name)]
    wrong = [
        str(requirement)
        for requirement in requirements
        if (version := LOCKED.get(canonicalize_name(requirement.name)))
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if not requirement.specifier.contains(version, prereleases=True)
    ]
    assert wrong == []
