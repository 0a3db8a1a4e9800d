"""Hidden states: HDF5 files, extraction, BERTVision's rows.

Files: n 5, L 3, T 4, F 2; the tiny model: L 3, T 6, F 12. Values: tests/parity.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest

from sot_paddle.data.batches import TokenFeatures, pad_rows
from sot_paddle.data.stored import states
from sot_paddle.data.stored.layout import original_features, original_task, stored_split
from sot_paddle.data.stored.states import (
    FrozenModel,
    LiveStates,
    StateReader,
    StateWriter,
    extract,
    hidden_states,
)
from sot_paddle.data.subword import SubwordTokenizer
from tests.sot_paddle.conftest import tokens_of
from tests.sot_paddle.data.conftest import letters

N, L, T, F = 5, 3, 4, 2
STATES = np.random.default_rng(4).normal(size=(N, L, T, F)).astype("float32")
LABELS = np.array([1, 0, 1, 1, 0])
RTE = stored_split("RTE", "train")
ORIGIN = {"encoder": "abc"}


def write(folder: Path) -> None:
    """Write rows in twos."""
    with StateWriter(folder, RTE, STATES.shape, "float32", ORIGIN) as writer:
        while writer.done < N:
            rows = np.arange(writer.done, min(writer.done + 2, N))
            writer.append(STATES[rows], [LABELS[rows]], rows)


def test_rows_lie_in_chunks_of_one_and_may_become_more(tmp_path) -> None:
    write(tmp_path)
    for path, of_row in zip(RTE.paths(tmp_path), ((), (), (L, T, F)), strict=True):
        with h5py.File(path) as file:
            (dataset,) = file.values()
            assert (dataset.chunks, dataset.maxshape) == ((1, *of_row), (None, *of_row))
            assert dataset.attrs["last_index"] == N


def test_what_was_not_finished_is_refused(tmp_path) -> None:
    """Such a file is the original's; ours have no name before."""
    write(tmp_path)
    with h5py.File(tmp_path / "rte_bert_embeds.h5", "r+") as file:
        file["embeds"].attrs["last_index"] = 3
    with pytest.raises(ValueError, match="unfinished: 3 of 5 rows"):
        StateReader(tmp_path, RTE)


def test_a_damaged_or_missing_file_is_refused(tmp_path) -> None:
    with pytest.raises(ValueError, match="is not there: make it with tools/extract_hidden_states"):
        StateReader(tmp_path, RTE)
    write(tmp_path)
    states, labels = tmp_path / "rte_bert_embeds.h5", tmp_path / "rte_labels.h5"
    content = bytearray(states.read_bytes())
    content[content.index(STATES[4].tobytes())] ^= 1
    states.write_bytes(content)
    reader = StateReader(tmp_path, RTE)
    assert reader.states([0, 1]).tobytes() == STATES[:2].tobytes()
    with pytest.raises(ValueError, match="embeds.h5 cannot be used .*it is damaged"):
        reader.states([1, 4])
    reader.close()
    labels.write_bytes(b"no HDF5")
    with pytest.raises(ValueError, match="labels.h5 cannot be used"):
        StateReader(tmp_path, RTE)
    for name, match in (
        ("other", "labels.h5 cannot be used .*'labels'"),
        ("labels", "have .* rows"),
    ):
        with h5py.File(labels, "w") as file:
            file[name] = [1]
        with pytest.raises(ValueError, match=match):
            StateReader(tmp_path, RTE)


def test_a_number_that_half_precision_cannot_hold_is_refused(tmp_path) -> None:
    large = STATES[:1] * 0 + 7e4
    with (
        pytest.raises(ValueError, match="up to 70000, which float16 cannot hold"),
        StateWriter(tmp_path, RTE, STATES.shape, "float16", {}) as writer,
    ):
        writer.append(large, [LABELS[:1]], [0])
    assert not list(tmp_path.glob("*.h5"))


def test_the_space_is_known_before_and_refused_when_it_is_not_there(tmp_path, monkeypatch) -> None:
    wide = (2490, 13, 219, 768)  # C.2
    usage = shutil.disk_usage(tmp_path)._replace(free=10**10)
    monkeypatch.setattr(states.shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(ValueError, match=r"need 21.8 GB and 10.0 GB are free \(--dtype float16"):
        states.require_space(tmp_path, wide, "float32")


FEATURES = TokenFeatures.from_rows([[2, 7, 8, 3], [2, 9, 3], [2, 5, 6, 7, 8, 3]], [4, 3, 3])
LIVE_LABELS = np.array([1, 0, 1])
WNLI = stored_split("WNLI", "dev")


def test_no_gradient_flows_through_the_states(tiny_bert) -> None:
    found = hidden_states(tiny_bert("bert_base"), pad_rows(FEATURES, range(3), max_length=6))
    assert found.shape == [3, 3, 6, 12]
    assert found.stop_gradient


def test_extracted_rows_are_the_live_ones_whatever_the_batches(tiny_bert, tmp_path) -> None:
    model = tiny_bert("bert_base")
    tokens = FEATURES.with_targets(range(3), LIVE_LABELS, np.int64)
    source = LiveStates(FrozenModel(model, SimpleNamespace(max_length=6, pad_id=0)), tokens, {})
    extract(source, tmp_path, WNLI, "float32", batch_size=2)
    reader = StateReader(tmp_path, WNLI)
    assert (len(reader), reader.of_row) == (3, source.of_row)
    np.testing.assert_array_equal(reader.labels[0], LIVE_LABELS)
    for rows in ((0, 1), (2,)):
        stored, now = reader.states(rows), source.states(rows)
        assert stored.tobytes() == now.tobytes()
    reader.close()


@pytest.fixture
def tokenizer(tmp_path) -> SubwordTokenizer:
    return letters(tmp_path, max_length=8, tie_break="fast")


def test_cola_loses_its_first_row(tmp_path, tokenizer) -> None:
    (tmp_path / "train.tsv").write_text("x\t0\t*\ta b\nx\t1\t\tc d\nx\t0\t\te\n", encoding="utf-8")
    found = original_features(tmp_path, "CoLA", "train", tokenizer)
    assert found.labels.tolist() == [1, 0]
    assert found.indices.tolist() == [0, 1]
    assert tokens_of(tokenizer, found.row(0)) == ["[CLS]", "c", "d", "[SEP]"]
    everything = original_features(tmp_path, "CoLA", "train", tokenizer, "all")
    assert everything.labels.tolist() == [0, 1, 0]


def test_mrpc_trains_on_the_corpus_and_develops_on_its_test_set(tmp_path, tokenizer) -> None:
    head = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    for name, rows in (("train", "1\t1\t2\ta\tb\n0\t3\t4\tc\td\n"), ("test", "1\t5\t6\te\tf\n")):
        (tmp_path / f"msr_paraphrase_{name}.txt").write_text(head + rows, encoding="utf-8")
    (tmp_path / "train.tsv").write_text(head + "0\t7\t8\tg\th\n", encoding="utf-8")
    (tmp_path / "dev.tsv").write_text(head + "0\t7\t8\tg\th\n", encoding="utf-8")
    assert original_features(tmp_path, "MRPC", "train", tokenizer).labels.tolist() == [1, 0]
    assert original_features(tmp_path, "MRPC", "dev", tokenizer).labels.tolist() == [1]
    assert original_features(tmp_path, "MRPC", "dev", tokenizer, "all").labels.tolist() == [0]


def test_classes_are_numbered_as_in_the_original_s_files(tmp_path, tokenizer) -> None:
    assert original_task("RTE").labels == ("not_entailment", "entailment")
    rows = "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tentailment\n1\tc\td\tnot_entailment\n"
    (tmp_path / "train.tsv").write_text(rows, encoding="utf-8")
    assert original_features(tmp_path, "RTE", "train", tokenizer).labels.tolist() == [1, 0]
