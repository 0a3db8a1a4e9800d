"""Tensor files: exact round trips, what Paddle and safetensors read, refusals, entries."""

import pickle
import subprocess
import sys
from collections import UserDict
from pathlib import Path

import ml_dtypes
import numpy as np
import paddle
import pytest
import safetensors.numpy

from sot_paddle import checkpoint
from sot_paddle.checkpoint import choose_weights, read_tensors, shapes_of, write_tensors

SUFFIXES = (".safetensors", ".pdparams")
METADATA = {"sot_paddle": "1", "ä": "ö\n"}


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
    matrix = np.arange(6.0).reshape(2, 3)
    odd = {"transposed": matrix.T, "big endian": matrix.astype(">f8")}
    write_tensors(tmp_path / f"a{suffix}", {**arrays, **odd}, METADATA)
    tensors, metadata = read_tensors(tmp_path / f"a{suffix}")
    assert metadata == METADATA
    arrays |= {"transposed": np.ascontiguousarray(matrix.T), "big endian": matrix}
    assert shapes_of(tensors) == {name: arrays[name].shape for name in tensors}
    assert set(tensors) == set(arrays)
    for name, array in arrays.items():
        assert_same_bits(np.ascontiguousarray(tensors[name]).reshape(array.shape), array)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"a{suffix}"]


def test_the_libraries_read_what_is_written(tmp_path):
    arrays = arrays_of_every_dtype()
    write_tensors(tmp_path / "ours.safetensors", arrays, METADATA)
    with safetensors.safe_open(tmp_path / "ours.safetensors", "np") as file:
        assert file.metadata() == METADATA
        for name, array in arrays.items():
            assert_same_bits(file.get_tensor(name), array)
    write_tensors(tmp_path / "a.pdparams", arrays, METADATA)
    loaded = paddle.load(str(tmp_path / "a.pdparams"))
    assert set(loaded) == set(arrays)
    assert loaded["bfloat16"].dtype == paddle.bfloat16
    for name, array in arrays.items():
        stored = array.view(np.uint16) if name == "bfloat16" else array
        np.testing.assert_array_equal(loaded[name].numpy(), stored, err_msg=name)


@pytest.mark.parametrize("protocol", [2, 4])
def test_reads_what_paddle_saves(tmp_path, protocol):
    layer = paddle.nn.Linear(3, 2)
    state = layer.state_dict()
    state["half"] = layer.weight.astype("bfloat16")
    paddle.save(state, str(tmp_path / "a.pdparams"), protocol=protocol)
    tensors, _ = read_tensors(tmp_path / "a.pdparams")
    assert set(tensors) == {"weight", "bias", "half"}
    assert_same_bits(tensors["weight"], layer.weight.numpy())
    assert_same_bits(tensors["half"], layer.weight.numpy().astype(ml_dtypes.bfloat16))


WHOLE = {"w": np.ones(9, np.float32), "v": np.ones(3)}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.pdparams", pickle.dumps({"model": {"w": 1}}), "no entry holds tensors of weights"),
        ("a.pdparams", pickle.dumps({"w": np.array([None])}), r"it holds w \(ndarray\)"),
        ("a.pdparams", pickle.dumps(WHOLE) + b"more", "damaged after the tensors"),
        ("a.pdparams", pickle.dumps(WHOLE)[:-20], "not a .pdparams file .*, or damaged"),
        ("a.pdparams", b"cbuiltins\neval\n(S'1'\ntR.", "the pickle asks for builtins.eval"),
        ("a.safetensors", safetensors.numpy.save(WHOLE)[:-5], "not a saf.*, or truncated"),
        ("a.npz", b"", "ends in .safetensors or .pdparams, got '.npz'"),
        ("a.safetensors", b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        ("a.safetensors", None, "cannot read .*No such file"),
    ],
)
def test_other_files_are_refused_by_name(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        read_tensors(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)


def test_what_a_format_cannot_hold_is_not_written(tmp_path):
    with pytest.raises(ValueError, match="cannot hold dtype complex128"):
        write_tensors(tmp_path / "a.safetensors", {"w": np.ones(1, complex)})
    with pytest.raises(ValueError, match="cannot hold dtype uint16"):
        write_tensors(tmp_path / "a.pdparams", {"w": np.ones(1, np.uint16)})
    with pytest.raises(ValueError, match="must be strings"):
        write_tensors(tmp_path / "a.safetensors", {}, {"depth": 3})
    assert list(tmp_path.iterdir()) == []


class Failing(UserDict):
    """Arrays of which the last one fails when it is read for the `turn`-th time."""

    turn, error = 0, None

    def __getitem__(self, name: str) -> np.ndarray:
        self.turn -= name == "second"
        if name == "second" and self.turn == 0:
            raise self.error
        return self.data[name]


@pytest.mark.parametrize(
    ("suffix", "error", "turn"),
    [(".safetensors", OSError("no space"), 2), (".pdparams", KeyboardInterrupt(), 1)],
)
def test_a_write_that_dies_half_way_leaves_the_old_file(tmp_path, suffix, error, turn):
    path = tmp_path / f"a{suffix}"
    write_tensors(path, {"w": np.ones(3)}, {"old": "yes"})
    before, reader = path.read_bytes(), read_tensors(path)[0]

    arrays = Failing(dict.fromkeys(("first", "second"), np.zeros(10_000)))
    arrays.turn, arrays.error = turn, error
    with pytest.raises(type(error)):
        write_tensors(path, arrays)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    write_tensors(path, {"w": np.zeros(3)})
    np.testing.assert_array_equal(reader["w"], np.ones(3))  # of the old file, as it was opened


def test_packed_files_come_back_and_cannot_leave_their_folder():
    files = {"vocab.txt": "[PAD]\nné\n".encode(), "b.json": bytes(range(256))}
    assert checkpoint.unpack_files(checkpoint.pack_files(files)) == files
    with pytest.raises(ValueError, match="unsafe file name '../x'"):
        checkpoint.unpack_files(checkpoint.pack_files({"../x": b""}))
    with pytest.raises(ValueError, match="the packed vocabulary: not JSON"):
        checkpoint.unpack_files(checkpoint.pack_files(files)[:-8])


def test_no_framework_is_imported():
    code = (
        "import sys, sot_paddle.checkpoint;"
        "assert not {'paddle', 'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


WEIGHTS = {"w": np.ones((2, 3), np.float32), "b": np.ones(3), "count": np.array(7)}
SCORE = np.array(0.9)
OPTIMIZER = {"state": {0: WEIGHTS}, "param_groups": [{"params": [0]}]}


def choose(content, **options):
    return choose_weights(content, lambda v: v if isinstance(v, np.ndarray) else None, **options)


@pytest.mark.parametrize(
    ("content", "note"),
    [
        (WEIGHTS, None),
        ({"any name": WEIGHTS, "epoch": 3}, "under the key 'any name' is used"),
        ({"a": {"b": WEIGHTS}, "empty": {}}, "under the key 'a.b' is used"),
        ({"net": WEIGHTS, "optimizer": OPTIMIZER}, "under the key 'net' is used"),
        ({"net": WEIGHTS, "best": {"/a.ckpt": SCORE}, "score": SCORE}, "the key 'net' is used"),
        ({"net": WEIGHTS, "rng": {"cpu": np.zeros(9, np.uint8)}}, "the key 'net' is used"),
        ({**WEIGHTS, "epoch": 3}, None),
    ],
)
def test_the_only_mapping_of_names_to_tensors_is_taken(content, note):
    choice = choose(content)
    assert dict(choice.tensors) == WEIGHTS
    assert choice.averaged is None
    assert [n for n in choice.notes if note in n] if note else choice.notes == ()


def test_numbers_alone_are_weights_where_the_file_holds_nothing_else():
    assert set(choose({"count": np.array(7)}).tensors) == {"count"}


def test_several_are_refused():
    content = {"student": {"w": WEIGHTS["w"]}, "teacher": {"net": WEIGHTS}, "epoch": 3}
    listed = r"student \(1 tensors\), teacher.net \(3 tensors\)"
    with pytest.raises(ValueError, match=f"one entry of weights, ema aside, got 2 of {listed}"):
        choose(content)
    beside = {"net": WEIGHTS, "w": WEIGHTS["w"]}
    with pytest.raises(ValueError, match=r"got 2 of \. \(1 tensors\), net"):
        choose(beside)
    with pytest.raises(ValueError, match="one entry of averaged weights, .* got 0 of net"):
        choose({"net": WEIGHTS, "epoch": 3}, ema=True)
    with pytest.raises(ValueError, match="got 0 of ema .* or change --ema"):
        choose({"ema": WEIGHTS, "epoch": 3})


@pytest.mark.parametrize("key", ["ema", "model_ema", "state_dict_ema", "EMA", "ema.shadow"])
def test_averages_are_told_by_their_key(key):
    averages = {**WEIGHTS, "w": 2 * WEIGHTS["w"]}
    outer, _, inner = key.partition(".")
    content = {"model": WEIGHTS, outer: {inner: averages} if inner else averages}
    for ema, taken in ((False, WEIGHTS), (True, averages), (None, averages)):
        choice = choose(content, ema=ema)
        assert dict(choice.tensors) == taken
        assert choice.averaged is (taken is averages)
        assert any(f"under {key!r} are passed over" in n for n in choice.notes) == (ema is False)
    assert dict(choose({"model": WEIGHTS, "schema": 3}).tensors) == WEIGHTS


def test_what_holds_no_weights_is_said():
    with pytest.raises(
        ValueError, match=r"no entry holds tensors .*; it holds state \(dict\), para"
    ):
        choose(OPTIMIZER)
    with pytest.raises(ValueError, match="it holds nothing"):
        choose({})
    with pytest.raises(ValueError, match="expected a dict of tensors, got list"):
        choose([WEIGHTS])
