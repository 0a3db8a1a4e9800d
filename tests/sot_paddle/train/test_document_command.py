"""tools/train_text.py on a tiny language model: learns, predicts, continues, refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import paddle
import pytest

from sot_paddle.deploy.trained import open_trained
from sot_paddle.train.document_command import run_command
from sot_paddle.train.text_model import load_trained_text
from tests.sot_paddle.train import state_files, tiny_run

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
def files(tmp_path_factory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("documents")
    return state_files.write_encoder(folder / "tiny"), write_tables(folder / "tables")


@pytest.fixture
def train(files, capfd):
    """Run the command: (status, what it said)."""
    model, tables = files

    def run(out: Path, *flags: str, model: Path = model, data: Path = tables) -> tuple[int, str]:
        capfd.readouterr()
        shared = ("--task_name", "own", "--data_dir", str(data), "--output_dir", str(out))
        shared += ("--label_column", "kind", "--text_columns", "body", "--no_cuda")
        shared += ("--max_seq_length", "12", "--model_name_or_path", str(model))
        status = run_command([*shared, *flags], tiny_run.no_conversion)
        said, err = capfd.readouterr()
        return status, said + err

    dtype = paddle.get_default_dtype()
    yield run
    paddle.set_default_dtype(dtype)


LEARN = ("--do_train", "--do_eval", "--learning_rate", "3e-2", "--trunc_medium", "2")
LEARN += ("--num_train_epochs", "10", "--per_gpu_train_batch_size", "7", "--layers", "0", "1")
LEARN += ("--hidden_dropout_prob", "0", "--attention_probs_dropout_prob", "0", "--discr")
LEARN += ("--layer_learning_rate", "2e-2")


def metrics(out: Path) -> dict:
    return json.loads((out / "metrics.json").read_text(encoding="utf-8"))


def test_it_learns_from_the_end_of_a_text_and_predicts_by_itself(train, tmp_path) -> None:
    learnt, again = tmp_path / "learnt", tmp_path / "again"
    status, said = train(learnt, *LEARN, "--do_predict")
    assert status == 0, said
    assert "own table: bert_base" in said
    assert metrics(learnt)["best"]["acc"] == 1.0
    rows = (learnt / "predictions.tsv").read_text().splitlines()
    assert rows == ["index\tprediction", "0\tr", "1\to", "2\tr", "3\to", "4\tr"]
    status, said = train(again, "--do_predict", *LEARN[4:6], *LEARN[10:13], model=learnt / "best")
    assert status == 0, said
    assert (again / "predictions.tsv").read_text().splitlines() == rows
    # the trained folder cuts texts as in training
    text = " ".join(tiny_run.WORDS[:10] * 2 + ["old"])
    model = load_trained_text(learnt)
    row = model.tokenizer.tokens(model.tokenizer.tokenize([text]).row(0))
    assert row == ["[CLS]", "the", "a", *tiny_run.WORDS[3:10], "old", "[SEP]"]
    assert open_trained(learnt).recipe.preparation.trunc_medium == 2
    assert model.model.head_config.layers == (0, 1)


def test_a_run_is_continued_bit_for_bit(train, tmp_path) -> None:
    flags = (*LEARN, "--num_train_epochs", "3", "--save_steps", "5", "--keep_states", "9")
    flags += ("--hidden_dropout_prob", "0.1", "--save_total_limit", "9")
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert train(whole, *flags)[0] == 0
    assert train(parts, *flags)[0] == 0
    steps = sorted(int(path.name.rpartition("-")[2]) for path in parts.glob("checkpoint-*"))
    for step in steps[1:]:
        for file in (parts / f"checkpoint-{step}").iterdir():
            file.unlink()
        (parts / f"checkpoint-{step}").rmdir()
    (parts / "metrics.json").unlink()
    status, said = train(parts, *flags)
    assert status == 0, said
    assert f"continuing from {parts / f'checkpoint-{steps[0]}'}" in said
    assert metrics(parts)["last"] == metrics(whole)["last"]
    last = f"checkpoint-{steps[-1]}/model.safetensors"
    assert (parts / last).read_bytes() == (whole / last).read_bytes()


def test_the_paddle_port_s_recipe_runs_and_says_what_it_ignores(train, tmp_path) -> None:
    flags = [flag for flag in LEARN if flag not in ("--layer_learning_rate", "2e-2")]
    status, said = train(tmp_path / "out", *flags, "--paddle_compat", "--max_steps", "3")
    assert status == 0, said
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
    status, said = train(tmp_path / "out", *flags)
    lines = [line for line in said.splitlines() if line.startswith("train_text: ")]
    assert (status, len(lines)) == (2, 1), said
    assert message in lines[0]
