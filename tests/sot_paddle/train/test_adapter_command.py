"""tools/train_adapter.py on tiny states: live equals stored, resuming, predictions, probes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from sot_paddle.command_line import parse
from sot_paddle.tasks.state_options import ADAPTER_COMMAND
from sot_paddle.train.adapter_command import schedule_steps
from sot_paddle.train.feeding import Pace
from tests.sot_paddle.train import state_files
from tests.sot_paddle.train.run_output import arrays_of, in_process, metrics, same_arrays


@pytest.fixture(scope="module")
def squad(tmp_path_factory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("squad")
    return (
        state_files.write_squad(folder / "train.json", questions=9),
        state_files.write_squad(folder / "dev.json", questions=4),
    )


@pytest.fixture(scope="module")
def stored(tmp_path_factory, tiny_folders, encoder, squad) -> Path:
    """Stored states of RTE and SQuAD in one folder."""
    folder = tmp_path_factory.mktemp("states")
    shared = ("--model_name_or_path", str(encoder), "--output_dir", str(folder), "--no_cuda")
    shared += ("--max_seq_length", "20", "--doc_stride", "5", "--batch_size", "1")
    rte = ("--task_name", "RTE", "--data_dir", str(tiny_folders[0]))
    files = ("--train_file", str(squad[0]), "--predict_file", str(squad[1]))
    for flags in (rte, ("--task_name", "SQuAD", *files)):
        assert in_process("extract_hidden_states")([*flags, *shared]) == 0
    return folder


@pytest.fixture
def train(command):
    flags = ("--max_seq_length", "20", "--per_gpu_train_batch_size", "4", "--learning_rate", "3e-3")
    return command("train_adapter", in_process("train_adapter"), *flags)


RTE = ("--task_name", "RTE", "--do_train", "--do_eval")


def test_stored_states_train_the_same_as_live_ones(
    train, stored, encoder, tiny_folders, tmp_path
) -> None:
    """One row a batch on both sides: a row's last bits may depend on the rows beside it."""
    flags = (*RTE, "--per_gpu_train_batch_size", "1", "--per_gpu_eval_batch_size", "1")
    data = ("--data_dir", str(tiny_folders[0]), "--model_name_or_path", str(encoder))
    said = train.done(tmp_path / "live", *flags, *data, "--do_predict")
    assert "on 3 hidden states of 20 tokens x 12, width 20" in said
    said += train.done(tmp_path / "stored", *flags, "--states", str(stored))
    assert "has no effect" not in said
    live, from_files = (arrays_of(tmp_path / name / "best") for name in ("live", "stored"))
    assert set(live) == {
        f"{n}.{p}" for n in ("pooling.proj", "word_fc") for p in ("weight", "bias")
    }
    assert same_arrays(live, from_files)
    found = metrics(tmp_path / "live")
    assert found["best"] == metrics(tmp_path / "stored")["best"]
    assert (found["model"], found["metric"], found["train"]["steps"]) == (
        *("adapter_classifier", "acc"),
        22,
    )
    assert len((tmp_path / "live" / "RTE.tsv").read_text().splitlines()) == 6
    config = json.loads((tmp_path / "live" / "best" / "config.json").read_text())
    assert config["id2label"] == {"0": "not_entailment", "1": "entailment"}
    assert (config["num_layers"], config["seq_length"], config["hidden_size"]) == (3, 20, 12)


def test_stored_states_have_their_own_length(train, stored, tmp_path) -> None:
    more = ("--states", str(stored), "--max_steps", "1", "--max_seq_length", "30")
    said = train.done(tmp_path / "out", *RTE, *more)
    assert f"--max_seq_length has no effect: rows of {stored} have 20 tokens" in said


def test_a_run_is_continued_bit_for_bit(train, stored, tmp_path) -> None:
    flags = (*RTE, "--states", str(stored), "--num_train_epochs", "3", "--save_steps", "4")
    train.continued(tmp_path, *flags)
    said = train.refused(tmp_path / "whole", *flags, "--adapter_dim", "7", "--keep_states", "9")
    assert " there, 7 now" in said


@pytest.mark.parametrize("live", [True, False])
def test_squad_is_trained_scored_and_predicted(
    train, stored, encoder, squad, tmp_path, live
) -> None:
    flags = ["--task_name", "SQuAD", "--do_train", "--do_eval", "--do_predict"]
    flags += ["--train_file", str(squad[0]), "--predict_file", str(squad[1]), "--doc_stride", "5"]
    flags += ["--model_name_or_path", str(encoder)] if live else ["--states", str(stored)]
    flags += [] if live else ["--tokenizer_name", str(encoder)]
    train.done(tmp_path / "out", *flags)
    best = metrics(tmp_path / "out")["best"]
    assert best["total"] == 4
    assert {"exact", "f1", "HasAns_f1", "NoAns_f1", "best_f1", "loss"} <= set(best)
    answers = json.loads((tmp_path / "out" / "predictions.json").read_text())
    assert set(answers) == {"q0", "q1", "q2", "q3"}
    assert set(json.loads((tmp_path / "out" / "null_odds.json").read_text())) == set(answers)
    if live:  # it answers questions whose answers nobody knows
        asked = json.loads(squad[1].read_text())
        for question in [qa for a in asked["data"] for p in a["paragraphs"] for qa in p["qas"]]:
            del question["answers"]
        (tmp_path / "asked.json").write_text(json.dumps(asked))
        alone = [flag for flag in flags if flag not in ("--do_train", "--do_eval")]
        train.done(tmp_path / "out", *alone, "--predict_file", str(tmp_path / "asked.json"))
        assert json.loads((tmp_path / "out" / "predictions.json").read_text()) == answers
    # all that was written is known: the same command may start afresh
    train.done(tmp_path / "out", *flags, "--overwrite_output_dir")


def test_probes_know_the_scores_of_every_layer(train, stored, encoder, squad, tmp_path) -> None:
    train.done(tmp_path / "rte", *RTE, "--states", str(stored), "--model", "probes")
    best = metrics(tmp_path / "rte")["best"]
    each = [best[f"layer_{at}_acc"] for at in range(3)]
    assert best["acc"] == max(each) == each[best["best_layer"]]
    flags = ["--task_name", "SQuAD", "--do_train", "--do_eval", "--model", "probes"]
    flags += ["--train_file", str(squad[0]), "--predict_file", str(squad[1]), "--doc_stride", "5"]
    flags += ["--states", str(stored), "--tokenizer_name", str(encoder)]
    train.done(tmp_path / "squad", *flags)
    assert {f"layer_{at}_f1" for at in range(3)} <= set(metrics(tmp_path / "squad")["best"])


def test_states_of_other_rows_are_refused(train, stored, encoder, squad, tmp_path) -> None:
    flags = ["--task_name", "SQuAD", "--do_eval", "--predict_file", str(squad[1])]
    flags += ["--states", str(stored), "--doc_stride", "3"]
    said = train.refused(tmp_path / "out", *flags, "--tokenizer_name", str(encoder))
    assert "give the file, vocabulary and stride that they were made from" in said
    assert "give --tokenizer_name (its folder)" in train.refused(tmp_path / "out", *flags)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--task_name", "RTE", "--do_train"), "states live needs --model_name_or_path"),
        (("--task_name", "RTE", "--states", "x"), "nothing to do: give --do_train"),
        (("--task_name", "RTE", "--do_train", "--states", "x"), "is not there: make it with"),
        (("--task_name", "SQuAD", "--do_train", "--states", "x"), "train needs --train_file"),
        (
            ("--task_name", "RTE", "--do_predict", "--states", "x"),
            "do_predict of a GLUE task needs --states live",
        ),
        (("--task_name", "RTE", "--do_eval", "--states", "x", "--model", "y"), "model must be one"),
    ],
)
def test_a_refusal_is_one_line(train, tmp_path, flags, message) -> None:
    assert message in train.refused(tmp_path / "out", *flags)


def test_the_rate_reaches_zero_after_the_full_batches() -> None:
    """QUIRK: 22 rows in fours are five full batches and one of two, which gets no rate."""
    flags = ["--task_name", "RTE", "--states", "x", "--do_train", "--output_dir", "y"]
    flags += ["--per_gpu_train_batch_size", "4", "--num_train_epochs", "2"]
    config = parse(ADAPTER_COMMAND, flags)
    assert schedule_steps(config, Pace(6, 1, 22), 12) == 10
    limited = dataclasses.replace(config, max_steps=7)
    assert schedule_steps(limited, Pace(6, 1, 22), 7) == 7
    asked = dataclasses.replace(config, gradient_accumulation_steps=50)  # an epoch has fewer
    assert schedule_steps(asked, Pace(6, 5, 22), 2) == 2
    with pytest.raises(ValueError, match="3 rows make no full batch of 4 x 1"):
        schedule_steps(config, Pace(1, 1, 3), 2)
