"""What is dumped comes back, and is judged as `align.compare` judges it in one process."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from align.commands.comparing import compared
from align.commands.dumps import module_of
from align.commands.spec import read_spec
from align.judge.bounds import ISOLATED
from align.judge.noise_band import RUNS
from align.match.name_table import read_table
from align.pair import dumped_pair
from align.pair.any_pair import AnyPair, Setup
from align.pair.dumped_pair import DumpPair, Names, wrong_output
from align.record import dump_files
from align.record.dump_files import Dump
from align.record.recording import Call, Recording
from align.record.results import STEPS
from tests.align.dumps.guarded_commands import judged
from tests.align.small_pairs import steps_due


def test_a_right_port_passes_in_any_order(torch_dump, paddle_dump) -> None:
    outcome = judged(paddle_dump, torch_dump)
    assert outcome.passed, str(outcome)
    steps = [(r.step, r.dtype) for r in outcome.report.results]
    assert steps == steps_due("steps", live=False)
    assert all(result.controls for result in outcome.report.results)
    environment = outcome.report.environment
    assert environment["PyTorch"]["framework"] == "torch"
    assert environment["Paddle"]["framework"] == "paddle"
    assert environment["Paddle"]["version"]
    assert environment["Paddle"]["device"]
    assert judged(torch_dump, paddle_dump).verdict == outcome.verdict


def test_every_comparison_and_the_cause_are_those_of_one_process(make, torch_dump, folder) -> None:
    """Names, distances, bounds and verdicts are equal bit for bit, right and wrong ones."""
    epsilon = ("EPSILON = 1e-5", "EPSILON = 1e-6")
    wrong_dump = make("paddle", "wrong", epsilon, other=torch_dump)
    found = judged(torch_dump, wrong_dump)
    given = read_spec(folder / "wrong_spec.py")
    expected = {
        (r.step, r.dtype): r.comparisons
        for r in compared(given).report.results
        if "inject" not in r.case
    }
    own = {(r.step, r.dtype): r.comparisons for r in found.report.results}
    assert list(own) == [key for key in expected if not STEPS[key[0]].live]
    for key, rows in own.items():
        both = ([(c.name, c.passed, c.worst) for c in side] for side in (rows, expected[key]))
        assert next(both) == next(both), key
    assert {c.passed for rows in own.values() for c in rows} == {True, False}
    assert found.exit_code == 1
    root = found.root
    assert (root.step, root.place, root.dtype) == ("forward", "norm", "float64")
    assert "epsilon: Paddle's layer has 1e-06, PyTorch's 1e-05" in root.cause
    assert "LayerNorm.forward" in root.source
    assert found.first_backward_divergence.follows == "forward"
    assert [one.place for one in found.report.repairs] == ["norm"]
    about = found.report.about
    sha256 = hashlib.sha256((folder / "wrong_spec.py").read_bytes()).hexdigest()
    assert wrong_dump.meta.spec == {"file": "wrong_spec.py", "sha256": sha256}
    assert (about["paddle"]["class"], about["torch"]["class"]) == ("Net", "Net")
    assert about["paddle"]["parameters"] == about["torch"]["parameters"] > 0


def test_code_between_layers_is_blamed_on_the_container(make, torch_dump) -> None:
    change = ("SHIFT = 0.0", "SHIFT = 1.0")
    found = judged(torch_dump, make("paddle", "twice", change, other=torch_dump))
    assert found.root.place == "(model)"  # not norm2, whose input is wrong already
    assert found.first_divergence.name != ""


def test_training_mode_compares_running_statistics(make) -> None:
    change = ("TRAIN = False", 'TRAIN, DTYPE = True, "float64"')
    torch = make("torch", "train_torch", change)
    found = judged(torch, make("paddle", "train_paddle", change, other=torch))
    assert found.passed, str(found)
    names = {c.name for c in found.report.results[0].comparisons}
    assert {"norm2._mean", "norm2._variance"} <= names
    momentum = ("nn.BatchNorm1D(6)", "nn.BatchNorm1D(6, momentum=0.1)")
    wrong = judged(torch, make("paddle", "train_wrong", change, momentum, other=torch))
    assert wrong.root.place == "norm2"


def test_a_wrong_gradient_is_found_behind_its_layer(make, torch_dump) -> None:
    """Paddle's forward pass is right, its backward pass is not."""
    change = ("x = x * (1 + SHIFT)", "x = x * (1 + SHIFT) + x - x.detach()")
    found = judged(torch_dump, make("paddle", "gradient", change, other=torch_dump))
    assert found.first_divergence is None
    assert found.root.step == "backward"
    assert found.root.place == "(model)"


def test_arrays_come_back_bit_for_bit(tmp_path: Path, torch_dump: Dump) -> None:
    for dtype in ("float64", "float32"):
        recording = torch_dump.recording(dtype)
        with dump_files.new_folder(tmp_path / f"copy_{dtype}") as copy:
            dump_files.write_recording(recording, copy / dtype)
            dump_files.write_json(copy / dump_files.META, torch_dump.meta.to_json())
        again = Dump(tmp_path / f"copy_{dtype}").recording(dtype)
        _same_recordings(recording, again)
        assert recording.calls["norm"].inputs
        assert recording.calls["norm"].outputs[""].dtype == dtype


def _same_recordings(first: Recording, second: Recording) -> None:
    assert list(first.calls) == list(second.calls)
    for key, call in first.calls.items():
        other = second.calls[key]
        assert (call.name, call.number, call.parent) == (other.name, other.number, other.parent)
        for part in ("outputs", "inputs", "grad_outputs", "grad_inputs"):
            a, b = dict(getattr(call, part)), dict(getattr(other, part))
            assert list(a) == list(b)
            assert all(np.array_equal(a[p], b[p]) for p in a)
    assert first.backward_order == second.backward_order
    assert np.array_equal(first.loss, second.loss)
    for part in ("gradients", "input_gradients", "state"):
        a, b = getattr(first, part), getattr(second, part)
        assert list(a) == list(b)
        assert all(np.array_equal(a[n], b[n]) for n in a)


def test_equal_arrays_are_stored_once(torch_dump: Dump) -> None:
    """What one layer returns and the next one is given lies in the file once."""
    stored = torch_dump.tensors("float64/forward.safetensors")
    calls = torch_dump.recording("float64").calls
    taps = [a for c in calls.values() for a in (*c.outputs.values(), *c.inputs.values())]
    assert len(stored) == len({dump_files.digest(a) for a in taps}) < len(taps)


def test_the_noise_band_is_the_one_of_one_process(folder, torch_dump, paddle_dump) -> None:
    given = read_spec(folder / "from_torch_spec.py")
    expected = AnyPair(Setup(given, folder), "float32").band.measured(RUNS)
    names = Names(torch_dump, paddle_dump, read_table(given.weights))
    pair = DumpPair(names, "float32")
    found = pair.band.measured(RUNS)
    assert found.keys() == expected.keys()
    assert all(np.isclose(found[at].factor, one.factor) for at, one in expected.items())
    assert all(np.allclose(found[at].rows, one.rows) for at, one in expected.items())
    part = pair.judge.find_tensor("gradients", "q.weight")(found)  # of a packed tensor
    whole = found["gradients", "qkv.weight"]
    assert 0 < part.size("l2") < whole.size("l2")


def test_plain_settings_of_a_module_are_kept() -> None:
    class Norm(SimpleNamespace):
        def forward(self) -> None:
            """Nothing."""

    found = module_of("norm", Norm(eps=1e-5, affine=True, weight=[1], text="x" * 200))
    assert (found.name, found.kind) == ("norm", "Norm")
    assert found.settings == {"eps": 1e-5, "affine": True}
    assert "test_round_trip.py" in found.source


def test_a_layer_that_adds_up_what_is_nearly_right_inside_is_not_accused() -> None:
    x = np.ones(4, "float32")

    def recorded(inner: float, outer: float) -> Recording:
        offs = ("block.a", "block", inner), ("block", "", outer)
        calls = [Call(n, 1, parent, {"": x * (1 + off)}, {"0.0": x}) for n, parent, off in offs]
        return Recording({call.key: call for call in calls})

    ours, reference = recorded(1.5e-5, 3e-5), recorded(0.0, 0.0)
    taps = [(key, ours.calls[key], reference.calls[key]) for key in ours.calls]
    judge = SimpleNamespace(taps=lambda *_: taps)
    pair = SimpleNamespace(dtype="float32", ours=ours, reference=reference, judge=judge)
    failed = [SimpleNamespace(name=key) for key in ours.calls]
    assert wrong_output(pair, failed) == []
    (guilty,) = wrong_output(pair, failed[1:])  # what is inside passes
    assert guilty.place == "block"


def test_a_call_that_is_given_another_mask_was_not_given_the_right() -> None:
    mask = np.array([[0.0, 0.0, -1e4]])

    def call(mask: np.ndarray) -> Call:
        return Call("block", 1, "", inputs={"0": np.ones((2, 3)), "1": mask})

    rule = ISOLATED["float64"]
    assert dumped_pair._same_inputs(call(mask), call(1e5 * mask), rule)
    assert not dumped_pair._same_inputs(call(mask), call(mask[:, ::-1]), rule)
