"""The GLUE trainer as a user starts it, whole or interrupted, in one process or two.

The reference is a plain PyTorch loop in one process, never interrupted. It reads the same file,
makes its own order and tokens, and takes every batch as a whole.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
import torch

import sot_paddle
from sot_paddle.checkpoint import read_tensors
from sot_paddle.data.corpus import REAL_SENTENCES
from sot_torch_ref.train.losses import task_loss
from sot_torch_ref.train.optimizer import HFAdamW, decay_groups
from tests.launching import launch
from tests.parity import trainer_program
from tests.parity.glue_files import write_fixture
from tests.parity.models import (
    NO_DROPOUT,
    encoder_options,
    models_of_equal_weights,
    to_paddle_names,
)
from tests.parity.sides import assert_same, torch_precision
from tests.parity.trainer_program import settings_put_back
from tests.parity.vocabularies import bert_tokenizer

pytestmark = pytest.mark.slow

Arrays = dict[str, np.ndarray]
SEED, GLOBAL_BATCH, MAX_LENGTH = 42, 4, 16
CONFIGURED = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
)
"""Options that ``config.json`` holds."""
TWO_LAYERS = {**encoder_options(20, 2, 28, 30522, 64), "q_dim": 12, "k_dim": 8}
ONE_LAYER = {**encoder_options(12, 1, 20, 30522, 16), "pooling": "pooler", "q_dim": 5, "k_dim": 4}


@dataclass(frozen=True)
class Training:
    """A training, and how it is run.

    Attributes:
        model: registry name.
        options: of the model.
        processes: one, which is this one, or two of a data-parallel run.
        epochs: passes over the file.
        rows: sentences in the file, None for all; the last batch may be smaller.
        interrupted_after: optimizer steps after which the run is stopped and the same command is
            given again.
        optimizer: ``hf_adamw`` or ``adamw``.
        schedule: ``linear`` or ``cosine``.
        warmup: steps of warm-up.
        accumulate: micro-batches of an optimizer step.
        clip_norm: global norm that gradients are clipped to.
        epsilon: of the optimizer.
        weight_decay: coefficient.
    """

    model: str
    options: Mapping[str, Any]
    processes: int = 1
    epochs: int = 2
    rows: int | None = None
    interrupted_after: tuple[int, ...] = ()
    optimizer: str = "hf_adamw"
    schedule: str = "linear"
    warmup: int = 1
    accumulate: int = 1
    clip_norm: float = 1.0
    epsilon: float = 1e-8
    weight_decay: float = 0.01


RATE = 2e-3
PLAIN = Training("bert_base", {**TWO_LAYERS, "pooling": "pooler"}, warmup=3)
MGCRP = Training("bert_base_mgcrp", {**TWO_LAYERS, "pooling": "mgcrp_qk"}, warmup=3)
# five batches in two steps: one is carried over to the next epoch
ACCUMULATED = Training(
    "bert_base", ONE_LAYER, rows=19, interrupted_after=(2,), accumulate=2, clip_norm=0.1
)
TRAININGS = {
    "plain": PLAIN,
    "mgcrp": MGCRP,
    "plain in 2 processes": dataclasses.replace(PLAIN, processes=2),
    "mgcrp in 2 processes": dataclasses.replace(MGCRP, processes=2),
    "interrupted between epochs": ACCUMULATED,
    "interrupted twice": dataclasses.replace(
        ACCUMULATED,
        interrupted_after=(1, 3),
        optimizer="adamw",
        schedule="cosine",
        epsilon=1e-6,
        weight_decay=2.0**-7,  # Paddle stores AdamW's coefficient in float32
    ),
    # two batches, fewer than an optimizer step asks for
    "few batches": Training("bert_base", ONE_LAYER, rows=7, accumulate=3, clip_norm=0.01),
    # the last of three batches has three rows, shared by two processes
    "unequal shares of 2 processes": Training(
        "bert_base", ONE_LAYER, processes=2, epochs=3, rows=11, accumulate=3, clip_norm=0.01
    ),
}
LONG = tuple(name for name in TRAININGS if "2 processes" in name)
"""tests/sot_paddle/train/test_two_processes.py trains in two processes in `make test`."""


@dataclass
class PaddleRun:
    """What the trainer left: its records joined, its last checkpoint, its summary."""

    rates: list[float]
    first: Arrays
    state: Arrays
    draws: Arrays
    places: np.ndarray
    summary: dict[str, Any]
    processes: int


@dataclass
class TorchRun:
    """The reference's run: rates, losses of each step, weights, and places of micro-batches."""

    epochs: float = 0.0
    rates: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    first: Arrays = field(default_factory=dict)
    state: Arrays = field(default_factory=dict)
    places: list[tuple[int, int]] = field(default_factory=list)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.long] * (n in LONG)) for n in TRAININGS]
)
def test_training(name: str, real_checkpoint: Path, tmp_path: Path) -> None:
    """Rates, loss, the first step's gradients and weights, final weights, order, random numbers."""
    training = TRAININGS[name]
    data = write_fixture(tmp_path / "RTE", "rte", REAL_SENTENCES[: training.rows])
    model, torch_model = models_of_equal_weights(
        training.model, dict(training.options), "float64", classes=2
    )
    write_model(training, model, real_checkpoint, tmp_path / "model")
    run = paddle_run(training, data, tmp_path)
    with torch_precision("float64"):
        reference = torch_run(training, torch_model, data / "train.tsv", real_checkpoint)
    np.testing.assert_allclose(run.rates, reference.rates, rtol=1e-12)
    assert_same(*without_zeros(run.first, reference.first))
    np.testing.assert_array_equal(run.places, reference.places)
    assert_same(run.draws, draws_of_seed(len(run.draws["numpy"])), bound=0.0)
    assert_same(run.state, reference.state, bound=1e-9)  # steps amplify the rounding of one
    summary = {name: run.summary[name] for name in ("steps", "epochs", "loss")}
    expected = {
        "steps": len(reference.rates),
        "epochs": reference.epochs,
        "loss": np.mean(reference.losses),
    }
    assert summary == pytest.approx(expected, rel=1e-9)
    assert run.processes == training.processes


def write_model(training: Training, model: paddle.nn.Layer, vocabulary: Path, folder: Path) -> None:
    """Write the folder of a checkpoint that the trainer begins from."""
    folder.mkdir()
    sot_paddle.save_weights(model, folder / "model.safetensors")
    config = {"model_type": "bert"} | {name: training.options[name] for name in CONFIGURED}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "vocab.txt").write_bytes((vocabulary / "vocab.txt").read_bytes())


def paddle_run(training: Training, data: Path, folder: Path) -> PaddleRun:
    """Run the trainer as often as it is interrupted, and once more to its end."""
    records = []
    for number, stop in enumerate((*training.interrupted_after, 0)):
        path = folder / f"record-{number}.json"
        run_command(training, path, stop, flags_of(training, data, folder))
        records.append(json.loads(path.read_text(encoding="utf-8")))
    with np.load(folder / "record-0.npz") as arrays:
        first = dict(arrays)
    tensors, _ = read_tensors(folder / "out" / "last" / "model.safetensors")
    return PaddleRun(
        rates=[rate for record in records for rate in record["rates"]],
        first=first,
        state={name: np.array(tensors[name]) for name in tensors},
        draws={
            name: np.concatenate([record["draws"][name] for record in records])
            for name in records[0]["draws"]
        },
        places=np.array([place for record in records for place in record["places"]]),
        summary=records[-1]["summary"],
        processes=records[-1]["processes"],
    )


def flags_of(training: Training, data: Path, folder: Path) -> list[str]:
    """Write the command line of a training."""
    values = {
        "task_name": "RTE",
        "data_dir": data,
        "model_name_or_path": folder / "model",
        "output_dir": folder / "out",
        "cache_dir": folder / "cache",
        "max_seq_length": MAX_LENGTH,
        "per_gpu_train_batch_size": GLOBAL_BATCH // training.processes,
        "gradient_accumulation_steps": training.accumulate,
        "optimizer": training.optimizer,
        "lr_scheduler": training.schedule,
        "learning_rate": RATE,
        "weight_decay": training.weight_decay,
        "adam_epsilon": training.epsilon,
        "max_grad_norm": training.clip_norm,
        "warmup_steps": training.warmup,
        "num_train_epochs": training.epochs,
        "save_steps": 10**6,
        "seed": SEED,
        "pooling": training.options["pooling"],
        "q_dim": training.options["q_dim"],
        "k_dim": training.options["k_dim"],
        "dtype": "float64",
        **NO_DROPOUT,
    }
    flags = [f"--{name}={value}" for name, value in values.items()]
    return [*flags, "--do_train", "--do_lower_case", "--no_cuda"]


def run_command(training: Training, record: Path, stop: int, flags: list[str]) -> None:
    """Run the command once, here or in processes of its own."""
    if training.processes > 1:
        launch(record.parent, Path(trainer_program.__file__), str(record), str(stop), *flags)
        return
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), settings_put_back():
        status = trainer_program.record_run(record, stop, flags)
    assert status == 0, errors.getvalue()


def torch_run(training: Training, model: torch.nn.Module, file: Path, vocabulary: Path) -> TorchRun:
    """Train on whole batches; what fills no step of an epoch is carried over to the next."""
    rows = [line.split("\t") for line in file.read_text(encoding="utf-8").split("\n")[1:-1]]
    tokenize = functools.partial(
        bert_tokenizer(vocabulary),
        padding="max_length",
        truncation="longest_first",
        max_length=MAX_LENGTH,
        return_tensors="pt",
    )
    batches = -(-len(rows) // GLOBAL_BATCH)
    accumulate = min(training.accumulate, batches)
    total = batches // accumulate * training.epochs
    optimizer, schedule = optimizer_and_schedule(training, model, total)
    run, losses = TorchRun(), []
    to_paddle = functools.partial(to_paddle_names, training.model, model)
    for epoch in range(training.epochs):
        order = np.random.Generator(np.random.PCG64([SEED, epoch, 0])).permutation(len(rows))
        for number in range(batches):
            if len(run.rates) == total:
                break  # no step follows
            run.places.append((epoch, number))
            chosen = [rows[at] for at in order[number * GLOBAL_BATCH :][:GLOBAL_BATCH]]
            inputs = tokenize([row[1] for row in chosen], [row[2] for row in chosen])
            labels = torch.tensor([int(row[3] == "not_entailment") for row in chosen])
            loss = task_loss(model(**inputs), labels)
            (loss / accumulate).backward()
            losses.append(loss.item())
            if (number + 1) % accumulate:
                continue
            named = dict(model.named_parameters())
            if not run.rates:
                gradients = {n: p.grad for n, p in named.items() if p.grad is not None}
                run.first = {f"gradient/{n}": a for n, a in to_paddle(gradients).items()}
            torch.nn.utils.clip_grad_norm_(model.parameters(), training.clip_norm)
            run.rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            run.losses.append(float(np.mean(losses)))
            losses.clear()
            if len(run.rates) == 1:
                run.first |= {f"weight/{n}": a for n, a in to_paddle(named).items()}
    run.state = to_paddle(dict(model.state_dict()))
    run.epochs = len(run.places) / batches
    return run


def optimizer_and_schedule(
    training: Training, model: torch.nn.Module, total: int
) -> tuple[torch.optim.Optimizer, Any]:
    """Make the AdamW and transformers' own schedule of a training on the model's parameters."""
    from transformers import optimization

    kinds: dict[str, Callable[..., torch.optim.Optimizer]] = {
        "hf_adamw": HFAdamW,
        "adamw": torch.optim.AdamW,
    }
    groups = decay_groups(model, training.weight_decay)
    optimizer = kinds[training.optimizer](groups, lr=RATE, eps=training.epsilon)
    schedules = {
        "linear": optimization.get_linear_schedule_with_warmup,
        "cosine": optimization.get_cosine_schedule_with_warmup,
    }
    return optimizer, schedules[training.schedule](optimizer, training.warmup, total)


def without_zeros(arrays: Arrays, torch_arrays: Arrays) -> tuple[Arrays, Arrays]:
    """Leave out gradients that are zero but for rounding, as a key's bias has, on both sides."""
    peaks = {n: np.abs(a).max() for n, a in torch_arrays.items() if n.startswith("gradient/")}
    least = 1e-12 * max(peaks.values())
    zeros = {name for name, peak in peaks.items() if peak < least}
    for name in zeros:
        assert np.abs(arrays[name]).max() < least, name
    return (
        {name: array for name, array in arrays.items() if name not in zeros},
        {name: array for name, array in torch_arrays.items() if name not in zeros},
    )


def draws_of_seed(count: int) -> Arrays:
    """Draw what Python and NumPy give from the run's seed, without an interruption."""
    python, numpy = random.Random(SEED), np.random.RandomState(SEED)  # noqa: S311 (no secret)
    return {
        "python": np.array([python.gauss(0.0, 1.0) for _ in range(count)]),
        "numpy": numpy.normal(size=count),
    }
