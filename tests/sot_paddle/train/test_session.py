import json
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
from visualdl import LogReader

from sot_paddle.cli import NonFinite
from sot_paddle.train import checkpointing, trainer
from sot_paddle.train.model_folder import find_folder, load_trained_text
from sot_paddle.train.run import class_counts
from tests.sot_paddle.train.run_output import arrays_of, in_process, metrics, only_line

STEPS = ("--max_steps", "4", "--save_steps", "2", "--logging_steps", "2")


def test_a_run_leaves_metrics_predictions_logs_best_and_last(tiny, tmp_path):
    out = tmp_path / "out"
    flags = ("--max_steps", "4", "--save_steps", "2", "--eval_steps", "2", "--logging_steps", "1")
    err = tiny.done(out, *flags, "--warmup_steps", "2", "--eval_all_checkpoints")
    content = metrics(out)
    assert content["task"] == "RTE"
    assert content["last"]["step"] == "4"
    assert set(content["evaluations"]) == {"2", "4"}
    assert content["best"]["acc"] == max(e["acc"] for e in content["evaluations"].values())
    assert content["options"]["q_dim"] == 5
    rows = (out / "RTE.tsv").read_text(encoding="utf-8").splitlines()
    assert rows[0] == "index\tprediction"
    assert len(rows) == 6
    assert {row.split("\t")[1] for row in rows[1:]} <= {"entailment", "not_entailment"}
    assert (out / "last").resolve() == out / "checkpoint-4"
    assert checkpointing.is_whole(out / "best")
    assert "step 2/4" in err
    for split in ("train", "dev"):
        rows = (tiny.data / f"{split}.tsv").read_text(encoding="utf-8").splitlines()[1:]
        missed = sum(row.endswith("\tnot_entailment") for row in rows)
        counts = f"entailment ({len(rows) - missed}), not_entailment ({missed})"
        assert f"\n{split}, 2 classes: {counts}\n" in err
    assert "test, 2 classes" not in err  # it has no labels
    assert_logs(out, content)


def assert_logs(out: Path, content: dict) -> None:
    """Loss, rate and scores in the logs, as VisualDL reads them."""
    logged = {}
    for file in (out / "runs").glob("vdlrecords*"):
        reader = LogReader(file_path=str(file))
        for tag in reader.get_tags().get("scalar", ()):
            logged[tag] = {entry.id: entry.value for entry in reader.get_data("scalar", tag)}
    losses = logged["train/loss"]
    assert list(losses) == [1, 2, 3, 4]
    assert sum(losses.values()) / 4 == pytest.approx(content["train"]["loss"], rel=1e-6)
    rates = {1: 5e-3, 2: 1e-2, 3: 5e-3, 4: 0.0}  # of the step that follows
    assert logged["train/learning_rate"] == pytest.approx(rates, rel=1e-6)
    for name in ("acc", "loss"):
        scores = {int(step): row[name] for step, row in content["evaluations"].items()}
        assert logged[f"eval/{name}"] == pytest.approx(scores, rel=1e-6)


def test_a_training_that_is_ended_early_leaves_no_open_log(tiny, tmp_path, monkeypatch):
    """A search goes on in this process; each log has a thread."""

    def end(*_, **__):
        raise NonFinite("ended by the search")

    threads = set(threading.enumerate())
    monkeypatch.setattr(trainer.ExactTrainer, "evaluate", end)
    assert "ended by the search" in tiny.refused(tmp_path / "out", "--max_steps", "2")
    assert set(threading.enumerate()) <= threads


def test_nothing_is_evaluated_unless_asked_for(tiny, tmp_path):
    out = tmp_path / "out"
    more = ("--max_steps", "1", "--evaluate_during_training", "--eval_all_checkpoints")
    flags = [flag for flag in tiny.command(out, *more) if flag != "--do_eval"]
    assert in_process("train_glue")(flags) == 0
    assert metrics(out)["evaluations"] == {}


def _evaluation(tiny, trained: Path, out: Path, *more: str) -> list[str]:
    """Flags that evaluate a trained folder."""
    return [
        *("--task_name", "RTE", "--data_dir", str(tiny.data), "--output_dir", str(out)),
        *("--model_name_or_path", str(trained / "best"), "--cache_dir", str(out.parent / "cache")),
        *("--max_seq_length", "20", "--do_eval", "--q_dim", "5", "--k_dim", "3", *more),
    ]


def test_a_trained_folder_alone_predicts_with_its_best_weights(tiny, tmp_path, capfd):
    out = tmp_path / "out"
    flags = tiny.command(out, "--max_steps", "4", "--save_steps", "1", "--eval_steps", "1")
    assert in_process("train_glue")(flags) == 0
    assert metrics(out)["best"]["step"] != "4"
    best = (out / "RTE.tsv").read_bytes()
    capfd.readouterr()
    flags = [flag for flag in flags if flag not in ("--do_train", "--do_eval")]
    assert in_process("train_glue")(flags) == 0
    assert f"weights: {out / 'best'}" in capfd.readouterr().err
    assert (out / "RTE.tsv").read_bytes() == best


def test_weights_of_other_classes_are_not_evaluated(tiny, done, tmp_path, capfd):
    """As many classes under other names: every label and prediction would mean another one."""
    data = tmp_path / "own"
    shutil.copytree(tiny.data, data)
    for split in ("train", "dev"):
        text = (data / f"{split}.tsv").read_text("utf-8").replace("not_entailment", "contradiction")
        (data / f"{split}.tsv").write_text(text, "utf-8")
    own = ("--task_name", "own", "--data_dir", str(data), "--do_predict")
    of_the_folder = [flag for flag in tiny.command(done, *own) if flag != "--do_train"]
    for flags, origin in (
        (of_the_folder, done / "checkpoint-2"),
        (_evaluation(tiny, done, tmp_path / "other", *own), done / "best"),
    ):
        assert in_process("train_glue")(flags) == 2
        said = capfd.readouterr().err.strip().splitlines()[-1]
        assert f"{origin} was trained on the classes entailment, not_entailment, the data" in said
        assert "has contradiction, entailment" in said


def test_a_trained_head_is_not_read_with_other_options(tiny, finished, tmp_path, capfd):
    """In the words of the command; also where the folder itself holds the weights."""
    of_the_folder = [flag for flag in tiny.command(finished) if flag != "--do_train"]
    for flags, before, now in (
        (
            ("--mask_padding", "--fusion", "aggre_all"),
            "fusion=None mask_padding=False",
            "fusion=aggre_all mask_padding=True",
        ),
        (("--pooling", "gap"), "pooling=mgcrp_qk", "pooling=gap"),
    ):
        other = _evaluation(tiny, finished, tmp_path / "other", *flags)
        for command in (other, [*of_the_folder, *flags]):
            capfd.readouterr()
            assert in_process("train_glue")(command) == 2
            line = only_line(capfd.readouterr().err)
            assert f"was trained with {before}, and this asks for {now}: give the same" in line


def test_early_stopping(tiny, tmp_path):
    out = tmp_path / "out"
    more = ("--max_steps", "40", "--save_steps", "40", "--eval_steps", "1", "--head", "plain")
    more += ("--learning_rate", "0", "--early_stopping_patience", "3")
    for _ in range(2):  # again: an ended run stays ended
        assert "--q_dim has no effect: the head pooler has none" in tiny.done(out, *more)
        content = metrics(out)
        assert content["train"]["steps"] == 4  # the first evaluation is the best, three in vain
        assert content["train"]["stopped_early"]
        assert content["best"]["step"] == "1"


def test_nan_loss_keeps_the_last_good_checkpoint(tiny, tmp_path, monkeypatch):
    import paddle

    from sot_paddle.tasks import glue

    original = glue.classification_loss
    calls = [0]

    def poisoned(logits, labels):
        calls[0] += 1
        loss = original(logits, labels)
        return loss * paddle.to_tensor(float("nan")) if calls[0] == 4 else loss

    out = tmp_path / "out"
    monkeypatch.setattr(glue, "classification_loss", poisoned)
    line = tiny.refused(out, "--max_steps", "6", "--save_steps", "2")
    assert "loss is nan at step 4" in line
    assert "checkpoint-2" in line
    assert [path.name for path in checkpointing.list_checkpoints(out)] == ["checkpoint-2"]
    assert all(np.isfinite(array).all() for array in arrays_of(out / "checkpoint-2").values())


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--model_name_or_path", "bert-base-cased"), "fetch config.json, the vocabulary and"),
        (("--fp16",), "--fp16 or --bf16 needs a GPU"),
        (("--padding", "longest"), "add mask_padding"),
        (("--max_seq_length", "25", "--data_dir", "nowhere"), "positions for 24 tokens, asked"),
        (("--set", "lr=1"), "unknown option 'lr'"),
    ],
)
def test_refusals_are_one_line_and_status_2(tiny, tmp_path, flags, said):
    assert said in tiny.refused(tmp_path / "out", *flags)


def test_of_many_classes_the_rarest_are_told_first():
    labels = np.repeat(np.arange(30), [2, 9, 0, *[5] * 27])
    names = ("x" * 50, *map(str, range(1, 30)))
    assert class_counts(names, labels) == (
        f"30 classes, the rarest first: 2 (0), {'x' * 40} (2), 3 (5), 4 (5), 5 (5), 6 (5), 7 (5), "
        "8 (5) and 22 more"
    )
    assert class_counts(("x", "y", "z"), np.array([1, 1, 0])) == "3 classes: x (1), y (2), z (0)"


def test_a_trained_folder_rebuilds_model_tokenizer_and_padding(tiny, tmp_path, caplog) -> None:
    out = tmp_path / "out"
    tiny.done(out, "--max_steps", "1", "--do_lower_case")
    subject = load_trained_text(out)
    assert find_folder(out, of_images=False) == out / "best"
    assert subject.labels == ("entailment", "not_entailment")
    assert (subject.num_texts, subject.padding) == (2, "max_length")
    assert (subject.tokenizer.max_length, subject.tokenizer.do_lower_case) == (20, True)
    assert not subject.model.training
    weights = arrays_of(out / "best")
    for name, tensor in subject.model.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), weights[name])
    (out / "run.json").unlink()
    subject = load_trained_text(out)
    assert subject.tokenizer.max_length == 24  # no more positions
    assert "no run.json" in caplog.text
    config = out / "best" / "config.json"
    content = json.loads(config.read_text(encoding="utf-8"))
    config.write_text(json.dumps({**content, "sot_model": "bert_huge"}), encoding="utf-8")
    with pytest.raises(ValueError, match="config.json: its size or checksum is not that of"):
        load_trained_text(out)
    (out / "best" / "manifest.json").unlink()
    with pytest.raises(ValueError, match="'sot_model' is 'bert_huge', which is no text model"):
        load_trained_text(out)
    with pytest.raises(ValueError, match="holds no trained text model"):
        load_trained_text(tmp_path)
