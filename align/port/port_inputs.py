"""The batches and the weights of a row: drawn from its seed, or of the real BERT checkpoint.

NumPy in and out; the checkpoint of ``make setup`` is converted there and back, too.
"""

from __future__ import annotations

import functools
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import paddle
import torch

import sot_paddle
from align.frameworks.on_torch import numpy
from align.port.row import WORDS_DIM, Batch, ImageBatch, PortRow, Recipe
from align.record.arrays import Arrays
from sot_paddle.backbones.families import TEXT_BACKBONES
from sot_paddle.checkpoint import read_tensors
from sot_paddle.convert import convert_file, find_checkpoint
from sot_paddle.data.batches import epoch_batches, pad_rows
from sot_paddle.data.corpus import FOLDER
from sot_paddle.data.glue import read_split
from sot_paddle.data.tokenizers import word_piece_tokenizer
from sot_paddle.reading import read_json
from sot_paddle.train.ema import ModelEma
from sot_paddle.train.optimizer import (
    CLIPPINGS,
    OPTIMIZERS,
    decay_filter,
    decayed_names,
    decayed_names_by_shape,
)
from sot_paddle.train.schedule import EpochRates, PerEpoch, build_schedule
from sot_torch_ref.train.ema import ModelEma as TorchModelEma
from sot_torch_ref.train.optimizer import BertAdam, HFAdamW, decay_groups, vision_decay_groups
from sot_torch_ref.train.schedule import vision_learning_rates, warmup_linear

_CORPUS_BATCH_SIZE = 8
_FIRST_TRAINING_SEED = 100


def draw_batch(
    row: PortRow,
    seed: int | None = None,
    *,
    sentences: Sequence[str] = (),
    checkpoint: Path | None = None,
) -> Arrays:
    """Draw the inputs by name and ``labels``."""
    spec = row.batch
    rng = np.random.default_rng(spec.seed if seed is None else seed)
    if isinstance(spec, ImageBatch):
        return _images(spec, row.num_classes, rng)
    samples = len(sentences) if spec.sentences else len(spec.lengths)
    # drawn for every row, used or not: what comes next depends on it
    labels = rng.integers(0, max(2, row.num_classes), samples)
    if row.options.get("pooling") == "spans":
        labels = rng.integers(0, spec.length, (samples, 2))
    if row.num_classes == 1:
        labels = np.round(rng.uniform(0, 5, samples), 2)
    if row.subject == "states":
        return _states(row, labels, rng)
    if row.subject == "words":
        return {"tokens": rng.normal(size=(samples, spec.length, WORDS_DIM)), "labels": labels}
    if spec.sentences:
        tokenizer = word_piece_tokenizer(checkpoint or find_checkpoint(), max_length=spec.length)
        return {**tokenizer.encode_batch(sentences), "labels": labels}
    return {**_token_ids(row, spec, rng), "labels": labels}


def _token_ids(row: PortRow, spec: Batch, rng: np.random.Generator) -> Arrays:
    """Draw padded ids, types (the second half of each sample is the second text) and mask."""
    mask = (np.arange(spec.length)[None] < np.asarray(spec.lengths)[:, None]).astype("int64")
    if spec.hole is not None:
        mask[:, spec.hole] = 0
    vocabulary = row.options.get("vocab_size", 30522)
    pad = row.options.get("pad_token_id", 0)
    ids = np.where(mask, rng.integers(0 if pad else 1, vocabulary, mask.shape), pad)
    halves = np.asarray(spec.lengths)[:, None] // 2
    types = (np.arange(spec.length)[None] >= halves).astype("int64") * mask
    if row.options.get("type_vocab_size") == 1:
        types = np.zeros_like(types)
    return {"input_ids": ids, "token_type_ids": types, "attention_mask": mask}


def _states(row: PortRow, labels: np.ndarray, rng: np.random.Generator) -> Arrays:
    """Draw normal hidden states (B, L, T, F), and labels or the two ends of a span."""
    sizes = [row.options[key] for key in ("num_layers", "seq_length", "hidden_size")]
    states = rng.normal(size=(len(labels), *sizes))
    if row.model.endswith("Spans"):
        labels = rng.integers(0, row.options["seq_length"], (len(labels), 2))
    return {"states": states, "labels": labels}


def _images(spec: ImageBatch, num_classes: int, rng: np.random.Generator) -> Arrays:
    """Draw normal pixels, and soft targets as mixup leaves them: two classes and a floor."""
    images = rng.normal(size=(spec.samples, 3, spec.size, spec.size))
    hot = np.eye(num_classes)[rng.integers(0, num_classes, spec.samples)]
    share = rng.uniform(0.2, 0.8, (spec.samples, 1))
    labels = 0.9 * (share * hot + (1 - share) * hot[::-1]) + 0.1 / num_classes
    return {"images": images, "labels": labels}


def training_batches(row: PortRow, checkpoint: Path | None = None) -> list[Arrays]:
    """Return one batch for each forward pass: drawn, or of the embedded corpus in its order."""
    count = row.recipe.steps * row.recipe.accumulate
    if not (isinstance(row.batch, Batch) and row.batch.corpus):
        return [draw_batch(row, seed=_FIRST_TRAINING_SEED + index) for index in range(count)]
    length = row.batch.length
    sentences = read_split(FOLDER, "cola", "train")
    tokenizer = word_piece_tokenizer(checkpoint or find_checkpoint(), max_length=length)
    features = tokenizer.tokenize([sentence.text_a for sentence in sentences]).with_targets(
        list(range(len(sentences))), [sentence.label for sentence in sentences], np.int64
    )
    chosen = epoch_batches(len(features), _CORPUS_BATCH_SIZE, seed=row.batch.seed)[:count]
    return [pad_rows(features, indices, max_length=length) for indices in chosen]


def draw_state(
    row: PortRow, built: Mapping[str, np.ndarray], checkpoint: Path | None = None
) -> Arrays:
    """Draw the reference's weights in float64: random, or the real encoder with a random head.

    One-dimensional parameters are moved off their initial 0 and 1, so that a forgotten bias or
    norm weight shows; running variances stay positive.

    Args:
        built: the state of the reference as built from the row's seed.
    """
    rng = np.random.default_rng(row.batch.seed)
    state = {name: _off_initial(name, value, rng) for name, value in built.items()}
    if row.checkpoint:
        state.update(encoder_arrays(checkpoint, state))
    return state


def _off_initial(name: str, value: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if name.endswith("running_var"):
        return rng.uniform(0.5, 1.5, value.shape)
    if value.dtype != np.float64:
        return value
    if value.ndim <= 1:
        return np.asarray(value + 0.1 * rng.normal(size=value.shape))
    if name.startswith("head."):
        return value * 3.0  # scores of order one instead of nearly constant ones
    if name.endswith("attn.qkv.weight"):
        # of std .02 a small model would attend to all tokens alike: rows of length one
        return value / np.linalg.norm(value, axis=1, keepdims=True)
    if name.startswith("embed.") and value.ndim == 4 and value.any():
        return value * 2.0  # torch's default would let the tokens become all alike
    # a padding row, or a convolution that begins at zero, would hide what feeds it
    zero = ~value.any(axis=tuple(range(1, value.ndim)))
    moved = value.copy()
    moved[zero] = 0.1 * rng.normal(size=value[zero].shape)
    return moved


_BETAS = (0.9, 0.999)
_BERT_ADAM = "bert_adam"


def torch_optimizer(model: torch.nn.Module, recipe: Recipe) -> tuple:
    """Return the reference's optimizer, schedule, clipping and average of a model."""
    options: dict[str, Any] = {"lr": recipe.learning_rate, "betas": _BETAS, "eps": recipe.epsilon}
    options |= {} if recipe.correct_bias else {"correct_bias": False}
    kinds = {"hf_adamw": HFAdamW, "adamw": torch.optim.AdamW, _BERT_ADAM: BertAdam}
    clip, average = None, None
    if recipe.optimizer == _BERT_ADAM:
        options["max_grad_norm"] = recipe.clip_norm
    elif recipe.clip_norm is not None:
        clip = functools.partial(_clip, norm=recipe.clip_norm)
    groups = (vision_decay_groups if recipe.by_epoch else decay_groups)(model, recipe.weight_decay)
    optimizer = kinds[recipe.optimizer](groups, **options)
    if recipe.ema_decay is not None:
        ema = TorchModelEma(model, recipe.ema_decay)
        average = SimpleNamespace(
            update=functools.partial(ema.update, model),
            arrays=lambda: {name: numpy(tensor) for name, tensor in ema.state.items()},
        )
    return optimizer, _torch_schedule(optimizer, recipe), clip, average


def _clip(model: torch.nn.Module, norm: float) -> None:
    torch.nn.utils.clip_grad_norm_(model.parameters(), norm)


def _torch_schedule(optimizer: torch.optim.Optimizer, recipe: Recipe) -> Any:
    """Return transformers' own schedule, the original's of ``bert_adam``, or timm's by epoch."""
    if recipe.by_epoch is not None:
        rates = vision_learning_rates(recipe.learning_rate, **recipe.by_epoch)
        return _ByEpoch(optimizer, rates, recipe.epoch_steps)
    from transformers import optimization

    schedules = {
        "linear": optimization.get_linear_schedule_with_warmup,
        "cosine": optimization.get_cosine_schedule_with_warmup,
        "linear_drop": warmup_linear,
    }
    return schedules[recipe.schedule](optimizer, recipe.warmup_steps, recipe.total_steps)


class _ByEpoch:
    """timm's rate of each epoch, set before the epoch's first step."""

    def __init__(
        self, optimizer: torch.optim.Optimizer, rates: Sequence[float], epoch_steps: int
    ) -> None:
        self._groups, self._rates = optimizer.param_groups, np.repeat(rates, epoch_steps).tolist()
        self.step()

    def step(self) -> None:
        """Set the rate of the next optimizer step; the last one stays."""
        rate = self._rates.pop(0) if len(self._rates) > 1 else self._rates[0]
        for group in self._groups:
            group["lr"] = rate


def paddle_optimizer(model: paddle.nn.Layer, recipe: Recipe) -> tuple:
    """Return the product's optimizer, schedule and average of a model."""
    if recipe.by_epoch is None:
        schedule: Any = build_schedule(
            recipe.schedule,
            learning_rate=recipe.learning_rate,
            warmup_steps=recipe.warmup_steps,
            total_steps=recipe.total_steps,
        )
    else:
        rates = EpochRates(recipe.learning_rate, **recipe.by_epoch)
        schedule = PerEpoch(rates, recipe.epoch_steps)
    clipping = CLIPPINGS["tensor" if recipe.optimizer == _BERT_ADAM else "global"]
    decayed = decayed_names_by_shape if recipe.by_epoch else decayed_names
    options: dict[str, Any] = {} if recipe.correct_bias else {"correct_bias": False}
    optimizer = OPTIMIZERS[recipe.optimizer](
        learning_rate=schedule,
        parameters=[p for p in model.parameters() if not p.stop_gradient],
        weight_decay=recipe.weight_decay,
        apply_decay_param_fun=decay_filter(model, decayed),
        grad_clip=None if recipe.clip_norm is None else clipping(recipe.clip_norm),
        beta1=_BETAS[0],
        beta2=_BETAS[1],
        epsilon=recipe.epsilon,
        **options,
    )
    average = None if recipe.ema_decay is None else ModelEma(model, recipe.ema_decay)
    return optimizer, schedule, None, average


def encoder_sizes(folder: Path | None) -> dict[str, Any]:
    """Read what the config.json of a checkpoint states of its encoder; None finds the folder."""
    config = read_json((folder or find_checkpoint()) / "config.json")
    return TEXT_BACKBONES["bert"].read_config(config)


def encoder_arrays(folder: Path | None, state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Read the checkpoint's encoder under the reference's names, in float64.

    Args:
        state: reference state whose ``bert.`` entries are to be filled.

    Raises:
        ValueError: an encoder tensor is not in the checkpoint.
    """
    tensors, _ = read_tensors((folder or find_checkpoint()) / "model.safetensors")
    names = [name for name in state if name.startswith("bert.")]
    absent = [name for name in names if name.removeprefix("bert.") not in tensors]
    if absent:
        raise ValueError(f"the checkpoint lacks {', '.join(absent[:3])}")
    return {name: np.asarray(tensors[name.removeprefix("bert.")], "float64") for name in names}


def load_there_and_back(checkpoint: Path, folder: Path) -> tuple[bool, str]:
    """Convert a BERT to Paddle and back, compare every tensor's bytes, load it.

    Args:
        folder: receives ``converted/`` and ``back/``; older ones are replaced.

    Returns:
        Whether every bit came back, and one line for the reader.
    """
    began, converted, back = time.perf_counter(), folder / "converted", folder / "back"
    folder.mkdir(parents=True, exist_ok=True)
    for source, target in ((checkpoint, converted), (converted, back)):
        shutil.rmtree(target, ignore_errors=True)
        convert_file(source, target, "bert_hf", "bert_base", reverse=target == back)
    before, after = (
        {n: (a.dtype, a.shape, a.tobytes()) for n, a in read_tensors(file)[0].items()}
        for file in (checkpoint / "model.safetensors", back / "model.safetensors")
    )
    weights = {name for name in before if not name.endswith("position_ids")}
    differing = [name for name in weights | set(after) if before.get(name) != after.get(name)]
    options = encoder_sizes(checkpoint)
    absent = sot_paddle.load_weights(sot_paddle.create_model("bert_base", **options), converted)
    return not differing, (
        f"a real BERT checkpoint ({options['num_hidden_layers']} layers x "
        f"{options['hidden_size']}) to Paddle and back: {len(weights)} tensors, {len(differing)} "
        f"differ in any bit; loaded into bert_base, whose {', '.join(absent)} it does not hold "
        f"({time.perf_counter() - began:.1f} s)"
    )
