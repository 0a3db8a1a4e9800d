"""What a model keeps between calls is compared: buffers in eval mode too, counts as well."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
import torch

import align
from align.explain import locate
from tests.align.small_pairs import pair_in

INPUTS = np.random.default_rng(2).normal(size=(5, 4))


class Counting(torch.nn.Linear):
    """Moves a mean, and a place in a queue, in either mode."""

    def __init__(self) -> None:
        super().__init__(4, 3)
        self.register_buffer("center", torch.full((3,), 0.1))
        self.register_buffer("place", torch.zeros(1, dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = super().forward(x)
        self.center.mul_(0.9).add_(0.1 * made.detach().mean(0))
        self.place += len(x)
        return made


def port(*moved: str) -> type[paddle.nn.Linear]:
    class Ported(paddle.nn.Linear):
        def __init__(self) -> None:
            super().__init__(4, 3)
            self.register_buffer("center", paddle.full([3], 0.1))
            self.register_buffer("place", paddle.zeros([1], dtype="int32"))

        def forward(self, x: paddle.Tensor) -> paddle.Tensor:
            made = super().forward(x)
            if "center" in moved:
                self.center.set_value(0.9 * self.center + 0.1 * made.detach().mean(0))
            if "place" in moved:
                self.place.set_value(self.place + len(x))
            return made

    return Ported


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize(
    ("moved", "wrong"),
    [(("center", "place"), None), (("place",), "center"), (("center",), "place")],
)
def test_a_buffer_that_the_port_does_not_move_is_found(
    train: bool, moved: tuple[str, ...], wrong: str | None
) -> None:
    found = align.compare(Counting, port(*moved), INPUTS, train=train)
    assert found.passed == (wrong is None), str(found)
    if wrong:
        assert wrong in found.root.reason + found.root.name + found.root.cause


class Going(paddle.nn.Linear):
    """Adds what its last call made: right when it is called for the first time."""

    def __init__(self, cause: str) -> None:
        super().__init__(4, 3)
        self.cause, self.last, self.scale = cause, None, paddle.ones([1])

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        made = super().forward(x) * self.scale.astype(x.dtype).clone()
        if self.cause == "cache":
            kept, self.last = self.last, made.detach()
            return made if kept is None else made + kept
        if self.cause == "scale":
            self.scale = self.scale * 1.01
        return made


@pytest.mark.parametrize("cause", ["cache", "scale"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_port_that_goes_on_from_its_last_call_is_refused(cause: str, dtype: str) -> None:
    with pytest.raises(ValueError, match=r"two runs of the Paddle side differ .* its last run"):
        align.compare(lambda: torch.nn.Linear(4, 3), lambda: Going(cause), INPUTS, dtype=dtype)
    assert align.compare(lambda: torch.nn.Linear(4, 3), lambda: Going(""), INPUTS).passed


def test_and_one_whose_reference_does_so_too_is_not() -> None:
    class Keeping(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made = super().forward(x)
            kept, self.last = getattr(self, "last", None), made.detach()
            return made if kept is None else made + kept

    pair = (lambda: Keeping(4, 3)), (lambda: Going("cache"))
    assert align.compare(*pair, INPUTS, dtype="float64").passed


def test_running_statistics_that_are_wrong_after_training_are_explained() -> None:
    theirs, ours = torch.nn.BatchNorm1d(4), paddle.nn.BatchNorm1D(4, momentum=0.1)
    held = pair_in(theirs, ours, INPUTS, optimizer="sgd", steps=2)
    cause = "momentum: Paddle's layer has 0.1, PyTorch's 0.9 (its momentum is 0.1)"
    assert locate.running_statistic(held, "_mean") == cause
    assert locate.running_statistic(held, "weight") == ""
