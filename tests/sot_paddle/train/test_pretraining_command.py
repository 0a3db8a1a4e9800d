"""Pre-training through the command's own function: resumed bit for bit, and used by fine-tuning."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from sot_paddle.checkpoint import read_tensors
from sot_paddle.data.errors import DataError
from sot_paddle.options import build_record
from sot_paddle.tasks.glue_options import TrainConfig
from sot_paddle.tasks.pretraining import Instances
from sot_paddle.tasks.pretraining_options import PretrainConfig
from sot_paddle.train import pretraining_command, text_command
from sot_paddle.train.trainer import ExactTrainer
from tests.sot_paddle.train.run_output import in_process
from tests.sot_paddle.train.tiny_pretraining import write_texts


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """See `write_texts`."""
    return write_texts(tmp_path_factory.mktemp("data"))


def options(data: Path, form: str, out: Path, **more) -> PretrainConfig:
    given = {
        **{"model_name_or_path": "bert_base", "config_name": str(data / "config.json")},
        **{"tokenizer_name": str(data / "words"), "data_dir": str(data / form)},
        **{"do_train": True, "max_steps": 7, "save_steps": 2, "block_size": 16},
        **{"per_gpu_train_batch_size": 9, "learning_rate": 5e-3, "output_dir": str(out)},
        **{"do_eval": True, "eval_data_dir": str(data / form), "logging_steps": 3},
    }
    return build_record(PretrainConfig, {**given, **more})


def run(config: PretrainConfig) -> dict:
    return pretraining_command.run_config(config)


@pytest.mark.parametrize("form", ["instances", "pairs"])
def test_a_run_that_dies_in_the_middle_of_an_epoch_is_continued_bit_for_bit(
    form: str, data: Path, tmp_path, monkeypatch
) -> None:
    whole = run(options(data, form, tmp_path / "whole"))
    after_step = ExactTrainer.after_step

    def die(self) -> None:
        after_step(self)
        if self.state.global_step == 4:  # the fifth step is lost: checkpoint-4 is the last one
            raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(ExactTrainer, "after_step", die)
        with pytest.raises(MemoryError):
            run(options(data, form, tmp_path / "out"))
    assert not (tmp_path / "out" / "metrics.json").exists()
    resumed = run(options(data, form, tmp_path / "out"))
    for name in ("model.safetensors", "optimizer.safetensors"):
        last = [tmp_path / folder / "last" / name for folder in ("out", "whole")]
        assert last[0].read_bytes() == last[1].read_bytes()
    assert resumed["train"] == whole["train"]
    assert resumed["last"] == whole["last"]
    assert whole["last"]["loss"] < np.log(45) + (0.7 if form == "instances" else 0.0)
    assert ("next_loss" in whole["last"]) == (form == "instances")


def test_the_folder_is_a_checkpoint_for_further_training_and_for_fine_tuning(
    data: Path, tmp_path
) -> None:
    run(options(data, "instances", tmp_path / "first", do_eval=False))
    last = tmp_path / "first" / "last"
    further = options(
        data, "instances", tmp_path / "second", model_name_or_path=str(last), learning_rate=0.0
    )
    further = run(PretrainConfig(**{**vars(further), "config_name": "", "tokenizer_name": ""}))
    assert further["train"]["steps"] == 7
    before, _ = read_tensors(last / "model.safetensors")
    after, _ = read_tensors(tmp_path / "second" / "last" / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[name], after[name]) for name in before)
    table = tmp_path / "table"
    table.mkdir()
    for split in ("train", "dev"):
        rows = [f"{label}\tword{label} word3" for label in (0, 1, 0, 1)]
        (table / f"{split}.tsv").write_text("\n".join(["label\tsentence", *rows]), "utf-8")
    tuned = text_command.run_config(
        TrainConfig(
            **{"task_name": "own", "data_dir": str(table), "model_name_or_path": str(last)},
            **{"do_train": True, "head": "plain", "learning_rate": 0.0, "max_steps": 1},
            **{"max_seq_length": 16, "output_dir": str(tmp_path / "tuned")},
        )
    )
    assert tuned["train"]["steps"] == 1
    found, _ = read_tensors(tmp_path / "tuned" / "last" / "model.safetensors")
    same = [name for name in found if name in before]
    assert len(same) == len(found) - 2  # its classifier is new, the pooler is the pre-trained one
    assert all(np.array_equal(found[name], before[name]) for name in same)


def test_a_row_that_cannot_be_read_ends_the_command_with_one_line(
    data: Path, tmp_path, monkeypatch, capsys
) -> None:
    read, asked = Instances.row, []

    def cut(self, epoch: int, position: int):
        asked.append(position)
        if len(asked) > 20:
            raise DataError("rows.bin: was cut off while it was read")
        return read(self, epoch, position)

    monkeypatch.setattr(Instances, "row", cut)
    given = vars(options(data, "instances", tmp_path / "out", do_eval=False))
    names = ("config_name", "tokenizer_name", "data_dir", "output_dir", "max_steps", "block_size")
    flags = ["--model_name_or_path", "bert_base", "--do_train"]
    flags += [word for name in names for word in (f"--{name}", str(given[name]))]
    assert in_process("pretrain")(flags) == 2
    assert capsys.readouterr().err.endswith("rows.bin: was cut off while it was read\n")


def test_a_signal_reaches_a_training_that_waits_for_a_row(
    data: Path, tmp_path, monkeypatch
) -> None:
    """Rows are read by the thread that answers signals."""
    read, readers = Instances.row, set()

    def noted(self, epoch: int, position: int):
        readers.add(threading.current_thread())
        return read(self, epoch, position)

    monkeypatch.setattr(Instances, "row", noted)
    run(options(data, "instances", tmp_path / "out", max_steps=2))
    assert readers == {threading.main_thread()}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"data_dir": "nowhere"}, "is not finished"),
        ({"do_eval": True, "eval_data_dir": ""}, "do_eval needs --eval_data_dir"),
        ({"do_predict": True}, "predicts nothing"),
        ({"do_predict": True, "do_train": False}, "predicts nothing"),
        ({"do_eval": True, "do_train": False}, "do_train is required .*: do_eval scores beside it"),
        ({"block_size": 40}, "has positions for 32 tokens, asked for 40: lower --block_size"),
        ({"attention_kernel": "convk 2"}, "unknown option"),
        ({"sharding": "stage3"}, "GPUs alone"),
        ({"sharding": "stage1"}, "needs several processes"),
    ],
)
def test_what_cannot_be_trained_is_one_line(more, said, data: Path, tmp_path) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        run(options(data, "pairs", tmp_path / "out", **more))
    assert "\n" not in str(refused.value)
