"""Layers whose outputs have other shapes than their partners', in right and in wrong ports."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

import align
from tests.align.small_pairs import in_both


def flattening(f, module):
    class Flattening(module):
        """A block whose two inner layers may see one row a token, as OPT's does."""

        def __init__(self, flat: bool = False, wrong: str = "") -> None:
            super().__init__()
            self.fc1, self.fc2 = f.nn.Linear(8, 6), f.nn.Linear(6, 8)
            self.norm, self.flat, self.wrong = f.nn.LayerNorm(8), flat, wrong

        def forward(self, x):
            rows = x.reshape([-1, 8]) if self.flat else x
            made = self.fc2(f.nn.functional.relu(self.fc1(rows)))
            return self.norm(made.reshape(x.shape) + (0 if self.wrong == "residual" else x))

    return Flattening


TorchFlattening, PaddleFlattening = in_both(flattening)
WORDS = np.random.default_rng(1).normal(size=(2, 5, 8))


def test_flattened_rows_inside_a_block_are_a_note_when_what_follows_agrees() -> None:
    result = align.compare(TorchFlattening, lambda: PaddleFlattening(True), WORDS, inject=True)
    assert result.passed, str(result)
    shapes = "(10, 6) in Paddle, (2, 5, 6) in PyTorch"
    assert sum(f"fc1: {shapes}, which changes nothing" in note for note in result.notes) == 1


@pytest.mark.parametrize("wrong", ["fc2", "residual"])
def test_a_fault_beside_flattened_rows_is_named_and_not_they(wrong) -> None:
    def port() -> paddle.nn.Layer:
        layer = PaddleFlattening(True, wrong)
        layer.fc2.register_forward_post_hook(lambda _, __, y: y * (1.01 if wrong == "fc2" else 1))
        return layer

    result = align.compare(TorchFlattening, port, WORDS, dtype="float64")
    assert not result.passed
    assert result.root.place == ("fc2" if wrong == "fc2" else "(model)"), str(result)


def test_an_axis_too_many_is_named_where_it_is_made() -> None:
    def pooling(f, module):
        class Pooling(module):
            def __init__(self) -> None:
                super().__init__()
                self.norm, self.out = f.nn.LayerNorm(8), f.nn.Linear(8, 3)

            def forward(self, x):
                return self.out(x + self.norm(x.mean(1, keepdim=f is paddle)))

        return Pooling

    result = align.compare(*in_both(pooling), WORDS[:, :2], dtype="float64")
    assert result.root.place in ("norm", "(model)"), str(result)
    assert not any("changes nothing" in note for note in result.notes)
