"""What a promise needs, by running it in a Python in which every other package is absent.

The packages of a promise, and what these require, are linked into an empty folder, which is the
only place where that Python looks for packages.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from sot_paddle.checkpoint import write_tensors
from sot_paddle.config import NORMALIZATIONS
from tests.sot_paddle.convert import tiny_checkpoints as tiny

ROOT = Path(__file__).resolve().parents[1]
BESIDE_NUMPY = ("ml_dtypes", "psutil", "pydantic")
FILES = (*BESIDE_NUMPY, "safetensors", "filelock")

COMPARISON = """
import align, numpy, paddle, sot_paddle, torch
result = align.compare(
    lambda: torch.nn.Sequential(torch.nn.Linear(8, 12), torch.nn.GELU(), torch.nn.Linear(12, 3)),
    lambda: paddle.nn.Sequential(
        paddle.nn.Linear(8, 12), paddle.nn.GELU(approximate=True), paddle.nn.Linear(12, 3)
    ),
    numpy.random.default_rng(0).normal(size=(4, 8)),
    dtype=("float64", "float32"),
)
print(result)
"""
MODELS = """
import paddle, sot_paddle
from sot_paddle.config import NORMALIZATIONS, HeadConfig
from sot_paddle.features import Features
from sot_paddle.heads import build_head
model = sot_paddle.create_model("sot_tiny", img_size=32, depth=1, num_classes=5)
model(paddle.rand([2, 3, 32, 32])).sum().backward()
for pooling, normalizations in NORMALIZATIONS.items():
    for normalization in normalizations:
        head = build_head(
            HeadConfig(pooling=pooling, normalization=normalization, wr_dim=4, head_num_heads=2),
            dim=12, num_classes=3,
        )
        head(Features(paddle.rand([2, 12]), paddle.rand([2, 5, 12]))).sum().backward()
        print(pooling, normalization)
print("one step of", model.name)
"""
CONVERSION = """
from pathlib import Path
from sot_paddle.checkpoint import read_tensors
from sot_paddle.convert import convert_file
names = ("bert_base_mgcrp.safetensors", "paddle.pdparams", "back.safetensors")
source, paddle, back = map(Path, names)
convert_file(source, paddle, "sot_nlp_official", "bert_base_mgcrp")
convert_file(paddle, back, "sot_nlp_official", "bert_base_mgcrp", reverse=True)
first, last = read_tensors(source)[0], read_tensors(back)[0]
assert set(first) == set(last), set(first) ^ set(last)
changed = {name for name in first if first[name].tobytes() != last[name].tobytes()}
assert {name.split(".")[-1] for name in changed} <= {"num_batches_tracked"}, changed
print(len(first), "tensors came back")
"""


def links_to(names: Iterable[str], folder: Path) -> Path:
    """Link the packages of these names, and what they require, into a new folder."""
    folder.mkdir()
    waiting, linked = list(names), set()
    while waiting:
        distribution = importlib.metadata.distribution(waiting.pop())
        linked.add(distribution.name)
        for top in {file.parts[0] for file in distribution.files} - {"..", "__pycache__"}:
            if not (folder / top).exists():
                (folder / top).symlink_to(distribution.locate_file(top))
        for requirement in distribution.requires or []:
            name = re.match(r"[\w.-]+", requirement)[0]
            if ";" not in requirement and name not in linked:
                waiting.append(name)
    return folder


def run_with(packages: Iterable[str], program: str, tmp_path: Path) -> str:
    """Run a program in a Python that has these packages only; what it printed."""
    folder = links_to(packages, tmp_path / "packages")
    done = subprocess.run(
        [sys.executable, "-S", "-W", "ignore", "-c", program],
        # native operators would be compiled for this folder
        env={**os.environ, "PYTHONPATH": f"{folder}:{ROOT}", "SOT_PADDLE_NATIVE": "0"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_models_need_paddle_numpy_and_three_packages_and_a_comparison_torch_beside_them(tmp_path):
    """In one process: torch is found only when the models have run."""
    with_torch = links_to(["torch"], tmp_path / "torch")
    program = f"{MODELS}\nimport sys\nsys.path.append({str(with_torch)!r})\n{COMPARISON}"
    printed = run_with(("paddlepaddle", "setuptools", "numpy", *BESIDE_NUMPY), program, tmp_path)
    ran, _, compared = printed.partition("one step of sot_tiny\n")
    heads = [f"{pooling} {name}" for pooling, names in NORMALIZATIONS.items() for name in names]
    assert ran.splitlines()[-len(heads) :] == heads
    assert "Paddle computes GELU (tanh approximation), PyTorch GELU (erf)" in compared


def test_a_conversion_needs_no_framework(tmp_path):
    shapes = {**tiny.encoder_shapes(), **tiny.official_head()}
    write_tensors(tmp_path / "bert_base_mgcrp.safetensors", tiny.fill(shapes))
    printed = run_with(("numpy", *FILES), CONVERSION, tmp_path)
    assert printed.startswith(f"{len(shapes)} tensors came back")
