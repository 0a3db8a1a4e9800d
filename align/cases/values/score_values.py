"""Step ``metric``: GLUE's metrics, ImageNet-A's columns, the best evaluation, predicted shares."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch

from align.cases.both_sides import BothSides, Setting, ValueFault
from align.judge.bounds import TOLERANCES
from align.record.arrays import Arrays
from align.record.results import Tolerance
from sot_paddle.data import imagenet_a
from sot_paddle.deploy.predictor import record
from sot_paddle.deploy.recipe import Recipe, TextRecipe
from sot_torch_ref.train.image_scores import best_evaluation, image_scores
from sot_torch_ref.train.imagenet_a import imagenet_a_scores

_CLASSES = {"mnli": 3, "mnli-mm": 3}
_ROUNDED = Tolerance("scaled", 1e-6, "shares are written with six decimals: half of the last one")
_PATIENCE = 2  # evaluations in vain after which a run stops
_UNDEFINED = -2.0  # NaN means "undefined" here; both sides must say so


def glue(setting: Setting, *, task: str) -> BothSides:
    """The metrics of one GLUE task on random and on degenerate predictions."""
    from sot_paddle.tasks import metrics as our_metrics  # loads scikit-learn: for this step alone
    from sot_torch_ref.train import metrics as reference_metrics

    ours, reference = _scores(our_metrics, task), _scores(reference_metrics, task)
    first = next(iter(ours))
    renamed = {
        name.replace("acc", "mcc").replace("pearson", "acc"): value for name, value in ours.items()
    }
    faults = {
        "one prediction counted twice": {**ours, first: ours[first] * (1 + 1 / 301)},
        "per cent instead of a fraction": {name: 100 * value for name, value in ours.items()},
        "a metric left out": {name: value for name, value in ours.items() if name != first},
        "another task's metric": renamed
        if task != "cola"
        else {name: (value + 1) / 2 for name, value in ours.items()},
    }
    return BothSides(
        ours,
        reference,
        faults,
        "the scores",
        framework_free=True,
        note="ours by scikit-learn and scipy, the reference by formulas in NumPy",
        log="metric_align",
    )


def samples(task: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Predictions and labels: random, perfect, inverted, (nearly) constant, a single row."""
    rng = np.random.default_rng(5)
    if task == "sts-b":
        labels = np.round(rng.uniform(0, 5, 301), 1)
        predictions = labels + rng.normal(size=301)
        return {
            "random": (predictions, labels),
            "perfect": (labels, labels),
            "many ties": (np.round(predictions), labels),
            "inverted": (-labels, labels),
            "constant": (np.full(301, 2.5), labels),
            "nearly constant": (np.float32(2.5 + 1e-6 * predictions), np.float32(labels)),
            "one row": (predictions[:1], labels[:1]),
            "two rows": (predictions[1:3], labels[1:3]),
        }
    classes = _CLASSES.get(task, 2)
    labels = rng.integers(0, classes, 301)
    predictions = np.where(rng.random(301) < 0.7, labels, rng.integers(0, classes, 301))
    return {
        "random": (predictions, labels),
        "perfect": (labels, labels),
        "inverted": ((labels + 1) % classes, labels),
        "all class 0": (np.zeros_like(labels), labels),
        "all class 1": (np.ones_like(labels), labels),
        "one label only": (predictions, np.ones_like(labels)),
        "constant and right": (np.zeros_like(labels), np.zeros_like(labels)),
        "one row": (predictions[:1], labels[:1]),
    }


def _scores(module, task: str) -> Arrays:
    found = {}
    for kind, (predictions, labels) in samples(task).items():
        for name, value in module.glue_metrics(task, predictions, labels).items():
            defined = _UNDEFINED if math.isnan(value) else value
            found[f"{name} ({kind})"] = np.asarray(defined, "float64")
    return found


def imagenet_a_columns(setting: Setting) -> BothSides:
    """Scores of a model of 1000 classes on the 200 of ImageNet-A."""
    from sot_paddle.tasks import image_scores as product  # loads scikit-learn: for this step alone

    rng, count = np.random.default_rng(31), 40
    logits = rng.normal(size=(count, imagenet_a.IMAGENET_CLASSES))
    chosen = imagenet_a_scores(torch.from_numpy(logits))
    ranked = chosen.argsort(dim=1, descending=True).numpy()
    rows = np.arange(count)
    labels = ranked[rows, rows % 8]  # every place from the first to the eighth

    def ours(columns: np.ndarray) -> Arrays:
        return _named(columns, product.score(columns, labels))

    columns = imagenet_a.gather_scores(logits)
    faults = {
        "the next class's column": lambda: ours(
            imagenet_a.gather_scores(np.roll(logits, -1, axis=1))
        ),
        "the first 200 columns": lambda: ours(logits[:, :200]),
        "the folders in reverse": lambda: ours(columns[:, ::-1].copy()),
    }
    return BothSides(
        ours(columns),
        _named(chosen.numpy(), image_scores(chosen, torch.from_numpy(labels))),
        faults,
        "our scores",
        framework_free=True,
        note=f"{count} images; ours: NumPy, reference: PyTorch",
    )


def class_table(setting: Setting) -> BothSides:
    """What is said of each class: images, accuracy, and what it is taken for most often.

    Of classes that it is taken for equally often the first is named; one class has no image.
    """
    from sot_paddle.tasks import image_scores as product  # loads scikit-learn: for this step alone

    rng, count, classes = np.random.default_rng(17), 60, 7
    logits = rng.normal(size=(count, classes))
    labels = rng.integers(1, classes, count)
    logits[labels == 2, 2] += 9.0  # a class that is never mistaken
    names = [f"class {index}" for index in range(classes)]

    def ours(given: np.ndarray, answers: np.ndarray) -> Arrays:
        rows = product.score_classes(given, answers, names)
        facts = [
            (names.index(r.name), r.images, r.top1, _place(names, r.mistaken_for), r.mistakes)
            for r in rows
        ]
        return dict(zip(_FACTS, np.array(facts, "float64").T, strict=True))

    chosen = torch.from_numpy(logits).argmax(dim=1)
    counts = torch.zeros(classes, classes, dtype=torch.float64)
    counts.index_put_((torch.from_numpy(labels), chosen), torch.ones(()).double(), accumulate=True)
    images, hits = counts.sum(dim=1), counts.diagonal().clone()
    wrong = (counts - torch.diag(hits)).numpy()
    most = wrong.max(axis=1)
    taken = np.where(most > 0, wrong.argmax(axis=1), -1)
    there = images.numpy() > 0
    table = (np.arange(classes), images.numpy(), (100 * hits / images).numpy(), taken, most)
    reference = {n: np.asarray(v[there], "float64") for n, v in zip(_FACTS, table, strict=True)}
    faults = {
        "labels in reverse": lambda: ours(logits, labels[::-1]),
        "the least likely class": lambda: ours(-logits, labels),
    }
    return BothSides(
        ours(logits, labels),
        reference,
        faults,
        "the table",
        rule=TOLERANCES["metric", None],
        framework_free=True,
        note=f"{count} images of {classes} classes; ours: NumPy, reference: PyTorch",
    )


_FACTS = ("class", "images", "top1", "mistaken for", "mistakes")


def _place(names: Sequence[str], name: str) -> int:
    return names.index(name) if name else -1


def _named(columns: np.ndarray, scores: dict[str, float]) -> Arrays:
    return {"columns": columns, **{name: np.array(value) for name, value in scores.items()}}


def best_choice(setting: Setting, *, values: tuple[float, ...], maximise: bool = True) -> BothSides:
    """Which evaluation the trainer keeps, after each one, and whether it stops early.

    Args:
        setting: of the case.
        values: of the main metric, one for each evaluation; nan is none.
        maximise: whether larger is better.
    """
    from align.cases.sides.paddle_best_choice import choices

    def of(choose: Callable[[Sequence[float]], int]) -> Arrays:
        best = [choose(values[: end + 1]) for end in range(len(values))]
        since = [end - place for end, place in enumerate(best)]
        stops = [int(count >= _PATIENCE) for count in since]
        named = {"best": best, "kept": best, "since": since, "stops": stops}
        return {name: np.array(found) for name, found in named.items()}

    def chosen(given: Sequence[float]) -> int:
        return best_evaluation(given, maximise=maximise)

    reference = of(chosen)
    others = {
        "the last of equals": of(lambda given: _last(given, chosen)),
        "the other direction": of(lambda given: best_evaluation(given, maximise=not maximise)),
        "nan is the best": of(lambda given: _first_nan(given, chosen)),
        "the newest": of(lambda given: len(given) - 1),
    }
    return BothSides(
        {name: np.array(found) for name, found in choices(values, maximise, _PATIENCE).items()},
        reference,
        {
            name: ValueFault(reference=other)
            for name, other in others.items()
            if not np.array_equal(other["best"], reference["best"])
        },
        "another choice",
        rule=TOLERANCES["data", None],
        framework_free=True,
        note=f"{len(values)} evaluations of ExactTrainer on scripted metrics",
    )


def _last(values: Sequence[float], choose: Callable[[Sequence[float]], int]) -> int:
    best = values[choose(values)]
    return max((i for i, value in enumerate(values) if value == best), default=choose(values))


def _first_nan(values: Sequence[float], choose: Callable[[Sequence[float]], int]) -> int:
    return next((i for i, value in enumerate(values) if math.isnan(value)), choose(values))


def _digits(shares: np.ndarray) -> np.ndarray:
    """How many digits the longest of some shares has behind the point."""
    return np.array(max(len(np.format_float_positional(one)) - 2 for one in shares.flat))


def predicted(setting: Setting, *, classes: int, size: float) -> BothSides:
    """Probabilities and best class of rows of logits.

    Args:
        setting: of the case.
        classes: K.
        size: of the logits; large ones overflow in a softmax that does not subtract the largest.
    """
    logits = (size * np.random.default_rng(6).normal(size=(5, classes))).astype(np.float32)
    labels = tuple(f"class {index}" for index in range(classes))
    recipe = Recipe("", labels, (), TextRecipe("wordpiece", 8, "longest", True))
    found = [record(recipe, row, logits_too=False) for row in logits]
    given = [record(recipe, row, logits_too=True)["logits"] for row in logits]
    shares = np.array([list(one["probabilities"].values()) for one in found])
    best = np.array([labels.index(one["label"]) for one in found])
    expected = torch.softmax(torch.from_numpy(logits).double(), dim=1).numpy()
    ours = {
        "probabilities": shares,
        "label": best,
        "digits": _digits(shares),
        "logits when asked for": np.array(given),
    }
    return BothSides(
        ours,
        {
            "probabilities": expected,
            "label": expected.argmax(axis=1),
            "digits": _digits(expected.round(6)),
            "logits when asked for": logits.astype(np.float64),
        },
        {
            "the next class": ours | {"probabilities": np.roll(shares, 1, axis=1)},
            "another label": ours | {"label": (best + 1) % classes},
            "not rounded": ours | {"digits": _digits(expected)},
        },
        "the rows",
        rule=_ROUNDED,
        framework_free=True,
        note="ours: NumPy, reference: torch.softmax",
    )
