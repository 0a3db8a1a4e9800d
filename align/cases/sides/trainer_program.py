"""The GLUE trainer started on files in the official layout, and what it leaves behind."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import sot_paddle
from align.cases.context import Context
from align.cases.kinds.case_kinds import TrainerCase
from align.cases.model_pair import ModelPair
from align.cases.sides.glue_fixtures import write_fixture
from align.cases.sides.paddle_side import settings_kept
from align.pair import launching
from align.record.arrays import Arrays, TrainingRun
from sot_paddle.checkpoint import read_tensors
from sot_paddle.data.cache import tokenize_split
from sot_paddle.data.token_features import TokenFeatures
from sot_paddle.data.tokenization import WordPieceTokenizer

MAX_LENGTH = 16
GLOBAL_BATCH = 4
SEED = 42
WORKER = Path(__file__).with_name("trainer_worker.py")
"""The program that is started."""

_SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")


DRAWN = ("python", "numpy")
"""Generators whose numbers are noted."""


@dataclass(frozen=True)
class TrainerRecord:
    """What the trainer left.

    Attributes:
        run: rates of all its optimizer steps, and the final weights.
        first: ``gradient/NAME`` and ``weight/NAME`` of its first optimizer step.
        features: the tokenized file that it read.
        draws: by generator, the random numbers that were drawn beside it.
        places: (n, 2) epoch and number of the micro-batches, as their losses were weighted.
    """

    run: TrainingRun
    first: Arrays
    features: TokenFeatures
    draws: Arrays
    places: np.ndarray


def train(case: TrainerCase, pair: ModelPair, context: Context) -> TrainerRecord:
    """Run the trainer as often as it is interrupted, and once more to its end.

    Raises:
        ValueError: the trainer failed, or left no record.
    """
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        data = write_fixture(scratch / "RTE", "rte", context.texts[: case.rows])
        model = _write_model(case, pair, context, scratch / "model")
        flags = _flags(case, data, model, scratch)
        parts = []
        for number, stop in enumerate((*case.interrupted_after, 0)):
            record = scratch / f"record-{number}.json"
            _run(case, record, stop, flags, scratch)
            if not record.is_file():
                raise ValueError(f"{case.name}: the trainer ended without a record of its run")
            parts.append(json.loads(record.read_text(encoding="utf-8")))
        with np.load(scratch / "record-0.npz") as arrays:
            first = {name: arrays[name] for name in arrays.files}
        tensors, _ = read_tensors(scratch / "out" / "last" / "model.safetensors")
        run = TrainingRun(
            learning_rates=[rate for part in parts for rate in part["rates"]],
            state={name: np.array(tensors[name]) for name in tensors},
            stamp=parts[-1]["stamp"],
        )
        tokenizer = WordPieceTokenizer(model, do_lower_case=True, max_length=MAX_LENGTH)
        features = tokenize_split(data, "rte", "train", tokenizer)
        draws = {name: np.concatenate([part["draws"][name] for part in parts]) for name in DRAWN}
        places = np.array([place for part in parts for place in part["places"]])
        return TrainerRecord(run, first, features, draws, places)


def _write_model(case: TrainerCase, pair: ModelPair, context: Context, model: Path) -> Path:
    model.mkdir()
    sot_paddle.save_weights(pair.model, model / "model.safetensors")
    config = {"model_type": "bert", "vocab_size": case.options["vocab_size"]}
    config |= {name: case.options[name] for name in (*_SIZES, "max_position_embeddings")}
    (model / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (model / "vocab.txt").write_bytes((context.vocabulary / "vocab.txt").read_bytes())
    return model


def _flags(case: TrainerCase, data: Path, model: Path, scratch: Path) -> list[str]:
    recipe, options = case.recipe, case.options
    values = {
        "task_name": "RTE",
        "data_dir": data,
        "model_name_or_path": model,
        "output_dir": scratch / "out",
        "cache_dir": scratch / "cache",
        "max_seq_length": MAX_LENGTH,
        "per_gpu_train_batch_size": GLOBAL_BATCH // case.processes,
        "gradient_accumulation_steps": recipe.accumulate,
        "optimizer": recipe.optimizer,
        "lr_scheduler": recipe.schedule,
        "learning_rate": recipe.learning_rate,
        "weight_decay": recipe.weight_decay,
        "adam_epsilon": recipe.epsilon,
        "max_grad_norm": recipe.clip_norm,
        "warmup_steps": recipe.warmup_steps,
        "num_train_epochs": case.epochs,
        "save_steps": 10**6,
        "seed": SEED,
        "pooling": options["pooling"],
        "q_dim": options["q_dim"],
        "k_dim": options["k_dim"],
        "dtype": "float64",
    }
    for name in ("head_dropout", "hidden_dropout_prob", "attention_probs_dropout_prob"):
        values[name] = 0.0
    pairs = [text for name, value in values.items() for text in (f"--{name}", str(value))]
    return [*pairs, "--do_train", "--do_lower_case", "--no_cuda"]


def _run(case: TrainerCase, record: Path, stop: int, flags: list[str], scratch: Path) -> None:
    if not case.here:
        several = case.processes > 1
        begin = launching.launcher(case.processes, scratch) if several else [sys.executable]
        one_thread = {"OMP_NUM_THREADS": "1"}  # so that the numbers do not depend on the machine
        command = [*begin, str(WORKER), str(record), str(stop), *flags]
        launching.run(command, scratch, case.processes, one_thread)
        return
    from align.cases.sides import (
        trainer_worker,  # paddlenlp's Trainer: not for cases that need none
    )

    said = io.StringIO()
    with contextlib.redirect_stderr(said), settings_kept():
        status = trainer_worker.record_run(record, stop, flags)
    if status:
        lines = said.getvalue().strip().splitlines()
        raise ValueError(f"the training ended with {status}: {lines[-1:]}")
