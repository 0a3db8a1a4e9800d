"""Kinds of case about what is there before any weight or number is loaded: models and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ABSENT = "(absent)"
"""What a side has that does not know a fact."""


@dataclass(frozen=True)
class StatedDifference:
    """A deliberate difference; an unlisted one fails, and so does a listed one that is gone.

    Attributes:
        name: tensor, module or option, in Paddle's names.
        fact: what differs.
        ours: Paddle's value, or ABSENT.
        reference: the reference's.
        why: the reason; ``docs/differences.md`` has it too.
    """

    name: str
    fact: str
    ours: Any
    reference: Any
    why: str


@dataclass(frozen=True)
class BuiltCase:
    """A model as built: tensors, constants, tables, decay sets and initial distributions.

    Attributes:
        model: registry name on both sides.
        options: overrides on both sides; empty for the published sizes.
        published: counts that the specification states, see
            `align.cases.sides.built_records.COUNTS`.
        differences: deliberate ones.
        precision: default dtype while it is built.
    """

    name: str
    model: str
    options: Mapping[str, Any] = field(default_factory=dict)
    published: Mapping[str, int] = field(default_factory=dict)
    differences: tuple[StatedDifference, ...] = ()
    precision: str = "float32"
    steps: tuple[str, ...] = ("built",)
    dtypes: tuple[str | None, ...] = (None,)
    quick: bool = True


@dataclass(frozen=True)
class DrawsCase:
    """Initial values that a small model really draws, against the declared distributions.

    Attributes:
        model: registry name on both sides.
        options: overrides on both sides; small, but with enough values in the tensors that count.
    """

    name: str
    model: str
    options: Mapping[str, Any]
    steps: tuple[str, ...] = ("built",)
    dtypes: tuple[str | None, ...] = (None,)
    quick: bool = True


@dataclass(frozen=True)
class DefaultsCase:
    """Default values of options, optimizers and functions, or a table of the original's.

    Attributes:
        table: key of `align.cases.sides.default_tables.TABLES`.
        differences: deliberate ones.
        own: names that only the Paddle side has; they are not compared.
    """

    name: str
    table: str
    differences: tuple[StatedDifference, ...] = ()
    own: tuple[str, ...] = ()
    steps: tuple[str, ...] = ("built",)
    dtypes: tuple[str | None, ...] = (None,)
    quick: bool = True
