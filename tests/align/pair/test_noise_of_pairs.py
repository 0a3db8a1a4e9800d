"""What misses its floor is judged by moved runs of PyTorch; real faults still fail."""

import numpy as np
import paddle
import pytest
import torch

import align
from align.judge import noise_band
from tests.align.small_pairs import model_of

import sot_torch_ref  # noqa: F401  isort: skip (declares the operators that torchvision lacks)
import torchvision  # isort: skip

DATA = np.random.default_rng(3).normal(size=(7, 6))


def two_values(name, seed, dtype):
    """A model whose last batch norms see two values."""
    torch.manual_seed(seed)
    theirs = getattr(torchvision.models, name)(num_classes=10)
    ours = getattr(paddle.vision.models, name)(num_classes=10)
    image = np.random.default_rng(seed).normal(size=(2, 3, 32, 32)).astype("float32")
    return align.compare(theirs, ours, image, train=True, dtype=dtype)


@pytest.mark.parametrize(
    ("name", "seed", "dtype"),
    [
        ("resnet18", 0, "float32"),
        ("resnet18", 1, "float32"),
        ("resnet18", 2, "float32"),
        ("mobilenet_v2", 1, ("float64", "float32")),
    ],
)
@pytest.mark.long
def test_a_right_model_passes_where_its_batch_norm_sees_two_values(name, seed, dtype):
    found = two_values(name, seed, dtype)
    assert found.passed, str(found)
    forward = next(r for r in found.report.results if r.step == "forward")
    assert len(forward.comparisons) > 50


def test_what_float32_leaves_out_is_refused_where_no_float64_judges_it():
    """Otherwise neither the output nor a gradient would be compared, and all the rest passes."""

    def rounding(f, factor):
        def forward(model, x):
            return (factor * model.layer(x) + 1e7) - 1e7

        return model_of(f, forward, layer=f.nn.Linear(4, 3))

    data = np.random.default_rng(0).normal(size=(5, 4))
    with pytest.raises(ValueError, match=r"float32 alone: .* about \(model\), .* float64 too"):
        align.compare(rounding(torch, 1), rounding(paddle, 1.5), data, dtype="float32")


def test_a_fault_still_fails_after_the_scatter_was_measured():
    theirs = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.BatchNorm1d(5), torch.nn.ReLU())
    ours = paddle.nn.Sequential(paddle.nn.Linear(6, 5), paddle.nn.BatchNorm1D(5), paddle.nn.ReLU())
    ours.register_forward_post_hook(lambda _, __, output: output * 1.001)
    found = align.compare(theirs, ours, DATA, train=True, dtype="float32")
    assert not found.passed
    assert found.first_divergence is not None


LARGE = {"float32": 2.0**6, "float64": 2.0**24}
"""What a layer adds and takes away again: its last digits are lost."""


class Rough(torch.nn.Linear):
    """A badly conditioned layer: rounding moves what it returns by a unit of a large number."""

    def forward(self, x):
        large = LARGE[str(x.dtype).removeprefix("torch.")]
        return (super().forward(x) + large) - large


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("times", "passes"), [(1, True), (10, False)])
def test_an_error_as_large_as_a_rounding_passes_and_ten_times_as_much_fails(dtype, times, passes):
    unit = LARGE[dtype] * float(np.finfo(dtype).eps)

    class Ours(paddle.nn.Linear):
        def forward(self, x):
            signs = paddle.to_tensor(np.resize([1.0, -1.0, -1.0], 5).astype(dtype))
            return super().forward(x) + times * unit * signs

    torch.manual_seed(0)
    theirs = torch.nn.Sequential(Rough(6, 5))
    found = align.compare(theirs, paddle.nn.Sequential(Ours(6, 5)), DATA, dtype=dtype)
    forward = next(r for r in found.report.results if r.step == "forward")
    assert forward.passed == passes, str(found)
    taps = [c for c in forward.comparisons if c.name in ("0", "(model)")]
    assert {c.tolerance.kind for c in taps} == {"band"}
    assert all(c.worst > c.tolerance.value for c in taps)  # no floor holds it


@pytest.mark.parametrize(
    ("units", "sides", "passes"),
    [(2, noise_band.SIDES, True), (2, {}, False), (20, noise_band.SIDES, False)],
)
def test_a_kink_within_rounding_passes_on_either_side_and_one_beyond_fails(
    monkeypatch, units, sides, passes
):
    """Paddle's ReLU opens late; its argument is so many units of a rounding above zero."""
    monkeypatch.setattr(noise_band, "SIDES", sides)
    unit = LARGE["float32"] * float(np.finfo("float32").eps)

    class Late(paddle.nn.ReLU):
        def forward(self, x):
            on = super().forward(x)
            return paddle.where(x > 1.5 * units * unit, on, on.detach())

    torch.manual_seed(0)
    theirs = torch.nn.Sequential(Rough(6, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3))
    with torch.no_grad():
        first = torch.from_numpy(DATA[0]).float()
        argument = torch.nn.functional.linear(first, *theirs[0].parameters())
        theirs[0].bias[2] += units * unit - argument[2]

    class Ours(paddle.nn.Linear):
        def forward(self, x):
            return (super().forward(x) + LARGE["float32"]) - LARGE["float32"]

    ours = paddle.nn.Sequential(Ours(6, 5), Late(), paddle.nn.Linear(5, 3))
    found = align.compare(theirs, ours, DATA, dtype="float32")
    backward = next(r for r in found.report.results if r.step == "backward")
    assert backward.passed == passes, str(found)


def test_the_weight_that_is_planted_wrong_is_one_that_one_percent_changes():
    """1 % of a single negative number, and of its size, is nothing."""

    def scaled(f, gain):
        return model_of(f, lambda m, x: m.layer(x) * m.gain, layer=f.nn.Linear(6, 5), gain=gain)

    theirs = scaled(torch, torch.nn.Parameter(torch.full((1,), -0.01)))
    ours = scaled(paddle, paddle.create_parameter([1], "float32"))
    found = align.compare(theirs, ours, DATA, dtype="float64")
    forward = next(r for r in found.report.results if r.step == "forward")
    assert forward.controls
    assert all(control.caught for control in forward.controls)


def normed(f, eps: float = 1e-6):
    """An RMS norm of language models: its statistics are of float32 in every precision."""

    def norm(model, x):
        narrow = x.float() if f is torch else x.astype("float32")
        return model.weight * (x * f.rsqrt(narrow.pow(2).mean(-1, keepdim=True) + model.eps))

    weight = torch.nn.Parameter(torch.ones(5))
    if f is paddle:
        weight = paddle.create_parameter([5], "float32")
    middle = model_of(f, norm, weight=weight, eps=eps)
    return f.nn.Sequential(f.nn.Linear(6, 5), middle, f.nn.Linear(5, 5))


def of_norms(eps=1e-6, **options):
    data = np.random.default_rng(0).normal(size=(7, 6))
    return align.compare(normed(torch), normed(paddle, eps), data, dtype="float64", **options)


def test_float64_allows_for_what_pytorch_itself_computes_in_float32_and_names_an_epsilon():
    results = [of_norms(seed=seed, inject=True) for seed in range(3)]
    assert [found.passed for found in results] == [True] * 3
    notes = [note for found in results for note in found.notes]  # of those that missed a floor
    assert any("PyTorch computes in float32" in note for note in notes)
    found = of_norms(eps=1e-3)
    assert [one.place for one in found.guilty] == ["1"]
    assert found.root.cause.startswith("eps: Paddle's layer has 0.001, PyTorch's 1e-06; with ")


def narrow(f, eps: float = 1e-6):
    """A norm in float32, as most language models have one, and scores in float32."""
    cast = torch.Tensor.to if f is torch else paddle.Tensor.astype

    def forward(model, x):
        made = cast(model.first(x), f.float32)
        made = made * f.rsqrt(made.pow(2).mean(-1, keepdim=True) + model.eps)
        return cast(model.last(cast(made, x.dtype)), f.float32)

    return model_of(f, forward, first=f.nn.Linear(6, 5), last=f.nn.Linear(5, 3), eps=eps)


@pytest.mark.parametrize("loss", ["cross_entropy", None])
def test_what_a_model_computes_in_float32_is_judged_by_it_in_float64_too(loss):
    given = {"loss": loss, "labels": np.arange(7) % 3 if loss else None}
    given |= {"optimizer": "adamw", "steps": 2}
    found = align.compare(narrow(torch), narrow(paddle), DATA, **given)
    assert found.passed, str(found)
    found = align.compare(narrow(torch), narrow(paddle, 1e-3), DATA, **given)
    assert (found.exit_code, found.root.step, found.root.place) == (1, "forward", "(model)")


def test_a_planted_gradient_falls_where_gradients_are_judged():
    """A channel of one value: float32 knows no gradient in front of the batch norm's kinks."""
    data = np.random.default_rng(0).normal(size=(4, 3, 5, 5))
    data[:, 0] = 0.3
    norm = paddle.nn.BatchNorm2D(3, weight_attr=False, bias_attr=False)
    ours = paddle.nn.Sequential(norm, paddle.nn.ReLU(), paddle.nn.Conv2D(3, 4, 3))
    norm = torch.nn.BatchNorm2d(3, affine=False)
    theirs = torch.nn.Sequential(norm, torch.nn.ReLU(), torch.nn.Conv2d(3, 4, 3))
    found = align.compare(theirs, ours, data, train=True)
    assert found.passed, str(found)
    assert any(note.startswith("backward in float32: ") for note in found.notes)


ON_A_STEP = np.random.default_rng(0).normal(size=(40, 6))
ON_A_STEP[0, 0] = 3.0  # the moved runs fall below it


def stepped(f, gelu):
    """A choice that the moved runs make otherwise: a step at a whole number."""
    inner = f.nn.Sequential(f.nn.Linear(6, 30), gelu, f.nn.Linear(30, 3))
    return model_of(f, lambda model, x: model.inner(x + 0.02 * f.floor(x)), inner=inner)


@pytest.mark.parametrize("wrong", [False, True])
def test_one_input_on_a_step_hides_no_other_gelu(wrong):
    ours = stepped(paddle, paddle.nn.GELU(approximate=wrong))
    found = align.compare(stepped(torch, torch.nn.GELU()), ours, ON_A_STEP, dtype="float64")
    assert found.passed != wrong, str(found)
    if wrong:
        assert found.root.place == "inner.1"
        assert "tanh approximation" in found.root.cause
