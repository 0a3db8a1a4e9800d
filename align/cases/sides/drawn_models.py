"""The batch and the weights of a model case, drawn from its seed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from align.cases.kinds.case_kinds import WORDS_DIM, Batch, ImageBatch, ModelCase
from align.cases.sides import torch_side
from align.cases.sides.checkpoint import encoder_arrays
from align.record.arrays import Arrays
from sot_paddle.convert import find_checkpoint
from sot_paddle.data.batching import EpochOrder
from sot_paddle.data.corpus import FOLDER
from sot_paddle.data.glue import read_split
from sot_paddle.data.token_features import pad_rows
from sot_paddle.data.tokenization import WordPieceTokenizer

BATCH_SIZE = 8


def make_batch(
    case: ModelCase,
    seed: int | None = None,
    *,
    sentences: Sequence[str] = (),
    checkpoint: Path | None = None,
) -> Arrays:
    """Draw a padded batch: ids, types, mask and labels (or tokens for a ``words`` case)."""
    spec = case.batch
    rng = np.random.default_rng(spec.seed if seed is None else seed)
    if isinstance(spec, ImageBatch):
        return _image_batch(spec, case.num_classes, rng)
    samples = len(sentences) if spec.sentences else len(spec.lengths)
    labels = rng.integers(0, max(2, case.num_classes), samples)
    if case.options.get("pooling") == "spans":
        labels = rng.integers(0, spec.length, (samples, 2))
    if case.num_classes == 1:
        labels = np.round(rng.uniform(0, 5, samples), 2)
    if case.subject == "states":
        return _states_batch(case, labels, rng)
    if case.subject == "words":
        return {"tokens": rng.normal(size=(samples, spec.length, WORDS_DIM)), "labels": labels}
    if spec.sentences:
        tokenizer = WordPieceTokenizer(checkpoint or find_checkpoint(), max_length=spec.length)
        return {**tokenizer.encode_batch(sentences), "labels": labels}
    mask = (np.arange(spec.length)[None] < np.asarray(spec.lengths)[:, None]).astype("int64")
    if spec.hole is not None:
        mask[:, spec.hole] = 0
    vocab = case.options.get("vocab_size", 30522)
    pad = case.options.get("pad_token_id", 0)
    ids = np.where(mask, rng.integers(0 if pad else 1, vocab, mask.shape), pad)
    halves = np.asarray(spec.lengths)[:, None] // 2
    types = (np.arange(spec.length)[None] >= halves).astype("int64") * mask
    if case.options.get("type_vocab_size") == 1:
        types = np.zeros_like(types)
    return {"input_ids": ids, "token_type_ids": types, "attention_mask": mask, "labels": labels}


def training_batches(case: ModelCase, checkpoint: Path | None = None) -> list[Arrays]:
    """One batch for each forward pass: random, or of the embedded corpus in an explicit order."""
    count = case.recipe.steps * case.recipe.accumulate
    if not (isinstance(case.batch, Batch) and case.batch.corpus):
        return [make_batch(case, seed=100 + index) for index in range(count)]
    sentences = read_split(FOLDER, "cola", "train")
    tokenizer = WordPieceTokenizer(checkpoint or find_checkpoint(), max_length=case.batch.length)
    features = tokenizer.tokenize([sentence.text_a for sentence in sentences]).with_targets(
        list(range(len(sentences))), [sentence.label for sentence in sentences], np.int64
    )
    order = EpochOrder(len(features), BATCH_SIZE, seed=case.batch.seed)
    return [
        pad_rows(features, batch, max_length=case.batch.length) for batch in order.batches()[:count]
    ]


def _states_batch(case: ModelCase, labels: np.ndarray, rng: np.random.Generator) -> Arrays:
    """Normal hidden states (B, L, T, F), and labels or the two ends of a span."""
    layers, tokens, features = (
        case.options[key] for key in ("num_layers", "seq_length", "hidden_size")
    )
    states = rng.normal(size=(len(labels), layers, tokens, features))
    if case.model.endswith("spans"):
        labels = rng.integers(0, tokens, (len(labels), 2))
    return {"states": states, "labels": labels}


def _image_batch(spec: ImageBatch, num_classes: int, rng: np.random.Generator) -> Arrays:
    """Normal pixels, and soft targets as mixup leaves them: two classes and a floor."""
    images = rng.normal(size=(spec.samples, 3, spec.size, spec.size))
    hot = np.eye(num_classes)[rng.integers(0, num_classes, spec.samples)]
    share = rng.uniform(0.2, 0.8, (spec.samples, 1))
    labels = 0.9 * (share * hot + (1 - share) * hot[::-1]) + 0.1 / num_classes
    return {"images": images, "labels": labels}


def draw_state(
    case: ModelCase, checkpoint: Path | None = None, model: torch.nn.Module | None = None
) -> Arrays:
    """Reference weights in float64: random everywhere, or the real encoder with a random head.

    One-dimensional parameters are moved off their initial 0 and 1, so that a forgotten bias or
    norm weight shows; running variances stay positive.

    Args:
        case: what to draw for.
        checkpoint: directory of the real checkpoint, for the cases that use it.
        model: the case's from `torch_side.build_seeded`, None to build it.
    """
    model = torch_side.build_seeded(case) if model is None else model
    state = {name: value.numpy() for name, value in model.state_dict().items()}
    rng = np.random.default_rng(case.batch.seed)
    for name, value in state.items():
        if name.endswith("running_var"):
            state[name] = rng.uniform(0.5, 1.5, value.shape)
        elif value.ndim <= 1 and value.dtype == np.float64:
            state[name] = np.asarray(value + 0.1 * rng.normal(size=value.shape))
        elif name.startswith("head.") and value.dtype == np.float64:
            state[name] = value * 3.0  # scores of order one instead of nearly constant ones
        elif name.endswith("attn.qkv.weight"):
            # of std .02 a small model would attend to all tokens alike: rows of length one
            state[name] = value / np.linalg.norm(value, axis=1, keepdims=True)
        elif name.startswith("embed.") and value.ndim == 4 and value.any():
            state[name] = value * 2.0  # torch's default would let the tokens become all alike
        elif value.dtype == np.float64:
            # a padding row, or a convolution that begins at zero, would hide what feeds it
            zero = ~value.any(axis=tuple(range(1, value.ndim)))
            state[name] = value.copy()
            state[name][zero] = 0.1 * rng.normal(size=value[zero].shape)
    if case.weights == "checkpoint":
        state.update(encoder_arrays(checkpoint, state))
    return state


def planned_shapes(case: ModelCase, state: Arrays) -> dict[str, tuple[int, ...]]:
    """Names and shapes to plan from; a head alone is planned as part of a small BERT."""
    if case.subject == "words":
        encoder = {"hidden_size": WORDS_DIM, "num_attention_heads": 1, "num_hidden_layers": 1}
        options = {**case.options, **encoder, "fusion": "word_tokens"}
        host = dataclasses.replace(case, subject="text", options=options)
        state = torch_side.build(host, "float32").state_dict()
    return {name: tuple(value.shape) for name, value in state.items()}
