"""Pre-training of both models: scores, loss, gradients, training steps, on exchanged masks.

The reference scores every token and knows labels of -100; ours scores the masked places alone.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch

from align.cases.both_sides import BothSides, Setting, stamps
from align.cases.model_pair import ModelPair
from align.frameworks import on_paddle, on_torch
from align.record.arrays import Arrays
from align.record.results import Tolerance
from sot_paddle.backbones.pretraining import PretrainingModel
from sot_paddle.data.pretraining.masking import MaskDraws, masked
from sot_paddle.heads.pretraining import PretrainingHeadConfig
from sot_paddle.tasks.pretraining import PretrainingTask, collate
from sot_paddle.tasks.pretraining_loss import pretraining_loss, row_sums
from sot_paddle.tasks.task import Predictions
from sot_paddle.train.optimizer import ClipGradByGlobalNorm, HFAdamW, decay_filter
from sot_paddle.train.pretraining_command import decayed
from sot_torch_ref.backbones.pretraining import (
    Pretraining,
    instance_loss,
    mask_words,
    masked_word_loss,
)
from sot_torch_ref.train.optimizer import HFAdamW as ReferenceAdamW

_ROWS, _LENGTH, _PLACES = 3, 11, 4
_CLS, _SEP, _MASK, _FIRST_WORD = 1, 2, 3, 5
_STEPS, _RATE, _EPSILON, _DECAY = 4, 1e-2, 1e-6, 2.0**-7
_FLOAT32 = Tolerance(
    "scaled",
    1e-4,
    "float32 rounding of one narrow layer: 1e-6 is usual; a wrong formula is above 1e-3",
)
_HEAD = {  # ours -> the reference's, and whether it is transposed
    "head.words.dense.weight": ("predictions.transform.weight", True),
    "head.words.dense.bias": ("predictions.transform.bias", False),
    "head.words.norm.weight": ("predictions.LayerNorm.weight", False),
    "head.words.norm.bias": ("predictions.LayerNorm.bias", False),
    "head.words.bias": ("predictions.bias", False),
    "head.dense.weight": ("pooler.weight", True),
    "head.dense.bias": ("pooler.bias", False),
    "head.next_fc.weight": ("seq_relationship.weight", True),
    "head.next_fc.bias": ("seq_relationship.bias", False),
}
_RECORD = {
    **{"ids": "ids", "types": "types", "mask": "mask", "positions": "masked_lm_positions"},
    **{"words": "masked_lm_ids", "weights": "masked_lm_weights"},
}
"""Ours -> the original's features."""


def pretraining(
    setting: Setting,
    *,
    judged: bool,
    every_place: bool = False,
    words: int | None = None,
    factors: tuple[float, float] = (1.0, 1.0),
) -> BothSides:
    """What a step asks for: scores and sums of an evaluation, loss and gradients, or weights.

    Args:
        setting: the pair of classifiers whose encoders are trained, and the step.
        judged: whether the next sentence is judged; else words are masked from given draws.
        every_place: the Paddle port's loss of the words.
        words: that are masked in the whole batch, 0 or 1; None for what the draws say.
        factors: of the loss of the words, and of that of the next sentence.
    """
    pad = setting.pair.model.encoder_config.pad_token_id
    batch, given = _instances(pad) if judged else _masked_pairs(pad, words)
    asked = setting, judged, every_place, factors
    of_ours = functools.partial(_ours, *asked)
    reference, stamp = _reference(*asked, given)
    ours, our_stamp = of_ours(batch)
    labels = batch["labels"]
    places = (labels.shape[1] - 1) // 2
    other_words = labels.copy()
    other_words[:, :places] = np.roll(labels[:, :places], 1, axis=1)
    moved = np.minimum(batch["positions"] + 1, _LENGTH - 1)
    faults = {
        "words of the place before": of_ours(batch | {"labels": other_words})[0],
        "states of the place after": of_ours(batch | {"positions": moved})[0],
    }
    if setting.step == "backward":
        unused = labels.copy()
        unused[:, places : 2 * places] = 1
        faults["places that are not used count"] = of_ours(batch | {"labels": unused})[0]
    if setting.step == "training":
        faults["norm of the head decays"] = of_ours(batch, spared=False)[0]
    changed = {name: found for name, found in faults.items() if _differs(found, ours)}
    largest = max(float(np.abs(array).max()) for array in reference.values())
    return BothSides(
        ours,
        reference,
        changed,
        "the pre-training",
        rule=_FLOAT32 if setting.dtype == "float32" else None,
        zero_scale=largest,
        stamps=stamps(our_stamp, stamp),
    )


def _differs(found: Arrays, ours: Arrays) -> bool:
    return any(not np.array_equal(found[name], ours[name]) for name in ours)


def _instances(pad: int) -> tuple[Arrays, Arrays]:
    """A batch as ours takes it, and the features of the original's records."""
    rng, places = np.random.default_rng(3), np.arange(_LENGTH)
    lengths, counts = (_LENGTH, 8, 6), (_PLACES, 2, 1)
    rows = []
    for length, count in zip(lengths, counts, strict=True):
        ids = np.full(_LENGTH, pad)
        ids[:length] = rng.integers(_FIRST_WORD, 28, length)
        ids[[0, length // 2, length - 1]] = _CLS, _SEP, _SEP
        chosen = np.sort(rng.choice([1, 2, 3, 4, length - 2], count, replace=False))
        zeros = np.zeros(_PLACES - count, np.int64)
        words = ids[chosen]
        ids[chosen[: count // 2 + 1]] = _MASK
        row = {
            "ids": ids,
            "types": ((places > length // 2) & (places < length)).astype(np.int64),
            "mask": (places < length).astype(np.int64),
            "positions": np.concatenate([chosen, zeros]),
            "words": np.concatenate([words, zeros]),
            "weights": np.concatenate([np.ones(count, np.int64), zeros]),
            "next": np.int64(count % 2),
        }
        rows.append(row)
    records = {name: np.stack([row[ours] for row in rows]) for ours, name in _RECORD.items()}
    records["next_sentence_labels"] = np.array([[row["next"]] for row in rows])
    return collate(rows, judged=False), records


def _masked_pairs(pad: int, count: int | None = None) -> tuple[Arrays, Arrays]:
    """The same for words that both sides mask from the same draws."""
    rng = np.random.default_rng(4)
    ids = rng.integers(_FIRST_WORD, 28, (_ROWS, _LENGTH))
    ids[:, 0], ids[:, 5] = _CLS, _SEP
    ids[1, 8:], ids[2, 6:] = pad, pad
    uniform, words = rng.random((_ROWS, 3, _LENGTH)), rng.integers(0, 30, (_ROWS, _LENGTH))
    uniform[:, 0] *= 0.3  # more words than in a training, and fewer of them hidden
    uniform[:, 1] **= 0.25
    if count is not None:
        uniform[:, 0] = 1.0
        uniform[1, 0, 3:][:count] = 0.0
    special, rows = (_CLS, _SEP), []
    for index, row in enumerate(ids):
        draws = MaskDraws(uniform[index], words[index])
        shown, chosen = masked(row, draws, share=0.15, mask_id=_MASK, kept=(*special, pad))
        places = np.flatnonzero(chosen)
        rows.append(
            {
                "ids": shown,
                "types": np.zeros_like(shown),
                "mask": (shown != pad).astype(np.int64),
                "positions": places,
                "words": row[places],
                "weights": np.ones_like(places),
                "next": np.int64(-1),
            }
        )
    inputs, labels, mask = mask_words(
        *(torch.tensor(array) for array in (ids, uniform, words)),
        special=list(special),
        mask=_MASK,
        pad=pad,
    )
    given = {"ids": inputs, "types": torch.zeros_like(inputs), "mask": mask, "labels": labels}
    return collate(rows, judged=False), {name: value.numpy() for name, value in given.items()}


def masks(setting: Setting) -> BothSides:
    """Inputs, labels and mask of a batch that both collators make of the same draws."""
    batch, given = _masked_pairs(pad=29)
    labels = np.full_like(batch["input_ids"], -100)
    places = (batch["labels"].shape[1] - 1) // 2
    used = batch["labels"][:, places : 2 * places].astype(bool)
    rows = np.nonzero(used)[0]
    labels[rows, batch["positions"][used]] = batch["labels"][:, :places][used]
    ours = {"ids": batch["input_ids"], "mask": batch["attention_mask"], "labels": labels}
    faults = {
        "the mask before masking": ours | {"mask": np.ones_like(ours["mask"])},
        "every label": ours | {"labels": np.where(labels < 0, ours["ids"], labels)},
        "words left as they are": ours | {"ids": np.where(labels < 0, ours["ids"], labels)},
    }
    reference = {name: given[name] for name in ours}
    return BothSides(ours, reference, faults, "the masked rows", framework_free=True)


def _drawn(model: PretrainingModel) -> Arrays:
    """Weights of the head, as ours names and lays them out."""
    rng = np.random.default_rng(8)
    state = model.state_dict()
    return {name: 0.3 * rng.normal(size=state[name].shape) for name in _HEAD if name in state}


def _our_model(pair: ModelPair, dtype: str, judged: bool) -> PretrainingModel:
    config = PretrainingHeadConfig(next_sentence=judged)
    with on_paddle.default_dtype(dtype):
        model = PretrainingModel(
            pair.model.backbone, pair.model.encoder_config, config, name=pair.model.name
        )
    state = {n: on_paddle.numpy(t) for n, t in pair.model.state_dict().items()}
    drawn = {name: array.astype(dtype) for name, array in _drawn(model).items()}
    on_paddle.load(model, {name: {**state, **drawn}[name] for name in model.state_dict()})
    model.judge = row_sums
    return model


def _ours(
    setting: Setting,
    judged: bool,
    every_place: bool,
    factors: tuple[float, float],
    batch: Arrays,
    *,
    spared: bool = True,
) -> tuple[Arrays, Any]:
    model = _our_model(setting.pair, setting.dtype, judged)
    inputs = {name: on_paddle.tensor(value) for name, value in batch.items()}
    labels = inputs.pop("labels")
    if setting.step == "forward":
        model.eval()
        sums = on_paddle.numpy(model(**inputs, targets=labels))
        outputs = model(**inputs)
        named = dict(zip(("words", "next"), map(on_paddle.numpy, outputs), strict=False))
        task = PretrainingTask(1)
        score = task.score("dev", Predictions(np.arange(len(sums)), sums))
        many = np.array([[0, 2**25, 2**24, 0, 0], *[[0, 0, 1, 0, 0]] * 999], "float32")
        long = task.score("dev", Predictions(np.arange(len(many)), many))
        score["accuracy of many words"] = long["accuracy"]  # added up in float32 they are 2**24
        told = {f"score/{name}": np.asarray(value, sums.dtype) for name, value in score.items()}
        return {**named, "sums": sums[:, : 5 if judged else 3], **told}, on_paddle.stamp(outputs[0])
    rule = decayed if spared else lambda made: decayed(made) | {"head.words.norm.weight"}
    optimizer = HFAdamW(
        _RATE,
        epsilon=_EPSILON,
        parameters=model.parameters(),
        weight_decay=_DECAY,
        apply_decay_param_fun=decay_filter(model, rule),
        grad_clip=ClipGradByGlobalNorm(1.0),
    )
    losses = []
    for _ in range(_STEPS if setting.step == "training" else 1):
        options = {"words_weight": factors[0], "next_weight": factors[1]}
        loss = pretraining_loss(model(**inputs), labels, **options, every_place=every_place)
        loss.backward()
        losses.append(on_paddle.numpy(loss))
        if setting.step == "training":
            optimizer.step()
            optimizer.clear_grad(set_to_zero=False)
    found = {
        name: on_paddle.numpy(p if setting.step == "training" else p.grad)
        for name, p in model.named_parameters()
        if setting.step == "training" or p.grad is not None
    }
    return {"loss": np.stack(losses), **found}, on_paddle.stamp(loss)


def _reference(
    setting: Setting,
    judged: bool,
    every_place: bool,
    factors: tuple[float, float],
    given: Arrays,
) -> tuple[Arrays, Any]:
    pair, dtype = setting.pair, setting.dtype
    with on_torch.default_dtype(dtype):
        model = Pretraining(pair.fresh_reference(), next_sentence=judged)
    drawn = _drawn(_our_model(pair, dtype, judged))
    own = dict(model.named_parameters())
    with torch.no_grad():
        for name, array in drawn.items():
            theirs, transposed = _HEAD[name]
            own[theirs].copy_(torch.tensor(array.T if transposed else array))
    held = {name: torch.tensor(value) for name, value in given.items()}
    inputs = (held["ids"], held["types"], held["mask"])
    if setting.step == "forward":
        scores, following = model.eval()(*inputs)
        return _scored(scores, following, held), on_torch.stamp(scores)
    model.train(pair.case.train)
    classifier_head = {f"classifier.head.{n}" for n, _ in model.classifier.head.named_parameters()}
    trained = {n: p for n, p in own.items() if n not in classifier_head}
    plain = [p for n, p in trained.items() if "bias" in n or "LayerNorm.weight" in n]
    rest = [p for n, p in trained.items() if not ("bias" in n or "LayerNorm.weight" in n)]
    groups = [{"params": rest, "weight_decay": _DECAY}, {"params": plain, "weight_decay": 0.0}]
    optimizer = ReferenceAdamW(groups, lr=_RATE, eps=_EPSILON)
    losses = []
    for _ in range(_STEPS if setting.step == "training" else 1):
        optimizer.zero_grad()
        scores, following = model(*inputs)
        if judged:
            both = instance_loss(scores, following, held, plain_mean=every_place)
            labels = held["next_sentence_labels"].flatten()
            alone = torch.nn.functional.cross_entropy(following, labels)
            loss = factors[0] * both + (factors[1] - factors[0]) * alone
        else:
            loss = factors[0] * masked_word_loss(scores, held["labels"])
        loss.backward()
        losses.append(loss.detach().numpy().copy())
        if setting.step == "training":
            torch.nn.utils.clip_grad_norm_(trained.values(), 1.0)
            optimizer.step()
    buffers = {name: value.numpy() for name, value in model.classifier.named_buffers()}
    values = own if setting.step == "training" else {n: p.grad for n, p in own.items()}
    return {"loss": np.stack(losses), **_in_our_names(pair, values, own, buffers)}, on_torch.stamp(
        loss
    )


def _in_our_names(
    pair: ModelPair, values: dict[str, Any], own: dict[str, Any], buffers: Arrays
) -> Arrays:
    """Tensors of the reference as ours names them; those of the classifier's own head are none."""
    encoder = {
        name.removeprefix("classifier."): (
            torch.zeros_like(own[name]) if value is None else value.detach()
        ).numpy()
        for name, value in values.items()
        if name.startswith("classifier.")
    }
    kept = pair.to_paddle({**buffers, **encoder})
    prefix = f"{pair.model.backbone.prefix}."
    trained = {f"{n}" for n, p in pair.model.named_parameters() if not p.stop_gradient}
    found = {n: a for n, a in kept.items() if n.startswith(prefix) and n in trained}
    for name, (theirs, transposed) in _HEAD.items():
        if theirs in values:
            array = values[theirs].detach().numpy()
            found[name] = array.T.copy() if transposed else array.copy()
    return found


def _scored(scores: torch.Tensor, following: torch.Tensor | None, held: dict[str, Any]) -> Arrays:
    """Scores at the masked places, and the sums of an evaluation."""
    if following is None:
        used = held["labels"] != -100
        places = max(1, int(used.sum(1).max()))
        order = torch.argsort((~used).int(), dim=1, stable=True)[:, :places]
        weights = torch.gather(used, 1, order)
        positions = torch.where(weights, order, 0)
        words = torch.where(weights, torch.gather(held["labels"], 1, order), 0)
    else:
        positions, words = held["masked_lm_positions"], held["masked_lm_ids"]
        weights = held["masked_lm_weights"].bool()
    rows = torch.arange(len(scores))[:, None]
    picked = scores[rows, positions]
    losses = torch.nn.functional.cross_entropy(picked.transpose(1, 2), words, reduction="none")
    right = picked.argmax(2) == words
    kept = weights.to(scores.dtype)
    sums = [(losses * kept).sum(1), kept.sum(1), (right * kept).sum(1)]
    found = {"words": picked}
    count = kept.sum().clamp(min=1)  # REF: tf.metrics.mean says 0 of no word
    found["score/loss"], found["score/accuracy"] = (sum_.sum() / count for sum_ in sums[::2])
    found["score/accuracy of many words"] = torch.tensor((2**24 + 999) / 2**25, dtype=scores.dtype)
    if following is not None:
        labels = held["next_sentence_labels"].flatten()
        sums += [
            torch.nn.functional.cross_entropy(following, labels, reduction="none"),
            (following.argmax(1) == labels).to(scores.dtype),
        ]
        found["next"] = following
        found["score/next_loss"], found["score/next_accuracy"] = (one.mean() for one in sums[3:])
        found["score/loss"] = found["score/loss"] + found["score/next_loss"]
    arrays = {name: value.detach().numpy() for name, value in found.items()}
    return {**arrays, "sums": torch.stack(sums, 1).detach().numpy()}
