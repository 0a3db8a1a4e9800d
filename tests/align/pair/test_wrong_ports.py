"""Ports that are wrong where fresh weights, or outputs by their order, show nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import torch

import align
from align.record.arrays import pair_paths
from tests.align.small_pairs import in_both

INPUTS = np.random.default_rng(2).normal(size=(5, 4))


def gated(f, module):
    class Gated(module):
        """A branch behind a gate that is closed at the beginning."""

        def __init__(self, squash: Any = f.tanh) -> None:
            super().__init__()
            self.layer, self.squash = f.nn.Linear(4, 4), squash
            if f is torch:
                self.gate = torch.nn.Parameter(torch.zeros(1))
            else:
                closed = paddle.nn.initializer.Constant(0.0)
                self.gate = self.create_parameter([1], default_initializer=closed)

        def forward(self, x):
            return x + self.squash(self.gate) * self.layer(x)

    return Gated


def test_a_gate_that_begins_at_zero_is_opened() -> None:
    theirs, ours = in_both(gated)
    assert align.compare(theirs, ours, INPUTS).passed
    found = align.compare(theirs, lambda: ours(lambda gate: gate), INPUTS)
    assert found.first_divergence is not None, str(found)


def two(f, module):
    class Two(module):
        """Two outputs by name."""

        def __init__(self, *names: str) -> None:
            super().__init__()
            self.a, self.b = f.nn.Linear(4, 3), f.nn.Linear(4, 3)
            self.names = names or ("scores", "aux")

        def forward(self, x):
            return dict(zip(self.names, (self.a(x), self.b(x)), strict=True))

    return Two


Two, TwoPort = in_both(two)


def test_an_output_under_the_name_of_another_one_is_found() -> None:
    assert align.compare(Two, lambda: TwoPort("logits", "more"), INPUTS).passed
    found = align.compare(Two, lambda: TwoPort("aux", "logits"), INPUTS)
    assert found.first_divergence is not None, str(found)


def _with(held: str, flags: str) -> Any:
    """TwoPort's scores and where they are positive, each cast to a dtype."""

    class Cast(TwoPort):
        def forward(self, x: paddle.Tensor) -> Any:
            scores = super().forward(x)["scores"]
            return scores.astype(held), (scores > 0).astype(flags)

    return lambda: Cast("scores", "aux")


class Flags(Two):
    def forward(self, x: torch.Tensor) -> Any:
        scores = super().forward(x)["scores"]
        return scores, scores > 0


def test_flags_that_become_numbers_and_a_cast_are_told() -> None:
    assert align.compare(Flags, _with("float64", "bool"), INPUTS, dtype="float64").passed
    for held in (("float64", "int64"), ("float32", "bool")):
        found = align.compare(Flags, _with(*held), INPUTS, dtype="float64")
        assert found.first_divergence.cause.startswith("a cast: Paddle returns"), str(found)


def test_a_loss_gets_the_outputs_as_they_are_paired() -> None:
    class Turned(TwoPort):
        def forward(self, x: paddle.Tensor) -> dict[str, paddle.Tensor]:
            made = super().forward(x)
            return {"aux": made["aux"], "logits": made["scores"]}

    def theirs(made: Any) -> Any:
        return made["scores"].pow(2).sum() + made["aux"].abs().sum()

    def ours(made: Any) -> Any:
        return made["logits"].pow(2).sum() + made["aux"].abs().sum()

    found = align.compare(Two, lambda: Turned("scores", "aux"), INPUTS, loss=(theirs, ours))
    assert found.passed, str(found)


def test_names_that_both_have_are_paired_first() -> None:
    pairs = pair_paths(["a", "b", "c"], ["c", "d"])
    assert pairs == ([("a", "a", "d"), ("c", "c", "c")], ["b"], [])
    assert [b for _, _, b in pair_paths(["0.0", "0.1", "1"], ["0", "1", "2"])[0]] == ["0", "1", "2"]


def filled(f, module):
    class Filled(module):
        """Takes unknown ids for 0."""

        def __init__(self, writes: bool = False) -> None:
            super().__init__()
            self.layer, self.writes = f.nn.Embedding(6, 4), writes

        def forward(self, ids):
            known = ids if self.writes else ids.clone()
            known[known < 0] = 0
            return self.layer(known)

    return Filled


def test_an_input_that_the_port_changes_in_place_is_found() -> None:
    ids = {"ids": np.array([[1, -1, 3], [5, 0, 2]])}
    theirs, ours = in_both(filled)
    assert align.compare(theirs, ours, ids).passed
    outcome = align.compare(theirs, lambda: ours(writes=True), ids)
    assert outcome.root.cause == "changed in place in Paddle, not in PyTorch: input ids"


def test_an_output_that_only_counts_is_no_partner_of_a_named_one_before_its_own_place():
    """A head that returns scores and what it met on the way, and whose scores are of a part."""
    arrays = {"0": np.zeros(3), "1.words": np.ones(3), "1.class": np.full(3, 2.0)}
    own = {"0": np.ones(3)}
    read = arrays.__getitem__, own.__getitem__
    pairs, left, _ = pair_paths(arrays, own, read)
    assert pairs == [("0", "0", "0")]
    assert left == ["1.words", "1.class"]
