"""Tensor files: exact round trips, what Paddle and safetensors read, and refusal of bad files."""

import itertools
import json
import os
import pickle
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy

from sot_paddle import atomic, checkpoint, reading
from sot_paddle.checkpoint import Tensors, TensorSpec, read_tensors, write_tensors

SUFFIXES = (".safetensors", ".pdparams")
METADATA = {"format": "sot_paddle", "ä": "ö\n"}


def arrays_of_every_dtype() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(3, 5))
    names = ("float64", "float32", "float16", "int64", "int32", "int8", "uint8", "bool")
    arrays = {name: (values * 9).astype(name) for name in names}
    arrays["bfloat16"] = values.astype(ml_dtypes.bfloat16)
    arrays["scalar"] = np.asarray(2.5, np.float32)
    arrays["empty"] = np.zeros((0, 4), np.float32)
    arrays["nan"] = np.asarray([np.nan, -0.0, np.inf])
    return arrays


def assert_same_bits(a: np.ndarray, b: np.ndarray) -> None:
    assert a.dtype == b.dtype
    assert a.shape == b.shape
    assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_round_trip_keeps_every_bit_dtype_and_metadata(tmp_path, suffix):
    arrays = arrays_of_every_dtype()
    write_tensors(tmp_path / f"a{suffix}", arrays, METADATA)
    tensors, metadata = read_tensors(tmp_path / f"a{suffix}")
    assert metadata == METADATA
    assert set(tensors) == set(arrays)
    for name, array in arrays.items():
        assert_same_bits(tensors[name], array)
    assert tensors.shapes == {name: array.shape for name, array in arrays.items()}
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"a{suffix}"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_transposed_and_big_endian_arrays_are_written_by_value(tmp_path, suffix):
    matrix = np.arange(6.0).reshape(2, 3)
    write_tensors(tmp_path / f"a{suffix}", {"t": matrix.T, "b": matrix.astype(">f8")})
    tensors, metadata = read_tensors(tmp_path / f"a{suffix}")
    assert metadata == {}
    assert_same_bits(np.ascontiguousarray(tensors["t"]), np.ascontiguousarray(matrix.T))
    assert_same_bits(tensors["b"], matrix)


def test_safetensors_library_and_ours_read_each_other(tmp_path):
    arrays = {k: v for k, v in arrays_of_every_dtype().items() if k != "bfloat16"}
    write_tensors(tmp_path / "ours.safetensors", arrays, METADATA)
    theirs = safetensors.numpy.load_file(tmp_path / "ours.safetensors")
    with safetensors.safe_open(tmp_path / "ours.safetensors", "np") as file:
        assert file.metadata() == METADATA
    safetensors.numpy.save_file(arrays, tmp_path / "theirs.safetensors")
    ours, _ = read_tensors(tmp_path / "theirs.safetensors")
    for name, array in arrays.items():
        assert_same_bits(theirs[name], array)
        assert_same_bits(ours[name], array)


def test_paddle_loads_what_is_written(tmp_path):
    paddle = pytest.importorskip("paddle")
    arrays = arrays_of_every_dtype()
    write_tensors(tmp_path / "a.pdparams", arrays, METADATA)
    loaded = paddle.load(str(tmp_path / "a.pdparams"))
    assert set(loaded) == set(arrays)
    assert loaded["bfloat16"].dtype == paddle.bfloat16
    for name, array in arrays.items():
        stored = array.view(np.uint16) if name == "bfloat16" else array
        np.testing.assert_array_equal(loaded[name].numpy(), stored, err_msg=name)
        assert tuple(loaded[name].shape) == array.shape


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_reads_what_paddle_saves(tmp_path, protocol):
    paddle = pytest.importorskip("paddle")
    layer = paddle.nn.Linear(3, 2)
    state = layer.state_dict()
    state["half"] = layer.weight.astype("bfloat16")
    paddle.save(state, str(tmp_path / "a.pdparams"), protocol=protocol)
    tensors, _ = read_tensors(tmp_path / "a.pdparams")
    assert set(tensors) == {"weight", "bias", "half"}
    assert_same_bits(tensors["weight"], layer.weight.numpy())
    assert_same_bits(tensors["half"], layer.weight.numpy().astype(ml_dtypes.bfloat16))


def test_reads_paddles_named_pairs_and_ordered_dicts(tmp_path):
    pairs = OrderedDict(w=("linear_0.w_0", np.ones((2, 3), np.float32)))
    (tmp_path / "a.pdparams").write_bytes(pickle.dumps(pairs, 4))
    assert_same_bits(read_tensors(tmp_path / "a.pdparams")[0]["w"], np.ones((2, 3), np.float32))


class Malicious:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return (Path.touch, (self.target,))


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_pickle_that_runs_code_is_refused_and_does_not_run(tmp_path, protocol):
    content = {"w": np.ones(2), "x": Malicious(tmp_path / "owned")}
    (tmp_path / "bad.pdparams").write_bytes(pickle.dumps(content, protocol))
    with pytest.raises(ValueError, match="the pickle asks for .*, and only arrays are read"):
        read_tensors(tmp_path / "bad.pdparams")
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    ("pickled", "name"),
    [
        (b"cbuiltins\neval\n(S'1'\ntR.", "builtins.eval"),
        (b"cnumpy\nload\n(S'x'\ntR.", "numpy.load"),
        (b"c_codecs\nencode\n(Vx\nVzlib\ntR.", "_codecs.encode"),
    ],
)
def test_the_forbidden_global_is_named(tmp_path, pickled, name):
    (tmp_path / "bad.pdparams").write_bytes(pickled)
    with pytest.raises(ValueError, match=name.replace(".", r"\.")):
        read_tensors(tmp_path / "bad.pdparams")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            pickle.dumps({"model": {"w": 1}}),
            r"no entry holds tensors of weights; it holds model .dict",
        ),
        (pickle.dumps({"w": np.array([None])}), r"it holds w \(NumpyArray\)"),
        (pickle.dumps([1, 2]), "expected a dict of arrays, got a list"),
        (pickle.dumps({"w": np.ones(2)}) + b"more", "damaged after the tensors"),
        (pickle.dumps({"w": np.ones(9)})[:-20], "not a .pdparams file, or damaged"),
        (b"", "not a .pdparams file, or damaged"),
        (b"hello world", "not a .pdparams file, or damaged"),
    ],
)
def test_other_pickles_are_refused(tmp_path, content, message):
    (tmp_path / "bad.pdparams").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_tensors(tmp_path / "bad.pdparams")


class Odd:
    def __reduce__(self):
        return (np.core.multiarray.scalar, (np.dtype("O"), b"12345678"))


def test_one_entry_of_a_nested_pickle_is_read_and_said(tmp_path, caplog):
    weights = {"w": ("linear_0.w_0", np.ones((2, 3), np.float32)), "n": np.array(7)}
    beside = {"best": np.float64(0.5), "half": np.float16(2), "when": np.datetime64("2024-01-01")}
    beside |= {"classes": np.array(["a", "b"]), "odd": Odd(), "epoch": 3}
    (tmp_path / "a.pdparams").write_bytes(pickle.dumps({"net": weights, **beside}, 2))
    tensors, _ = read_tensors(tmp_path / "a.pdparams")
    assert tensors.shapes == {"w": (2, 3), "n": ()}
    assert_same_bits(tensors["w"], np.ones((2, 3), np.float32))
    (line,) = caplog.messages
    assert line.endswith("a.pdparams: the state dict under the key 'net' is used")


def test_pointers_and_web_pages_are_named(tmp_path):
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12\n"
    for suffix in SUFFIXES:
        (tmp_path / f"a{suffix}").write_bytes(pointer)
        with pytest.raises(ValueError, match=f"a{suffix}: is a Git LFS pointer, .*git lfs pull"):
            read_tensors(tmp_path / f"a{suffix}")
        (tmp_path / f"a{suffix}").write_bytes(b"<!DOCTYPE html><title>Sign in</title>")
        with pytest.raises(ValueError, match=f"a{suffix}: is a web page"):
            read_tensors(tmp_path / f"a{suffix}")
    (tmp_path / "train.tsv").write_bytes(pointer)
    with pytest.raises(ValueError, match="train.tsv: is a Git LFS pointer"):
        reading.read_text(tmp_path / "train.tsv")


def packed(header: bytes | dict, data: bytes = b"") -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(raw).to_bytes(8, "little") + raw + data


def entry(dtype: str, shape: list, *offsets: int) -> dict:
    return {"dtype": dtype, "shape": shape, "data_offsets": list(offsets)}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cut off inside its header"),
        (b"PK\x03\x04 this is a zip file", "not a safetensors file"),
        (packed(b"{nonsense"), "bad header"),
        (packed(b"[1]"), "bad header"),
        (packed({"w": entry("F32", [2], 0, 8)}, bytes(5)), "truncated: 8 bytes .*, 5 found"),
        (packed({"w": entry("F32", [2], 0, 8)}, bytes(9)), "longer than its header says"),
        (packed({"w": entry("F32", [3], 0, 8)}, bytes(8)), "'w' has 8 bytes for shape"),
        (packed({"w": entry("F31", [2], 0, 8)}, bytes(8)), "'w' has the unknown dtype 'F31'"),
        (packed({"w": entry("F32", [-2], 0, 8)}, bytes(8)), "'w' has a bad shape"),
        (packed({"w": entry("F32", [1], 4, 8)}, bytes(8)), "'w' begins at 4, expected 0"),
        (
            packed(b'{"w":' + json.dumps(entry("U8", [0], 0, 0)).encode() + b',"w":1}'),
            "'w' is listed twice",
        ),
    ],
)
def test_damaged_safetensors_are_refused(tmp_path, content, message):
    (tmp_path / "bad.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_tensors(tmp_path / "bad.safetensors")


def test_other_suffixes_and_dtypes_are_refused(tmp_path):
    with pytest.raises(ValueError, match="ends in .safetensors or .pdparams, got '.npz'"):
        read_tensors(tmp_path / "a.npz")
    with pytest.raises(ValueError, match="cannot hold dtype complex128"):
        write_tensors(tmp_path / "a.safetensors", {"w": np.ones(1, complex)})
    with pytest.raises(ValueError, match="cannot hold dtype uint16"):
        write_tensors(tmp_path / "a.pdparams", {"w": np.ones(1, np.uint16)})
    with pytest.raises(ValueError, match="must be strings"):
        write_tensors(tmp_path / "a.safetensors", {}, {"depth": 3})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("error", [OSError("no space"), KeyboardInterrupt()])
def test_a_write_that_dies_half_way_leaves_the_old_file(tmp_path, suffix, error):
    path = tmp_path / f"a{suffix}"
    write_tensors(path, {"w": np.ones(2)}, {"old": "yes"})
    before = path.read_bytes()

    def load(name: str) -> np.ndarray:
        if name == "second":
            raise error
        return np.zeros(10_000)

    specs = dict.fromkeys(("first", "second"), TensorSpec((10_000,), np.dtype(float)))
    with pytest.raises(type(error)):
        write_tensors(path, Tensors(specs, load))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_whoever_reads_the_old_file_keeps_it(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    write_tensors(path, {"w": np.ones(3)})
    old, before = read_tensors(path)[0], path.stat().st_ino
    write_tensors(path, {"w": np.zeros(3)})
    np.testing.assert_array_equal(old["w"], np.ones(3))
    assert path.stat().st_ino != before  # renamed into place, not rewritten


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_tensors_are_drawn_one_at_a_time_and_once(tmp_path, suffix):
    drawn = []

    def load(name: str) -> np.ndarray:
        drawn.append(name)
        return np.full(4, len(drawn), np.float32)

    specs = {name: TensorSpec((4,), np.dtype(np.float32)) for name in "abc"}
    write_tensors(tmp_path / f"a{suffix}", Tensors(specs, load))
    assert drawn == ["a", "b", "c"]
    assert read_tensors(tmp_path / f"a{suffix}")[0]["b"][0] == 2


def test_packed_files_come_back_and_cannot_leave_their_folder():
    files = {"vocab.txt": "[PAD]\nné\n".encode(), "b.json": bytes(range(256))}
    assert checkpoint.unpack_files(checkpoint.pack_files(files)) == files
    with pytest.raises(ValueError, match="unsafe file name '../x'"):
        checkpoint.unpack_files(checkpoint.pack_files({"../x": b""}))
    with pytest.raises(ValueError, match="damaged"):
        checkpoint.unpack_files("not base64!")


def test_no_framework_is_imported():
    code = (
        "import sys, sot_paddle.checkpoint;"
        "assert not {'paddle', 'torch', 'transformers', 'safetensors'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


def test_the_disk_begins_with_each_part_once_while_the_next_is_made(tmp_path, monkeypatch):
    begun, written = [], []
    monkeypatch.setattr(atomic, "_FLUSHED", 1000)

    def noted(handle: int, begin: int, size: int, _: int) -> None:
        begun.append((begin, size))
        written.append(os.fstat(handle).st_size)

    monkeypatch.setattr(os, "posix_fadvise", noted)
    arrays = {f"t{i}": np.full((i, 50), i, np.float32) for i in range(9)}
    write_tensors(tmp_path / "a.safetensors", arrays)
    read, _ = read_tensors(tmp_path / "a.safetensors")
    for name, array in arrays.items():
        assert_same_bits(read[name], array)
    assert len(begun) > 2
    assert begun[0][0] == 0
    for (begin, size), (following, _) in itertools.pairwise(begun):
        assert begin + size == following
    assert written == [begin + size for begin, size in begun]  # nothing waits in a buffer
