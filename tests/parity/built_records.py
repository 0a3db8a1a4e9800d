"""What a side says about a model as built or about options, and how both are compared.

A record names things (tensors, modules, options) and says facts about each: shape, dtype, epsilon,
rate, initial distribution. Numbers are compared to 1e-9 of their size, because both sides compute
some of them (a bound of 1 / sqrt(fan-in), for example).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Facts = Mapping[str, Any]
Named = dict[str, dict[str, Any]]

COUNTS = ("trainable", "all values", "decayed", "undecayed", "head")
"""Trainable values, values of the state, tensors by the vision rule, values of the head."""

_ALIKE = 1e-9

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
    """

    tensors: Named = field(default_factory=dict)
    modules: Named = field(default_factory=dict)
    options: Named = field(default_factory=dict)
    values: dict[str, np.ndarray] = field(default_factory=dict)

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


def assert_facts(
    paddle_facts: Mapping[str, Facts],
    torch_facts: Mapping[str, Facts],
    differences: Iterable[StatedDifference] = (),
) -> None:
    """Assert that both sides say the same of the same names, but for the stated differences.

    Args:
        paddle_facts: ours by name.
        torch_facts: PyTorch's or the specification's, in Paddle's names.
        differences: deliberate ones: they must be there, exactly as listed.
    """
    assert torch_facts
    paddle_rest = {name: dict(facts) for name, facts in paddle_facts.items()}
    torch_rest = {name: dict(facts) for name, facts in torch_facts.items()}
    for one in differences:
        values = [
            side.get(one.name, {}).pop(one.fact, ABSENT) for side in (paddle_rest, torch_rest)
        ]
        assert alike(values, [one.ours, one.reference]), f"stale difference {one.name}: {values}"
    assert sorted(paddle_rest) == sorted(torch_rest)
    wrong = []
    for name, expected in torch_rest.items():
        actual = paddle_rest[name]
        for fact in dict.fromkeys([*expected, *actual]):
            pair = actual.get(fact, ABSENT), expected.get(fact, ABSENT)
            if not alike(*pair):
                wrong.append(f"{name}: {fact} {pair[0]!r} against {pair[1]!r}")
    assert not wrong, "\n".join(wrong)
