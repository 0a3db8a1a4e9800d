"""tools/train_squad.py on a tiny language model: learns, predicts, continues, refuses."""

from __future__ import annotations

import json
from pathlib import Path

import paddle
import pytest

from sot_paddle.train.squad_command import run_command
from sot_paddle.train.squad_evaluation import run_command as evaluate
from tests.sot_paddle.train import state_files
from tests.sot_paddle.train.tiny_run import no_conversion


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("squad")
    return {
        "model": state_files.write_encoder(folder / "tiny"),
        "train": state_files.write_squad(folder / "train.json", questions=9),
        "dev": state_files.write_squad(folder / "dev.json", questions=4),
    }


@pytest.fixture
def train(files, capfd):
    """Run the command: (status, what it said)."""

    def run(out: Path, *flags: str, model: Path = files["model"]) -> tuple[int, str]:
        capfd.readouterr()
        shared = ("--output_dir", str(out), "--no_cuda", "--max_seq_length", "24")
        shared += ("--doc_stride", "5", "--model_name_or_path", str(model))
        shared += ("--train_file", str(files["train"]), "--predict_file", str(files["dev"]))
        status = run_command([*shared, *flags], no_conversion)
        said, err = capfd.readouterr()
        return status, said + err

    dtype = paddle.get_default_dtype()
    yield run
    paddle.set_default_dtype(dtype)


LEARN = ("--do_train", "--do_eval", "--do_predict", "--learning_rate", "1e-2", "--correct_bias")
LEARN += ("--num_train_epochs", "12", "--per_gpu_train_batch_size", "8")
LEARN += ("--hidden_dropout_prob", "0", "--attention_probs_dropout_prob", "0")


def metrics(out: Path) -> dict:
    return json.loads((out / "metrics.json").read_text(encoding="utf-8"))


def test_it_learns_and_its_files_score_as_it_says(train, files, tmp_path) -> None:
    again, learnt = tmp_path / "again", tmp_path / "learnt"
    status, said = train(learnt, *LEARN)
    assert status == 0, said
    best = metrics(learnt)["best"]
    assert metrics(learnt)["metric"] == "f1"
    losses = [scores["loss"] for scores in metrics(learnt)["evaluations"].values()]
    assert min(losses) < 0.8 * losses[0]
    answers = learnt / "predictions.json"
    odds = ["--na-prob-file", str(learnt / "null_odds.json"), "--na-prob-thresh", "1e9"]
    scores = tmp_path / "scores.json"
    assert evaluate([str(files["dev"]), str(answers), *odds, "--out-file", str(scores)]) == 0
    official = json.loads(scores.read_text(encoding="utf-8"))
    assert official == {name: best[name] for name in official}
    # the trained folder answers again, by itself
    status, said = train(again, "--do_predict", model=learnt / "best")
    assert status == 0, said
    assert (again / "predictions.json").read_text() == answers.read_text()
    # and rebuilds the same model to go on from
    config = json.loads((learnt / "best" / "config.json").read_text())
    assert (config["sot_head"]["pooling"], config["sot_model"]) == ("spans", "bert_base")


def test_a_run_is_continued_bit_for_bit(train, tmp_path) -> None:
    flags = (*LEARN, "--num_train_epochs", "2", "--save_steps", "4", "--save_total_limit", "9")
    flags += ("--keep_states", "9")
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


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "nothing to do: give --do_train"),
        (("--do_eval", "--task_name", "RTE"), "task_name must be SQuAD, got RTE"),
        (("--do_train", "--train_file", ""), "SQuAD train needs --train_file"),
        (("--do_predict",), "holds a trained head: give --do_train"),
        (("--do_train", "--fp16", "--bf16"), "fp16 and bf16 exclude each other"),
        (("--do_train", "--max_seq_length", "9"), "raise max_length"),
        (("--do_train", "--max_seq_length", "99", "--train_file", "no"), "asked for 99: lower --"),
    ],
)
def test_a_refusal_is_one_line(train, tmp_path, flags, message) -> None:
    status, said = train(tmp_path / "out", *flags)
    lines = [line for line in said.splitlines() if line.startswith("train_squad: ")]
    assert (status, len(lines)) == (2, 1), said
    assert message in lines[0]
