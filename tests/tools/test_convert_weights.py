"""The command: runs from a checkout without frameworks, one line and exit status 2 on errors."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sot_paddle.checkpoint import read_tensors, write_tensors

ROOT = Path(__file__).resolve().parents[2]
WITHOUT_FRAMEWORKS = """
import runpy, sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked}:
            raise ModuleNotFoundError("blocked: " + name)
sys.meta_path.insert(0, Blocker())
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
TINY = ("--layout", "bert_hf", "--model", "bert_base")


def run(*arguments: object, blocked: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run the command from the project root, with some packages missing."""
    prelude = ["-c", WITHOUT_FRAMEWORKS.replace("{blocked}", repr(blocked))] if blocked else []
    return subprocess.run(
        [sys.executable, *prelude, "tools/convert_weights.py", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def checkpoint(tmp_path):
    """A one-layer BERT without a head, as a file."""
    wide, inner = 8, 12
    rng = np.random.default_rng(0)
    shapes = {
        "embeddings.word_embeddings.weight": (11, wide),
        "embeddings.position_embeddings.weight": (7, wide),
        "embeddings.token_type_embeddings.weight": (2, wide),
        "embeddings.LayerNorm.weight": (wide,),
        "embeddings.LayerNorm.bias": (wide,),
    }
    layer = "encoder.layer.0."
    for name, out, into in (
        ("attention.self.query", wide, wide),
        ("attention.self.key", wide, wide),
        ("attention.self.value", wide, wide),
        ("attention.output.dense", wide, wide),
        ("intermediate.dense", inner, wide),
        ("output.dense", wide, inner),
    ):
        shapes |= {f"{layer}{name}.weight": (out, into), f"{layer}{name}.bias": (out,)}
    for name in ("attention.output.LayerNorm", "output.LayerNorm"):
        shapes |= {f"{layer}{name}.weight": (wide,), f"{layer}{name}.bias": (wide,)}
    arrays = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    write_tensors(tmp_path / "a.safetensors", arrays)
    return tmp_path / "a.safetensors"


def test_there_and_back_without_any_framework(tmp_path, checkpoint):
    there, back = tmp_path / "there.pdparams", tmp_path / "back.safetensors"
    blocked = ("paddle", "torch", "transformers", "safetensors", "paddlenlp")
    done = run(*TINY, checkpoint, there, blocked=blocked)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.startswith(f"wrote {there}: 21 tensors, bert_base, 1 layers, hidden 8,")
    assert "not in SRC, left at initialisation: head.dense.weight\n" in done.stdout
    done = run(*TINY, "--reverse", there, back, blocked=blocked)
    assert done.returncode == 0, done.stderr
    original, returned = read_tensors(checkpoint)[0], read_tensors(back)[0]
    assert set(original) == set(returned)
    for name in original:
        assert original[name].tobytes() == returned[name].tobytes()
        assert returned[name].dtype == np.float64
    assert json.loads(Path(f"{back}.manifest.json").read_text())["reverse"] is True


@pytest.fixture
def image_checkpoint(tmp_path):
    """A one-block DeiT for images of 12 pixels, as a file."""
    wide, inner, rng = 8, 12, np.random.default_rng(0)
    shapes = {"cls_token": (1, 1, wide), "pos_embed": (1, 10, wide)}
    for name, out, into in (
        ("blocks.0.attn.qkv", 3 * wide, wide),
        ("blocks.0.attn.proj", wide, wide),
        ("blocks.0.mlp.fc1", inner, wide),
        ("blocks.0.mlp.fc2", wide, inner),
        ("head", 5, wide),
    ):
        shapes |= {f"{name}.weight": (out, into), f"{name}.bias": (out,)}
    for name in ("blocks.0.norm1", "blocks.0.norm2", "norm"):
        shapes |= {f"{name}.weight": (wide,), f"{name}.bias": (wide,)}
    shapes |= {"patch_embed.proj.weight": (wide, 3, 4, 4), "patch_embed.proj.bias": (wide,)}
    arrays = {name: rng.normal(size=shape).astype("float32") for name, shape in shapes.items()}
    write_tensors(tmp_path / "deit.safetensors", arrays)
    return tmp_path / "deit.safetensors"


def test_an_image_model_there_and_back_without_any_framework(tmp_path, image_checkpoint):
    blocked = ("paddle", "torch", "timm", "safetensors", "paddlenlp", "scipy")
    args = ("--layout", "deit_timm", "--model", "deit_tiny")
    there, back = tmp_path / "there.pdparams", tmp_path / "back.safetensors"
    done = run(*args, image_checkpoint, there, blocked=blocked)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"wrote {there}: 20 tensors, deit_tiny, 1 blocks, width 8,")
    done = run(*args, "--reverse", there, back, blocked=blocked)
    assert done.returncode == 0, done.stderr
    original, returned = read_tensors(image_checkpoint)[0], read_tensors(back)[0]
    assert set(original) == set(returned)
    assert all(original[name].tobytes() == returned[name].tobytes() for name in original)

    resized = tmp_path / "resized.safetensors"
    options = ("--img-size", "16", "--num-classes", "7")
    done = run(*args, *options, image_checkpoint, resized, blocked=blocked)
    assert done.returncode == 0, done.stderr
    assert "note: resized: pos_embed (learned positions of 9 tokens to 16, bicubic" in done.stdout
    assert "left at initialisation: head.cls_fc.weight, head.cls_fc.bias\n" in done.stdout
    assert read_tensors(resized)[0]["pos_embed"].shape == (1, 17, 8)


def test_help_shows_examples():
    done = run("--help")
    assert done.returncode == 0
    assert "there and back again" in done.stdout
    assert "--reverse" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--layout", "hf", "--model", "bert_base", "SRC", "DST"), "unknown layout 'hf'"),
        (("--layout", "bert_hf", "--model", "bert", "SRC", "DST"), "unknown model 'bert'"),
        ((*TINY, "gone.safetensors", "DST"), "gone.safetensors: no such file"),
        ((*TINY, "--dtype", "int8", "SRC", "DST"), "invalid choice: 'int8'"),
        ((*TINY, "SRC"), "the following arguments are required: DST"),
        ((*TINY, "SRC", "x.npz"), "got '.npz'"),
        ((*TINY, "--reverse", "SRC", "DST"), "drop --reverse"),
        (("--layout", "sot_nlp_official", "--model", "bert_base", "SRC", "DST"), "this layout"),
        (("--layout", "deit_timm", "--model", "sot_tiny", "SRC", "DST"), "not for 'sot_tiny'"),
        (("--layout", "sot_official", "--model", "sot_tiny", "SRC", "DST"), "--layout bert_hf"),
        ((*TINY, "--img-size", "32", "SRC", "DST"), "--img-size is for image models"),
        ((*TINY, "--ema", "SRC", "DST"), "--ema is for the torch files"),
    ],
)
def test_a_refusal_is_one_line_and_status_2(tmp_path, checkpoint, arguments, message):
    dst = tmp_path / "out.safetensors"
    places = {"SRC": checkpoint, "DST": dst}
    done = run(*(places.get(argument, argument) for argument in arguments))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("convert_weights: error: ")
    assert done.stderr.count("\n") == 1
    assert message in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.safetensors"]


def test_a_torch_file_without_torch_is_one_line(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"x")
    done = run(*TINY, tmp_path / "a.bin", tmp_path / "b.safetensors", blocked=("torch",))
    assert done.returncode == 2
    assert "a.bin: .bin files need torch, which is not installed" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_disk_error_is_one_line(checkpoint):
    done = run(*TINY, checkpoint, "/dev/full/x.safetensors")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
