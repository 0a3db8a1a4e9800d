"""Dropout on with exchanged masks: clean pairs, every kind of dropout, and each slip named."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
import torch
from paddle import nn
from paddle.nn import functional as F

import align
from align.explain import locate
from align.frameworks import on_paddle, on_torch
from align.frameworks.masks import GRID, Masks
from align.pair.any_pair import AnyPair
from align.stages import stages
from align.stages.dropout_exchange import exchanged
from tests.align.small_pairs import pair_in

X = np.random.default_rng(4).normal(size=(4, 5, 6))


def test_numbers_depend_on_place_number_step_and_seed_only() -> None:
    masks = Masks({"a": "b"}, 3)
    numbers = masks.numbers(("b", 1), 1000, 0)
    assert np.array_equal(numbers, masks.numbers(("b", 1), 1000, 0))
    others = [(("b", 2), 0), (("b#2", 1), 0), (("c", 1), 0), (("b", 1), 1)]
    assert not any(np.array_equal(numbers, masks.numbers(k, 1000, s)) for k, s in others)
    assert not np.array_equal(numbers, Masks({}, 4).numbers(("b", 1), 1000, 0))
    assert 0 < numbers.min() < 0.01
    assert 0.99 < numbers.max() < 1
    assert np.array_equal(numbers.astype(np.float32), numbers)  # every one of them fits float32
    assert abs(numbers.mean() - 0.5) < 0.05
    assert len(np.unique(np.floor(numbers * GRID))) > 950


def test_the_order_in_which_layers_run_and_their_names_do_not_matter() -> None:
    masks = Masks({"left": "links", "right": "rechts"}, 0)

    def run(side, framework, names):
        model = side[1](names)
        with framework.dropout_exchanged(framework, masks, model, 0):
            model.train()
            return {n: framework.numpy(getattr(model, n)(side[0])) for n in names}

    class Torch(torch.nn.Module):
        def __init__(self, names):
            super().__init__()
            for name in names:
                self.add_module(name, torch.nn.Dropout(0.5))

    class Paddle(nn.Layer):
        def __init__(self, names):
            super().__init__()
            for name in names:
                self.add_sublayer(name, nn.Dropout(0.5))

    theirs = run((torch.ones(9, 9), Torch), on_torch, ["left", "right"])
    ours = run((paddle.ones([9, 9]), Paddle), on_paddle, ["rechts", "links"])
    assert np.array_equal(theirs["left"], ours["links"])
    assert np.array_equal(theirs["right"], ours["rechts"])
    assert not np.array_equal(theirs["left"], theirs["right"])


def drop_path(x: torch.Tensor, keep: float) -> torch.Tensor:
    """timm's, by bernoulli_."""
    shape = (x.shape[0],) + (1,) * (x.ndim - 1)
    return x * x.new_empty(shape).bernoulli_(keep).div_(keep)


class TorchNet(torch.nn.Module):
    """Every kind of dropout, as layers and as functions."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.q, self.head = (torch.nn.Linear(6, 6) for _ in range(3))
        self.drop = torch.nn.Dropout(0.3)
        self.conv = torch.nn.Conv1d(5, 5, 1)
        self.feature = torch.nn.Dropout1d(0.4)
        self.alpha = torch.nn.AlphaDropout(0.2)
        self.feature_alpha = torch.nn.FeatureAlphaDropout(0.25)

    def forward(self, x):
        on = self.training
        x = self.drop(self.drop(torch.nn.functional.gelu(self.fc(x))))
        q = self.q(x).reshape(4, 5, 2, 3).transpose(1, 2)
        attend = torch.nn.functional.scaled_dot_product_attention
        x = x + attend(q, q, q, dropout_p=0.2 if on else 0.0).transpose(1, 2).reshape(4, 5, 6)
        x = self.feature_alpha(self.alpha(self.feature(self.conv(x))))
        x = x + (drop_path(x, 0.6) if on else x)
        return self.head(torch.nn.functional.dropout(x, 0.1, on))


class PaddleNet(nn.Layer):
    """The port; `fault` names what is wrong, `path` how the drop path draws."""

    def __init__(self, fault: str = "", path: str = "floor") -> None:
        super().__init__()
        self.fault, self.path = fault, path
        mode = "downscale_in_infer" if fault == "mode" else "upscale_in_train"
        self.fc, self.q, self.head = (nn.Linear(6, 6) for _ in range(3))
        self.drop = nn.Dropout(0.35 if fault == "p" else 0.3, mode=mode)
        self.conv = nn.Conv1D(5, 5, 1)
        self.feature = nn.Dropout(0.4, axis=[0, 2] if fault == "axis" else [0, 1])
        self.alpha = nn.AlphaDropout(0.2)
        self.feature_alpha = nn.FeatureAlphaDropout(0.25)

    def forward(self, x):
        on = self.training
        x = F.gelu(self.fc(x))
        x = x if self.fault == "missing" else self.drop(self.drop(x))
        q = self.q(x).reshape([4, 5, 2, 3])
        p = 0.0 if self.fault == "attention" else 0.2
        x = x + F.scaled_dot_product_attention(q, q, q, None, p, training=on).reshape([4, 5, 6])
        x = self.feature_alpha(self.alpha(self.feature(self.conv(x))))
        x = x + (x / 0.6 * self.mask(x, 0.6) if on else x)
        if self.fault == "extra":
            x = F.dropout(x, 0.25, training=on)
        if self.fault == "noise":
            x = x + paddle.randn(x.shape, dtype=x.dtype)
        return self.head(F.dropout(x, 0.1, training=on))

    def mask(self, x, keep):
        shape = [4, 1, 1]
        if self.path == "bernoulli":
            return paddle.bernoulli(paddle.full(shape, keep, dtype=x.dtype))
        if self.path == "bernoulli_":
            return paddle.empty(shape, dtype=x.dtype).bernoulli_(keep)
        numbers = paddle.rand(shape, dtype=x.dtype)
        return (
            (numbers < keep).astype(x.dtype)
            if self.path == "below"
            else paddle.floor(numbers + keep)
        )


def pair(*how: str, seed: int = 0, dtype: str = "float64", **options) -> AnyPair:
    torch.manual_seed(seed)
    options = {"train": True, "dropout": "exchange", **options}
    return pair_in(TorchNet(), PaddleNet(*how), X, dtype, seed=seed, **options)


@pytest.mark.parametrize("seed", range(3))
def test_training_mode_with_dropout_aligns(seed: int) -> None:
    held = pair(seed=seed, dtype=("float64", "float32")[seed % 2], optimizer="adamw", steps=2)
    result, found = exchanged(held)
    assert result.passed, result.failures
    assert found == []
    assert len(result.comparisons) == 1 + 8
    assert [c.caught for c in result.controls] == [True, True]
    for stage in (stages.forward, stages.backward):
        assert stage(held).passed
    isolated, guilty = stages.isolated(held)
    assert isolated.passed
    assert guilty == []
    ours, theirs = held.train_ours(), held.train_reference(held.dtype)
    assert np.allclose(ours.losses, theirs.losses, rtol=1e-12 if seed % 2 == 0 else 1e-4)
    assert abs(ours.losses[0] - ours.losses[1]) > 1e-3  # every step has masks of its own


@pytest.mark.parametrize("path", ["floor", "below", "bernoulli", "bernoulli_"])
def test_drop_paths_of_every_kind_align(path: str) -> None:
    held = pair("", path)
    result, found = exchanged(held)
    assert result.passed
    assert found == []
    assert ("from the other end" in result.note) == (path == "below")
    assert stages.forward(held).passed


@pytest.mark.parametrize(
    ("fault", "place", "cause"),
    [
        ("p", "drop", "dropout in drop: Paddle drops with p=0.35, PyTorch with p=0.3"),
        ("mode", "drop", "mode='downscale_in_infer' leaves the kept elements as they are"),
        ("axis", "feature", "Paddle's mask has the shape (4, 1, 6), PyTorch's (4, 5, 1)"),
        (
            "missing",
            "drop",
            "dropout in drop with p=0.3 runs in PyTorch only: it is missing in Paddle",
        ),
        ("attention", "(model)", "dropout in (model) with p=0.2 runs in PyTorch only"),
        ("extra", "(model)", "dropout in (model) with p=0.25 runs in Paddle only"),
    ],
)
def test_a_dropout_that_differs_is_named(fault: str, place: str, cause: str) -> None:
    held = pair(fault)
    result, found = exchanged(held)
    assert not result.passed
    assert (found[0].place, found[0].step) == (place, "forward")
    assert cause in found[0].cause
    assert not stages.forward(held).passed


def test_what_cannot_be_exchanged_is_refused_with_its_place() -> None:
    with pytest.raises(ValueError, match=r"Paddle draws by chance with an operator .* in head"):
        exchanged(pair("noise"))

    class Gumbel(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.gumbel_softmax(x)

    model = Gumbel()
    with (
        pytest.raises(ValueError, match=r"PyTorch draws by chance with torch's exponential_"),
        on_torch.dropout_exchanged(on_torch, Masks({"(model)": "(model)"}, 0), model, 0),
    ):
        model(torch.ones(2, 3))
    with pytest.raises(ValueError, match="needs dropout='exchange'"):
        exchanged(pair(dropout="off"))


def test_the_operator_of_the_gpu_takes_the_same_numbers() -> None:
    masks, model = Masks({"(model)": "(model)"}, 0), torch.nn.Identity()
    made = []
    for drop in (torch.native_dropout, torch.nn.functional.dropout):
        x = torch.ones(50, dtype=torch.float64, requires_grad=True)
        with on_torch.dropout_exchanged(on_torch, masks, model, 0):
            out = drop(x, 0.25, True)
        out = out[0] if isinstance(out, tuple) else out
        out.sum().backward()
        assert torch.equal(x.grad, out.detach())
        made.append(out.detach().numpy())
    assert np.allclose(made[0], made[1])
    assert set(np.unique(made[1].round(6))) == {0.0, 1.333333}


def test_after_the_run_both_frameworks_draw_as_before() -> None:
    functions = F.dropout, paddle._C_ops.dropout, paddle.Tensor.bernoulli_, paddle.rand
    exchanged(pair())
    assert functions == (F.dropout, paddle._C_ops.dropout, paddle.Tensor.bernoulli_, paddle.rand)
    assert not np.array_equal(paddle.rand([9]).numpy(), paddle.rand([9]).numpy())
    assert not torch.equal(torch.rand(9), torch.rand(9))


class TorchMoved(torch.nn.Module):
    """The dropout stands in a block of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(6, 6)
        self.inner = torch.nn.Sequential(torch.nn.Linear(6, 6))
        self.outer = torch.nn.Dropout(0.3)

    def forward(self, x):
        return self.outer(self.inner(self.fc(x)))


class PaddleMoved(nn.Layer):
    """The same function inside another layer, or before it."""

    def __init__(self, before: bool) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)
        self.inner = Inner(before)

    def forward(self, x):
        return self.inner(self.fc(x))


class Inner(nn.Sequential):
    """A sequence with a dropout at its end or at its beginning."""

    def __init__(self, before: bool) -> None:
        super().__init__(nn.Linear(6, 6))
        self.before = before

    def forward(self, x):
        if self.before:
            return super().forward(F.dropout(x, 0.3, training=self.training))
        return F.dropout(super().forward(x), 0.3, training=self.training)


@pytest.mark.parametrize("before", [False, True])
def test_a_dropout_in_another_layer_is_the_same_one_or_a_finding(before: bool) -> None:
    options = {"train": True, "dropout": "exchange"}
    options["weights"] = {"map": {}, "modules": {"outer": None}}
    held = pair_in(TorchMoved(), PaddleMoved(before), X, **options)
    result, found = exchanged(held)
    if before:
        assert "the dropout that PyTorch runs in (model) runs in inner in Paddle" in found[0].cause
    else:
        assert result.passed
        assert "stands in inner in Paddle and takes its numbers" in result.note


class TorchSequence(torch.nn.Module):
    """A recurrent layer that drops between its layers, and a sequence-first encoder layer."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = torch.nn.LSTM(6, 6, 2, dropout=0.3, batch_first=True)
        self.layer = torch.nn.TransformerEncoderLayer(6, 2, 8, dropout=0.2)

    def forward(self, x):
        return self.layer(self.rnn(x)[0].transpose(0, 1)).transpose(0, 1)


class PaddleSequence(nn.Layer):
    """Paddle's own layers, batch first."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.rnn = nn.LSTM(6, 6, 2, dropout=p)
        self.layer = nn.TransformerEncoderLayer(6, 2, 8, dropout=0.2)

    def forward(self, x):
        return self.layer(self.rnn(x)[0])


def sequence(p: float, **options) -> AnyPair:
    names = "", ".norm1", ".norm2", ".linear1", ".linear2", ".dropout", ".dropout1", ".dropout2"
    apart = {f"layer{n}": None for n in (*names, ".self_attn", ".self_attn.out_proj")}
    options["weights"] = {"map": {}, "modules": apart}
    return pair_in(TorchSequence(), PaddleSequence(p), X, train=True, **options)


def test_dropout_inside_recurrent_layers_and_with_other_orders_of_axes_aligns() -> None:
    held = sequence(0.3, dropout="exchange")
    result, found = exchanged(held)
    assert result.passed
    assert found == []
    assert stages.forward(held).passed
    wrong = exchanged(sequence(0.1, dropout="exchange"))[1]
    assert "dropout in rnn: Paddle drops with p=0.1, PyTorch with p=0.3" in wrong[0].cause
    assert stages.forward(sequence(0.3)).passed  # dropout off reaches into them, too


@pytest.mark.parametrize("kinds", [("GRU", "GRU"), ("RNN", "SimpleRNN")])
def test_dropout_inside_layers_with_one_state_aligns(kinds: tuple[str, str]) -> None:
    found = align.compare(
        lambda: getattr(torch.nn, kinds[0])(6, 5, 2, dropout=0.3, batch_first=True),
        lambda: getattr(nn, kinds[1])(6, 5, 2, dropout=0.3),
        np.random.default_rng(0).normal(size=(3, 4, 6)),
        train=True,
        dropout="exchange",
        dtype="float64",
    )
    assert found.passed, str(found)


def test_running_statistics_that_are_wrong_after_training_are_explained() -> None:
    theirs, ours = torch.nn.BatchNorm1d(5), nn.BatchNorm1D(5, momentum=0.1)
    held = pair_in(theirs, ours, X, optimizer="sgd", steps=2)
    assert "use momentum=0.9" in locate.running_statistic(held, "_mean")
    assert locate.running_statistic(held, "weight") == ""
