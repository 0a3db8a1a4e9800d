"""What a side says about a model as built, and how two such records are judged. No framework.

A record names things (tensors, modules, options) and says facts about each: shape, dtype, epsilon,
rate, initial distribution. Facts are compared one by one, numbers to 1e-9 of their size, because
both sides compute some of them (a bound of 1 / sqrt(fan-in), for example).
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from align.judge.comparator import compare_mappings
from align.record.arrays import Arrays
from align.record.results import Comparison, Tolerance

Facts = Mapping[str, Any]
Named = dict[str, dict[str, Any]]

COUNTS = ("trainable", "all values", "decayed", "undecayed", "head")
"""Trainable values, values of the state, tensors by the vision rule, values of the head."""

_ALIKE = 1e-9
_EQUAL = Tolerance("exact", 0.0, "what is there before training is decided, not computed")
_INDEX = re.compile(r"\d+")


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


@dataclass
class Built:
    """A model as built.

    Attributes:
        tensors: parameters and buffers of the state, with their facts.
        modules: constants of modules.
        options: of the model, as its records hold them.
        values: buffers, tables and masks as they are.
        stamp: who built it.
    """

    tensors: Named = field(default_factory=dict)
    modules: Named = field(default_factory=dict)
    options: Named = field(default_factory=dict)
    values: Arrays = field(default_factory=dict)
    stamp: Mapping[str, Any] = field(default_factory=dict)

    def copied(self) -> Built:
        """A copy whose facts and tables can be replaced."""
        tensors = {name: dict(facts) for name, facts in self.tensors.items()}
        modules = {name: dict(facts) for name, facts in self.modules.items()}
        return dataclasses.replace(self, tensors=tensors, modules=modules, values=dict(self.values))

    def counts(self) -> dict[str, int]:
        """See COUNTS."""
        sizes = {name: math.prod(facts["shape"]) for name, facts in self.tensors.items()}
        trained = {name for name, facts in self.tensors.items() if facts["trained"]}
        decayed = {name for name in trained if self.tensors[name]["decayed (vision)"]}
        return {
            "trainable": sum(sizes[name] for name in trained),
            "all values": sum(sizes[name] for name in self.tensors if "running" not in name),
            "decayed": len(decayed),
            "undecayed": len(trained - decayed),
            "head": sum(sizes[name] for name in trained if name.startswith("head.")),
        }


def facts_of(*names: str, **named: str) -> Callable[[Any], dict[str, Any]]:
    """Reads attributes of a module as facts; ``named``: fact -> attribute of another name."""
    facts = {**dict(zip(names, names, strict=True)), **named}
    return lambda module: {fact: getattr(module, name) for fact, name in facts.items()}


SHARED: Mapping[str, Callable[[Any], dict[str, Any]]] = {
    "ConvNorm": facts_of("relu"),
    "DropPath": facts_of("rate"),
    "PatchMerging": facts_of("size"),
    "ScaleNorm": lambda m: {"factor": m.factor} if isinstance(m.factor, float) else {},
    "SwinBlock": facts_of("size", "window", "shift", "padding"),
    "WordHead": facts_of("mask_padding"),
}
"""Constants of the modules that both sides have under one name, by the name of the class."""
SVPN = ("alpha", "num_iter", "num_sv", "on_zero")
MGCRP = ("num_heads", "wr_dim", "centering", "output_dim")
GCP = ("centering", "scale", "output_dim")
"""Constants of those that have another name on either side."""


def alike(ours: Any, reference: Any) -> bool:
    """Whether two facts are the same: numbers within 1e-9, sequences element by element."""
    if isinstance(ours, tuple | list) and isinstance(reference, tuple | list):
        pairs = zip(ours, reference, strict=False)
        return len(ours) == len(reference) and all(alike(*pair) for pair in pairs)
    if type(ours) is type(reference) and ours == reference:
        return True
    numbers = (isinstance(v, int | float) and not isinstance(v, bool) for v in (ours, reference))
    return all(numbers) and math.isclose(ours, reference, rel_tol=_ALIKE)


def compare_facts(
    ours: Mapping[str, Facts],
    reference: Mapping[str, Facts],
    differences: Iterable[StatedDifference] = (),
) -> Iterator[Comparison]:
    """Judge the facts about every name of either side, one after the other as they are asked for.

    Args:
        ours: Paddle's.
        reference: PyTorch's or the specification's, in Paddle's names.
        differences: deliberate ones: they must be there, exactly as listed.

    Yields:
        One Comparison for each listed difference and for each name; a single failed one when
        there is nothing.
    """
    if not ours and not reference:
        yield from compare_mappings({}, {}, _EQUAL)
    mine, theirs = dict(ours), dict(reference)
    for one in differences:
        found = tuple(side.get(one.name, {}).get(one.fact, ABSENT) for side in (ours, reference))
        stale = not alike(found, (one.ours, one.reference))
        expected = f"{one.ours!r} against {one.reference!r}"
        reason = f"listed as {expected}, found {found[0]!r} against {found[1]!r}" if stale else ""
        yield _judged(f"(listed difference) {one.name}: {one.fact}", reason)
        for side in (mine, theirs):
            facts = side.get(one.name, {})
            side[one.name] = {fact: facts[fact] for fact in facts if fact != one.fact}
    for name in dict.fromkeys([*theirs, *mine]):
        yield _compared(name, mine.get(name), theirs.get(name))


def compare_values(ours: Mapping[str, Any], reference: Mapping[str, Any]) -> list[Comparison]:
    """Judge tables, masks and buffers: equal in every element, by name."""
    names = dict.fromkeys([*reference, *ours])
    return compare_mappings(ours, reference, _EQUAL) if names else []


def collapse(comparisons: Iterable[Comparison]) -> list[Comparison]:
    """One line for tensors that differ in the number of their layer only and all agree.

    What fails keeps its own line, under its own name.
    """
    lines: list[Comparison] = []
    groups: dict[str, list[Comparison]] = {}
    for one in comparisons:
        if one.passed:
            groups.setdefault(_INDEX.sub("#", one.name), []).append(one)
        else:
            lines.append(one)
    for key, members in groups.items():
        many = len(members) > 1
        lines.append(_judged(f"{key} ({len(members)} alike)", "") if many else members[0])
    return lines


def shifted(value: np.ndarray) -> np.ndarray:
    """The array with its elements moved by one, for a planted fault."""
    return np.roll(value.reshape(-1), 1).reshape(value.shape)


def _compared(name: str, ours: Facts | None, reference: Facts | None) -> Comparison:
    absent = [side for side, facts in (("Paddle", ours), ("PyTorch", reference)) if facts is None]
    if absent:
        return _judged(name, f"missing on the {absent[0]} side")
    assert ours is not None
    assert reference is not None
    wrong = [
        f"{fact} {ours.get(fact, ABSENT)!r} against {reference.get(fact, ABSENT)!r}"
        for fact in dict.fromkeys([*reference, *ours])
        if not alike(ours.get(fact, ABSENT), reference.get(fact, ABSENT))
    ]
    return _judged(name, "; ".join(wrong), len(wrong))


def _judged(name: str, reason: str, wrong: int = 1) -> Comparison:
    return Comparison.stated(name, _EQUAL, reason, float(wrong) if reason else 0.0)
