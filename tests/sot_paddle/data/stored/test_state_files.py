"""Hidden states in HDF5: resuming, damage. n 5, L 3, T 4, F 2.

Names and rows, bit for bit: tests/parity/test_states.py.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from sot_paddle.data.errors import DataError
from sot_paddle.data.stored import state_files
from sot_paddle.data.stored.file_layout import stored_split
from sot_paddle.data.stored.state_files import (
    StateReader,
    StateSizes,
    StateWriter,
    require_ours,
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


def test_rows_lie_in_chunks_of_which_the_original_counts_whole_ones(tmp_path) -> None:
    write(tmp_path, chunk=2)
    for path, of_row in zip(RTE.paths(tmp_path), ((), (), (L, T, F)), strict=True):
        with h5py.File(path) as file:
            (dataset,) = file.values()
            assert (dataset.chunks, dataset.maxshape) == ((2, *of_row), (None, *of_row))
            assert dataset.attrs["last_index"] == 6  # QUIRK: three whole chunks of two


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


def test_a_damaged_or_missing_file_is_refused(tmp_path) -> None:
    with pytest.raises(DataError, match="is not there: make it with tools/extract_hidden_states"):
        StateReader(tmp_path, RTE)
    write(tmp_path)
    states, labels = tmp_path / "rte_bert_embeds.h5", tmp_path / "rte_labels.h5"
    content = bytearray(states.read_bytes())
    content[content.index(STATES[4].tobytes())] ^= 1
    states.write_bytes(content)
    reader = StateReader(tmp_path, RTE)
    assert reader.states([0, 1]).tobytes() == STATES[:2].tobytes()
    with pytest.raises(DataError, match="embeds.h5 cannot be used .*it is damaged"):
        reader.states([1, 4])
    reader.close()
    labels.write_bytes(b"no HDF5")
    for attempt in (write, lambda folder: StateReader(folder, RTE)):
        with pytest.raises(DataError, match="labels.h5 cannot be used"):
            attempt(tmp_path)
    with h5py.File(labels, "w") as file:
        file["other"] = [1]
    with pytest.raises(DataError, match="labels.h5 cannot be used .*'labels'"):
        StateReader(tmp_path, RTE)
    with h5py.File(labels, "w") as file:
        file["labels"] = [1]
    with pytest.raises(DataError, match="have .* rows"):
        StateReader(tmp_path, RTE)
    with h5py.File(labels, "w") as file:
        file["labels"] = np.zeros((N, 2))
    with pytest.raises(DataError, match="'labels' is no array of numbers with 1 axes"):
        StateReader(tmp_path, RTE)


def test_a_refused_split_is_closed_and_its_damaged_file_named(tmp_path) -> None:
    write(tmp_path)
    labels = tmp_path / "rte_labels.h5"
    before = h5py.h5f.get_obj_count(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_FILE)
    with h5py.File(labels) as file:
        place = file["labels"].id.get_chunk_info(0).byte_offset
    content = bytearray(labels.read_bytes())
    content[place] ^= 1
    labels.write_bytes(content)
    with pytest.raises(DataError, match="rte_labels.h5 cannot be used"):
        StateReader(tmp_path, RTE)
    with h5py.File(labels, "r+") as file:
        del file["labels"].attrs["last_index"]
    with pytest.raises(DataError, match="rte_labels.h5 cannot be used .*last_index") as no_count:
        write(tmp_path)
    with h5py.File(labels, "w") as file:
        file["labels"] = [1]
    with pytest.raises(DataError, match="have .* rows") as too_few:
        StateReader(tmp_path, RTE)
    assert h5py.h5f.get_obj_count(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_FILE) <= before
    assert no_count.tb  # an exception that is kept keeps no file open
    assert too_few.tb


def test_files_of_others_are_no_ones_to_replace(tmp_path) -> None:
    write(tmp_path)
    require_ours(RTE.paths(tmp_path))
    for content in (b"", b"no HDF5"):
        (tmp_path / "rte_labels.h5").write_bytes(content)
        with pytest.raises(DataError, match=r"rte_labels\.h5 holds no hidden states that"):
            require_ours(RTE.paths(tmp_path))


def test_a_number_that_half_precision_cannot_hold_is_refused(tmp_path) -> None:
    sizes = StateSizes(N, L, T, F, "float16")
    large = STATES[:1] * 0 + 7e4
    with StateWriter(tmp_path, RTE, sizes, {}) as writer:
        with pytest.raises(DataError, match="up to 70000, which float16 cannot hold"):
            writer.append(large, [LABELS[:1]], [0])
        assert writer.done == 0


def test_the_space_is_known_before_and_refused_when_it_is_not_there(tmp_path, monkeypatch) -> None:
    wide = StateSizes(2490, 13, 219, 768)
    assert f"{wide.gigabytes:.1f}" == "21.8"  # C.2
    usage = shutil.disk_usage(tmp_path)._replace(free=10**10)
    monkeypatch.setattr(state_files.shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(
        DataError, match=r"need 21.8 GB and 10.0 GB are free \(--dtype float16 needs half"
    ):
        require_space(tmp_path, RTE, wide)
    half = StateSizes(2490, 13, 219, 768, "float16")
    with pytest.raises(DataError, match="need 10.9 GB and 10.0 GB are free; without files"):
        require_space(tmp_path, RTE, half)
    with open(tmp_path / "rte_bert_embeds.h5", "wb") as file:
        file.truncate(10**9)  # begun before
    require_space(tmp_path, RTE, half)


def test_the_disk_keeps_room_for_all_rows_from_the_beginning(tmp_path) -> None:
    """Else a disk that others fill meanwhile ends in a crash of HDF5, after the last line."""
    with StateWriter(tmp_path, RTE, StateSizes(40, 5, 64, 32), {}):
        occupied = sum(path.stat().st_blocks * 512 for path in tmp_path.iterdir())
    assert occupied > 40 * 5 * 64 * 32 * 4


def test_splits_that_are_not_stored() -> None:
    for task, split in (("RTE", "test"), ("squad", "test")):
        with pytest.raises(DataError, match="split"):
            stored_split(task, split)
