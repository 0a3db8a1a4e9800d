"""tools/train_squad.py on a tiny language model: learns, predicts, continues, refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sot_paddle.train import outcome
from sot_paddle.train.squad_evaluation import run_command as evaluate
from tests.sot_paddle.train import state_files
from tests.sot_paddle.train.run_output import in_process, metrics


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("squad")
    return {
        "model": state_files.write_encoder(folder / "tiny"),
        "train": state_files.write_squad(folder / "train.json", questions=9),
        "dev": state_files.write_squad(folder / "dev.json", questions=4),
    }


@pytest.fixture
def train(files, command):
    flags = ("--max_seq_length", "24", "--doc_stride", "5", "--predict_file", str(files["dev"]))
    flags += ("--model_name_or_path", str(files["model"]), "--train_file", str(files["train"]))
    return command("train_squad", in_process("train_squad"), *flags)


LEARN = ("--do_train", "--do_eval", "--do_predict", "--learning_rate", "1e-2", "--correct_bias")
LEARN += ("--num_train_epochs", "12", "--per_gpu_train_batch_size", "8")
LEARN += ("--hidden_dropout_prob", "0", "--attention_probs_dropout_prob", "0")


def test_it_learns_and_its_files_score_as_it_says(train, files, tmp_path) -> None:
    again, learnt = tmp_path / "again", tmp_path / "learnt"
    train.done(learnt, *LEARN)
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
    train.done(again, "--do_predict", "--model_name_or_path", str(learnt / "best"))
    assert (again / "predictions.json").read_text() == answers.read_text()
    # and questions whose answers nobody knows
    asked = json.loads(files["dev"].read_text(encoding="utf-8"))
    for question in [qa for a in asked["data"] for p in a["paragraphs"] for qa in p["qas"]]:
        del question["answers"]
    (tmp_path / "asked.json").write_text(json.dumps(asked), encoding="utf-8")
    of_these = ("--predict_file", str(tmp_path / "asked.json"))
    train.done(learnt, "--do_predict", *of_these)
    assert (learnt / "predictions.json").read_text() == (again / "predictions.json").read_text()
    with pytest.raises(AssertionError, match="expected 'answers' to be a list"):
        train.done(learnt, "--do_eval", *of_these)
    # and rebuilds the same model to go on from
    config = json.loads((learnt / "best" / "config.json").read_text())
    assert (config["sot_head"]["pooling"], config["sot_model"]) == ("spans", "bert_base")


def test_a_run_is_continued_bit_for_bit(train, tmp_path) -> None:
    train.continued(tmp_path, *LEARN, "--num_train_epochs", "2", "--save_steps", "4")


@pytest.mark.parametrize("trained", [True, False])
def test_the_development_set_is_read_once_an_evaluation(
    train, tmp_path, monkeypatch, trained
) -> None:
    """Its answers are those of the best evaluation; nothing is computed for them again."""
    train.done(tmp_path / "first", "--do_train", "--max_steps", "1")
    passes = []
    predict = outcome.predict
    monkeypatch.setattr(outcome, "predict", lambda *a, **k: passes.append(1) or predict(*a, **k))
    asked = ("--do_eval", "--do_predict", *(LEARN if trained else ()), "--num_train_epochs", "3")
    asked += ("--model_name_or_path", str(tmp_path / "first" / "checkpoint-1"))
    train.done(tmp_path / "out", *asked)
    assert len(passes) == len(metrics(tmp_path / "out")["evaluations"]) == (3 if trained else 1)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "nothing to do: give --do_train"),
        (("--do_eval", "--task_name", "RTE"), "task_name must be SQuAD, got RTE"),
        (("--do_train", "--train_file", ""), "SQuAD train needs --train_file"),
        (("--do_predict",), "holds a trained head: give --do_train"),
        (("--do_train", "--fp16", "--bf16"), "fp16 and bf16 exclude each other"),
        (("--do_train", "--max_seq_length", "9"), "train with a larger --max_seq_length"),
        (("--do_train", "--max_seq_length", "99", "--train_file", "no"), "asked for 99: lower --"),
    ],
)
def test_a_refusal_is_one_line(train, tmp_path, flags, message) -> None:
    assert message in train.refused(tmp_path / "out", *flags)


def test_a_vocabulary_larger_than_the_embedding_is_refused(train, files, tmp_path) -> None:
    entries = (files["model"] / "vocab.txt").read_text().splitlines()
    larger = tmp_path / "larger"
    larger.mkdir()
    (larger / "vocab.txt").write_text("\n".join([*entries, *map(str, range(1000, 2000))]) + "\n")
    said = train.refused(tmp_path / "out", "--do_train", "--tokenizer_name", str(larger))
    assert f"the vocabulary has {len(entries) + 1000} entries, the model's embedding" in said
