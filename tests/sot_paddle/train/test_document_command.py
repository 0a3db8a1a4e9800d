"""tools/train_text.py on a tiny language model: learns, predicts, continues, refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from sot_paddle.deploy.trained import open_trained
from sot_paddle.train.text_model import load_trained_text
from tests.sot_paddle.train import tiny_run
from tests.sot_paddle.train.run_output import in_process, metrics

LONG = 30
"""Words of a text: more than fit."""


def write_tables(folder: Path, rows: int = 24) -> Path:
    """Own tables of three forms; the last word of a text tells its class."""
    folder.mkdir()
    made = []
    for index in range(rows):
        words = [tiny_run.WORDS[(index * step + step) % 10] for step in range(1, LONG)]
        made.append((" ".join([*words, ("red", "old")[index % 2]]), ("r", "o")[index % 2]))
    lines = [json.dumps({"body": text, "kind": kind}) for text, kind in made]
    (folder / "train.jsonl").write_text("\n".join(lines), encoding="utf-8")
    lines = ["kind,body", *(f'{kind},"{text}"' for text, kind in made[:9])]
    (folder / "dev.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    lines = ["body", *(text for text, _ in made[:5])]
    (folder / "test.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def files(tmp_path_factory, encoder) -> tuple[Path, Path]:
    return encoder, write_tables(tmp_path_factory.mktemp("documents") / "tables")


@pytest.fixture
def train(files, command):
    flags = ("--task_name", "own", "--data_dir", str(files[1]), "--label_column", "kind")
    flags += ("--text_columns", "body", "--max_seq_length", "12")
    flags += ("--model_name_or_path", str(files[0]))
    return command("train_text", in_process("train_text"), *flags)


LEARN = ("--do_train", "--do_eval", "--learning_rate", "3e-2", "--trunc_medium", "2")
LEARN += ("--num_train_epochs", "10", "--per_gpu_train_batch_size", "7", "--layers", "0", "1")
LEARN += ("--hidden_dropout_prob", "0", "--attention_probs_dropout_prob", "0", "--discr")
LEARN += ("--layer_learning_rate", "2e-2")


def test_it_learns_from_the_end_of_a_text_and_predicts_by_itself(train, tmp_path) -> None:
    learnt, again = tmp_path / "learnt", tmp_path / "again"
    said = train.done(learnt, *LEARN, "--do_predict")
    assert "own table: bert_base" in said
    assert "train, 2 classes: o (12), r (12)\ndev, 2 classes: o (4), r (5)\n" in said
    assert metrics(learnt)["best"]["acc"] == 1.0
    rows = (learnt / "predictions.tsv").read_text().splitlines()
    assert rows == ["index\tprediction", "0\tr", "1\to", "2\tr", "3\to", "4\tr"]
    same = (*LEARN[4:6], *LEARN[10:13], "--model_name_or_path", str(learnt / "best"))
    train.done(again, "--do_predict", *same)
    assert (again / "predictions.tsv").read_text().splitlines() == rows
    # the trained folder cuts texts as in training
    text = " ".join(tiny_run.WORDS[:10] * 2 + ["old"])
    model = load_trained_text(learnt)
    row = model.tokenizer.tokens(model.tokenizer.tokenize([text]).row(0))
    assert row == ["[CLS]", "the", "a", *tiny_run.WORDS[3:10], "old", "[SEP]"]
    assert open_trained(learnt).recipe.preparation.trunc_medium == 2
    assert model.model.head_config.layers == (0, 1)
    # and takes a Chinese word whole, as the original's fine-tuning does
    assert model.tokenizer.tokens(model.tokenizer.tokenize(["中文 cat"]).row(0))[1:-1] == [
        "[UNK]",
        "cat",
    ]


def test_a_run_is_continued_bit_for_bit(train, tmp_path) -> None:
    flags = ("--num_train_epochs", "3", "--save_steps", "5", "--hidden_dropout_prob", "0.1")
    train.continued(tmp_path, *LEARN, *flags)


def test_the_paddle_port_s_recipe_runs_and_says_what_it_ignores(train, tmp_path) -> None:
    flags = [flag for flag in LEARN if flag not in ("--layer_learning_rate", "2e-2")]
    said = train.done(tmp_path / "out", *flags, "--paddle_compat", "--max_steps", "3")
    assert "--discr has no effect" in said
    assert np.isfinite(metrics(tmp_path / "out")["train"]["loss"])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "nothing to do: give --do_train"),
        (("--do_train", "--task_name", "AG"), "unknown task 'AG'"),
        (("--do_train", "--max_seq_length", "64", "--data_dir", "no"), "positions for 40 tokens"),
        (("--do_train", "--trunc_medium", "10"), "first tokens below 10"),
        (("--do_train", "--layers", "2"), "numbers from 0 to 1 of this model"),
        (("--do_eval", "--label_column", "none"), "expected the column none"),
        (("--do_predict", "--layers", "0", "1"), "holds a trained head: give --do_train"),
        (("--do_train", "--layer_learning_rate", "1", "2", "3", "--discr"), "1 or 2 numbers"),
    ],
)
def test_a_refusal_is_one_line(train, tmp_path, flags, message) -> None:
    assert message in train.refused(tmp_path / "out", *flags)
