"""The command that moves a whole training, on tiny checkpoints without a training behind them."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from sot_paddle.checkpoint import read_tensors, write_tensors
from sot_paddle.convert.state import command
from sot_paddle.convert.state.command import StateRequest, convert_state
from sot_paddle.convert.state.record import FILE, Group, OptimizerState, read_state, write_state
from sot_paddle.convert.state.torch_optimizer import from_torch, schedule_dict, to_torch
from tests.sot_paddle.convert.both_runs import different_arrays

LAYOUT, MODEL = "bert_hf", "bert_base"
OPTIONS = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.01, "amsgrad": False}


def random_state(shapes, rng) -> OptimizerState:
    """A state in PyTorch's names, grouped as transformers groups."""
    spared = [n for n in shapes if "bias" in n or "LayerNorm" in n]
    parts = (tuple(n for n in shapes if n not in spared), 0.01), (tuple(spared), 0.0)
    groups = tuple(
        Group(names, 2e-5, 5e-5, {**OPTIONS, "weight_decay": decay}) for names, decay in parts
    )
    moments = {
        kind: {n: rng.random(shape, np.float32) for n, shape in shapes.items()}
        for kind in ("moment1", "moment2")
    }
    return OptimizerState("torch", "adamw", groups, moments, dict.fromkeys(shapes, 500), 500)


@dataclasses.dataclass
class Begun:
    """The file of a PyTorch training, the names of its groups, and what it holds."""

    path: Path
    names: Path
    state: OptimizerState
    arrays: dict

    def change(self, change) -> None:
        """Change what the file says of the optimizer."""
        content = torch.load(self.path, weights_only=True)
        change(content["optimizer"])
        torch.save(content, self.path)


def unnamed(state_dict):
    """As an optimizer without parameter names writes it."""
    for group in state_dict["param_groups"]:
        del group["param_names"]
    return state_dict


def tensors(arrays):
    return {name: torch.tensor(array) for name, array in arrays.items()}


@pytest.fixture
def begun(tmp_path, toy) -> Begun:
    arrays = toy("bert_hf").arrays
    state = random_state({n: a.shape for n, a in arrays.items()}, np.random.default_rng(3))
    path, names = tmp_path / "run.pth", tmp_path / "names.json"
    content = {
        "state_dict": tensors(arrays),
        "optimizer": to_torch(state),
        "lr_scheduler": schedule_dict(state),
        "step": 500,
    }
    torch.save(content, path)
    names.write_text(json.dumps([group.names for group in state.groups]), encoding="utf-8")
    return Begun(path, names, state, arrays)


def request(source, target, way="torch", **options) -> StateRequest:
    other = {"torch": "paddle", "paddle": "torch"}[way]
    options = {"layout": LAYOUT, "model": MODEL, **options}
    return StateRequest((way, source), (other, target), **options)


def test_a_file_there_and_back(begun, tmp_path):
    there, back = tmp_path / "ours", tmp_path / "back.pth"
    text = convert_state(request(begun.path, there))
    assert "adamw, 41 weights, 82 moments, after 500 updates, learning rate 2e-05" in text
    names = {path.name for path in there.iterdir()}
    assert names == {"model.safetensors", FILE, "config.json", "manifest.json"}
    manifest = json.loads((there / "manifest.json").read_text(encoding="utf-8"))
    assert (manifest["source"], manifest["destination"]) == (str(begun.path), str(there))
    ours = read_state(there)
    square = "bert.encoder.layer.0.attention.self.query.weight"
    own = "bert.encoder.layers.0.self_attn.q_proj.weight"
    expected = begun.state.moments["moment1"][square]
    np.testing.assert_array_equal(ours.moments["moment1"][own], expected.T)
    convert_state(request(there, back, "paddle", model="", names=begun.names))
    first, again = (torch.load(path, weights_only=True) for path in (begun.path, back))
    assert first.keys() == again.keys()
    assert (again["step"], again["lr_scheduler"]) == (500, first["lr_scheduler"])
    assert again["optimizer"]["param_groups"] == first["optimizer"]["param_groups"]
    for name, array in begun.arrays.items():
        np.testing.assert_array_equal(again["state_dict"][name].numpy(), array)
    for index, entry in first["optimizer"]["state"].items():
        for key, value in entry.items():
            assert torch.equal(again["optimizer"]["state"][index][key], value)
            assert again["optimizer"]["state"][index][key].dtype == value.dtype


@pytest.mark.parametrize(
    ("weights", "optimizer", "schedule"),
    [
        ("model_state_dict", "optimizer_state_dict", "scheduler_state_dict"),
        ("state_dict", "optimizer", None),
        ("student", "optimizer", "lr_scheduler"),
    ],
)
def test_the_keys_of_a_file_and_names_beside_it(begun, tmp_path, weights, optimizer, schedule):
    content = {weights: tensors(begun.arrays), optimizer: unnamed(to_torch(begun.state))}
    path, ours, back = tmp_path / "other.ckpt", tmp_path / "ours", tmp_path / "back.pth"
    if schedule:
        content[schedule] = schedule_dict(begun.state)
    torch.save({**content, "epoch": 3}, path)
    with pytest.raises(ValueError, match=r"numbers its parameters: write them .*--names"):
        convert_state(request(path, ours))
    assert not ours.exists()
    text = convert_state(request(path, ours, names=begun.names))
    assert ("no state of a scheduler" in text) == (schedule is None)
    assert read_state(ours).position == (500 if schedule else None)
    with pytest.raises(ValueError, match=r"numbers its parameters: write them .*--names"):
        convert_state(request(ours, back, "paddle"))
    convert_state(request(ours, back, "paddle", names=begun.names))
    written = torch.load(back, weights_only=True)
    assert ("lr_scheduler" in written) == (schedule is not None)
    assert different_arrays(from_torch(written["optimizer"]), begun.state) == []
    for name, array in begun.arrays.items():
        np.testing.assert_array_equal(written["state_dict"][name].numpy(), array)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("step", None, "no count of updates"),
        ("exp_avg_sq", None, "moment2 is missing"),
        ("", None, "moment1 is missing"),
        ("exp_avg", torch.zeros(2, 2), r"query.weight: expected shape \(12, 12\), got \(2, 2\)"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_nothing_is_written(
    begun, tmp_path, key, value, message
):
    def change(optimizer):
        if value is not None:
            optimizer["state"][3][key] = value
        elif key:
            del optimizer["state"][3][key]
        else:
            del optimizer["state"][3]

    begun.change(change)
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(ValueError, match=message):
        convert_state(request(begun.path, tmp_path / "ours"))
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    if not key:  # no gradient has reached it: allowed when said
        convert_state(request(begun.path, tmp_path / "ours", unused=True))
        assert len(read_state(tmp_path / "ours").untouched) == 1
        options = {"unused": True, "names": begun.names}
        convert_state(request(tmp_path / "ours", tmp_path / "back.pth", "paddle", **options))
        assert 3 not in torch.load(tmp_path / "back.pth", weights_only=True)["optimizer"]["state"]


def test_float32_masters_become_the_weights(begun, tmp_path):
    ours = tmp_path / "ours"
    convert_state(request(begun.path, ours))
    arrays, metadata = read_tensors(ours / "model.safetensors")
    arrays, half = dict(arrays), {n: a.astype(np.float16) for n, a in arrays.items()}
    (ours / "manifest.json").unlink()
    write_tensors(ours / "model.safetensors", half, metadata)
    write_state(ours / FILE, dataclasses.replace(read_state(ours), masters=arrays))
    convert_state(request(ours, tmp_path / "back.pth", "paddle", names=begun.names))
    weights = torch.load(tmp_path / "back.pth", weights_only=True)["state_dict"]
    assert all(np.array_equal(weights[n].numpy(), begun.arrays[n]) for n in begun.arrays)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": ("torch", "ours")}, "--from torch --to torch: expected torch and paddle"),
        ({"layout": "bert"}, "unknown layout 'bert'"),
        ({"model": ""}, "--model: the source does not say"),
        ({"model": "bert_base_mgcrp"}, "without a destination: .*pooler"),
        ({"source": ("torch", "nowhere")}, "no such file or folder"),
        ({"source": ("torch", ".")}, "expected a file that ends in .bin, .pth"),
        ({"target": ("paddle", "absent/ours")}, "does not exist; make it first"),
        ({"target": ("paddle", "ours.pdopt")}, "expected a folder"),
        ({"names": "nowhere.json"}, "cannot read .*nowhere.json"),
    ],
)
def test_requests_that_cannot_be_met(begun, tmp_path, change, message):
    options = {"source": ("torch", str(begun.path)), "target": ("paddle", "ours")}
    options = {"layout": LAYOUT, "model": MODEL, **options, **change}
    for key in ("source", "target"):
        options[key] = (options[key][0], tmp_path / options[key][1])
    if "names" in options:
        options["names"] = tmp_path / options["names"]
    with pytest.raises(ValueError, match=message):
        convert_state(StateRequest(**options))
    assert not (tmp_path / "ours").exists()


def test_an_existing_target_is_replaced_only_when_asked(begun, tmp_path):
    there = tmp_path / "ours"
    convert_state(request(begun.path, there))
    with pytest.raises(ValueError, match="exists; --overwrite"):
        convert_state(request(begun.path, there))
    convert_state(request(begun.path, there, overwrite=True))
    (there / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(ValueError, match="holds files of its own"):
        convert_state(request(begun.path, there, overwrite=True))
    back = request(there, tmp_path / "back.pth", "paddle", names=begun.names)
    convert_state(back)
    with pytest.raises(ValueError, match="exists; --overwrite"):
        convert_state(back)
    convert_state(dataclasses.replace(back, overwrite=True))
    with pytest.raises(ValueError, match="expected a file that ends in"):
        convert_state(dataclasses.replace(back, target=("torch", tmp_path / "folder")))


@pytest.mark.parametrize("way", ["torch", "paddle"])
def test_a_full_disk_leaves_nothing(begun, tmp_path, monkeypatch, way):
    convert_state(request(begun.path, tmp_path / "ours"))
    source, target = (begun.path, "new") if way == "torch" else (tmp_path / "ours", "new.pth")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(command, "write_state" if way == "torch" else "save", full)
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(OSError, match="No space left"):
        convert_state(request(source, tmp_path / target, way, names=begun.names))
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_averaged_weights_of_an_image_training_are_passed_over(tmp_path, toy):
    arrays = toy("sot_official").arrays
    buffers = ("running_mean", "running_var", "num_batches_tracked")
    trained = {n: a.shape for n, a in arrays.items() if not n.endswith(buffers)}
    state = random_state(trained, np.random.default_rng(0))
    averages = {n: tensor + 1 for n, tensor in tensors(arrays).items()}
    content = {
        "state_dict": tensors(arrays),
        "state_dict_ema": averages,
        "optimizer": to_torch(state),
        "epoch": 1,
    }
    torch.save(content, tmp_path / "last.pth.tar")
    options = {"layout": "sot_official", "model": "sot_tiny"}
    text = convert_state(request(tmp_path / "last.pth.tar", tmp_path / "ours", **options))
    assert "the averaged weights are passed over" in text
    names = tmp_path / "names.json"
    names.write_text(json.dumps([group.names for group in state.groups]), encoding="utf-8")
    options["names"] = names
    convert_state(request(tmp_path / "ours", tmp_path / "back.pth", "paddle", **options))
    written = torch.load(tmp_path / "back.pth", weights_only=True)
    assert different_arrays(from_torch(written["optimizer"]), state) == []
    for name in trained:
        np.testing.assert_array_equal(written["state_dict"][name].numpy(), arrays[name])


def test_paddles_own_pickles_are_refused_with_a_way_out(tmp_path):
    path = tmp_path / "model.pdopt"
    path.write_bytes(b"pickle")
    with pytest.raises(ValueError, match=r"expected the state of an optimizer, .*\.save writes"):
        convert_state(request(tmp_path, tmp_path / "back.pth", "paddle"))
    with pytest.raises(ValueError, match=r"model.pdopt: expected a name that ends in .safetensors"):
        convert_state(request(path, tmp_path / "back.pth", "paddle"))
