"""Tensors stream: stores, lazy mappings, one model of each kind, the noise, and the drift."""

from __future__ import annotations

import dataclasses
import gc
import tempfile
import tracemalloc
import weakref

import numpy as np
import paddle
import pytest
import torch
from paddle import nn

import align
from align.frameworks import on_paddle, on_torch
from align.judge import bounds, drift
from align.judge.comparator import compare_arrays, compare_mappings
from align.judge.drift import driven, driven_by_rounding
from align.match import mapping
from align.match.mapping import to_paddle
from align.match.name_table import read_table
from align.pair import side
from align.pair.any_pair import AnyPair, Setup
from align.record import arrays as stored_arrays
from align.record.arrays import Lazy, Store
from align.record.request import Request
from align.stages import training

RNG = np.random.default_rng(3)
X = RNG.normal(size=(4, 6))


def test_a_store_gives_back_what_it_was_given(monkeypatch) -> None:
    """A copy, too, of what lives in a model."""
    monkeypatch.setattr(stored_arrays, "MEMORY", 40)
    store = Store()
    arrays = [np.arange(4.0), np.float32(2.5)[None][0:1].reshape(()), np.arange(12).reshape(3, 4).T]
    arrays += [np.zeros((0, 3)), np.array([True, False]), np.array([1, 2], np.uint8)]
    readers = [store.put(array) for array in arrays]
    for array, read in zip(arrays, readers, strict=True):
        found = read()
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(found, array)
    assert readers[0]() is arrays[0]  # in memory
    assert readers[2]() is not arrays[2]  # 96 bytes: in the file
    del store
    np.testing.assert_array_equal(readers[2](), arrays[2])
    tensor = torch.ones(3, dtype=torch.float64)
    read = Store().put(on_torch.view(tensor))
    with torch.no_grad():
        tensor.mul_(2.0)
    np.testing.assert_array_equal(read(), np.ones(3))
    np.testing.assert_array_equal(on_torch.view(tensor), 2 * np.ones(3))


def test_a_full_disk_is_said_in_words(monkeypatch) -> None:
    class Full:
        def seek(self, _) -> None:
            raise OSError(28, "No space left on device")

        def close(self) -> None: ...

    monkeypatch.setattr(stored_arrays, "MEMORY", 0)
    monkeypatch.setattr(tempfile, "TemporaryFile", Full)
    with pytest.raises(ValueError, match="No space left on device.*TMPDIR"):
        Store().put(np.ones(3))


def test_comparisons_are_made_when_they_are_asked_for() -> None:
    def never() -> np.ndarray:
        raise AssertionError("read without need")

    ours = Lazy({"good": lambda: np.ones(2), "bad": lambda: np.zeros(2), "rest": never})
    rule = bounds.TOLERANCES["forward", "float64"]
    comparisons = compare_mappings(ours, Lazy({n: lambda: np.ones(2) for n in ours}), rule)
    assert [next(comparisons).passed, next(comparisons).passed] == [True, False]
    with pytest.raises(AssertionError):
        next(comparisons)
    assert [c.reason for c in compare_mappings({}, {"x": X}, rule)] == [
        "missing on the Paddle side"
    ]


def both(epsilon: float = 1e-5) -> tuple[torch.nn.Module, nn.Layer]:
    theirs = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.LayerNorm(6), torch.nn.ReLU())
    return theirs, nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6, epsilon=epsilon), nn.ReLU())


@pytest.mark.parametrize("epsilon", [1e-5, 1e-3])
def test_results_are_the_same_from_memory_and_from_a_file(epsilon, monkeypatch) -> None:
    theirs, ours = both(epsilon)
    options = {"optimizer": "adamw", "steps": 2, "inject": True}

    def run() -> tuple[str, list]:
        result = align.compare(theirs, ours, X, **options)
        found = [c for r in result.report.results for c in r.comparisons]
        controls = [c for r in result.report.results for c in r.controls]
        return result.verdict, [(c.name, c.worst, c.bound, c.reason) for c in found], controls

    files = []
    made = tempfile.TemporaryFile
    from_memory = run()
    monkeypatch.setattr(stored_arrays, "MEMORY", 0)
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda: files.append(made()) or files[-1])
    assert run() == from_memory
    assert from_memory[0].startswith("PASS" if epsilon == 1e-5 else "FAIL")
    gc.collect()
    assert files
    assert all(file.closed for file in files)  # nothing outlives the comparison


def peak_of(memory: int, monkeypatch) -> float:
    """Largest sum of NumPy's arrays during a comparison, in units of the weights."""
    width = 700
    theirs = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(4)))
    ours = nn.Sequential(*(nn.Linear(width, width) for _ in range(4)))
    x = RNG.normal(size=(2, width))
    monkeypatch.setattr(stored_arrays, "MEMORY", memory)
    monkeypatch.setattr(side, "_GROUP", 1)
    tracemalloc.start()
    try:
        recipe = {"loss": "mse", "labels": np.ones((2, width)), "optimizer": "sgd", "steps": 1}
        setup = Setup(Request(theirs, ours, x, dtype=("float64",), **recipe))
        pair = AnyPair(setup, "float64")
        assert all(comparison.passed for comparison in pair.gradients(pair.ours))
        assert pair.band.measured(1)
        with pair.setup.paddle.open_training(pair.plan, "float64", "float64") as run:
            assert set(run.state) == set(to_paddle(setup.weights, setup.state))
        pair.setup.torch.train(pair.plan, "float64", "float64")
        return tracemalloc.get_traced_memory()[1] / (4 * width * width * 8)
    finally:
        tracemalloc.stop()


def test_no_more_than_a_few_tensors_are_held(monkeypatch) -> None:
    peak_of(0, monkeypatch)  # what the first use imports
    assert peak_of(0, monkeypatch) < 2.5  # two threads; one weight is a quarter of them
    assert peak_of(2**40, monkeypatch) > 3.5  # what the bound would miss if nothing went to a file


def test_each_model_is_built_once_in_each_precision() -> None:
    built: list[str] = []

    def theirs() -> torch.nn.Module:
        built.append(f"torch {torch.get_default_dtype()}")
        return both()[0]

    def ours() -> nn.Layer:
        built.append(f"paddle {paddle.get_default_dtype()}")
        return both()[1]

    assert align.compare(theirs, ours, X, optimizer="sgd", steps=2, inject=True).passed
    assert sorted(built) == [
        "paddle float32",
        "paddle float64",
        "torch torch.float32",
        "torch torch.float64",
    ]


def test_a_precision_that_is_done_gives_its_paddle_model_up(monkeypatch) -> None:
    held: list[weakref.ref] = []
    alive: list[int] = []

    def ours() -> nn.Layer:
        alive.append(sum(ref() is not None for ref in held))
        model = both()[1]
        held.append(weakref.ref(model))
        return model

    monkeypatch.setattr(side, "_LARGE", 0)  # a large model does not wait for the collector
    assert align.compare(lambda: both()[0], ours, X, optimizer="sgd", steps=2).passed
    assert alive == [0, 0]


def test_a_model_comes_back_as_it_was() -> None:
    """A factory that freezes a layer, and training, leave nothing for the next user."""
    theirs, ours = both()
    pair = AnyPair(Setup(Request(theirs, ours, X, dtype=("float64",))), "float64")
    first = pair.model
    before = dict(side.tensors(on_paddle, first).items())
    again = pair.our_model(True)
    assert again is first
    assert again.training
    again[0].weight.stop_gradient = True
    again[0].weight.set_value(again[0].weight * 2)
    assert pair.model is first
    assert not first.training
    assert not first[0].weight.stop_gradient
    for name, value in side.tensors(on_paddle, first).items():
        np.testing.assert_array_equal(value, before[name])


def attention() -> tuple[torch.nn.Module, nn.Layer, mapping.WeightMapping]:
    theirs, ours = torch.nn.MultiheadAttention(40, 2), nn.MultiHeadAttention(40, 2)
    source, own = on_torch.entries(theirs), on_paddle.entries(ours)
    found = mapping.match(source, own, read_table(None))
    return theirs, ours, mapping.finish(found, source, own)


def test_a_tensor_that_is_not_there_is_left_out_of_the_conversion() -> None:
    theirs, ours, weights = attention()
    state = on_torch.state(theirs)
    assert set(to_paddle(weights, state)) == set(on_paddle.state(ours))
    del state["out_proj.bias"]
    assert set(on_paddle.state(ours)) - set(to_paddle(weights, state)) == {"out_proj.bias"}


def test_a_sample_takes_the_same_elements_on_both_sides() -> None:
    theirs, ours, weights = attention()
    sample = drift.Sample(on_torch.entries(theirs), weights)
    assert list(sample.without(())) == list(range(sample.size))  # both sides have every element
    assert 160 + drift.LIMIT < sample.size < 160 + 2 * drift.LIMIT  # two projections, biases
    expected = sample.reference(on_torch, theirs)
    assert not np.array_equal(sample.ours(on_paddle, ours), expected)
    on_paddle.load(ours, weights.to_paddle(on_torch.state(theirs)))
    np.testing.assert_array_equal(sample.ours(on_paddle, ours), expected)


def trained(rate: float, dtype: str = "float64"):
    factories = (
        lambda model: torch.optim.Adam(model.parameters(), lr=1e-2),
        lambda layer: paddle.optimizer.Adam(rate, parameters=layer.parameters()),
    )
    result = align.compare(*both(), X, optimizer=factories, steps=4, dtype=dtype)
    return next(r for r in result.report.results if r.step == "training")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_drift_stays_within_the_noise_band(dtype) -> None:
    found = trained(1e-2, dtype)
    curves = found.series["drift"]
    assert found.passed, [c.reason for c in found.failures] + found.problems
    assert {len(curve) for curve in curves.values()} == {4}
    assert all(a <= b for a, b in zip(curves["paddle"], curves["allowed"], strict=True))


def test_a_rate_that_is_a_thousandth_off_leaves_the_band() -> None:
    found = trained(1.001e-2)
    one = next(c for c in found.comparisons if c.name == training.DRIFT)
    assert "leave the noise band at step 1" in one.reason
    curves = found.series["drift"]
    assert curves["paddle"][-1] > curves["allowed"][-1]


def test_a_weight_that_rounding_drives_is_left_out_and_judged_by_the_rates() -> None:
    """The bias of the keys shifts every score alike: no gradient reaches it in exact arithmetic."""
    theirs, _, weights = attention()
    sample = drift.Sample(on_torch.entries(theirs), weights)
    firsts = {"in_proj_bias": np.full(120, 1e-18), "out_proj.bias": np.ones(40)}
    everything, kept = (sample.without(n) for n in ((), driven_by_rounding(firsts)))
    assert everything.size - kept.size == 120
    off = compare_arrays("out_proj.bias", X + 1e-3, X, bounds.TOLERANCES["training", "float64"])
    names = ("in_proj_bias", "out_proj.bias")
    found = [dataclasses.replace(off, name=name) for name in names]
    judged = list(driven(found, firsts, [1e-3] * 4))
    assert [one.passed for one in judged] == [True, False]
    assert judged[0].bound == pytest.approx(8e-3)


def shared(x: np.ndarray, loss: str | None, never: bool, monkeypatch) -> tuple[list, int]:
    """Every comparison of a pair, and how many float64 runs of the reference it took."""
    if never:
        monkeypatch.setattr(AnyPair, "_shared", lambda self, kind: None)
    labels = None if loss is None else np.zeros((4, 6), np.float32)
    plan = Request(*both(), x, loss=loss, labels=labels, optimizer="sgd", steps=2)
    setup = Setup(plan)
    runs_made = []
    for name in ("record_pass", "train"):
        made = getattr(side.Side, name)

        def counted(one_side, plan, dtype, *rest, _made=made, **options):
            runs_made.append((one_side.is_torch, dtype))
            return _made(one_side, plan, dtype, *rest, **options)

        monkeypatch.setattr(side.Side, name, counted)
    found = []
    for dtype in plan.dtypes:
        pair = AnyPair(setup, dtype)
        found += pair.settling.settle(pair.gradients(pair.ours))
        found += training.training(pair)[0].comparisons
    assert all(comparison.passed for comparison in found)
    return [(c.name, c.worst, c.bound, c.peer) for c in found], runs_made.count((True, "float64"))


def test_the_float64_run_serves_both_precisions_where_it_is_the_same() -> None:
    state = torch.get_rng_state()

    def run(x: np.ndarray, loss: str | None = "mse", never: bool = False) -> tuple[list, int]:
        torch.set_rng_state(state)
        with pytest.MonkeyPatch.context() as patch:
            return shared(x, loss, never, patch)

    exact = X.astype(np.float32)
    found, count = run(exact)
    assert count == 2
    assert run(exact, never=True) == (found, 4)  # the same numbers, at twice the cost
    assert run(X)[1] == 4  # float32 would round the inputs
    assert run(exact, None)[1] == 4  # the default loss has float64 weights
