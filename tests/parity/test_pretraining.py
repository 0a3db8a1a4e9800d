"""Pre-training: instances, masked words, scores, losses, gradients and training steps.

The reference scores every token and knows labels of -100; ours scores the masked places alone.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import paddle
import pytest
import torch

from sot_paddle.backbones.pretraining import PretrainingModel
from sot_paddle.data.pretraining.instance_files import InstanceOptions, document_instances
from sot_paddle.data.pretraining.prepared import MaskDraws, masked
from sot_paddle.heads.pretraining import PretrainingHeadConfig
from sot_paddle.tasks.losses import pretraining_loss, row_sums
from sot_paddle.tasks.pretraining import PretrainingTask, collate
from sot_paddle.tasks.task import Predictions
from sot_paddle.train.optimizer import ClipGradByGlobalNorm, HFAdamW, decay_filter
from sot_paddle.train.pretraining_command import decayed
from sot_torch_ref.backbones.pretraining import (
    Pretraining,
    instance_loss,
    mask_words,
    masked_word_loss,
)
from sot_torch_ref.train.instances import make_instances
from sot_torch_ref.train.optimizer import HFAdamW as ReferenceAdamW
from tests.parity.models import (
    BERT,
    HEAD,
    encoder_options,
    models_of_equal_weights,
    to_paddle_names,
)
from tests.parity.sides import assert_same, paddle_precision, torch_precision

pytestmark = pytest.mark.slow

Arrays = dict[str, np.ndarray]

SPECIAL = {"first": 2, "separator": 3, "mask": 4}
SEED, PASSES = 12345, 2
INSTANCES = [
    # tokens of an instance, masked words at most, documents, share of the tokens that are masked
    (24, 3, 25, 0.15),
    (24, 3, 25, 0.01),  # which makes no word: one is masked
    (16, 20, 1, 0.15),  # of one document the other one is itself
]


@pytest.mark.parametrize(("length", "most", "documents", "masked_share"), INSTANCES)
def test_instances(length: int, most: int, documents: int, masked_share: float) -> None:
    """Both makers draw from Python's generator, in the same order. No framework computes here."""
    rng = np.random.default_rng(5)
    corpus = []
    for _ in range(documents):
        sentences = [
            rng.integers(5, 50, rng.integers(1, 12)).tolist() for _ in range(rng.integers(1, 7))
        ]
        corpus.append(sentences)
    reference = make_instances(
        corpus,
        cls=SPECIAL["first"],
        sep=SPECIAL["separator"],
        mask=SPECIAL["mask"],
        vocab_size=50,
        max_seq_length=length,
        max_predictions=most,
        masked_lm_prob=masked_share,
        dupe_factor=PASSES,
        seed=SEED,
    )
    options = InstanceOptions(
        **SPECIAL,
        vocab_size=50,
        max_seq_length=length,
        max_predictions=most,
        masked_share=masked_share,
    )
    rows = paddle_instances(corpus, options)
    assert_same(
        {name: np.stack([row[name] for row in rows]) for name in rows[0]},
        {name: np.stack([row[name] for row in reference]) for name in reference[0]},
    )


def paddle_instances(corpus: list[list[list[int]]], options: InstanceOptions) -> list[Arrays]:
    """Make the features of all instances of ours in their final order."""
    rng, documents = random.Random(SEED), list(corpus)
    rng.shuffle(documents)
    instances = []
    for _ in range(PASSES):
        for index in range(len(documents)):
            instances += document_instances(documents, index, options, rng)
    rng.shuffle(instances)
    places, rows = np.arange(options.max_seq_length), []
    for one in instances:
        inside = places < len(one.tokens)
        row = {
            "input_ids": filled(one.tokens, options.max_seq_length),
            "input_mask": inside.astype(np.int64),
            "segment_ids": (inside & (places >= one.boundary)).astype(np.int64),
            "masked_lm_positions": filled(one.positions, options.max_predictions),
            "masked_lm_ids": filled(one.words, options.max_predictions),
            "masked_lm_weights": filled([1] * len(one.positions), options.max_predictions),
            "next_sentence_labels": np.array([int(one.random_next)]),
        }
        rows.append(row)
    return rows


def filled(values: list[int], length: int) -> np.ndarray:
    return np.array(values + [0] * (length - len(values)))


LENGTH, PLACES = 11, 4
CLS, SEP, MASK, FIRST_WORD = 1, 2, 3, 5


def judged_batch(pad: int) -> tuple[Arrays, Arrays]:
    """Make a batch as ours takes it, and the features of the original's records."""
    rng, places = np.random.default_rng(3), np.arange(LENGTH)
    rows = []
    for length, count in ((LENGTH, PLACES), (8, 2), (6, 1)):
        ids = np.full(LENGTH, pad)
        ids[:length] = rng.integers(FIRST_WORD, 28, length)
        ids[[0, length // 2, length - 1]] = CLS, SEP, SEP
        chosen = np.sort(rng.choice([1, 2, 3, 4, length - 2], count, replace=False))
        zeros = np.zeros(PLACES - count, np.int64)
        words = ids[chosen]
        ids[chosen[: count // 2 + 1]] = MASK
        row = {
            "input_ids": ids,
            "segment_ids": ((places > length // 2) & (places < length)).astype(np.int64),
            "input_mask": (places < length).astype(np.int64),
            "masked_lm_positions": np.concatenate([chosen, zeros]),
            "masked_lm_ids": np.concatenate([words, zeros]),
            "masked_lm_weights": np.concatenate([np.ones(count, np.int64), zeros]),
            "next_sentence_labels": np.array([count % 2]),
        }
        rows.append(row)
    stacked = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    names = {"input_ids": "ids", "segment_ids": "types", "input_mask": "mask"}
    records = {names.get(name, name): array for name, array in stacked.items()}
    return collate(rows, judged=False), records


def masked_batch(pad: int, count: int | None = None) -> tuple[Arrays, Arrays]:
    """Make a batch of ours and the reference's; both mask words from the same draws.

    Args:
        pad: id of the padding.
        count: words that are masked in the whole batch, 0 or 1; None for what the draws say.
    """
    rng, samples = np.random.default_rng(4), 3
    ids = rng.integers(FIRST_WORD, 28, (samples, LENGTH))
    ids[:, 0], ids[:, 5] = CLS, SEP
    ids[1, 8:], ids[2, 6:] = pad, pad
    uniform, words = rng.random((samples, 3, LENGTH)), rng.integers(0, 30, (samples, LENGTH))
    uniform[:, 0] *= 0.3  # more words than in a training, and fewer of them hidden
    uniform[:, 1] **= 0.25
    if count is not None:
        uniform[:, 0] = 1.0
        uniform[1, 0, 3:][:count] = 0.0
    rows = []
    for index, row in enumerate(ids):
        draws = MaskDraws(uniform[index], words[index])
        shown, chosen = masked(row, draws, share=0.15, mask_id=MASK, kept=(CLS, SEP, pad))
        positions = np.flatnonzero(chosen)
        features = {
            "input_ids": shown,
            "segment_ids": np.zeros_like(shown),
            "input_mask": (shown != pad).astype(np.int64),
            "masked_lm_positions": positions,
            "masked_lm_ids": row[positions],
            "masked_lm_weights": np.ones_like(positions),
            "next_sentence_labels": np.array([-1]),
        }
        rows.append(features)
    drawn = [torch.tensor(array) for array in (ids, uniform, words)]
    inputs, labels, mask = mask_words(*drawn, special=[CLS, SEP], mask=MASK, pad=pad)
    tensors = {"ids": inputs, "types": torch.zeros_like(inputs), "mask": mask, "labels": labels}
    return collate(rows, judged=False), {name: value.numpy() for name, value in tensors.items()}


def test_masked_words() -> None:
    """Inputs, labels and mask that both collators make of the same draws. No framework computes."""
    batch, reference = masked_batch(pad=29)
    labels = np.full_like(batch["input_ids"], -100)
    places = (batch["labels"].shape[1] - 1) // 2
    is_used = batch["labels"][:, places : 2 * places].astype(bool)
    rows = np.nonzero(is_used)[0]
    labels[rows, batch["positions"][is_used]] = batch["labels"][:, :places][is_used]
    assert_same(
        {"ids": batch["input_ids"], "mask": batch["attention_mask"], "labels": labels},
        {name: reference[name] for name in ("ids", "mask", "labels")},
    )


CONV_BERT = {
    **encoder_options(12, 1, 20, 30, 18),
    **HEAD,
    "embedding_size": 9,
    "pad_token_id": 29,
    "attention_kernel": "qk_convq_convk 2",
}
MODELS: dict[str, dict[str, Any]] = {"bert_base": BERT, "conv_bert_base": CONV_BERT}
HEAD_NAMES = {  # ours -> the reference's, and whether it is transposed
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
RATE, EPSILON, DECAY = 1e-2, 1e-6, 2.0**-7


def paired_models(name: str, judged: bool, dtype: str) -> tuple[PretrainingModel, Pretraining]:
    """Build both models of equal weights; their encoders are those of a pair of classifiers."""
    classifier, torch_classifier = models_of_equal_weights(name, MODELS[name], dtype)
    config = PretrainingHeadConfig(next_sentence=judged)
    with paddle_precision(dtype):
        paddle_model = PretrainingModel(
            classifier.backbone, classifier.encoder_config, config, name=classifier.name
        )
    with torch_precision(dtype):
        torch_model = Pretraining(torch_classifier, next_sentence=judged)
    state, torch_parameters = paddle_model.state_dict(), dict(torch_model.named_parameters())
    for key, tensor in classifier.state_dict().items():
        if key in state and not key.startswith("head."):
            state[key].set_value(tensor)
    rng = np.random.default_rng(8)
    for key, (torch_name, is_transposed) in HEAD_NAMES.items():
        if key in state:
            array = (0.3 * rng.normal(size=state[key].shape)).astype(dtype)
            state[key].set_value(array)
            with torch.no_grad():
                torch_array = torch.tensor(array.T if is_transposed else array)
                torch_parameters[torch_name].copy_(torch_array)
    paddle_model.judge = row_sums
    return paddle_model, torch_model


@pytest.mark.parametrize(
    ("name", "judged", "words", "dtype"),
    [
        ("bert_base", True, None, "float64"),
        ("bert_base", True, None, "float32"),
        ("conv_bert_base", False, None, "float64"),
        ("conv_bert_base", False, None, "float32"),
        ("conv_bert_base", False, 1, "float64"),
        ("conv_bert_base", False, 0, "float64"),
    ],
)
def test_scores_and_sums_of_an_evaluation(
    name: str, judged: bool, words: int | None, dtype: str
) -> None:
    paddle_model, torch_model = paired_models(name, judged, dtype)
    pad = paddle_model.encoder_config.pad_token_id
    batch, records = judged_batch(pad) if judged else masked_batch(pad, words)
    tensors = {key: torch.tensor(value) for key, value in records.items()}
    with torch.no_grad():
        scores = torch_model.eval()(tensors["ids"], tensors["types"], tensors["mask"])
        expected = evaluated(*scores, tensors)
    inputs = {key: paddle.to_tensor(value) for key, value in batch.items()}
    labels = inputs.pop("labels")
    paddle_model.eval()
    outputs = paddle_model(**inputs)
    actual = {key: one.numpy() for key, one in zip(("words", "next"), outputs, strict=False)}
    sums = paddle_model(**inputs, targets=labels).numpy()
    actual["sums"] = sums[:, : 5 if judged else 3]
    for key, value in PretrainingTask(1).score("dev", predictions(sums)).items():
        actual[f"score/{key}"] = np.asarray(value, dtype)
    # a bound of the float32 case: rounding of one narrow layer is 1e-6, a wrong formula above 1e-3
    assert_same(actual, expected, bound=1e-5 if dtype == "float32" else None)


def evaluated(scores: torch.Tensor, following: torch.Tensor | None, records: dict) -> Arrays:
    """Compute scores at the masked places, the sums of each row and the averages."""
    cross_entropy = torch.nn.functional.cross_entropy
    if following is None:
        is_used = records["labels"] != -100
        places = max(1, int(is_used.sum(1).max()))
        order = torch.argsort((~is_used).int(), dim=1, stable=True)[:, :places]
        weights = torch.gather(is_used, 1, order)
        positions = torch.where(weights, order, 0)
        words = torch.where(weights, torch.gather(records["labels"], 1, order), 0)
    else:
        positions, words = records["masked_lm_positions"], records["masked_lm_ids"]
        weights = records["masked_lm_weights"].bool()
    picked = scores[torch.arange(len(scores))[:, None], positions]
    losses = cross_entropy(picked.transpose(1, 2), words, reduction="none")
    weights = weights.to(scores.dtype)
    is_right = (picked.argmax(2) == words) * weights
    sums = [(losses * weights).sum(1), weights.sum(1), is_right.sum(1)]
    count = weights.sum().clamp(min=1)  # REF: tf.metrics.mean says 0 of no word
    values = {
        "words": picked,
        "score/loss": sums[0].sum() / count,
        "score/accuracy": sums[2].sum() / count,
    }
    if following is not None:
        labels = records["next_sentence_labels"].flatten()
        sums.append(cross_entropy(following, labels, reduction="none"))
        sums.append((following.argmax(1) == labels).to(scores.dtype))
        values["next"] = following
        values["score/next_loss"], values["score/next_accuracy"] = sums[3].mean(), sums[4].mean()
        values["score/loss"] = values["score/loss"] + values["score/next_loss"]
    values["sums"] = torch.stack(sums, 1)
    return {key: value.numpy() for key, value in values.items()}


def predictions(sums: np.ndarray) -> Predictions:
    return Predictions(np.arange(len(sums)), sums)


def test_accuracy_of_many_words() -> None:
    """Added up in float32 the right words would be 2**24."""
    sums = np.array([[0, 2**25, 2**24, 0, 0], *[[0, 0, 1, 0, 0]] * 999], "float32")
    scores = PretrainingTask(1).score("dev", predictions(sums))
    assert scores["accuracy"] == pytest.approx((2**24 + 999) / 2**25, rel=1e-10)


@pytest.mark.parametrize(
    ("name", "judged", "words", "every_place", "steps"),
    [
        ("bert_base", True, None, False, 0),
        ("bert_base", True, None, False, 4),
        ("bert_base", True, None, True, 0),  # the Paddle port's loss of the words
        ("conv_bert_base", False, None, False, 0),
        ("conv_bert_base", False, None, False, 4),
        ("conv_bert_base", False, 1, False, 0),
    ],
)
def test_loss_gradients_and_training_steps(
    name: str,
    judged: bool,
    words: int | None,
    every_place: bool,
    steps: int,
) -> None:
    """Without a step the gradients of every parameter, else the parameters after the steps."""
    paddle_model, torch_model = paired_models(name, judged, "float64")
    pad = paddle_model.encoder_config.pad_token_id
    batch, records = judged_batch(pad) if judged else masked_batch(pad, words)
    actual = paddle_run(paddle_model, batch, every_place, steps)
    expected = torch_run(torch_model, records, judged, every_place, steps)
    prefix = f"{paddle_model.backbone.prefix}."
    expected |= in_paddle_names(name, torch_model, prefix, with_gradients=not steps)
    # four steps amplify the rounding of one
    assert_same_up_to_zeros(actual, expected, 1e-9 if steps else 1e-10)


def assert_same_up_to_zeros(actual: Arrays, expected: Arrays, bound: float) -> None:
    """Assert equality; what is nothing but rounding on one side (a key's bias) is so on both."""
    assert sorted(actual) == sorted(expected)
    rounding = 1e-13 * max(np.abs(array).max() for array in expected.values())
    for key, array in expected.items():
        if np.abs(array).max() > rounding:
            assert_same({key: actual[key]}, {key: array}, bound=bound)
        else:
            assert np.abs(actual[key]).max() <= rounding, key


def paddle_run(
    model: PretrainingModel,
    batch: Arrays,
    every_place: bool,
    steps: int,
) -> Arrays:
    """Run ours: the loss of each pass, and the gradients or what the optimizer left."""
    optimizer = HFAdamW(
        RATE,
        epsilon=EPSILON,
        parameters=model.parameters(),
        weight_decay=DECAY,
        apply_decay_param_fun=decay_filter(model, decayed),
        grad_clip=ClipGradByGlobalNorm(1.0),
    )
    inputs = {key: paddle.to_tensor(value) for key, value in batch.items()}
    labels, losses = inputs.pop("labels"), []
    for _ in range(max(1, steps)):
        loss = pretraining_loss(
            model(**inputs),
            labels,
            every_place=every_place,
        )
        loss.backward()
        losses.append(loss.item())
        if steps:
            optimizer.step()
            optimizer.clear_grad(set_to_zero=False)
    arrays = {"loss": np.array(losses)}
    for key, parameter in model.named_parameters():
        tensor = parameter if steps else parameter.grad
        if tensor is not None:
            arrays[key] = tensor.numpy()
    return arrays


def torch_run(
    model: Pretraining,
    records: Arrays,
    judged: bool,
    every_place: bool,
    steps: int,
) -> Arrays:
    """Run the reference, which keeps its gradients or new parameters; return the losses."""
    tensors = {key: torch.tensor(value) for key, value in records.items()}
    unused = {id(parameter) for parameter in model.classifier.head.parameters()}
    trained, plain, rest = [], [], []
    for key, parameter in model.named_parameters():
        if id(parameter) not in unused:
            trained.append(parameter)
            (plain if "bias" in key or "LayerNorm.weight" in key else rest).append(parameter)
    groups = [{"params": rest, "weight_decay": DECAY}, {"params": plain, "weight_decay": 0.0}]
    optimizer, losses = ReferenceAdamW(groups, lr=RATE, eps=EPSILON), []
    for _ in range(max(1, steps)):
        optimizer.zero_grad()
        scores, following = model(tensors["ids"], tensors["types"], tensors["mask"])
        if judged:
            loss = instance_loss(scores, following, tensors, plain_mean=every_place)
        else:
            loss = masked_word_loss(scores, tensors["labels"])
        loss.backward()
        losses.append(loss.item())
        if steps:
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
    return {"loss": np.array(losses)}


def in_paddle_names(name: str, model: Pretraining, prefix: str, *, with_gradients: bool) -> Arrays:
    """Name the reference's trained parameters, or their gradients, as ours does."""
    classifier = {}
    for key, parameter in model.classifier.named_parameters():
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        classifier[key] = gradient if with_gradients else parameter
    converted = to_paddle_names(name, model.classifier, classifier)
    arrays = {key: array for key, array in converted.items() if key.startswith(prefix)}
    parameters = dict(model.named_parameters())
    for key, (torch_name, is_transposed) in HEAD_NAMES.items():
        if torch_name in parameters:
            parameter = parameters[torch_name]
            array = (parameter.grad if with_gradients else parameter.detach()).numpy()
            arrays[key] = array.T if is_transposed else array
    return arrays
