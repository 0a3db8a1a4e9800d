"""Hidden states of BERTVision: those of a live encoder, and what the files of a split hold."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
import torch

from sot_paddle.data.batches import TokenFeatures, pad_rows
from sot_paddle.data.stored.layout import stored_split
from sot_paddle.data.stored.states import (
    FrozenModel,
    LiveStates,
    StateReader,
    StateWriter,
    hidden_states,
)
from tests.parity.models import BERT, models_of_equal_weights
from tests.parity.sides import assert_same, paddle_precision

LENGTHS = np.array([11, 6, 9, 4])
OF_11_TOKENS = SimpleNamespace(max_length=11, pad_id=0)  # all that is asked of a tokenizer


def token_rows() -> TokenFeatures:
    rng = np.random.default_rng(7)
    rows = [rng.integers(1, 30, length).tolist() for length in LENGTHS]
    return TokenFeatures.from_rows(rows, LENGTHS // 2).with_targets(range(4), range(4), np.int64)


def test_states_of_a_live_encoder_are_those_of_transformers() -> None:
    """In training mode with dropout: they are computed in evaluation mode all the same."""
    options = BERT | {
        "num_hidden_layers": 2,
        "hidden_dropout_prob": 0.5,
        "attention_probs_dropout_prob": 0.5,
    }
    paddle_model, torch_model = models_of_equal_weights("bert_base", options, "float64")
    batch = pad_rows(token_rows(), range(4), max_length=11)
    del batch["labels"]
    with torch.no_grad():
        tensors = {name: torch.from_numpy(value) for name, value in batch.items()}
        states = torch_model.eval().bert(**tensors, output_hidden_states=True).hidden_states
    expected = torch.stack(states, dim=1).numpy()
    with paddle_precision("float64"):
        actual = hidden_states(paddle_model, batch).numpy()
        assert paddle_model.training
        paddle_model.eval()  # it stays in the mode that it has
        source = LiveStates(FrozenModel(paddle_model, OF_11_TOKENS), token_rows(), {})
        second_row = source.states([1])
    assert not paddle_model.training
    assert (len(source), source.dtype, source.of_row) == (4, "float64", actual.shape[1:])
    for layer in range(expected.shape[1]):
        assert_same({f"{layer}": actual[:, layer]}, {f"{layer}": expected[:, layer]})
    assert_same({"second row": second_row}, {"second row": expected[1:2]})


GLUE = {
    "cola": ("cola", ("0", "1")),
    "sst-2": ("sst", ("0", "1")),
    "mrpc": ("msr", ("0", "1")),
    "sts-b": ("stsb", ()),
    "qqp": ("qqpairs", ("0", "1")),
    "mnli": ("mnli", ("neutral", "entailment", "contradiction")),
    "qnli": ("qnli", ("not_entailment", "entailment")),
    "rte": ("rte", ("not_entailment", "entailment")),
    "wnli": ("wnli", ("0", "1")),
}
"""Task -> how the authors' files begin, and the names of its labels in their order (C.2, C.3)."""


def published_files(task: str, split: str) -> dict[str, tuple[str, str, str]]:
    """List the authors' file, data set and dtype of each kind, the hidden states last."""
    if task == "SQuAD":
        start = f"squad_{split}"
        return {
            "labels": (f"{start}_start_labels.h5", "start_ids", "int64"),
            "last tokens": (f"{start}_end_labels.h5", "end_ids", "int64"),
            "rows": (f"{start}_indices.h5", "indices", "int64"),
            "states": (f"{start}_embeds.h5", "embeds", ""),
        }
    start = GLUE[task][0] if split == "train" else f"{GLUE[task][0]}_{split}"
    return {
        "labels": (f"{start}_labels.h5", "labels", "float32" if task == "sts-b" else "int64"),
        "rows": (f"{start}_idx.h5", "idx", "int64"),
        "states": (f"{start}_bert_embeds.h5", "embeds", ""),
    }


def splits(task: str) -> tuple[str, ...]:
    return ("train", *(("dev_matched", "dev_mismatched") if task == "mnli" else ("dev",)))


@pytest.mark.parametrize(
    ("task", "split"), [(task, split) for task in (*GLUE, "SQuAD") for split in splits(task)]
)
def test_files_of_a_split_are_the_authors(task: str, split: str) -> None:
    layout = stored_split(task, split)
    files = [(one.file, one.name, one.dtype) for one in layout.datasets]
    assert files == [*published_files(task, split).values()]
    assert layout.classes == (() if task == "SQuAD" else GLUE[task][1])


@pytest.mark.parametrize(
    ("task", "split", "dtype"),
    [
        ("rte", "train", "float32"),
        ("SQuAD", "train", "float16"),
        ("mnli", "dev_matched", "float32"),
    ],
)
def test_rows_come_back_from_the_files_bit_for_bit(
    task: str, split: str, dtype: str, tmp_path: Path
) -> None:
    """Rows written in two runs, read by ours and by h5py under the authors' names."""
    rng, rows = np.random.default_rng(17), 5
    states = rng.normal(size=(rows, 3, 4, 6)).astype(dtype)
    layout = stored_split(task, split)
    labels = [rng.integers(0, 4, rows) for _ in layout.labels]
    for stop in (2, rows):
        with StateWriter(tmp_path, layout, states.shape, dtype, {"from": "numbers"}) as writer:
            part = slice(writer.done, stop)
            writer.append(states[part], [kind[part] for kind in labels], range(*part.indices(rows)))
    reader = StateReader(tmp_path, layout)
    np.testing.assert_array_equal(reader.states([*reversed(range(rows))])[::-1], states)
    np.testing.assert_array_equal(reader.labels[0], labels[0])
    np.testing.assert_array_equal(reader.rows, np.arange(rows))
    reader.close()
    files = published_files(task, split)
    assert sorted(path.name for path in layout.paths(tmp_path)) == sorted(
        file for file, _, _ in files.values()
    )
    written = {"states": states, "labels": labels[0], "last tokens": labels[-1]}
    written["rows"] = np.arange(rows)
    for kind, (file, name, row_dtype) in files.items():
        with h5py.File(tmp_path / file) as opened:
            assert opened[name].dtype == (row_dtype or dtype)
            assert opened[name].attrs["last_index"] == rows
            np.testing.assert_array_equal(opened[name][:], written[kind], err_msg=kind)
