"""`align.compare`: a passing pair, one planted fault of each class, and where each is found."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
import torch
from paddle import nn

import align
from align.commands.steps import Outcome
from align.record.results import Divergence
from align.record.run_report import Report
from tests.align.small_pairs import Scaled, model_of, steps_due

RNG = np.random.default_rng(7)
IDS = RNG.integers(1, 11, (3, 5))
IMAGES = RNG.normal(size=(2, 3, 8, 8))


class TorchText(torch.nn.Module):
    """Embedding, two residual layers, batch norm, classifier; tied, frozen, without parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.emb = torch.nn.Embedding(11, 6)
        self.q = torch.nn.Linear(6, 6)
        self.k = torch.nn.Linear(6, 6)
        self.soft = torch.nn.Softmax(-1)
        self.norm1 = torch.nn.LayerNorm(6, eps=1e-12)
        self.fc = torch.nn.Linear(6, 6)
        self.act = torch.nn.GELU()
        self.drop = torch.nn.Dropout(0.1)
        self.same = torch.nn.Identity()
        self.norm2 = torch.nn.LayerNorm(6, eps=1e-12)
        self.bn = torch.nn.BatchNorm1d(6)
        self.head = torch.nn.Linear(6, 11)
        self.head.weight = self.emb.weight
        self.q.bias.requires_grad_(False)

    def forward(self, ids):
        x = self.emb(ids)  # (B, N, C)
        scores = self.soft(self.q(x) @ self.k(x).transpose(1, 2))
        x = self.norm1(self.same(x) + scores @ x)
        x = self.norm2(x + self.drop(self.act(self.fc(x))))
        x = self.bn(x.transpose(1, 2)).transpose(1, 2)
        return {"logits": self.head(x), "hidden": (x, self.act(x))}


class TripledDropout(nn.Dropout):
    """A layer without parameters whose backward pass is wrong."""

    def forward(self, x):
        return Scaled.apply(super().forward(x), 3.0)


class PaddleText(nn.Layer):
    """The port; `fault` names what is wrong in it."""

    def __init__(self, fault: str = "") -> None:
        super().__init__()
        self.fault = fault
        self.emb = nn.Embedding(11, 6)
        self.q = nn.Linear(6, 6)
        self.k = nn.Linear(6, 6)
        self.soft = nn.Softmax(1 if fault == "axis" else -1)
        self.norm1 = nn.LayerNorm(6, epsilon=1e-12)
        self.fc = nn.Linear(6, 6)
        self.act = nn.GELU(approximate="tanh" in fault)
        self.drop = TripledDropout(0.1) if fault == "gradient" else nn.Dropout(0.1)
        self.same = nn.Identity()
        self.norm2 = nn.LayerNorm(6, epsilon=1e-5 if "epsilon" in fault else 1e-12)
        self.bn = nn.BatchNorm1D(6, momentum=0.1 if fault == "momentum" else 0.9)
        self.head = Tied(self.emb.weight)
        self.q.bias.stop_gradient = fault != "trainable"

    def forward(self, ids):
        x = self.emb(ids)
        q, k = self.q(x), self.k(x)
        product = k @ q.transpose([0, 2, 1]) if self.fault == "swapped" else None
        scores = self.soft(q @ k.transpose([0, 2, 1]) if product is None else product)
        mixed = scores @ x
        x = self.norm1(mixed if self.fault == "residual" else self.same(x) + mixed)
        x = self.norm2(x + self.drop(self.act(self.fc(x))))
        x = self.bn(x.transpose([0, 2, 1])).transpose([0, 2, 1])
        return {"logits": self.head(x), "hidden": (x, self.act(x))}


class Tied(nn.Layer):
    """Scores by an embedding's weight, in PyTorch's layout, with a bias of its own."""

    def __init__(self, weight) -> None:
        super().__init__()
        self.weight = weight
        self.bias = self.create_parameter([weight.shape[0]], is_bias=True)

    def forward(self, x):
        return x @ self.weight.T + self.bias


TIED = {"head.weight": {"to": "head.weight", "transform": "copy"}}


def compare(fault: str = "", **options):
    options.setdefault("dtype", "float64")
    ours = PaddleText(fault)
    return align.compare(TorchText(), ours, {"ids": IDS}, weights=TIED, **options)


def test_a_right_port_passes_in_both_precisions_with_training_and_inject() -> None:
    options = {"optimizer": "adamw", "steps": 3, "inject": True, "dtype": ("float64", "float32")}
    result = compare(**options)
    assert result.passed, str(result)
    assert result.exit_code == 0
    assert result.guilty == []
    assert result.first_divergence is result.first_backward_divergence is None
    steps = [(r.step, r.dtype) for r in result.report.results if r.case == "pair"]
    assert steps == steps_due("optimizer", "steps")
    assert len(result.report.results) == len(steps) + 4  # each layer alone, forward and backward
    names = {c.name for c in result.report.results[0].comparisons}
    assert {"same", "drop", "act", "act#2", "(model)[logits]"} <= names


def test_training_mode_compares_running_statistics_and_names_a_wrong_momentum() -> None:
    result = compare(train=True)
    assert result.passed, str(result)
    assert "bn._variance" in {c.name for c in result.report.results[0].comparisons}
    result = compare("momentum", train=True)
    assert not any("no number shows it" in note for note in result.notes)
    assert result.root.place == "bn"
    assert "use momentum=0.9" in result.root.cause


@pytest.mark.parametrize(
    ("fault", "tap", "place", "cause"),
    [
        ("epsilon", "norm2", "norm2", "epsilon: Paddle's layer has 1e-05, PyTorch's 1e-12; with"),
        ("tanh", "act", "act", "Paddle computes GELU (tanh approximation), PyTorch GELU (erf)"),
        ("axis", "soft", "soft", "Paddle takes axis 1, PyTorch axis 2"),
        ("residual", "norm1", "(model)", "is not added (a missing residual"),
        ("swapped", "soft", "(model)", "transposed"),
    ],
)
def test_a_forward_fault_is_located_and_explained(fault, tap, place, cause) -> None:
    result = compare(fault)
    assert result.exit_code == 1
    first = result.first_divergence
    assert (first.name, first.place) == (tap, place), str(result)
    assert cause in first.cause
    assert "forward" in first.source
    assert {one.place for one in result.guilty} == {place}


def test_a_wrong_gradient_in_a_layer_without_parameters_is_located() -> None:
    result = compare("gradient")
    assert result.first_divergence is None
    first = result.first_backward_divergence
    assert first.name == "gradient at act"
    assert first.place == "drop"
    assert "3.000 x the reference" in first.cause
    assert "TripledDropout.forward" in first.source


def test_inject_lists_every_guilty_layer_at_once() -> None:
    result = compare("tanh and epsilon", inject=True)
    assert {one.place for one in result.guilty} == {"act", "norm2"}


def test_a_parameter_trained_on_one_side_is_named() -> None:
    result = compare("trainable")
    assert not result.passed
    assert result.first_divergence.place == "q"


def image_models(*, exclusive: bool) -> tuple[torch.nn.Module, nn.Layer]:
    """Convolutions, pooling, an activation in place."""
    theirs = (
        *(torch.nn.Conv2d(3, 4, 3, padding=1, bias=False), torch.nn.BatchNorm2d(4)),
        *(torch.nn.ReLU(inplace=True), torch.nn.Conv2d(4, 4, 1), torch.nn.AvgPool2d(3, 2, 1)),
        torch.nn.ConvTranspose2d(4, 5, 2, 2),
    )
    ours = (
        *(nn.Conv2D(3, 4, 3, padding=1, bias_attr=False), nn.BatchNorm2D(4), nn.ReLU()),
        *(nn.Conv2D(4, 4, 1), nn.AvgPool2D(3, 2, 1, exclusive=exclusive)),
        nn.Conv2DTranspose(4, 5, 2, 2),
    )
    return torch.nn.Sequential(*theirs), nn.Sequential(*ours)


def image_loss(output, labels):
    return output[:, 0].mean() * 2 + (output * output).mean() + labels.sum() * 0


def test_images_with_losses_of_the_user_pass_and_the_average_pool_is_explained() -> None:
    options = {"loss": (image_loss, image_loss), "labels": np.zeros(2), "train": True}
    options |= {"optimizer": {"name": "sgd", "momentum": 0.9, "lr": 0.1}, "steps": 3}
    result = align.compare(*image_models(exclusive=False), IMAGES, **options)
    assert result.passed, str(result)
    first = align.compare(*image_models(exclusive=True), IMAGES, dtype="float64").first_divergence
    assert first.place == "4"
    assert "exclusive: Paddle's layer has True, PyTorch's False" in first.cause


def test_layers_without_parameters_pass() -> None:
    result = align.compare(torch.nn.Hardswish(), nn.Hardswish(), IMAGES, inject=True)
    assert result.passed, str(result)
    wrong = align.compare(torch.nn.SiLU(), nn.Mish(), IMAGES, dtype="float64")
    assert wrong.first_divergence.cause == "activation: Paddle computes Mish, PyTorch SiLU"


def test_what_no_number_shows_is_noted() -> None:
    theirs = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.ReLU6(), torch.nn.Dropout(0.1))
    ours = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Dropout(0.2))
    compared = align.compare(theirs, ours, np.eye(3, 4), dtype="float64")
    assert compared.passed
    (note,) = (note for note in compared.notes if "no number shows it" in note)
    assert "1: Paddle has ReLU, PyTorch ReLU6" in note
    assert "2: p: Paddle's layer has 0.2, PyTorch's 0.1" in note


def test_the_users_models_are_left_as_they_were() -> None:
    theirs, ours = torch.nn.Linear(4, 4).train(), nn.Linear(4, 4)
    before = theirs.weight.detach().clone(), ours.weight.numpy().copy()
    align.compare(theirs, ours, RNG.normal(size=(2, 4)), dtype="float64")
    assert torch.equal(theirs.weight, before[0])
    assert np.array_equal(ours.weight.numpy(), before[1])
    assert (theirs.weight.dtype, ours.weight.dtype) == (torch.float32, paddle.float32)
    assert theirs.training
    assert paddle.get_default_dtype() == "float32"


def words(f, cut: slice = slice(1, None), begin: int = 0) -> torch.nn.Module | nn.Layer:
    """A cut of the words, pooled by a model inside a model: the mean from a position on."""

    def mean(model, words):
        return model.inner(words[:, begin:].mean(1))

    def forward(model, ids):
        return model.fc(model.pool(model.emb(ids)[:, cut]))

    pool = f.nn.Sequential(model_of(f, mean, inner=f.nn.Linear(6, 6)))
    return model_of(f, forward, emb=f.nn.Embedding(11, 6), pool=pool, fc=f.nn.Linear(6, 3))


@pytest.mark.parametrize(
    ("cut", "lengths"),
    [
        (slice(2, None), "(3, 3, 6), in PyTorch of (3, 4, 6): the first 1 along axis 1 is missing"),
        (slice(0, None), "(3, 5, 6), in PyTorch of (3, 4, 6): the first 1 along axis 1 is too"),
        (slice(1, 3), "(3, 2, 6), in PyTorch of (3, 4, 6): the last 2 along axis 1 are missing"),
    ],
)
def test_a_tensor_cut_at_another_place_accuses_who_cut_it(cut, lengths) -> None:
    result = align.compare(words(torch), words(paddle, cut), IDS)
    assert result.root.place == "(model)"
    assert f"pool is given a tensor of shape {lengths}" in result.root.cause


def test_a_layer_that_is_given_a_picture_of_another_size_is_not_wrong() -> None:
    def pooling(f, convolution):
        def forward(model, x):
            pooled = f.nn.functional.max_pool2d(x, 2, ceil_mode=f is torch)
            return model.body(pooled).mean((2, 3))

        body = f.nn.Sequential(convolution(3, 4, 3), convolution(4, 5, 1))
        return model_of(f, forward, body=body)

    pair = pooling(torch, torch.nn.Conv2d), pooling(paddle, nn.Conv2D)
    result = align.compare(*pair, RNG.normal(size=(2, 3, 9, 11)), dtype="float64")
    assert [one.place for one in result.guilty] == ["(model)"]
    assert "body is given a tensor of shape (2, 3, 4, 5), in PyTorch of (2, 3, 5, 6)" in (
        result.root.cause
    )


def test_a_port_that_cuts_elsewhere_is_right() -> None:
    result = align.compare(words(torch), words(paddle, slice(0, None), 1), IDS, inject=True)
    assert result.passed, result
    assert result.findings == []


def trained(rate: float, decay: float | None = None, **options):
    """Of a linear layer, by SGD at 0.1 without decay and at these."""
    optimizers = (
        lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
        lambda layer: paddle.optimizer.SGD(rate, layer.parameters(), decay),
    )
    options = {"loss": "cross_entropy", "labels": np.array([0, 2, 1, 1, 1]), "steps": 3} | options
    pair = torch.nn.Linear(4, 3), nn.Linear(4, 3), RNG.normal(size=(5, 4))
    return align.compare(*pair, optimizer=optimizers, dtype="float64", **options)


@pytest.mark.parametrize(
    ("rate", "decay", "fixes", "follow"),
    [
        (0.1, None, ["metric"], []),
        (0.2, None, ["metric", "learning_rate"], ["optimizer", "training"]),
        (0.1, 0.5, ["metric", "optimizer"], ["training"]),
    ],
)
def test_what_an_earlier_difference_makes_is_no_repair(rate, decay, fixes, follow) -> None:
    """A wrong metric makes no run differ; a wrong rate makes the steps differ, and they the run."""

    metric = (lambda output, labels: output.sum(), lambda output, labels: output.sum() + 1)
    found = trained(rate, decay, metric=metric).report
    assert [one.step for one in found.repairs] == fixes
    assert list(dict.fromkeys(one.step for one in found.consequences)) == follow


def test_what_is_perhaps_no_fault_of_the_port_comes_after_a_proved_cause() -> None:
    def slightly(output, labels):
        return nn.functional.cross_entropy(output, labels) * (1 + 1e-8)

    result = trained(0.2, loss=(torch.nn.functional.cross_entropy, slightly))
    assert [one.step for one in result.report.repairs] == ["learning_rate", "loss"]
    assert result.verdict.startswith("FAIL: learning rate")
    assert "perhaps no fault of the port" in result.report.repairs[1].cause


def test_an_impossible_folder_is_refused_before_the_models_are_built(tmp_path) -> None:
    (out := tmp_path / "file").touch()
    with pytest.raises(ValueError, match=f"cannot write to {out}"):
        align.compare(lambda: pytest.fail("built"), nn.Linear(5, 4), np.ones((2, 5)), out=out)


def differs(step: str, name: str, place: str) -> Divergence:
    return Divergence(name, place, step, "float64", "differs")


def test_nothing_follows_from_a_listed_dropout_and_rates_follow_from_rates_alone() -> None:
    training = [
        differs("training", "losses", "loss"),
        differs("training", "rates", "schedule"),
    ]
    steps = ("forward", "learning_rate", "optimizer")

    def follows(*findings: Divergence) -> list[str]:
        outcome = Outcome(Report({}))
        outcome.add(findings)
        return [after.follows for after in outcome.after(steps, training)]

    dropout, wrong = differs("forward", "dropout of fc", "fc"), differs("forward", "fc", "fc")
    assert follows(dropout) == ["", ""]
    assert follows(dropout, wrong) == ["forward", ""]
    rates = differs("learning_rate", "learning rate", "schedule")
    assert follows(dropout, rates) == ["learning_rate"] * 2
