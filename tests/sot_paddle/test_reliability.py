"""What is promised of files, by the real commands: refused by name, nothing run, nothing lost."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from sot_paddle import reading
from sot_paddle.checkpoint import write_tensors
from sot_paddle.convert.state.record import Group, OptimizerState
from sot_paddle.registry import create_model
from sot_paddle.train import checkpointing
from sot_paddle.train.ema import ModelEma
from sot_paddle.train.model_folder import ImageModelConfig
from sot_paddle.train.run_folder import EMA, WEIGHTS
from sot_paddle.weights import options_of, weights_and_metadata
from tests.sot_paddle.train import tiny_images, tiny_run
from tests.sot_paddle.train.original_checkpoints import BERT
from tests.sot_paddle.train.run_output import arrays_of
from tests.tools import tool_runs

IMAGE = {"token_type": "patch", "patch_size": 8, "embed_dim": 12, "depth": 1, "num_heads": 3}
IMAGE |= {"wr_dim": 4, "head_num_heads": 2, "img_size": 16}
TEXT = ("--layout", "bert_hf", "--model", "bert_base")
TOOLS = ("convert_weights", "convert_state", "train_glue", "eval_image")
DEEP = "[" * 100_000
BIAS = "bert.encoder.layer.1.output.dense.bias"


def write_image_run(root: Path) -> None:
    """The folder of an image run with ``best`` and a checkpoint that ``last`` points to."""
    model = create_model("sot_tiny", 3, **IMAGE)
    config = ImageModelConfig(
        model="sot_tiny",
        num_classes=3,
        options=options_of(model),
        classes=tiny_images.CLASSES,
        **{"img_size": 16, "crop_pct": 0.9, "mean": (0.5, 0.5, 0.5), "std": (0.2, 0.2, 0.2)},
    )
    arrays, metadata = weights_and_metadata(model)
    files = [
        (WEIGHTS, checkpointing.TensorFile(arrays, metadata)),
        (EMA, checkpointing.TensorFile(ModelEma(model, 0.9).arrays(), metadata)),
        *config.file().items(),
    ]
    for name in ("best", "last"):
        checkpointing.write_folder(root / name, files)


@pytest.fixture(scope="session")
def good(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("good")
    BERT.write(root / "hf")
    write_image_run(root / "run")
    tiny_images.write_images(root / "images", train=1, val=1)
    tiny_run.write_glue(root / "glue", train=4, dev=2, test=2)
    return root


@pytest.fixture(scope="session")
def tools() -> dict[str, Callable[[list[str]], int]]:
    return {name: tool_runs.load(name).main for name in TOOLS}


@pytest.fixture
def refused(tools, tmp_path, capfd) -> Callable[..., str]:
    """Run a command that has to be refused; return its line."""

    def run(tool: str, *arguments: object) -> str:
        before = set(tmp_path.rglob("*"))
        capfd.readouterr()
        status = tools[tool]([str(argument) for argument in arguments])
        text = capfd.readouterr().err
        assert status == 2, text
        assert "Traceback" not in text
        assert "validation error" not in text  # of pydantic
        (line,) = [line for line in text.splitlines() if line.startswith(tool)]
        new = {path.name for path in set(tmp_path.rglob("*")) - before}
        assert not {name for name in new if name.startswith((".writing", "new", "tmp"))}
        return line

    return run


@pytest.fixture
def convert(refused, tmp_path) -> Callable[[Path], str]:
    return lambda source: refused("convert_weights", *TEXT, source, tmp_path / "new.safetensors")


@pytest.fixture
def evaluate(refused, good) -> Callable[..., str]:
    flags = ("--workers", "0", "--cpu")
    return lambda run, *more: refused(
        "eval_image", good / "images", "--weights", run, *flags, *more
    )


@pytest.fixture
def hf(good, tmp_path) -> Path:
    return Path(shutil.copytree(good / "hf", tmp_path / "hf"))


@pytest.fixture
def run(good, tmp_path) -> Path:
    return Path(shutil.copytree(good / "run", tmp_path / "run", symlinks=True))


class Malicious:
    """Touches a file when it is unpickled carelessly."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple:
        return (os.system, (f"touch {self.target}",))


@pytest.mark.parametrize("kind", ["zip", "legacy", ".pdparams", "optimizer"])
def test_a_malicious_file_runs_nothing_and_names_its_culprit(refused, convert, tmp_path, kind):
    content = {"w": torch.ones(2), "x": Malicious(tmp_path / "owned")}
    path = tmp_path / ("bad.pdparams" if kind == ".pdparams" else "bad.pth")
    if kind == ".pdparams":
        path.write_bytes(pickle.dumps({**content, "w": np.ones(2)}))
        line = refused("convert_weights", *TEXT, "--reverse", path, tmp_path / "new.pth")
    else:
        torch.save(content, path, _use_new_zipfile_serialization=kind != "legacy")
        state = ("--from", "torch", path, "--to", "paddle", tmp_path / "new")
        line = refused("convert_state", *TEXT, *state) if kind == "optimizer" else convert(path)
    assert "system" in line
    assert str(path) in line
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("model.safetensors", lambda raw: raw[:-9]),
        ("config.json", lambda raw: b"[1]"),
        ("config.json", lambda raw: DEEP.encode()),
        ("a.pth", lambda raw: b"PK\x03\x04junk"),
        ("model.safetensors.index.json", lambda raw: b'{"weight_map": {"w": "gone"}}'),
    ],
)
def test_a_damaged_source_is_refused_by_name(convert, hf, name, damage):
    path = hf / name
    path.write_bytes(damage(path.read_bytes() if path.exists() else b""))
    line = convert(path if name in ("a.pth", "model.safetensors.index.json") else hf)
    assert name in line


@pytest.mark.parametrize("value", [np.nan, "int8"])
def test_weights_that_are_no_finite_numbers_are_refused(convert, hf, value):
    arrays = arrays_of(hf)
    if isinstance(value, str):
        arrays[BIAS] = arrays[BIAS].astype(value)
    else:
        arrays[BIAS][3] = value
    write_tensors(hf / "model.safetensors", arrays, {"format": "pt"})
    line = convert(hf)
    assert BIAS in line
    assert ("tensor.float()" if isinstance(value, str) else "torch.nan_to_num") in line


@pytest.mark.parametrize(
    ("second", "beta", "said"),
    [
        (-1.0, 0.999, "moment2 of w holds a negative number"),
        (np.nan, 0.999, "moment2 of w holds a number that is not finite"),
        (1.0, 1.0, "beta2 is 1.0, expected a number from 0 to below 1"),
    ],
)
def test_an_optimizer_that_cannot_be_is_refused(second, beta, said):
    group = Group(("w",), 1e-3, None, {"beta1": 0.9, "beta2": beta, "eps": 1e-8})
    moments = {"moment1": {"w": np.ones(2)}, "moment2": {"w": np.full(2, second)}}
    state = OptimizerState("torch", "adamw", (group,), moments, {"w": 5})
    with pytest.raises(ValueError, match=said):
        state.check({"w": (2,)})


def test_what_lies_beside_the_destination_is_not_replaced(refused, hf, tmp_path):
    manifest = tmp_path / "out.safetensors.manifest.json"
    manifest.write_text("mine")
    assert manifest.name in refused("convert_weights", *TEXT, hf, tmp_path / "out.safetensors")
    assert manifest.read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", "{"),
        ("config.json", json.dumps(tiny_run.SIZES | {"vocab_size": 10**12})),
        ("options.yaml", "a: " + "[" * 1500),
        ("options.yaml", "a: !!python/object/apply:os.system [true]"),
        ("train.tsv", b"\xff"),
    ],
)
def test_what_a_training_reads_is_refused_by_name(refused, good, tmp_path, name, content):
    data = Path(shutil.copytree(good / "glue" / "RTE", tmp_path / "RTE"))
    model = tiny_run.write_model(tmp_path / "model")
    folders = {"config.json": model, "train.tsv": data, "options.yaml": tmp_path}
    (folders[name] / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    flags = ("--config", str(tmp_path / name)) if name == "options.yaml" else ()
    line = refused("train_glue", *tiny_run.command(data, model, tmp_path / "out", *flags))
    assert name in line or "vocab_size" in line
    assert not (tmp_path / "out").exists()


def flip(path: Path) -> None:
    """Change one bit of a file's last tensor."""
    raw = bytearray(path.read_bytes())
    raw[-5] ^= 1
    path.write_bytes(raw)


def test_a_flipped_bit_of_converted_weights_is_seen(tools, refused, hf, tmp_path):
    path = tmp_path / "ours.safetensors"
    assert tools["convert_weights"]([*TEXT, str(hf), str(path)]) == 0
    flip(path)
    line = refused("convert_weights", *TEXT, "--reverse", path, tmp_path / "back.pth")
    assert "ours.safetensors" in line


def state(best: Path, **changes: object) -> None:
    """Change what the configuration says, the manifest up to date."""
    content = json.loads((best / "config.json").read_text())
    (best / "config.json").write_text(json.dumps(content | changes))
    (best / "manifest.json").unlink()
    reading.write_manifest(best)


DAMAGES: list[tuple[str, Callable[[Path], object]]] = [
    ("best/ema.safetensors: its size or checksum", lambda best: flip(best / "ema.safetensors")),
    ("best/model.safetensors: its size or checks", lambda best: flip(best / "model.safetensors")),
    # nor is best passed over for last
    ("best/config.json: its size or", lambda best: (best / "config.json").write_text("{")),
    ("best/config.json: its size or", lambda best: (best / "config.json").unlink()),
    ("classes", lambda best: state(best, classes=[1, 2, 3])),
    ("depth", lambda best: state(best, options={**IMAGE, "depth": "one"})),
    ("best/manifest.json", lambda best: (best / "manifest.json").write_text('{"files": [1]}')),
]


@pytest.mark.parametrize(("said", "damage"), DAMAGES)
def test_a_damaged_folder_of_a_run_is_refused_by_name(evaluate, run, said, damage):
    damage(run / "best")
    assert said in evaluate(run, *(("--no-ema",) if "/model." in said else ()))
