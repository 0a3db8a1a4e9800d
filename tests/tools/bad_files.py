"""Files that nobody should be able to hurt a command with, and how they are made; no tests here."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sot_paddle.checkpoint import read_tensors, write_tensors
from sot_paddle.convert.state.record import Group, OptimizerState
from sot_paddle.convert.state.torch_optimizer import schedule_dict, to_torch
from sot_paddle.registry import create_model
from sot_paddle.train import checkpointing
from sot_paddle.train.ema import ModelEma
from sot_paddle.train.image_model import ImageModelConfig, flat_options
from sot_paddle.train.model_folder import EMA, WEIGHTS
from sot_paddle.weights import save_weights, weights_and_metadata
from tests.sot_paddle.convert import tiny_checkpoints as tiny
from tests.sot_paddle.train import tiny_images, tiny_run

NESTED = 100_000
SECONDS = 20
MEMORY = 3 << 30
LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60))
CONFIG = {
    "model_type": "bert",
    "vocab_size": tiny.VOCAB,
    "hidden_size": tiny.HIDDEN,
    "num_hidden_layers": tiny.LAYERS,
    "num_attention_heads": tiny.HEADS,
    "intermediate_size": tiny.INNER,
    "max_position_embeddings": tiny.POSITIONS,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
}
IMAGE = {"token_type": "patch", "patch_size": 8, "embed_dim": 12, "depth": 1, "num_heads": 3}
IMAGE |= {"wr_dim": 4, "head_num_heads": 2, "img_size": 16}
DAMAGED_JSON = {
    "cut": "{",
    "list": "[1]",
    "null": "null",
    "deep": "[" * NESTED + "]" * NESTED,
    "bytes": b'{"\xff": 1}',
    "empty": "",
}
"""What no JSON object of ours looks like."""


def shapes() -> dict[str, tuple[int, ...]]:
    """Names and shapes of a tiny plain BERT with a classifier."""
    held = tiny.encoder_shapes() | tiny.linear("bert.pooler.dense", tiny.HIDDEN, tiny.HIDDEN)
    return held | tiny.linear("classifier", tiny.CLASSES, tiny.HIDDEN)


def hf_folder(folder: Path) -> Path:
    """A Hugging Face folder."""
    folder.mkdir(parents=True)
    write_tensors(folder / "model.safetensors", tiny.fill(shapes()), {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "vocab.txt").write_text("\n".join([*tiny_run.SPECIAL, *tiny_run.WORDS]) + "\n")
    return folder


def torch_training(path: Path) -> Path:
    """One torch file with everything of a training."""
    names = list(shapes())
    decays = {n: 0.0 if "bias" in n or "LayerNorm" in n else 0.01 for n in names}
    options = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "amsgrad": False}
    groups = tuple(
        Group(tuple(n for n in names if decays[n] == d), 2e-5, 5e-5, {**options, "weight_decay": d})
        for d in (0.01, 0.0)
    )
    draw = np.random.default_rng(3)
    moments = {
        kind: {n: draw.random(shape, np.float32) for n, shape in shapes().items()}
        for kind in ("moment1", "moment2")
    }
    state = OptimizerState("torch", "adamw", groups, moments, dict.fromkeys(names, 5), 5)
    weights = {name: torch.from_numpy(array) for name, array in tiny.fill(shapes()).items()}
    content = {"state_dict": weights, "optimizer": to_torch(state), "step": 5}
    torch.save({**content, "lr_scheduler": schedule_dict(state)}, path)
    return path


def image_run(root: Path) -> Path:
    """The folder of an image run with ``best`` and a checkpoint that ``last`` points to."""
    model = create_model("sot_tiny", 3, **IMAGE)
    config = ImageModelConfig(
        model="sot_tiny",
        num_classes=3,
        options=flat_options(model),
        classes=tiny_images.CLASSES,
        **{"img_size": 16, "crop_pct": 0.9, "mean": (0.5, 0.5, 0.5), "std": (0.2, 0.2, 0.2)},
    )
    average = ModelEma(model, 0.9)

    arrays, metadata = weights_and_metadata(model)
    files = [
        (WEIGHTS, checkpointing.TensorFile(arrays, metadata)),
        (EMA, checkpointing.TensorFile(average.arrays(), metadata)),
        *config.file().items(),
    ]
    for name in ("best", "last"):
        checkpointing.write_folder(root / name, files)
    return root


def text_file(path: Path) -> Path:
    """A converted text model in one file."""
    sizes = {key: value for key, value in CONFIG.items() if key != "model_type"}
    save_weights(create_model("bert_base", 5, **sizes), path)
    return path


def with_metadata(path: Path, **changes: str) -> None:
    """Change a tensor file's table."""
    tensors, metadata = read_tensors(path)
    write_tensors(path, {n: np.array(a) for n, a in tensors.items()}, {**metadata, **changes})


def change_json(path: Path, change: Callable[[Any], Any]) -> None:
    """Rewrite a JSON file."""
    path.write_text(json.dumps(change(json.loads(path.read_text()))))


def put(path: Path, content: str | bytes) -> None:
    """Write text or bytes."""
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def no_regular_file(path: Path, kind: str) -> None:
    """Put a FIFO or a link to /dev/zero in the place of a file."""
    path.unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")


def inflating(size: int) -> str:
    """A packed vocabulary of more than `size` bytes, without its end; one packed MiB, repeated."""
    packer = zlib.compressobj(9)
    begin = packer.compress(b'{"vocab.txt": "') + packer.flush(zlib.Z_FULL_FLUSH)
    piece = packer.compress(b"a" * 2**20) + packer.flush(zlib.Z_FULL_FLUSH)
    return b64encode(begin + piece * (size >> 20)).decode()


def reclose(folder: Path) -> None:
    """Write a checkpoint folder's manifest anew, as its writer would."""
    (folder / "manifest.json").unlink()
    checkpointing.close_folder(folder)


def copy(source: Path, target: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(source, target, symlinks=True))


class Hung(AssertionError):
    """A command did not come to an end."""


@contextmanager
def guarded() -> Iterator[None]:
    """At most so many seconds, and so much memory more than now."""

    def stop(*_: object) -> None:
        raise Hung(f"still running after {SECONDS} s")

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, before[1]))
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)


@dataclass
class Place:
    """A scratch folder and the good files to damage copies of."""

    good: Path
    here: Path

    def take(self, name: str) -> Path:
        """A copy of one of the good ones."""
        source = self.good / name
        if source.is_dir():
            return copy(source, self.here / name)
        (self.here / name).write_bytes(source.read_bytes())
        return self.here / name


class Malicious:
    """Touches a file when it is unpickled carelessly."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple:
        return (os.system, (f"touch {self.target}",))


def group(**values: Any) -> Callable[[Any], None]:
    """Changes the first parameter group."""
    return lambda held: held["param_groups"][0].update(values)


def moment(key: str, change: Callable[[Any], Any]) -> Callable[[Any], None]:
    """Changes what the state holds of the fourth parameter."""

    def apply(held):
        held["state"][3][key] = change(held["state"][3][key])

    return apply


def filled(value: float) -> Callable[[Any], Any]:
    """Puts a number into a copy of a tensor."""

    def fill(tensor):
        tensor = tensor.clone()
        tensor.view(-1)[0] = value
        return tensor

    return fill
