"""Hidden states in HDF5: the original's layout, bit-equal rows, resuming. n 5, L 3, T 4, F 2."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from sot_paddle.data.errors import DataError
from sot_paddle.data.stored import row_sums, state_files
from sot_paddle.data.stored.file_layout import stored_split
from sot_paddle.data.stored.state_files import (
    StateReader,
    StateSizes,
    StateWriter,
    readable,
    require_space,
)

N, L, T, F = 5, 3, 4, 2
STATES = np.random.default_rng(4).normal(size=(N, L, T, F)).astype("float32")
LABELS = np.array([1, 0, 1, 1, 0])
RTE = stored_split("RTE", "train")
ORIGIN = {"encoder": "abc"}


def write(folder: Path, *, stop: int = N, dtype: str = "float32", chunk: int = 1, **origin) -> int:
    """Write rows in twos up to ``stop``; returns how many were there."""
    sizes = StateSizes(N, L, T, F, dtype, chunk)
    with StateWriter(folder, RTE, sizes, ORIGIN | origin) as writer:
        before = writer.done
        while writer.done < stop:
            rows = np.arange(writer.done, min(writer.done + 2, stop))
            writer.append(STATES[rows], [LABELS[rows]], rows)
    return before


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_what_is_written_is_read_back_bit_for_bit(tmp_path, dtype) -> None:
    write(tmp_path, dtype=dtype)
    reader = StateReader(tmp_path, RTE)
    stored = STATES.astype(dtype)
    assert (len(reader), reader.of_row, reader.dtype) == (N, (L, T, F), dtype)
    for positions in ([0, 1, 2, 3, 4], [3], [4, 0, 4]):
        found = reader.states(positions)
        assert found.dtype == stored.dtype
        assert found.tobytes() == stored[positions].tobytes()
    np.testing.assert_array_equal(reader.labels[0], LABELS)
    np.testing.assert_array_equal(reader.rows, np.arange(N))
    assert reader.origin == ORIGIN


def test_the_layout_is_the_original_s(tmp_path) -> None:
    """Names, shapes, types, chunks and attributes as C.2 has them, read without our code."""
    write(tmp_path, chunk=2)
    expected = {
        "rte_bert_embeds.h5": ("embeds", (N, L, T, F), "float32"),
        "rte_labels.h5": ("labels", (N,), "int64"),
        "rte_idx.h5": ("idx", (N,), "int64"),
    }
    assert {path.name for path in tmp_path.iterdir()} == set(expected)
    for name, (dataset, shape, dtype) in expected.items():
        with h5py.File(tmp_path / name) as file:
            assert list(file) == [dataset]
            found = file[dataset]
            assert (found.shape, found.dtype.name) == (shape, dtype)
            assert found.maxshape == (None, *shape[1:])
            assert found.chunks == (2, *shape[1:])
            assert found.attrs["last_index"] == 6  # QUIRK: three whole chunks of two


def test_a_run_goes_on_where_it_stopped(tmp_path) -> None:
    assert write(tmp_path, stop=3) == 0
    with pytest.raises(DataError, match="unfinished: 3 of 5 rows"):
        StateReader(tmp_path, RTE)
    assert write(tmp_path) == 3
    assert write(tmp_path) == 5
    np.testing.assert_array_equal(StateReader(tmp_path, RTE).states(range(N)), STATES)


KILLED = """
import sys, numpy as np
from sot_paddle.data.stored.state_files import StateSizes, StateWriter
from sot_paddle.data.stored.file_layout import stored_split
rows = np.load(sys.argv[2])
with StateWriter(sys.argv[1], stored_split("RTE", "train"), StateSizes(*rows.shape), {}) as writer:
    for row in rows:
        writer.append(row[None], [[1]], [writer.done])
        print(writer.done, flush=True)
"""


def test_a_killed_run_leaves_every_finished_row(tmp_path) -> None:
    rows = np.random.default_rng(5).normal(size=(400, 5, 40, 64)).astype("float32")
    np.save(tmp_path / "rows.npy", rows)
    folder = tmp_path / "states"
    folder.mkdir()
    command = [sys.executable, "-c", KILLED, str(folder), str(tmp_path / "rows.npy")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        for line in running.stdout:
            if int(line) == 37:
                running.send_signal(signal.SIGKILL)
                break
        rest = [int(line) for line in running.stdout]
    seen = rest[-1] if rest else 37
    with StateWriter(folder, RTE, StateSizes(*rows.shape), {}) as writer:
        assert seen <= writer.done < len(rows)
        for row in rows[writer.done :]:
            writer.append(row[None], [[1]], [writer.done])
    reader = StateReader(folder, RTE)
    assert reader.states(range(len(rows))).tobytes() == rows.tobytes()
    np.testing.assert_array_equal(reader.rows, np.arange(len(rows)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dtype": "float16"}, "begun with dtype float32, now float16"),
        ({"encoder": "xyz"}, "begun with encoder abc, now xyz; give --overwrite"),
    ],
)
def test_files_of_another_origin_are_not_continued(tmp_path, changes, message) -> None:
    write(tmp_path, stop=2)
    with pytest.raises(DataError, match=message):
        write(tmp_path, **changes)
    assert write(tmp_path) == 2


def test_a_file_without_a_dataset_is_begun_again(tmp_path) -> None:
    with h5py.File(tmp_path / "rte_labels.h5", "w"):
        pass
    assert write(tmp_path) == 0
    assert len(StateReader(tmp_path, RTE)) == N


def test_a_damaged_or_missing_file_is_refused(tmp_path) -> None:
    with pytest.raises(DataError, match="is not there: make it with tools/extract_hidden_states"):
        StateReader(tmp_path, RTE)
    (tmp_path / "rte_labels.h5").write_bytes(b"no HDF5")
    for attempt in (write, lambda folder: StateReader(folder, RTE)):
        with pytest.raises(DataError, match="cannot be opened"):
            attempt(tmp_path)
    with h5py.File(tmp_path / "rte_labels.h5", "w") as file:
        file["other"] = [1]
    with pytest.raises(DataError, match=r"holds no dataset 'labels'; it holds \['other'\]"):
        StateReader(tmp_path, RTE)


def test_files_of_different_lengths_are_refused(tmp_path) -> None:
    write(tmp_path)
    with h5py.File(tmp_path / "rte_labels.h5", "w") as file:
        file["labels"] = [1]
    with pytest.raises(DataError, match="rows"):
        StateReader(tmp_path, RTE)


def test_a_number_that_half_precision_cannot_hold_is_refused(tmp_path) -> None:
    sizes = StateSizes(N, L, T, F, "float16")
    large = STATES[:1] * 0 + 7e4
    with StateWriter(tmp_path, RTE, sizes, {}) as writer:
        with pytest.raises(DataError, match="up to 70000, which float16 cannot hold"):
            writer.append(large, [LABELS[:1]], [0])
        assert writer.done == 0


def test_the_space_is_known_before_and_refused_when_it_is_not_there(tmp_path, monkeypatch) -> None:
    wide = StateSizes(2490, 13, 219, 768)
    needed, _ = require_space(tmp_path, RTE, wide)
    assert needed == pytest.approx(2490 * 13 * 219 * 768 * 4, rel=1e-3)
    assert readable(needed) == "21.8 GB"  # C.2
    usage = shutil.disk_usage(tmp_path)._replace(free=10**10)
    monkeypatch.setattr(state_files.shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(
        DataError, match=r"need 21.8 GB more and 10.0 GB are free \(--dtype float16"
    ):
        require_space(tmp_path, RTE, wide)
    half = StateSizes(2490, 13, 219, 768, "float16")
    with pytest.raises(DataError, match="need 10.9 GB more and 10.0 GB are free; without files"):
        require_space(tmp_path, RTE, half)


def test_no_more_is_used_than_was_said_and_what_is_there_counts(tmp_path) -> None:
    sizes = StateSizes(40, 5, 64, 32)
    needed, _ = require_space(tmp_path, RTE, sizes)
    rows = np.zeros((40, 5, 64, 32), "float32")
    with StateWriter(tmp_path, RTE, sizes, {}) as writer:
        writer.append(rows + 1, [np.zeros(40)], range(40))
    used = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert rows.nbytes < used <= needed
    assert require_space(tmp_path, RTE, sizes)[0] < needed - 0.9 * rows.nbytes


def test_the_disk_keeps_room_for_all_rows_from_the_beginning(tmp_path, monkeypatch) -> None:
    """Else a disk that others fill meanwhile ends in a crash of HDF5, after the last line."""
    sizes = StateSizes(40, 5, 64, 32)
    with StateWriter(tmp_path, RTE, sizes, {}):
        occupied = sum(path.stat().st_blocks * 512 for path in tmp_path.iterdir())
    assert occupied > 40 * 5 * 64 * 32 * 4

    def full(*_) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    place = tmp_path / "b"
    place.mkdir()
    with pytest.raises(OSError, match=f"No space left on device: '{place / 'rte'}"):
        StateWriter(place, RTE, sizes, {})
    monkeypatch.undo()
    with StateWriter(place, RTE, sizes, {}) as writer:
        assert writer.done == 0


@pytest.mark.parametrize(
    ("count", "text"),
    [(999, "999 bytes"), (1_500, "1.5 kB"), (1.8e12, "1.8 TB"), (5e15, "5000.0 TB")],
)
def test_numbers_of_bytes_are_readable(count, text) -> None:
    assert readable(count) == text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dtype": "float64"}, "dtype: expected one of float32, float16"),
        ({"chunk": 0}, "chunk must"),
    ],
)
def test_sizes_that_cannot_be(changes, message) -> None:
    with pytest.raises(DataError, match=message):
        StateSizes(N, L, T, F, **changes)


def test_splits_that_are_not_stored() -> None:
    for task, split in (("RTE", "test"), ("squad", "test")):
        with pytest.raises(DataError, match="split"):
            stored_split(task, split)


def _set(path: Path, name: str, at: tuple[int, ...] | int, value: float) -> None:
    with h5py.File(path, "r+") as file:
        file[name][at] = value


@pytest.mark.parametrize("blocks", [1, 2, 1024])
def test_a_number_that_was_changed_is_seen_when_its_row_is_read(tmp_path, monkeypatch, blocks):
    monkeypatch.setattr(row_sums, "_MOST", blocks)
    write(tmp_path, stop=3)
    write(tmp_path)
    assert StateReader(tmp_path, RTE).checked
    assert StateReader(tmp_path, RTE).states(range(N)).tobytes() == STATES.tobytes()
    _set(tmp_path / "rte_bert_embeds.h5", "embeds", (4, 1, 1, 1), 3.0)
    reader = StateReader(tmp_path, RTE)
    if blocks > 1:
        assert reader.states([0, 1]).tobytes() == STATES[:2].tobytes()
    for _ in range(2):
        with pytest.raises(DataError, match="embeds.h5 is damaged .*to 4 have another checksum"):
            reader.states([1, 4])
    reader.close()
    for name in ("labels", "idx"):
        folder = tmp_path / name
        folder.mkdir()
        write(folder)
        _set(folder / f"rte_{name}.h5", name, 2, 7)
        with pytest.raises(DataError, match="have another checksum than was written"):
            StateReader(folder, RTE)


def test_files_without_checksums_are_read_continued_and_told(tmp_path, monkeypatch):
    """Those of older versions."""
    with monkeypatch.context() as patch:
        patch.setattr(row_sums.RowSums, "begin", lambda dataset: None)
        write(tmp_path, stop=2)
    assert write(tmp_path) == 2
    reader = StateReader(tmp_path, RTE)
    assert not reader.checked
    assert reader.states(range(N)).tobytes() == STATES.tobytes()
