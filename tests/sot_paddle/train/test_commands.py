"""Every other training command on text: learns, continues bit for bit, predicts, refuses."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from sot_paddle.command_line import parse
from sot_paddle.data.squad import read_questions, score_answers
from sot_paddle.deploy.trained import open_trained
from sot_paddle.tasks.state_options import StateTrainConfig
from sot_paddle.train.adapter_command import schedule_steps
from sot_paddle.train.feeding import Pace
from sot_paddle.train.model_folder import load_trained_text
from sot_paddle.train.preparation_command import prepare
from tests.sot_paddle.conftest import tokens_of
from tests.sot_paddle.train import state_files, tiny_pretraining, tiny_run
from tests.sot_paddle.train.run_output import arrays_of, in_process, metrics, same_arrays

WORDS_OF_A_TEXT = 30
"""More than fit."""


def write_tables(folder: Path, rows: int = 24) -> Path:
    """Own tables; the last word of a text tells its class."""
    folder.mkdir()
    made = []
    for index in range(rows):
        words = [tiny_run.WORDS[(index * at + at) % 10] for at in range(1, WORDS_OF_A_TEXT)]
        made.append((" ".join([*words, ("red", "old")[index % 2]]), ("r", "o")[index % 2]))
    for name, count in (("train", rows), ("dev", 9), ("test", 5)):
        lines = ["text\tlabel", *("\t".join(row) for row in made[:count])]
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def files(tmp_path_factory, tiny_folders, encoder) -> dict[str, Path]:
    """A tiny encoder, and what each command trains on; ``states`` of RTE and of SQuAD."""
    root = tmp_path_factory.mktemp("commands")
    there = {
        "encoder": encoder,
        "glue": tiny_folders[0],
        "tables": write_tables(root / "tables"),
        "train": state_files.write_squad(root / "train.json", questions=9),
        "dev": state_files.write_squad(root / "dev.json", questions=4),
        "texts": tiny_pretraining.write_texts(root),
        "states": root / "states",
    }
    shared = f"--model_name_or_path {encoder} --output_dir {root / 'states'} --no_cuda"
    shared += " --max_seq_length 20 --doc_stride 5 --batch_size 1"
    for flags in (
        f"--task_name RTE --data_dir {there['glue']}",
        f"--task_name SQuAD --train_file {there['train']} --predict_file {there['dev']}",
    ):
        assert in_process("extract_hidden_states")(f"{flags} {shared}".split()) == 0
    return there


FLAGS = {
    "train_text": "--task_name own --data_dir {tables} --max_seq_length 12 "
    "--model_name_or_path {encoder}",
    "train_squad": "--max_seq_length 24 --doc_stride 5 --predict_file {dev} --train_file {train} "
    "--model_name_or_path {encoder}",
    "train_adapter": "--max_seq_length 20 --per_gpu_train_batch_size 4 --learning_rate 3e-3",
    "pretrain": "--model_name_or_path bert_base --config_name {texts}/config.json --do_train "
    "--tokenizer_name {texts}/words --data_dir {texts}/pairs --block_size 16 --max_steps 7 "
    "--per_gpu_train_batch_size 9 --learning_rate 5e-3 --logging_steps 3",
}
"""Flags of every run of a command."""
NO_DROPOUT = " --hidden_dropout_prob 0 --attention_probs_dropout_prob 0"
LEARN = {
    "train_text": "--do_train --do_eval --learning_rate 3e-2 --trunc_medium 2 --layers 0 1 --discr "
    "--num_train_epochs 10 --per_gpu_train_batch_size 7 --layer_learning_rate 2e-2" + NO_DROPOUT,
    "train_squad": "--do_train --do_eval --do_predict --learning_rate 1e-2 --correct_bias "
    "--num_train_epochs 12 --per_gpu_train_batch_size 8" + NO_DROPOUT,
}
RTE = "--task_name RTE --do_train --do_eval"
SQUAD = "--task_name SQuAD --do_train --do_eval --do_predict --train_file {train} --doc_stride 5 "
SQUAD += "--predict_file {dev}"


@pytest.fixture
def started(files, command):
    """Make a command of its name, with its flags, and a function that fills in files."""

    def make(program: str):
        flags = FLAGS[program].format(**files).split()
        return command(program, *flags)

    return make


@pytest.fixture
def fill(files):
    return lambda flags: flags.format(**files).split()


@pytest.mark.parametrize(
    ("program", "flags"),
    [
        ("train_text", LEARN["train_text"] + " --num_train_epochs 3 --save_steps 5"),
        ("train_squad", LEARN["train_squad"] + " --num_train_epochs 2 --save_steps 4"),
        ("train_adapter", RTE + " --states {states} --num_train_epochs 3 --save_steps 4"),
        ("pretrain", "--do_eval --eval_data_dir {texts}/pairs --save_steps 2"),
        (
            "pretrain",
            "--data_dir {texts}/instances --do_eval --eval_data_dir {texts}/instances "
            "--save_steps 2",
        ),
    ],
    ids=["documents", "squad", "adapter", "pairs", "instances"],
)
def test_a_run_is_continued_bit_for_bit(started, fill, tmp_path, program, flags) -> None:
    started(program).continued(tmp_path, *fill(flags))


@pytest.mark.parametrize(
    ("program", "flags", "message"),
    [
        ("train_text", "", "nothing to do: give --do_train"),
        ("train_text", "--do_train --task_name AG", "unknown task 'AG'"),
        ("train_text", "--do_train --trunc_medium 10", "first tokens below 10"),
        ("train_text", "--do_train --layers 2", "numbers from 0 to 1 of this model"),
        ("train_text", "--do_predict --layers 0 1", "holds a trained head: give --do_train"),
        ("train_text", "--do_train --layer_learning_rate 1 2 3 --discr", "1 or 2 numbers"),
        ("train_squad", "--do_eval --task_name RTE", "task_name must be SQuAD, got RTE"),
        ("train_squad", "--do_train --max_seq_length 9", "train with a larger --max_seq_length"),
        ("train_squad", "--do_train --tokenizer_name {texts}/words", "the model's embedding"),
        ("train_adapter", "--task_name RTE --do_train", "live needs --model_name_or_path"),
        ("train_adapter", RTE + " --states x", "is not there: make it with"),
        ("train_adapter", "--task_name RTE --do_predict --states x", "needs --states live"),
        ("train_adapter", SQUAD + " --states {states}", "give --tokenizer_name (its folder)"),
        (
            "train_adapter",
            SQUAD + " --states {states} --tokenizer_name {encoder} --doc_stride 3",
            "give the file, vocabulary and stride that they were made from",
        ),
        ("pretrain", "--data_dir nowhere", "is not finished"),
        ("pretrain", "--do_predict", "predicts nothing"),
        ("pretrain", "--block_size 40", "has positions for 32 tokens, asked for 40: lower --block"),
    ],
)
def test_a_refusal_is_one_line(started, fill, tmp_path, program, flags, message) -> None:
    assert message in started(program).refused(tmp_path / "out", *fill(flags))


# documents


def test_it_learns_from_the_end_of_a_text_and_predicts_by_itself(started, tmp_path) -> None:
    train, learn = started("train_text"), LEARN["train_text"].split()
    learnt, again = tmp_path / "learnt", tmp_path / "again"
    said = train.done(learnt, *learn, "--do_predict")
    assert "own table: bert_base" in said
    assert "train, 2 classes: o (12), r (12)\ndev, 2 classes: o (4), r (5)\n" in said
    assert metrics(learnt)["best"]["acc"] == 1.0
    rows = (learnt / "predictions.tsv").read_text().splitlines()
    assert rows == ["index\tprediction", "0\tr", "1\to", "2\tr", "3\to", "4\tr"]
    same = ("--trunc_medium", "2", "--layers", "0", "1", "--model_name_or_path")
    train.done(again, "--do_predict", *same, str(learnt / "best"))
    assert (again / "predictions.tsv").read_text().splitlines() == rows
    # the trained folder cuts texts as in training
    text = " ".join(tiny_run.WORDS[:10] * 2 + ["old"])
    model = load_trained_text(learnt)
    row = tokens_of(model.tokenizer, model.tokenizer.tokenize([text]).row(0))
    assert row == ["[CLS]", "the", "a", *tiny_run.WORDS[3:10], "old", "[SEP]"]
    assert open_trained(learnt).recipe.preparation.trunc_medium == 2
    assert model.model.head_config.layers == (0, 1)
    # and takes a Chinese word whole, as the original's fine-tuning does
    chinese = tokens_of(model.tokenizer, model.tokenizer.tokenize(["中文 cat"]).row(0))
    assert chinese[1:-1] == ["[UNK]", "cat"]


def test_the_paddle_port_s_recipe_runs_and_says_what_it_ignores(started, tmp_path) -> None:
    flags = LEARN["train_text"].replace("--layer_learning_rate 2e-2", "--paddle_compat").split()
    said = started("train_text").done(tmp_path / "out", *flags, "--max_steps", "3")
    assert "--discr has no effect" in said
    assert np.isfinite(metrics(tmp_path / "out")["train"]["loss"])


# SQuAD


def without_answers(file: Path, target: Path) -> Path:
    """Questions whose answers nobody knows."""
    content = json.loads(file.read_text(encoding="utf-8"))
    for question in [qa for a in content["data"] for p in a["paragraphs"] for qa in p["qas"]]:
        del question["answers"]
    target.write_text(json.dumps(content), encoding="utf-8")
    return target


def test_answers_score_as_the_run_says(started, files, tmp_path) -> None:
    train, learnt, again = started("train_squad"), tmp_path / "learnt", tmp_path / "again"
    train.done(learnt, *LEARN["train_squad"].split())
    best = metrics(learnt)["best"]
    assert metrics(learnt)["metric"] == "f1"
    losses = [scores["loss"] for scores in metrics(learnt)["evaluations"].values()]
    assert min(losses) < 0.8 * losses[0]
    answers = learnt / "predictions.json"
    texts = json.loads(answers.read_text(encoding="utf-8"))
    official = score_answers(read_questions(files["dev"]), texts)
    assert official == {name: best[name] for name in official}
    # the trained folder answers again, by itself
    train.done(again, "--do_predict", "--model_name_or_path", str(learnt / "best"))
    assert (again / "predictions.json").read_text() == answers.read_text()
    asked = ("--predict_file", str(without_answers(files["dev"], tmp_path / "asked.json")))
    train.done(learnt, "--do_predict", *asked)
    assert answers.read_text() == (again / "predictions.json").read_text()
    assert "expected 'answers' to be a list" in train.refused(learnt, "--do_eval", *asked)
    # and rebuilds the same model to go on from
    config = json.loads((learnt / "best" / "config.json").read_text())
    assert (config["sot_head"]["pooling"], config["sot_model"]) == ("spans", "bert_base")


# hidden states


def test_stored_states_train_the_same_as_live_ones(started, fill, tmp_path) -> None:
    """One row a batch on both sides: a row's last bits may depend on the rows beside it."""
    train = started("train_adapter")
    flags = fill(RTE + " --per_gpu_train_batch_size 1 --per_gpu_eval_batch_size 1")
    live = fill("--data_dir {glue} --model_name_or_path {encoder} --do_predict")
    said = train.done(tmp_path / "live", *flags, *live)
    assert "on 3 hidden states of 20 tokens x 12, width 20" in said
    of_files = fill("--states {states} --max_seq_length 30")
    said = train.done(tmp_path / "stored", *flags, *of_files)
    assert "--max_seq_length has no effect: rows of" in said
    live, stored = (arrays_of(tmp_path / name / "best") for name in ("live", "stored"))
    layers = ("pooling.proj", "word_fc")
    assert set(live) == {f"{layer}.{part}" for layer in layers for part in ("weight", "bias")}
    assert same_arrays(live, stored)
    content = metrics(tmp_path / "live")
    assert content["best"] == metrics(tmp_path / "stored")["best"]
    named = (content["model"], content["metric"], content["train"]["steps"])
    assert named == ("adapter_classifier", "acc", 22)
    assert len((tmp_path / "live" / "RTE.tsv").read_text().splitlines()) == 6
    config = json.loads((tmp_path / "live" / "best" / "config.json").read_text())
    assert config["id2label"] == {"0": "not_entailment", "1": "entailment"}
    assert (config["num_layers"], config["seq_length"], config["hidden_size"]) == (3, 20, 12)


@pytest.mark.parametrize("live", [True, False])
def test_squad_is_trained_scored_and_predicted(started, fill, files, tmp_path, live) -> None:
    train, out = started("train_adapter"), tmp_path / "out"
    source = "--model_name_or_path" if live else "--states {states} --tokenizer_name"
    flags = fill(f"{SQUAD} {source} {{encoder}}")
    train.done(out, *flags)
    best = metrics(out)["best"]
    assert best["total"] == 4
    assert {"exact", "f1", "HasAns_f1", "NoAns_f1", "loss"} <= set(best)
    answers = json.loads((out / "predictions.json").read_text())
    assert set(answers) == {"q0", "q1", "q2", "q3"}
    if live:
        asked = str(without_answers(files["dev"], tmp_path / "asked.json"))
        alone = [flag for flag in flags if flag not in ("--do_train", "--do_eval")]
        train.done(out, *alone, "--predict_file", asked)
        assert json.loads((out / "predictions.json").read_text()) == answers
    # all that was written is known: the same command may start afresh
    train.done(out, *flags, "--overwrite_output_dir")


def test_probes_know_the_scores_of_every_layer(started, fill, tmp_path) -> None:
    train, probes = started("train_adapter"), " --model probes --states {states}"
    train.done(tmp_path / "rte", *fill(RTE + probes))
    best = metrics(tmp_path / "rte")["best"]
    each = [best[f"layer_{at}_acc"] for at in range(3)]
    assert best["acc"] == max(each) == each[best["best_layer"]]
    asked = fill(SQUAD + probes + " --tokenizer_name {encoder}")
    train.done(tmp_path / "squad", *[flag for flag in asked if flag != "--do_predict"])
    assert {f"layer_{at}_f1" for at in range(3)} <= set(metrics(tmp_path / "squad")["best"])


def test_the_rate_reaches_zero_after_the_full_batches() -> None:
    """QUIRK: 22 rows in fours are five full batches and one of two, which gets no rate."""
    flags = RTE + " --states x --output_dir y --per_gpu_train_batch_size 4 --num_train_epochs 2"
    config = parse(StateTrainConfig, flags.split())
    assert schedule_steps(config, Pace(6, 1, 22), 12) == 10
    limited = dataclasses.replace(config, max_steps=7)
    assert schedule_steps(limited, Pace(6, 1, 22), 7) == 7
    asked = dataclasses.replace(config, gradient_accumulation_steps=50)  # an epoch has fewer
    assert schedule_steps(asked, Pace(6, 5, 22), 2) == 2
    with pytest.raises(ValueError, match="3 rows make no full batch of 4 x 1"):
        schedule_steps(config, Pace(1, 1, 3), 2)


# pre-training


def test_a_pretrained_folder_is_trained_further_and_fine_tuned(started, fill, tmp_path) -> None:
    """At a rate of zero every tensor stays as it was read."""
    pretrain, first = started("pretrain"), tmp_path / "first"
    instances = fill("--data_dir {texts}/instances")
    pretrain.done(first, *instances)
    last = ("--model_name_or_path", str(first / "last"), "--learning_rate", "0")
    own = ("--config_name", "", "--tokenizer_name", "")
    pretrain.done(tmp_path / "second", *instances, *last, *own)
    before, after = (arrays_of(out / "last") for out in (first, tmp_path / "second"))
    assert same_arrays(before, after)
    table = tmp_path / "table"
    table.mkdir()
    rows = [f"{label}\tword{label} word3" for label in (0, 1, 0, 1)]
    for split in ("train", "dev"):
        (table / f"{split}.tsv").write_text("\n".join(["label\tsentence", *rows]), "utf-8")
    flags = ("--task_name", "own", "--data_dir", str(table), "--do_train", "--head", "plain", *last)
    flags += ("--max_steps", "1", "--max_seq_length", "16", "--output_dir", str(tmp_path / "tuned"))
    assert in_process("train_glue")(flags) == 0
    tuned = arrays_of(tmp_path / "tuned" / "last")
    same = [name for name in tuned if name in before]
    assert len(same) == len(tuned) - 2  # its classifier is new, the pooler is the pre-trained one
    assert all((tuned[name] == before[name]).all() for name in same)


@pytest.mark.parametrize(
    ("form", "shard", "damage"),
    [
        ("instances", "numbers.bin", lambda content: content[:-3]),
        ("pairs", "numbers.bin", lambda content: bytes([content[0] ^ 1]) + content[1:]),
        ("pairs", "spans.bin", None),
    ],
    ids=["cut off", "changed", "missing"],
)
def test_a_damaged_shard_is_one_line(started, files, tmp_path, form, shard, damage) -> None:
    folder = Path(shutil.copytree(files["texts"] / form, tmp_path / "data"))
    content = (folder / shard).read_bytes()
    (folder / shard).unlink()
    if damage is not None:
        (folder / shard).write_bytes(damage(content))
    line = started("pretrain").refused(tmp_path / "out", "--data_dir", str(folder))
    assert str(folder) in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("form", ["instances", "pairs", "ids"])
def test_text_that_is_no_utf8_is_refused_by_its_name(files, tmp_path, form) -> None:
    text, words = tmp_path / "text.txt", ["--tokenizer_name", str(files["texts"] / "words")]
    text.write_bytes((b"2 5 3\n" if form == "ids" else b"word1 word2\n" * 40) + b"\xff\n")
    flags = ["--form", form, "--input", str(text), "--output_dir", str(tmp_path / "out")]
    more = ["--vocab_size", "45"] if form == "ids" else words
    with pytest.raises(ValueError, match=r"text\.txt.* decode byte 0xff"):
        prepare([*flags, *more])
