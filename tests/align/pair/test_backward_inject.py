"""Inject mode for the backward pass: every guilty layer, by its own backward pass alone."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
import torch
from paddle import nn

import align
from align.pair.any_pair import AnyPair
from align.pair.isolation_backward import BackwardIsolation
from align.stages.stages import isolated_backward
from tests.align.small_pairs import Scaled, in_both, pair_in

X = np.random.default_rng(1).normal(size=(3, 4, 6))


class Faulty(nn.Layer):
    """A layer without parameters with a factor on its gradient."""

    def __init__(self, layer: nn.Layer, factor: float) -> None:
        super().__init__()
        self._call, self._factor = layer, factor

    def forward(self, x):
        return Scaled.apply(self._call(x), self._factor)


def net(f, module):
    class Block(module):
        """x + drop(fc(norm(x)))."""

        def __init__(self, faults: tuple[str, ...]) -> None:
            super().__init__()
            self.faults = faults
            self.norm, self.fc, self.drop = f.nn.LayerNorm(6), f.nn.Linear(6, 6), f.nn.Dropout(0.0)

        def forward(self, x):
            shortcut = x.detach() if "shortcut" in self.faults else x
            out = self.fc(self.norm(x))
            return shortcut + self.drop(
                Scaled.apply(out, 2.0) if "container" in self.faults else out
            )

    class Net(module):
        """Attention by hand, a block with a residual connection, layers without parameters.

        `faults` names what is wrong in its backward pass.
        """

        def __init__(self, faults: tuple[str, ...] = ()) -> None:
            super().__init__()
            self.faults = faults
            self.q, self.k, self.v = (f.nn.Linear(6, 6) for _ in range(3))
            self.soft = Faulty(nn.Softmax(-1), 0.5) if "soft" in faults else f.nn.Softmax(-1)
            self.block = Block(faults)
            self.act = Faulty(nn.Tanh(), 3.0) if "act" in faults else f.nn.Tanh()
            self.head = f.nn.Linear(6, 3)

        def forward(self, x):
            value = self.v(x).detach() if "value" in self.faults else self.v(x)
            turned = (1, 2) if f is torch else ([0, 2, 1],)
            x = self.soft(self.q(x) @ self.k(x).transpose(*turned)) @ value
            hidden = self.block(x)  # it goes on and goes out
            return self.head(self.act(hidden.detach() if "cut" in self.faults else hidden)), hidden

    return Net


TorchNet, PaddleNet = in_both(net)


def pair(
    *faults: str, theirs=TorchNet, seed: int = 0, dtype: str = "float64", **options
) -> AnyPair:
    torch.manual_seed(seed)
    return pair_in(theirs(), PaddleNet(faults), X, dtype, seed=seed, **options)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_right_port_has_no_guilty_layer(seed: int, dtype: str) -> None:
    result, guilty = isolated_backward(pair(seed=seed, dtype=dtype, train=bool(seed % 2)))
    assert result.passed, result.failures
    assert guilty == []
    names = {c.name for c in result.comparisons}
    assert {"gradient at input 0 of act", "gradient at soft", "block.fc.weight"} <= names
    assert [c.caught for c in result.controls] == [True]


def test_two_layers_without_parameters_are_both_listed_in_backward_order() -> None:
    result, guilty = isolated_backward(pair("soft", "act"))
    assert [one.place for one in guilty] == ["act", "soft"]
    assert "3.000 x the reference" in guilty[0].cause
    assert "0.500 x the reference" in guilty[1].cause
    assert guilty[0].step == "backward"
    assert len(result.failures) == 2
    assert result.case == "pair (inject)"


@pytest.mark.parametrize(
    ("fault", "place", "cause"),
    [
        ("value", "(model)", "no gradient comes back: the graph is cut there"),
        ("shortcut", "block", "the gradient through the residual connection is missing"),
        ("container", "block", "2.000 x the reference"),
    ],
)
def test_a_container_is_guilty_of_its_own_code_only(fault, place, cause) -> None:
    _, guilty = isolated_backward(pair(fault))
    assert [one.place for one in guilty] == [place]
    assert cause in guilty[0].cause


def test_a_detach_that_the_port_forgot_accuses_the_caller() -> None:
    _, guilty = isolated_backward(pair(theirs=lambda: TorchNet(("cut",))))
    assert [one.place for one in guilty] == ["(model)"]
    assert isolated_backward(pair())[1] == []


def test_the_planted_gradient_is_seen_in_every_single_layer() -> None:
    held = pair()
    inside = ("block", "block.norm", "block.fc", "block.drop")
    for place in ("act", "head", *inside, "soft", "v", "(model)"):
        run = BackwardIsolation(held, tripled=place).run()
        assert {one.place for one in run.wrong} == {place}


def attending(f, module):
    class Attending(module):
        """One tensor given three times, in the port once or twice as well."""

        def __init__(self, times: int = 3) -> None:
            super().__init__()
            options = {"batch_first": True} if f is torch else {}
            self.attn, self.times = getattr(f.nn, ATTENTION[f])(6, 2, **options), times

        def forward(self, x):
            out = self.attn(*[x] * self.times)
            return out[0] if f is torch else out

    return Attending


ATTENTION = {torch: "MultiheadAttention", paddle: "MultiHeadAttention"}


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_tensor_that_is_given_several_times_has_one_gradient(times: int) -> None:
    theirs, ours = in_both(attending)
    pair = pair_in(theirs(), ours(times), X, train=True)
    result, guilty = isolated_backward(pair)
    assert result.passed, result.failures
    assert guilty == []


def test_gradients_that_are_no_numbers_on_both_sides_are_a_difference_and_no_refusal() -> None:
    def roots(f, _):
        class Roots(f.nn.Linear):
            def forward(self, x):
                z = super().forward(x)
                return (z - z).square().sum(-1).sqrt()  # its gradient is 0 / 0

        return Roots

    theirs, ours = in_both(roots)
    behind = torch.nn.Sequential(torch.nn.Linear(6, 6), theirs(6, 6))
    result = align.compare(behind, nn.Sequential(nn.Linear(6, 6), ours(6, 6)), X, dtype="float64")
    assert result.root.step == "backward"
    assert "NaN" in result.root.reason


def test_a_parameter_without_axes_keeps_its_precision() -> None:
    """The scale of CLIP's logits: NumPy makes float64 of 0 and one number of float32."""

    class Theirs(torch.nn.Linear):
        def __init__(self) -> None:
            super().__init__(6, 3)
            self.scale = torch.nn.Parameter(torch.tensor(0.7))

        def forward(self, x):
            return super().forward(x) * self.scale.exp()

    class Ours(nn.Linear):
        def __init__(self) -> None:
            super().__init__(6, 3)
            self.scale = self.create_parameter([])

        def forward(self, x):
            return super().forward(x) * self.scale.exp()

    result, wrong = isolated_backward(pair_in(Theirs, Ours, X, "float32"))
    assert not wrong
    assert result.passed, [c.reason for c in result.failures]


class TorchPacked(torch.nn.Module):
    """Queries and keys of one packed layer, multiplied, then a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.packed, self.out = torch.nn.Linear(6, 12), torch.nn.Linear(6, 3)

    def forward(self, x):
        q, k = self.packed(x).chunk(2, -1)
        return self.out(q * torch.sin(k))


class PaddleMix(nn.Layer):
    """Queries and keys in two layers, multiplied with a term too many; no layer of PyTorch's."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.out = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        return self.out(self.q(x) * paddle.sin(self.k(x)) + 0.3 * self.q(x) * self.k(x))


class PaddleSplit(nn.Layer):
    """The port of `TorchPacked` around it."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = PaddleMix()

    def forward(self, x):
        return self.mix(x)


def test_a_wrong_gradient_of_code_that_is_wrong_in_the_forward_pass_is_its_consequence() -> None:
    table = {f"packed.{leaf}": [f"mix.q.{leaf}", f"mix.k.{leaf}"] for leaf in ("weight", "bias")}
    table["out"] = "mix.out"
    result = align.compare(TorchPacked, PaddleSplit, X, dtype="float64", inject=True, weights=table)
    assert [finding.step for finding in result.report.repairs] == ["forward"], str(result)
    assert {finding.follows for finding in result.report.consequences} == {"forward"}
