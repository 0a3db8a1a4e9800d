"""The record of an optimizer's state: strict, converted as the weights are, kept bit by bit."""

import dataclasses
import json

import numpy as np
import pytest

from sot_paddle.checkpoint import read_tensors, write_tensors
from sot_paddle.convert import ConversionPlan, PlanEntry, build_plan
from sot_paddle.convert.state.command import read_names
from sot_paddle.convert.state.powers import (
    LONGEST,
    counts_of,
    power_after,
    stored_arrays,
    stored_counters,
    updates_of,
)
from sot_paddle.convert.state.record import (
    Group,
    OptimizerState,
    convert,
    require_same,
)
from sot_paddle.convert.state.state_file import FILE, read_state, write_state
from tests.sot_paddle.convert.both_runs import different_arrays, plan_of

ADAM = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.25, "amsgrad": False}


def buffers(name: str) -> bool:
    return "running" in name or "num_batches" in name


def make_state(arrays, *, side="torch", kind="adamw", steps=7) -> OptimizerState:
    """Moments for every weight of a mapping; weights without "bias" decay."""
    names = [name for name in arrays if not buffers(name)]
    decayed = tuple(name for name in names if "bias" not in name)
    rest = tuple(name for name in names if "bias" in name)
    plain = {**ADAM, "weight_decay": 0.0}
    return OptimizerState(
        side,
        kind,
        (Group(decayed, 0.125, 0.5, ADAM), Group(rest, 0.125, 0.5, plain)),
        {
            "moment1": {name: arrays[name] for name in names},
            "moment2": {name: np.abs(arrays[name]) + 1 for name in names},
        },
        dict.fromkeys(names, steps),
        steps,
    )


@pytest.fixture
def bert(hf_shapes, random_arrays):
    """(plan there, arrays) of a tiny plain BERT."""
    shapes = hf_shapes()
    return build_plan("bert_hf", "bert_base", shapes), random_arrays(shapes)


def test_moments_take_the_way_of_their_weights_and_come_back(bert):
    plan, arrays = bert
    state = make_state(arrays)
    state.check({name: a.shape for name, a in arrays.items()})
    moved = convert(state, plan)
    assert moved.side == "paddle"
    name = "bert.encoder.layer.0.attention.self.query.weight"  # square: no shape would tell
    own = "bert.encoder.layers.0.self_attn.q_proj.weight"
    np.testing.assert_array_equal(moved.moments["moment1"][own], arrays[name].T)
    assert not np.array_equal(moved.moments["moment1"][own], arrays[name])
    assert moved.steps[own] == 7
    assert own in moved.groups[0].names
    assert moved.groups[0].options == ADAM
    shapes = plan.destination_shapes
    moved.check(shapes)
    back = build_plan("bert_hf", "bert_base", shapes, reverse=True)
    returned = convert(moved, back)
    assert different_arrays(returned, state) == []
    assert [set(g.names) for g in returned.groups] == [set(g.names) for g in state.groups]
    moved.moments["moment1"][own][0, 0] += 1
    assert different_arrays(convert(moved, back), state) == [f"{name}/moment1"]


def fused(*, reverse: bool) -> ConversionPlan:
    """A plan in which q and k of Paddle are the halves of one PyTorch tensor."""
    entries = []
    for index, name in enumerate(("q.weight", "k.weight")):
        ends, shapes = ("qk.weight", name), ((6, 2), (3, 2))
        way = (*ends[::-1], "copy", *shapes[::-1]) if reverse else (*ends, "copy", *shapes)
        entries.append(PlanEntry(*way, "vector", (index, 2)))
    return plan_of(entries, reverse=reverse)


def test_a_fused_weight_is_cut_and_joined_only_from_equal_pieces():
    whole = make_state({"qk.weight": np.arange(12.0).reshape(6, 2)})
    moved = convert(whole, fused(reverse=False))
    back = fused(reverse=True)
    assert moved.steps == {"q.weight": 7, "k.weight": 7}
    np.testing.assert_array_equal(moved.moments["moment1"]["k.weight"], [[6, 7], [8, 9], [10, 11]])
    assert different_arrays(convert(moved, back), whole) == []
    uneven = dataclasses.replace(moved, steps={"q.weight": 7, "k.weight": 6})
    with pytest.raises(ValueError, match="qk.weight is joined from .* of different counts"):
        convert(uneven, back)
    first, rest = moved.groups
    split = (
        dataclasses.replace(first, names=("q.weight",)),
        dataclasses.replace(rest, names=("k.weight",)),
    )
    with pytest.raises(ValueError, match="of different groups"):
        convert(dataclasses.replace(moved, groups=split), back)
    lone = {kind: {"q.weight": held["q.weight"]} for kind, held in moved.moments.items()}
    with pytest.raises(ValueError, match="qk.weight needs k.weight as well"):
        convert(dataclasses.replace(moved, moments=lone), back)


def broken(state, what):
    """A state with one mistake."""
    name = state.names[0]
    moments = {kind: dict(held) for kind, held in state.moments.items()}
    if what == "missing":
        del moments["moment2"][name]
    elif what == "foreign":
        moments["moment1"]["nobody"] = np.zeros(3)
    elif what == "shape":
        moments["moment1"][name] = moments["moment1"][name][:1]
    elif what == "kind":
        moments["velocity"] = moments["moment1"]
    steps = dict(state.steps)
    if what == "uncounted":
        del steps[name]
    elif what == "fraction":
        steps[name] = 7.5
    groups = state.groups
    if what == "twice":
        groups = (*groups, Group((name,), 0.1, None, ADAM))
    elif what == "not a weight":
        groups = (*groups, Group(("ghost",), 0.1, None, ADAM))
    return dataclasses.replace(state, moments=moments, steps=steps, groups=groups)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("missing", "moment2 is missing: bert.embeddings.word_embeddings.weight"),
        ("foreign", "moment1 without an optimized weight: nobody"),
        ("shape", "has shape .* the weight"),
        ("kind", "moments that adamw does not have: velocity"),
        ("uncounted", "no count of updates"),
        ("fraction", "not a whole number"),
        ("twice", "optimized in two groups"),
        ("not a weight", "optimized, but not among the weights: ghost"),
    ],
)
def test_what_does_not_fit_one_to_one_is_refused(bert, what, message):
    _, arrays = bert
    shapes = {name: a.shape for name, a in arrays.items()}
    state = make_state(arrays)
    state.check(shapes)
    with pytest.raises(ValueError, match=message):
        broken(state, what).check(shapes)


def test_a_weight_that_no_gradient_reached_is_said_to_be_one(bert):
    _, arrays = bert
    shapes = {name: a.shape for name, a in arrays.items()}
    state = make_state(arrays)
    name = state.names[0]
    moments = {k: {n: a for n, a in h.items() if n != name} for k, h in state.moments.items()}
    steps = {n: c for n, c in state.steps.items() if n != name}
    lacking = dataclasses.replace(state, moments=moments, steps=steps)
    assert lacking.untouched == [name]
    with pytest.raises(ValueError, match="moment1 is missing"):
        lacking.check(shapes)
    lacking.check(shapes, untouched=True)
    half = dataclasses.replace(lacking, moments={**moments, "moment1": state.moments["moment1"]})
    with pytest.raises(ValueError, match="moment2 is missing"):
        half.check(shapes, untouched=True)


def test_a_weight_that_only_one_optimizer_has_is_named():
    state = make_state({"a.weight": np.ones(2), "b.bias": np.ones(2)})
    require_same(state, state, "this one")
    fewer = dataclasses.replace(state, groups=state.groups[:1])
    with pytest.raises(ValueError, match=r"optimized False, expected True \(b.bias\)$"):
        require_same(state, fewer, "this one")


def test_a_file_keeps_every_bit_and_is_checked(bert, tmp_path):
    _, arrays = bert
    state = make_state(arrays)
    state = dataclasses.replace(
        state,
        groups=(dataclasses.replace(state.groups[0], rate=0.1 + 0.2), state.groups[1]),
        masters={state.names[0]: arrays[state.names[0]]},
    )
    write_state(tmp_path / FILE, state)
    again = read_state(tmp_path)
    assert different_arrays(again, state) == []
    assert (again.groups, again.position, again.kind) == (state.groups, state.position, "adamw")
    assert set(again.masters) == {state.names[0]}
    tensors, metadata = read_tensors(tmp_path / FILE)
    write_tensors(tmp_path / "other.safetensors", tensors, {**metadata, "format": "x"})
    with pytest.raises(ValueError, match="not a file of"):
        read_state(tmp_path / "other.safetensors")
    cut = json.dumps({"side": "torch"})
    write_tensors(tmp_path / "cut.safetensors", tensors, {**metadata, "state": cut})
    with pytest.raises(ValueError, match="description is damaged"):
        read_state(tmp_path / "cut.safetensors")
    with pytest.raises(ValueError, match="no such file"):
        read_state(tmp_path / "absent.safetensors")
    odd = dataclasses.replace(state.groups[0], extra={"hook": object()})
    with pytest.raises(ValueError, match="neither number, text nor list"):
        write_state(tmp_path / "x.safetensors", dataclasses.replace(state, groups=(odd,)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("beta", [0.9, 0.95, 0.999, 0.5])
def test_powers_tell_the_updates_exactly(dtype, beta):
    held = np.asarray(beta, dtype)
    for count in range(600):
        np.testing.assert_array_equal(power_after(beta, count, dtype), [held], strict=False)
        told = updates_of(float(held), beta, dtype)
        assert told in (count, None)
        assert (told is None) == bool(held < np.finfo(dtype).tiny)
        held = held * np.asarray(beta, dtype)


def test_a_long_run_is_counted_and_a_wrong_power_is_refused():
    assert updates_of(float(power_after(0.999, 80_000, "float32")[0]), 0.999, "float32") == 80_000
    one_off = float(power_after(0.999, 80_001, "float32")[0])
    assert updates_of(one_off, 0.999, "float32") == 80_001
    assert updates_of(float(power_after(0.9, 5000, "float32")[0]), 0.9, "float32") is None
    with pytest.raises(ValueError, match="is no power of 0.95"):
        updates_of(0.9, 0.95, "float64")
    with pytest.raises(ValueError, match=f"0 ... {LONGEST}"):
        power_after(0.9, -1, "float64")


def test_the_powers_and_the_counter_must_agree():
    groups = (Group(("w",), 0.1, None, ADAM),)

    def count(first, second, counters=(), otherwise=None):
        moments = {"beta1_pow_acc": {"w": first}, "beta2_pow_acc": {"w": second}, "moment1": {}}
        steps = counts_of(moments, groups, dict(counters), otherwise)
        assert list(moments) == ["moment1"]
        return steps["w"]

    powers = [power_after(beta, 7, "float64") for beta in (0.9, 0.999)]
    assert count(*powers) == 7
    assert count(*powers, {"w": 8}) == 7
    with pytest.raises(ValueError, match=r"count \[7, 8\] updates"):
        count(powers[0], power_after(0.999, 8, "float64"))
    with pytest.raises(ValueError, match=r"count \[7, 8\] updates"):
        count(*powers, {"w": 9})
    gone = [np.zeros(1, "float32")] * 2
    assert count(*gone, otherwise=10**6) == 10**6
    with pytest.raises(ValueError, match="tell no count"):
        count(*gone)


def test_what_paddle_stores():
    state = make_state({"a.weight": np.ones((2, 3)), "b.bias": np.ones(2)}, side="paddle")
    arrays = stored_arrays(state)
    np.testing.assert_array_equal(arrays["a.weight/beta1_pow_acc"], power_after(0.9, 7, "float64"))
    assert sorted(arrays)[:2] == ["a.weight/beta1_pow_acc", "a.weight/beta2_pow_acc"]
    assert stored_counters(state) == {}
    uncorrected = tuple(
        dataclasses.replace(g, options={**g.options, "correct_bias": False}) for g in state.groups
    )
    hf = dataclasses.replace(state, kind="hf_adamw")
    assert stored_counters(hf) == {"a.weight": 8, "b.bias": 8}
    plain = dataclasses.replace(hf, groups=uncorrected)
    assert stored_counters(plain) == {}
    np.testing.assert_array_equal(stored_arrays(plain)["b.bias/beta2_pow_acc"], [0.0])
    with pytest.raises(ValueError, match="float16: Paddle's optimizers hold float32 or float64"):
        stored_arrays(state.astype("float16"))


def test_names_of_groups_are_read_from_a_file(tmp_path):
    path = tmp_path / "names.json"
    path.write_text('[["b", "a"], []]', encoding="utf-8")
    assert read_names(path) == [["b", "a"], []]
    for content in ('["a"]', "{}", "[[1]]"):
        path.write_text(content, encoding="utf-8")
        with pytest.raises(ValueError, match="expected a list of parameter groups"):
            read_names(path)
