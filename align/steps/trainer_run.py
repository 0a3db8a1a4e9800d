"""Steps ``training`` and ``learning_rate`` of the real trainer, in one process or several.

Ours: the GLUE trainer (paddlenlp's Trainer underneath) as a program of its own, started by
``paddle.distributed.launch`` for several processes, on files in the official layout. Reference: a
plain PyTorch loop in one process over the same order with the whole batch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import sot_paddle
from align import torch_side
from align.bounds import TOLERANCES
from align.case_kinds import TrainerCase, recipe_with
from align.comparator import compare_arrays
from align.context import Context
from align.controls import judge
from align.glue_fixtures import write_fixture
from align.pair import Pair
from align.results import Comparison, StepResult
from align.sides import Arrays, TrainingRun
from sot_paddle.checkpoint import read_tensors
from sot_paddle.data.batching import EpochOrder, iterate_batches
from sot_paddle.data.cache import tokenize_split
from sot_paddle.data.token_features import TokenFeatures
from sot_paddle.data.tokenization import WordPieceTokenizer

MAX_LENGTH = 16
GLOBAL_BATCH = 4
SEED = 42
TIMEOUT_S = 600
_WORKER = Path(__file__).resolve().parents[1] / "trainer_worker.py"
_SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")


def run_training(case: TrainerCase, dtype: str, context: Context) -> StepResult:
    """Compare the final weights and statistics of the trainer's run."""
    pair, ours, features = _prepared(case, dtype, context)
    reference = _reference(pair, features, seed=SEED)

    def compare(other: TrainingRun) -> list[Comparison]:
        expected = {k: v for k, v in pair.to_paddle(other.state).items() if k in ours.state}
        return [_compare(name, ours.state[name], expected[name], case, dtype) for name in expected]

    controls = [
        judge("another order of the samples", compare(_reference(pair, features, seed=SEED + 1))),
        judge("no clipping", compare(_reference(pair, features, seed=SEED, clip_norm=None))),
    ]
    if case.processes > 1 and "running" in "".join(ours.state):
        halves = _reference(pair, features, seed=SEED, shards=case.processes)
        controls.append(judge("each process its own batch statistics", compare(halves)))
    return StepResult(
        case.name,
        "training",
        dtype,
        compare(reference),
        controls,
        note=f"{len(ours.learning_rates)} optimizer steps, {case.processes} process(es)",
        stamps={"ours": ours.stamp, "reference": reference.stamp},
    )


def run_learning_rate(case: TrainerCase, dtype: str, context: Context) -> StepResult:
    """Compare the rate that each optimizer step of the trainer applied."""
    pair, ours, features = _prepared(case, dtype, context)
    reference = _reference(pair, features, seed=SEED)
    rule = TOLERANCES["learning_rate", None]

    def compare(rates: list[float]) -> list[Comparison]:
        expected = np.asarray(reference.learning_rates)
        return [compare_arrays("learning rates", np.asarray(rates), expected, rule)]

    rates = ours.learning_rates
    controls = [
        judge("shifted by one step", compare([*rates[1:], rates[-1] / 2])),
        judge("one step lost", compare(rates[1:])),
        judge("not decayed", compare([rates[0]] * len(rates))),
    ]
    return StepResult(
        case.name,
        "learning_rate",
        dtype,
        compare(rates),
        controls,
        series={"learning_rate": {"paddle": rates, "pytorch": reference.learning_rates}},
        stamps={"ours": ours.stamp, "reference": reference.stamp},
    )


def _compare(
    name: str, ours: np.ndarray, reference: np.ndarray, case: TrainerCase, dtype: str
) -> Comparison:
    return compare_arrays(name, ours, reference, TOLERANCES["training", dtype])


def _prepared(
    case: TrainerCase, dtype: str, context: Context
) -> tuple[Pair, TrainingRun, TokenFeatures]:
    """The pair, the trainer's run and the tokenized file; run once for both steps."""
    pair = context.pair(case, dtype)
    kept = context.trainer_runs.get((case.name, dtype))
    if kept is None:
        with tempfile.TemporaryDirectory() as scratch:
            kept = _train(case, pair, context, Path(scratch))
        context.trainer_runs[case.name, dtype] = kept
    return pair, *kept


def _train(
    case: TrainerCase, pair: Pair, context: Context, scratch: Path
) -> tuple[TrainingRun, TokenFeatures]:
    data = write_fixture(scratch / "RTE", "rte", context.texts)
    vocabulary = context.vocabulary
    model = scratch / "model"
    model.mkdir()
    sot_paddle.save_weights(pair.ours, model / "model.safetensors")
    config = {"model_type": "bert", "vocab_size": case.options["vocab_size"]}
    config |= {name: case.options[name] for name in (*_SIZES, "max_position_embeddings")}
    (model / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (model / "vocab.txt").write_bytes((vocabulary / "vocab.txt").read_bytes())
    record = scratch / "record.json"
    command = [*_launcher(case, scratch), str(_WORKER), str(record)]
    _execute([*command, *_flags(case, data, model, scratch)], scratch)
    if not record.is_file():
        raise ValueError(f"{case.name}: the training process ended without a record of its run")
    found = json.loads(record.read_text(encoding="utf-8"))
    tensors, _ = read_tensors(scratch / "out" / "last" / "model.safetensors")
    tokenizer = WordPieceTokenizer(model, do_lower_case=True, max_length=MAX_LENGTH)
    result = TrainingRun(
        learning_rates=found["learning_rates"],
        state={name: np.array(tensors[name]) for name in tensors},
        stamp=found["stamp"],
    )
    return result, tokenize_split(data, "rte", "train", tokenizer)


def _launcher(case: TrainerCase, scratch: Path) -> list[str]:
    if case.processes == 1:
        return [sys.executable]
    launch = ["-m", "paddle.distributed.launch", "--backend", "gloo"]
    launch += ["--nproc_per_node", str(case.processes), "--log_dir", str(scratch / "log")]
    return [sys.executable, *launch]


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


def _execute(command: list[str], scratch: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PADDLE_")}
    environment["OMP_NUM_THREADS"] = "1"  # so that the numbers do not depend on the machine
    done = subprocess.run(  # noqa: S603 (our own worker)
        command,
        cwd=scratch,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()
        raise ValueError(f"the training process ended with {done.returncode}: {lines[-1:]}")


def _reference(
    pair: Pair,
    features: TokenFeatures,
    *,
    seed: int,
    shards: int = 1,
    clip_norm: float | None = 1.0,
) -> TrainingRun:
    """The PyTorch loop over the trainer's order; ``shards`` cuts every batch into so many."""
    case = pair.case
    batches: list[Arrays] = []
    for epoch in range(case.epochs):
        order = EpochOrder(len(features), GLOBAL_BATCH, seed=seed, epoch=epoch)
        for batch in iterate_batches(features, order, pad="max_length", max_length=MAX_LENGTH):
            pieces = {name: np.array_split(value, shards) for name, value in batch.items()}
            batches += [{name: value[i] for name, value in pieces.items()} for i in range(shards)]
    recipe = recipe_with(
        case.recipe,
        total_steps=len(batches) // shards,
        accumulate=shards,
        clip_norm=clip_norm,
    )
    (run,) = torch_side.train(pair.fresh_reference(), batches, recipe, pair.dtype)
    return run
