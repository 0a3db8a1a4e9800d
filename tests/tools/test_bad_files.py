"""Bad and hostile files through the real commands: one line, status 2, nothing written."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from align import cli
from align.record.files import storage
from sot_paddle.checkpoint import write_tensors
from tests.sot_paddle.convert import tiny_checkpoints as tiny
from tests.sot_paddle.train import tiny_images, tiny_run
from tests.tools import bad_files as bad
from tests.tools import tool_runs

TEXT = ("--layout", "bert_hf", "--model", "bert_base")
TOOLS = ("convert_weights", "convert_state", "train_glue", "eval_image", "predict", "visualize")


@pytest.fixture(scope="session")
def good(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("good")
    bad.hf_folder(root / "hf")
    bad.torch_training(root / "training.pth")
    bad.image_run(root / "run")
    bad.text_file(root / "text.safetensors")
    torch.save({n: torch.from_numpy(a) for n, a in tiny.fill(tiny.deit()).items()}, root / "d.pth")
    tiny_images.write_images(root / "images", train=1, val=1)
    tiny_run.write_glue(root / "glue", train=4, dev=2, test=2)
    with storage.new_folder(root / "dump") as folder:
        storage.write_json(folder / "meta.json", {"side": "torch"})
    return root


@pytest.fixture(scope="session")
def tools() -> dict[str, Callable[[list[str]], int]]:
    found = {name: tool_runs.load(name).main for name in TOOLS}
    return found | {"compare": lambda arguments: cli.main(["compare", *arguments])}


@pytest.fixture
def refused(tools, good, tmp_path, capfd) -> Callable[..., str]:
    """Runs a command that has to be refused; returns its line without the program's name."""

    def run(tool: str, *arguments: object) -> str:
        before = set(tmp_path.rglob("*"))
        capfd.readouterr()
        with bad.guarded():
            try:
                status = tools[tool]([str(argument) for argument in arguments])
            except SystemExit as ended:
                status = ended.code
        said = capfd.readouterr()
        lines = [x for x in said.err.splitlines() if x.startswith((tool, "align"))]
        assert status == 2, said.err
        assert len(lines) == 1, said.err
        assert "Traceback" not in said.err
        left = {path.name for path in set(tmp_path.rglob("*")) - before}
        assert not {name for name in left if name.startswith((".writing", "tmp")) or ".tmp" in name}
        return lines[0]

    return run


def convert(refused, source: Path, *more: object) -> str:
    target = source.parent / "new.safetensors"
    line = refused("convert_weights", *TEXT, *more, source, target)
    assert not list(source.parent.glob("new.*"))
    return line


def deit(refused, source: Path) -> str:
    target = source.parent / "new.safetensors"
    flags = ("--layout", "deit_official", "--model", "deit_tiny", source, target)
    return refused("convert_weights", *flags)


# torch files


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("where", ["weights", "optimizer"])
def test_a_malicious_torch_file_names_its_culprit(refused, good, tmp_path, legacy, where) -> None:
    content = {"w": torch.ones(2), "x": bad.Malicious(tmp_path / "owned")}
    path = tmp_path / "bad.pth"
    torch.save(content, path, _use_new_zipfile_serialization=not legacy)
    line = deit(refused, path) if where == "weights" else to_paddle(refused, path)
    assert "posix.system" in line or "os.system" in line or "nt.system" in line
    assert "weights_only" not in line
    assert "torch.load" not in line
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    "content", [b"", b"junk", b"PK\x03\x04junk", b"\x80\x02}q\x00.", b"\x80\x02r\xff\xff\xff\xff."]
)
def test_junk_instead_of_a_torch_file(refused, tmp_path, content) -> None:
    (tmp_path / "junk.pth").write_bytes(content)
    line = deit(refused, tmp_path / "junk.pth")
    assert "junk.pth" in line
    assert "weights_only" not in line


@pytest.mark.parametrize("legacy", [False, True])
def test_a_small_torch_file_that_claims_terabytes(refused, tmp_path, legacy) -> None:
    state = {n: torch.from_numpy(a) for n, a in tiny.fill(tiny.deit()).items()}
    wide = state["head.weight"].shape[1]
    state["head.weight"] = torch.zeros(1).expand(10**11, wide)
    state["head.bias"] = torch.zeros(1).expand(10**11)
    path = tmp_path / "small.pth"
    torch.save(state, path, _use_new_zipfile_serialization=not legacy)
    assert path.stat().st_size < 10**5
    line = deit(refused, path)
    assert "head." in line
    assert "bytes" in line


def test_a_torch_file_cut_off(refused, good, tmp_path) -> None:
    path = bad.Place(good, tmp_path).take("d.pth")
    path.write_bytes(path.read_bytes()[:-999])
    assert "d.pth" in deit(refused, path)


# safetensors, shards, what stands beside them


@pytest.mark.parametrize("kind", ["fifo", "zero"])
@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "vocab.txt"])
def test_what_is_no_regular_file(refused, good, tmp_path, kind, name) -> None:
    folder = bad.Place(good, tmp_path).take("hf")
    bad.no_regular_file(folder / name, kind)
    line = convert(refused, folder)
    assert name in line or "no weights" in line


def test_an_index_that_names_itself(refused, good, tmp_path) -> None:
    folder = bad.Place(good, tmp_path).take("hf")
    (folder / "model.safetensors").unlink()
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"w": index.name}}))
    assert "index.json" in convert(refused, folder)


@pytest.mark.parametrize("content", bad.DAMAGED_JSON.values(), ids=bad.DAMAGED_JSON)
@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json"])
def test_damaged_json_beside_weights(refused, good, tmp_path, name, content) -> None:
    folder = bad.Place(good, tmp_path).take("hf")
    if name != "config.json":
        (folder / "model.safetensors").unlink()
    bad.put(folder / name, content)
    assert name in convert(refused, folder)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"vocabulary": bad.inflating(1 << 30)}, "bytes when unpacked"),
        ({"config": "no JSON"}, "config"),
        ({"config": "[" * bad.NESTED}, "config"),
        ({"config": "5"}, "config"),
        ({"format_version": "99"}, "99"),
        ({"num_attention_heads": "x"}, "heads"),
    ],
    ids=["inflating", "no json", "deep", "number", "version", "heads"],
)
def test_bad_metadata(refused, good, tmp_path, table, message) -> None:
    path = bad.Place(good, tmp_path).take("text.safetensors")
    bad.with_metadata(path, **table)
    assert message in convert(refused, path, "--reverse")


@pytest.mark.parametrize("value", [np.nan, np.inf, "int8", "bool"])
def test_weights_that_are_no_finite_numbers(refused, good, tmp_path, value) -> None:
    folder = bad.Place(good, tmp_path).take("hf")
    arrays = tiny.fill(bad.shapes())
    name = "bert.encoder.layer.1.output.dense.bias"
    if isinstance(value, str):
        arrays[name] = arrays[name].astype(value)
    else:
        arrays[name][3] = value
    write_tensors(folder / "model.safetensors", arrays, {"format": "pt"})
    line = convert(refused, folder)
    assert name in line
    assert ("tensor.float()" if isinstance(value, str) else "torch.nan_to_num") in line


def test_a_source_cut_while_it_is_read(refused, tools, good, tmp_path, monkeypatch) -> None:
    folder = bad.Place(good, tmp_path).take("hf")
    module = __import__("sys").modules["convert_weights_tool"]

    def cut(*_: object) -> None:
        os.truncate(folder / "model.safetensors", 4096)

    monkeypatch.setattr(module, "show_progress", cut)
    assert "cut" in convert(refused, folder)


def test_a_manifest_without_its_file_is_not_replaced(refused, good, tmp_path) -> None:
    folder = bad.Place(good, tmp_path).take("hf")
    (tmp_path / "out.safetensors.manifest.json").write_text("mine")
    line = refused("convert_weights", *TEXT, folder, tmp_path / "out.safetensors")
    assert "out.safetensors.manifest.json" in line
    assert (tmp_path / "out.safetensors.manifest.json").read_text() == "mine"


def test_a_full_disk_at_the_manifest_leaves_no_weights(
    refused, good, tmp_path, monkeypatch
) -> None:
    def full(_: object) -> bytes:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sot_paddle.convert.engine.manifest.Manifest.to_json", full)
    folder = bad.Place(good, tmp_path).take("hf")
    assert "No space" in convert(refused, folder)


# the state of a training


def to_paddle(refused, path: Path, *more: object) -> str:
    target = path.parent / "state"
    flags = (*TEXT, "--from", "torch", path, "--to", "paddle", target)
    line = refused("convert_state", *flags, *more)
    assert not target.exists()
    return line


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (bad.group(betas=None), "betas"),
        (bad.group(betas=(1, 2)), "beta"),
        (bad.group(betas=(0.9,)), "betas"),
        (bad.group(lr="fast"), "lr"),
        (bad.group(lr=float("nan")), "lr"),
        (bad.group(eps=-1.0), "eps"),
        (bad.group(weight_decay=float("inf")), "weight_decay"),
        (bad.group(params=5), "params"),
        (lambda held: held.update(state=[1]), "state"),
        (lambda held: held.update(param_groups=[1]), "param_groups"),
        (bad.moment("exp_avg_sq", bad.filled(-1.0)), "negative"),
        (bad.moment("exp_avg", bad.filled(float("nan"))), "finite"),
        (bad.moment("exp_avg", lambda t: t.to(torch.int8)), "int8"),
        (bad.moment("exp_avg", lambda t: t > 0), "bool"),
        (bad.moment("exp_avg", lambda t: "text"), "exp_avg"),
        (bad.moment("step", lambda t: "many"), "step"),
        (bad.moment("step", lambda t: float("nan")), "number"),
    ],
)
def test_an_optimizer_that_cannot_be(refused, good, tmp_path, change, message) -> None:
    path = bad.Place(good, tmp_path).take("training.pth")
    content = torch.load(path, weights_only=True)
    change(content["optimizer"])
    torch.save(content, path)
    assert message in to_paddle(refused, path)


@pytest.mark.parametrize("content", bad.DAMAGED_JSON.values(), ids=bad.DAMAGED_JSON)
def test_damaged_names_of_a_training(refused, good, tmp_path, content) -> None:
    path = bad.Place(good, tmp_path).take("training.pth")
    bad.put(tmp_path / "names.json", content)
    assert "names.json" in to_paddle(refused, path, "--names", tmp_path / "names.json")


# configurations and data of a training


def glue(refused, place: bad.Place, model: Path, *more: object) -> str:
    data = place.good / "glue" / "RTE"
    flags = tiny_run.command(data, model, place.here / "out", *map(str, more))
    return refused("train_glue", *flags)


@pytest.mark.parametrize(
    "changes",
    [
        {"num_hidden_layers": "2"},
        {"num_hidden_layers": 10**9},
        {"num_hidden_layers": True},
        {"vocab_size": 10**12},
        {"vocab_size": None},
        {"hidden_size": [12]},
        {"hidden_size": 3 * 10**7},
        {"layer_norm_eps": "1e-12"},
        {"model_type": ["bert"]},
    ],
    ids=str,
)
@pytest.mark.parametrize("as_config", [True, False])
def test_sizes_that_cannot_be(refused, good, tmp_path, changes, as_config) -> None:
    place = bad.Place(good, tmp_path)
    folder = place.take("hf")
    bad.change_json(folder / "config.json", lambda held: held | changes)
    flags = () if as_config else ("--model_name_or_path", folder)
    model = tiny_run.write_model(tmp_path / "model") if not as_config else folder
    if not as_config:
        command = tiny_run.command(good / "glue" / "RTE", model, tmp_path / "out")
        at = command.index("--model_name_or_path") + 1
        command[at] = str(folder)
        at = command.index("--config_name")
        del command[at : at + 2]
        line = refused("train_glue", *command)
    else:
        line = glue(refused, place, folder, *flags)
    (key,) = changes
    assert key in line or "wrong shape" in line or "layers expected" in line or as_config


@pytest.mark.parametrize("content", bad.DAMAGED_JSON.values(), ids=bad.DAMAGED_JSON)
def test_a_damaged_configuration(refused, good, tmp_path, content) -> None:
    place = bad.Place(good, tmp_path)
    folder = place.take("hf")
    bad.put(folder / "config.json", content)
    assert "config.json" in glue(refused, place, folder)


@pytest.mark.parametrize(
    "content",
    [
        bad.LAUGHS + "model_type: *a59\n",
        bad.LAUGHS + "unknown: *a59\n",
        "a: " + "[" * 5000,
        "? " * 5000,
        "&a [*a]",
        "model_type: &a [*a]",
        b"\xff\xfe\x00",
        "- 1",
        "x: 2021-99-99",
        "a: !!python/object/apply:os.system [true]",
    ],
    ids=range(10),
)
def test_a_yaml_file_that_cannot_be(refused, good, tmp_path, content) -> None:
    place = bad.Place(good, tmp_path)
    path = tmp_path / "options.yaml"
    bad.put(path, content)
    assert "options.yaml" in glue(refused, place, place.take("hf"), "--config", path)


@pytest.mark.parametrize("kind", ["fifo", "zero"])
@pytest.mark.parametrize("what", ["yaml", "config.json", "vocab.txt", "train.tsv"])
def test_a_training_reads_regular_files_only(refused, good, tmp_path, what, kind) -> None:
    place = bad.Place(good, tmp_path)
    folder, data = place.take("hf"), place.take("glue") / "RTE"
    path = {"yaml": tmp_path / "o.yaml", "train.tsv": data / "train.tsv"}.get(what, folder / what)
    bad.no_regular_file(path, kind)
    more = ("--config", str(path)) if what == "yaml" else ("--max_seq_length", "8")
    command = tiny_run.command(data, folder, tmp_path / "out", *more)
    line = refused("train_glue", *command)
    assert path.name in line or path.parent.name in line


# a trained image model


def evaluate(
    refused, place: bad.Place, run: Path, *more: object, images: Path | None = None
) -> str:
    images = images or place.good / "images"
    flags = (images, "--weights", run, "--workers", "0", "--cpu", *more)
    return refused("eval_image", *flags)


@pytest.mark.parametrize("name", ["ema.safetensors", "model.safetensors"])
def test_a_flipped_bit_is_seen(refused, good, tmp_path, name) -> None:
    place = bad.Place(good, tmp_path)
    run = place.take("run")
    raw = bytearray((run / "best" / name).read_bytes())
    raw[-5] ^= 1
    (run / "best" / name).write_bytes(raw)
    flags = ("--no-ema",) if name == "model.safetensors" else ()
    line = evaluate(refused, place, run, *flags)
    assert name in line
    assert "checksum" in line


@pytest.mark.parametrize(
    "content", [*bad.DAMAGED_JSON.values(), None], ids=[*bad.DAMAGED_JSON, "-"]
)
def test_a_damaged_best_is_not_passed_over_for_last(refused, good, tmp_path, content) -> None:
    place = bad.Place(good, tmp_path)
    run = place.take("run")
    if content is None:
        (run / "best" / "config.json").unlink()
    else:
        bad.put(run / "best" / "config.json", content)
    line = evaluate(refused, place, run)
    assert "best" in line
    assert "config.json" in line


@pytest.mark.parametrize(
    "changes",
    [
        {"classes": 5},
        {"classes": [1, 2, 3]},
        {"num_classes": "3"},
        {"num_classes": 10**12},
        {"options": 5},
        {"options": {**bad.IMAGE, "depth": 10**9}},
        {"options": {**bad.IMAGE, "depth": "1"}},
        {"options": {**bad.IMAGE, "embed_dim": 12 * 10**8}},
        {"options": {**bad.IMAGE, "img_size": 10**9}},
        {"mean": "abc"},
        {"mean": [0.5]},
        {"img_size": -1},
        {"crop_pct": "x"},
        {"model": 5},
        {"model": ["sot_tiny"]},
    ],
    ids=str,
)
def test_an_image_configuration_that_cannot_be(refused, good, tmp_path, changes) -> None:
    place = bad.Place(good, tmp_path)
    run = place.take("run")
    bad.change_json(run / "best" / "config.json", lambda held: held | changes)
    bad.reclose(run / "best")
    evaluate(refused, place, run)


@pytest.mark.parametrize(
    "change",
    [
        lambda held: 5,
        lambda held: {"files": []},
        lambda held: {"files": {name: {} for name in held["files"]}},
        lambda held: {"files": {n: {"crc32": e["crc32"]} for n, e in held["files"].items()}},
        lambda held: {"files": {n: {**e, "crc32": "x"} for n, e in held["files"].items()}},
        lambda held: {"files": dict.fromkeys(held["files"], 5)},
    ],
)
def test_a_damaged_manifest(refused, good, tmp_path, change) -> None:
    place = bad.Place(good, tmp_path)
    run = place.take("run")
    bad.change_json(run / "best" / "manifest.json", change)
    assert "manifest.json" in evaluate(refused, place, run)


def test_an_image_whose_name_is_no_text(refused, good, tmp_path) -> None:
    place = bad.Place(good, tmp_path)
    images = place.take("images")
    bees = images / "val" / "bee"
    os.rename(bees / "bee0.png", os.fsencode(bees) + b"/b\xff.png")
    line = evaluate(refused, place, place.take("run"), "--predictions", tmp_path / "p.csv",
                    images=images)  # fmt: skip
    assert "\\xff" in line
    assert not (tmp_path / "p.csv").exists()


# exports, tables, dumps


@pytest.mark.parametrize("content", bad.DAMAGED_JSON.values(), ids=bad.DAMAGED_JSON)
def test_a_damaged_export(refused, tmp_path, content) -> None:
    (tmp_path / "export").mkdir()
    bad.put(tmp_path / "export" / "export.json", content)
    assert "export.json" in refused("predict", tmp_path / "export", tmp_path / "x.txt")


@pytest.mark.parametrize("content", bad.DAMAGED_JSON.values())
def test_damaged_scores_of_layers(refused, tmp_path, content) -> None:
    bad.put(tmp_path / "metrics.json", content)
    assert "metrics.json" in refused("visualize", tmp_path, "--out", tmp_path / "x")


@pytest.mark.parametrize("content", bad.DAMAGED_JSON.values(), ids=bad.DAMAGED_JSON)
@pytest.mark.parametrize("name", ["meta.json", "manifest.json"])
def test_a_damaged_dump(refused, good, tmp_path, name, content) -> None:
    with storage.new_folder(tmp_path / "dump") as folder:
        bad.put(folder / "meta.json", content)
    if name == "manifest.json":
        bad.put(tmp_path / "dump" / name, content)
    assert name in refused("compare", tmp_path / "dump", good / "dump")
