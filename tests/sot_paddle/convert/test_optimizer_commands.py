"""The command that moves a whole training, on tiny checkpoints without a training behind them."""

import dataclasses
import json
import pickle

import numpy as np
import pytest
import torch

from sot_paddle.checkpoint import read_tensors, write_tensors
from sot_paddle.convert import build_plan
from sot_paddle.convert.optimizer import optimizer_commands
from sot_paddle.convert.optimizer.optimizer_commands import convert_state
from sot_paddle.convert.optimizer.optimizer_differences import identical
from sot_paddle.convert.optimizer.optimizer_file import FILE, read_state, write_state
from sot_paddle.convert.optimizer.optimizer_names import ordered_groups, trained_names
from sot_paddle.convert.optimizer.optimizer_request import StateRequest
from sot_paddle.convert.optimizer.optimizer_state import Group, OptimizerState, Schedule
from sot_paddle.convert.optimizer.optimizer_torch import from_torch, schedule_dict, to_torch

LAYOUT, MODEL = "bert_hf", "bert_base"
OPTIONS = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.01, "amsgrad": False}


def random_state(shapes, rng) -> OptimizerState:
    """A state in PyTorch's names, grouped as transformers groups."""
    decays = {n: 0.0 if "bias" in n or "LayerNorm" in n else 0.01 for n in shapes}
    groups = tuple(
        Group(tuple(names), 2e-5, 5e-5, {**OPTIONS, "weight_decay": decays[names[0]]})
        for names in ordered_groups(decays, list(shapes))
    )
    moments = {
        kind: {n: rng.random(shape, np.float32) for n, shape in shapes.items()}
        for kind in ("moment1", "moment2")
    }
    return OptimizerState(
        "torch", "adamw", groups, moments, dict.fromkeys(shapes, 500), Schedule(500)
    )


def unnamed(state_dict):
    """As an optimizer without parameter names writes it."""
    for group in state_dict["param_groups"]:
        del group["param_names"]
    return state_dict


@dataclasses.dataclass
class Folder:
    """A checkpoint folder of transformers' Trainer, and what it holds."""

    path: object
    state: OptimizerState
    arrays: dict


@pytest.fixture
def checkpoint(tmp_path, hf_shapes, random_arrays, hf_config) -> Folder:
    shapes = hf_shapes()
    order = trained_names(build_plan(LAYOUT, MODEL, shapes), None)  # as transformers registers
    shapes = {name: shapes[name] for name in order}
    arrays, state = random_arrays(shapes), random_state(shapes, np.random.default_rng(3))
    folder = tmp_path / "checkpoint-500"
    folder.mkdir()
    write_tensors(folder / "model.safetensors", arrays, {"format": "pt"})
    torch.save(unnamed(to_torch(state)), folder / "optimizer.pt")
    torch.save(schedule_dict(state), folder / "scheduler.pt")
    told = {"global_step": 500, "epoch": 2.0, "max_steps": 1000, "log_history": [{"loss": 1.0}]}
    (folder / "trainer_state.json").write_text(json.dumps(told), encoding="utf-8")
    config = {**hf_config, "hidden_act": "gelu"}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n", encoding="utf-8")
    return Folder(folder, state, arrays)


def request(source, target, way="torch", **options) -> StateRequest:
    other = {"torch": "paddle", "paddle": "torch"}[way]
    options = {"layout": LAYOUT, "model": MODEL, **options}
    return StateRequest((way, source), (other, target), **options)


def test_a_folder_of_transformers_there_and_back(checkpoint, tmp_path):
    there, back = tmp_path / "ours", tmp_path / "back"
    text = convert_state(request(checkpoint.path, there))
    assert "adamw, 41 weights, 82 moments, after 500 updates, learning rate 2e-05" in text
    assert "decayed first (transformers)" in text
    names = {path.name for path in there.iterdir()}
    assert names == {"model.safetensors", FILE, "config.json", "vocab.txt", "manifest.json"}
    manifest = json.loads((there / "manifest.json").read_text(encoding="utf-8"))
    assert (manifest["source"], manifest["destination"]) == (str(checkpoint.path), str(there))
    ours = read_state(there)
    square = "bert.encoder.layer.0.attention.self.query.weight"
    own = "bert.encoder.layers.0.self_attn.q_proj.weight"
    expected = checkpoint.state.moments["moment1"][square]
    np.testing.assert_array_equal(ours.moments["moment1"][own], expected.T)
    convert_state(request(there, back, "paddle", model=""))
    held = torch.load(back / "optimizer.pt", weights_only=True)
    assert identical(from_torch(held), checkpoint.state) == []
    place = torch.load(back / "scheduler.pt", weights_only=True)
    assert place == torch.load(checkpoint.path / "scheduler.pt", weights_only=True)
    told = json.loads((back / "trainer_state.json").read_text(encoding="utf-8"))
    assert told["global_step"] == 500
    weights, _ = read_tensors(back / "model.safetensors")
    assert set(weights) == set(checkpoint.arrays)
    assert all(np.array_equal(weights[n], checkpoint.arrays[n]) for n in weights)
    first = torch.load(checkpoint.path / "optimizer.pt", weights_only=True)
    for index, entry in first["state"].items():
        for key, value in entry.items():
            assert torch.equal(held["state"][index][key], value)
            assert held["state"][index][key].dtype == value.dtype


def test_transformers_reads_the_state_that_is_written(checkpoint, tmp_path):
    import sot_torch_ref  # noqa: F401, I001 (declares the operators that transformers' imports need)
    from transformers.trainer_callback import TrainerState

    convert_state(request(checkpoint.path, tmp_path / "ours"))
    convert_state(request(tmp_path / "ours", tmp_path / "back", "paddle"))
    state = TrainerState.load_from_json(str(tmp_path / "back" / "trainer_state.json"))
    assert state.global_step == 500


@pytest.mark.parametrize(
    ("weights", "optimizer", "schedule"),
    [
        ("model_state_dict", "optimizer_state_dict", "scheduler_state_dict"),
        ("model", "optimizer", "lr_scheduler"),
        ("state_dict", "optimizer", None),
    ],
)
def test_one_torch_file_with_everything(checkpoint, tmp_path, weights, optimizer, schedule):
    content = {
        weights: {n: torch.from_numpy(a) for n, a in checkpoint.arrays.items()},
        optimizer: unnamed(to_torch(checkpoint.state)),
        "epoch": 3,
    }
    if schedule:
        content[schedule] = schedule_dict(checkpoint.state)
    torch.save(content, tmp_path / "run.pth")
    text = convert_state(request(tmp_path / "run.pth", tmp_path / "ours"))
    assert ("no state of a scheduler" in text) == (schedule is None)
    ours = read_state(tmp_path / "ours")
    assert (ours.schedule.position if schedule else ours.schedule) == (500 if schedule else None)
    back = tmp_path / "back.pth"
    convert_state(request(tmp_path / "ours", back, "paddle", like=tmp_path / "run.pth"))
    found = torch.load(back, weights_only=True)
    assert found["step"] == 500
    assert ("lr_scheduler" in found) == (schedule is not None)
    assert identical(from_torch(found["optimizer"]), checkpoint.state) == []
    assert all(
        torch.equal(found["state_dict"][n], torch.from_numpy(a))
        for n, a in checkpoint.arrays.items()
    )


def test_the_weights_of_a_file_with_several_are_named(checkpoint, tmp_path):
    weights = {f"module.{n}": torch.from_numpy(a) for n, a in checkpoint.arrays.items()}
    spoilt = {n: tensor + 1 for n, tensor in weights.items()}
    content = {
        "student": weights,
        "teacher": spoilt,
        "optimizer": unnamed(to_torch(checkpoint.state)),
    }
    torch.save({**content, "step": np.int64(500)}, tmp_path / "run.ckpt")
    with pytest.raises(
        ValueError, match=r"student \(41 tensors\), teacher \(41 tensors\); .* --key"
    ):
        convert_state(request(tmp_path / "run.ckpt", tmp_path / "ours"))
    convert_state(request(tmp_path / "run.ckpt", tmp_path / "ours", key="student"))
    assert read_state(tmp_path / "ours").schedule is None
    convert_state(request(tmp_path / "ours", tmp_path / "back.pth", "paddle"))
    back = torch.load(tmp_path / "back.pth", weights_only=True)
    assert back["step"] == 500
    for name, array in checkpoint.arrays.items():
        np.testing.assert_array_equal(back["state_dict"][name].numpy(), array)


def test_names_from_a_file_and_another_order_of_the_groups(checkpoint, tmp_path):
    convert_state(request(checkpoint.path, tmp_path / "ours"))
    decayed, rest = (list(group.names) for group in checkpoint.state.groups)
    path = tmp_path / "names.json"
    path.write_text(json.dumps([rest, decayed[::-1]]), encoding="utf-8")
    convert_state(request(tmp_path / "ours", tmp_path / "back", "paddle", names=path))
    held = torch.load(tmp_path / "back" / "optimizer.pt", weights_only=True)
    assert held["param_groups"][1]["param_names"] == decayed[::-1]
    assert identical(from_torch(held), checkpoint.state) == []
    torch.save(unnamed(held), checkpoint.path / "optimizer.pt")
    with pytest.raises(ValueError, match="no known rule fits"):
        convert_state(request(checkpoint.path, tmp_path / "again"))
    assert not (tmp_path / "again").exists()
    convert_state(request(checkpoint.path, tmp_path / "again", names=path))
    first, again = (read_state(tmp_path / name) for name in ("ours", "again"))
    assert identical(again, first) == []


def test_float32_masters_become_the_weights(checkpoint, tmp_path):
    convert_state(request(checkpoint.path, tmp_path / "ours"))
    tensors, metadata = read_tensors(tmp_path / "ours" / "model.safetensors")
    tensors, half = dict(tensors), {n: a.astype(np.float16) for n, a in tensors.items()}
    (tmp_path / "ours" / "manifest.json").unlink()
    write_tensors(tmp_path / "ours" / "model.safetensors", half, metadata)
    state = dataclasses.replace(read_state(tmp_path / "ours"), masters=dict(tensors))
    write_state(tmp_path / "ours" / FILE, state)
    convert_state(request(tmp_path / "ours", tmp_path / "back", "paddle"))
    weights, _ = read_tensors(tmp_path / "back" / "model.safetensors")
    assert all(np.array_equal(weights[n], checkpoint.arrays[n]) for n in checkpoint.arrays)


def spoil(folder, what):
    """A folder with one mistake in its optimizer."""
    path = folder.path / "optimizer.pt"
    held = torch.load(path, weights_only=True)
    if what == "absent":
        path.unlink()
        return
    if what == "no step":
        del held["state"][3]["step"]
    elif what == "no moment":
        del held["state"][3]["exp_avg_sq"]
    elif what == "no state":
        del held["state"][3]
    elif what == "shape":
        held["state"][3]["exp_avg"] = torch.zeros(2, 2)
    elif what == "group":
        held["param_groups"][0]["params"].pop()
    elif what == "kind":
        held["param_groups"] = [{**g, "alpha": 1.0} for g in held["param_groups"]]
        for group in held["param_groups"]:
            del group["betas"]
    elif what == "pickle":
        path.write_bytes(pickle.dumps(spoil, protocol=2))
        return
    torch.save(held, path)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("absent", "no optimizer.pt; expected the folder of a checkpoint"),
        ("no step", "no count of updates"),
        ("no moment", "moment2 is missing"),
        ("no state", "moment1 is missing"),
        ("shape", "no known rule fits"),
        ("group", r"no known rule fits \(40 parameters"),
        ("kind", "an optimizer without a counterpart here .*alpha"),
        ("pickle", "refused: it asks for .*spoil; expected plain data"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_nothing_is_written(
    checkpoint, tmp_path, what, message
):
    spoil(checkpoint, what)
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(ValueError, match=message):
        convert_state(request(checkpoint.path, tmp_path / "ours"))
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_weight_without_gradient_so_far_is_allowed_when_said(checkpoint, tmp_path):
    spoil(checkpoint, "no state")
    convert_state(request(checkpoint.path, tmp_path / "ours", unused=True))
    assert len(read_state(tmp_path / "ours").untouched) == 1
    convert_state(request(tmp_path / "ours", tmp_path / "back", "paddle", unused=True))
    held = torch.load(tmp_path / "back" / "optimizer.pt", weights_only=True)
    assert 3 not in held["state"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": ("torch", "ours")}, "--from torch --to torch: expected torch and paddle"),
        ({"layout": "bert"}, "unknown layout 'bert'"),
        ({"model": ""}, "--model: the source does not say"),
        ({"model": "bert_base_mgcrp"}, "bert_base_mgcrp has no place for .*pooler"),
        ({"source": ("torch", "nowhere")}, "no such file or folder"),
        ({"target": ("paddle", "absent/ours")}, "does not exist; make it first"),
        ({"target": ("paddle", "ours.pdopt")}, "expected a folder"),
        ({"step": -1}, "the run has made -1 updates: expected 1 or more"),
        ({"like": "nowhere"}, "no checkpoint of the Trainer"),
        ({"names": "nowhere.json"}, "cannot read .*nowhere.json"),
    ],
)
def test_requests_that_cannot_be_met(checkpoint, tmp_path, change, message):
    options = {"source": ("torch", str(checkpoint.path)), "target": ("paddle", "ours")}
    options = {"layout": LAYOUT, "model": MODEL, **options, **change}
    for key in ("source", "target"):
        options[key] = (options[key][0], tmp_path / options[key][1])
    for key in ("like", "names"):
        if key in options:
            options[key] = tmp_path / options[key]
    with pytest.raises(ValueError, match=message):
        convert_state(StateRequest(**options))
    assert not (tmp_path / "ours").exists()


def test_an_existing_target_is_replaced_only_when_asked(checkpoint, tmp_path):
    there = tmp_path / "ours"
    convert_state(request(checkpoint.path, there))
    with pytest.raises(ValueError, match="exists; --overwrite"):
        convert_state(request(checkpoint.path, there))
    convert_state(request(checkpoint.path, there, overwrite=True))
    (there / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(ValueError, match="holds files of its own"):
        convert_state(request(checkpoint.path, there, overwrite=True))
    with pytest.raises(ValueError, match="is what is being converted"):
        convert_state(request(checkpoint.path, checkpoint.path, overwrite=True))
    (tmp_path / "back").mkdir()  # nothing is lost with an empty folder
    for target in (tmp_path / "back", tmp_path / "back.pth"):
        for overwrite in (False, True):
            convert_state(request(there, target, "paddle", overwrite=overwrite))


@pytest.mark.parametrize("way", ["torch", "paddle"])
def test_a_full_disk_leaves_nothing(checkpoint, tmp_path, monkeypatch, way):
    convert_state(request(checkpoint.path, tmp_path / "ours"))
    source = checkpoint.path if way == "torch" else tmp_path / "ours"
    name = "write_state" if way == "torch" else "write_training"

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(optimizer_commands, name, full)
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(OSError, match="No space left"):
        convert_state(request(source, tmp_path / "new", way))
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_images_take_the_order_of_their_file(tmp_path, image_shapes, random_arrays):
    shapes = image_shapes("deit_timm")
    arrays = random_arrays(shapes)
    decays = {n: 0.05 if len(s) > 1 else 0.0 for n, s in shapes.items()}
    groups = ordered_groups(decays, list(shapes))[::-1]  # timm: not decayed first
    rng = np.random.default_rng(0)
    made = tuple(
        Group(tuple(names), 1e-3, None, {**OPTIONS, "weight_decay": decays[names[0]]})
        for names in groups
    )
    moments = {k: {n: rng.random(s) for n, s in shapes.items()} for k in ("moment1", "moment2")}
    state = OptimizerState("torch", "adamw", made, moments, dict.fromkeys(shapes, 40))
    content = {
        "state_dict": {n: torch.from_numpy(a) for n, a in arrays.items()},
        "optimizer": unnamed(to_torch(state)),
        "epoch": 1,
    }
    torch.save(content, tmp_path / "last.pth.tar")
    options = {"layout": "deit_timm", "model": "deit_tiny"}
    text = convert_state(request(tmp_path / "last.pth.tar", tmp_path / "ours", **options))
    assert "not decayed first (timm)" in text
    assert "after 40 updates" in text
    for name, like in (("a.pth", None), ("b.pth", tmp_path / "last.pth.tar")):
        path = tmp_path / name
        convert_state(request(tmp_path / "ours", path, "paddle", like=like, **options))
        held = torch.load(path, weights_only=True)["optimizer"]
        assert identical(from_torch(held), state) == []
        assert {frozenset(g["param_names"]) for g in held["param_groups"]} == {
            frozenset(group) for group in groups
        }
    assert [g["param_names"] for g in held["param_groups"]] == groups


def test_paddles_own_pickles_are_refused_with_a_way_out(tmp_path):
    path = tmp_path / "model.pdopt"
    path.write_bytes(b"pickle")
    for place in (path, tmp_path):
        with pytest.raises(ValueError, match="optimizer_paddle.save"):
            convert_state(request(place, tmp_path / "back", "paddle"))
    path.unlink()
    with pytest.raises(ValueError, match="expected the state of an optimizer"):
        convert_state(request(tmp_path, tmp_path / "back", "paddle"))
