"""The image evaluation command: weights of any origin, scores, per-class table, predictions."""

from __future__ import annotations

import csv
import dataclasses
import io
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from paddle import nn
from scipy.special import softmax

from sot_paddle import distributed
from sot_paddle.atomic import write_atomically
from sot_paddle.convert.formats.source import open_source
from sot_paddle.data import imagenet_a
from sot_paddle.data.image_dataset import ImageEvalSet
from sot_paddle.data.image_folder import check_class_count
from sot_paddle.data.image_transforms import EvalTransform
from sot_paddle.distributed import say
from sot_paddle.registry import create_model
from sot_paddle.runtime import environment_stamp
from sot_paddle.tasks.image_options import ImageEvalConfig
from sot_paddle.tasks.images import (
    TRANSFORM,
    evaluation_split,
    load_evaluation,
    score,
    score_classes,
)
from sot_paddle.tasks.task import Predictions
from sot_paddle.train import run_folder
from sot_paddle.train.device import prepare_device, seed_everything
from sot_paddle.train.evaluation import duration, predict
from sot_paddle.train.model_folder import (
    ImageModelConfig,
    find_model_folder,
    is_of_images,
    load_foreign,
    read_model_config,
    stated_model,
    weight_set,
    weights_file,
)

_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Subject:
    """A model to evaluate."""

    model: nn.Layer
    transform: EvalTransform
    classes: tuple[str, ...]
    origin: str
    weight_set: str


def run_config(config: ImageEvalConfig) -> None:
    """Evaluate, print and write what the options ask for."""
    content, predictions = evaluate(config)
    if distributed.rank():
        return
    print_report(content)
    if config.output:
        run_folder.write_json(Path(config.output), content)
    if config.predictions:
        write_atomically(config.predictions, predictions().encode())


def evaluate(config: ImageEvalConfig) -> tuple[dict[str, Any], Callable[[], str]]:
    """Evaluate a model.

    Returns:
        (``scores`` (top1, top5, loss), ``classes`` (the per-class table), ``images``,
        ``images_per_second``, ``weights``, ``model`` and the options, JSON-ready; what makes the
        CSV with a line for each image).

    Raises:
        ValueError: options, images, weights or destinations that cannot be used.
        TrainingStopped: the model's output is not finite.
    """
    prepare_device(dtype=config.dtype, cpu=config.cpu, cpu_precision=config.cpu_precision)
    distributed.on_first_process(lambda: _check_destinations(config))
    seed_everything(0)
    subject = find_subject(config)
    images = load_evaluation(config, subject.transform)
    classes = _check_classes(config, subject, images)
    say(f"{subject.model.name}: weights {subject.origin} ({subject.weight_set})")
    say(f"{len(images)} images of {len(classes)} classes, {subject.transform.img_size} pixels")
    split = evaluation_split(images, config.batch_size, config.workers, config.dtype)
    predicted = predict(subject.model, split)
    logits = imagenet_a.gather_scores(predicted.outputs) if config.imagenet_a else predicted.outputs
    table = score_classes(logits, predicted.labels, classes)
    content = {
        "model": subject.model.name,
        "weights": subject.origin,
        "weight_set": subject.weight_set,
        "images": len(predicted.labels),
        "scores": score(logits, predicted.labels),
        "classes": [dataclasses.asdict(row) for row in table],
        "seconds": predicted.seconds,
        "images_per_second": len(predicted.labels) / predicted.seconds,
        "processes": distributed.world_size(),
        "options": vars(config),
        "environment": environment_stamp(),
    }
    return content, lambda: _predictions(predicted, logits, images, classes)


def find_subject(config: ImageEvalConfig) -> Subject:
    """Build the model that the options name, of a training or any checkpoint; load its weights."""
    place = Path(config.weights)
    if not place.exists():
        raise ValueError(f"--weights {place}: there is no such file or folder")
    trained, ema = None, False if config.no_ema else None
    if find_model_folder(place) is not None:
        place, ema = weights_file(place, ema=not config.no_ema), None
        trained = read_model_config(place.parent)
        name, classes, stated = trained.model, trained.num_classes, trained.options
        if config.model and config.model != name:
            raise ValueError(f"{place} is of a {name}, and --model is {config.model}: drop it")
        if config.num_classes is not None and config.num_classes != classes:
            raise ValueError(
                f"{place} has {classes} classes, and --num-classes is {config.num_classes}"
            )
    else:
        name, classes, stated = config.model, config.num_classes, {}
        if classes is None and config.imagenet_a:
            classes = imagenet_a.IMAGENET_CLASSES
        elif classes is None:
            listed = load_evaluation(config, _transform(config, None), report=_LOG.debug)
            classes = len(listed.source.classes)  # said later
        if not name:
            source = open_source(place)
            if not is_of_images(source):
                raise ValueError(f"{place} is no checkpoint of an image model")
            name, _, stated = stated_model(source)
    size = {} if config.img_size is None else {"img_size": config.img_size}
    model = create_model(name, classes, **{**stated, **config.model_options, **size})
    fitted = load_foreign(model, place, ema=ema)
    if fitted.fresh:  # to evaluate a tensor at its random start would mean nothing
        raise ValueError(
            f"{place} does not fit {name} with {classes} classes: it gives no value to "
            f"{fitted.fresh[0]}; check --model, --num-classes and --set"
        )
    model.eval()
    classes = trained.classes if trained else ()
    transform, which = _transform(config, trained), weight_set(place, fitted)
    return Subject(model, transform, classes, str(place), which)


def _transform(config: ImageEvalConfig, trained: ImageModelConfig | None) -> EvalTransform:
    """The options, then what the weights' folder says, then the published values."""
    base = trained or EvalTransform()
    options = {field.name: getattr(config, field.name) for field in TRANSFORM}
    return dataclasses.replace(base, **{k: v for k, v in options.items() if v is not None})


def _check_classes(
    config: ImageEvalConfig, subject: Subject, images: ImageEvalSet
) -> tuple[str, ...]:
    classes = images.source.classes
    outputs = subject.model.num_classes
    if config.imagenet_a:
        if outputs != imagenet_a.IMAGENET_CLASSES:
            raise ValueError(
                f"--imagenet-a needs a model of ImageNet's 1000 classes, this one has {outputs}"
            )
        if subject.classes:
            imagenet_a.require_imagenet_order(subject.classes, subject.origin)
        return classes
    check_class_count(classes, outputs, config.data_dir)
    if subject.classes and subject.classes != classes:
        pairs = zip(subject.classes, classes, strict=True)
        in_model, in_data = next(pair for pair in pairs if pair[0] != pair[1])
        raise ValueError(
            f"{config.data_dir} has other classes than the model was trained on: {in_data!r} where "
            f"the model has {in_model!r}"
        )
    return classes


def _predictions(
    predicted: Predictions, logits: np.ndarray, images: ImageEvalSet, classes: Sequence[str]
) -> str:
    """CSV: image, label, prediction and the prediction's share of the softmax."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["image", "label", "prediction", "probability"])
    shares = softmax(logits.astype(np.float64), axis=1)
    for row, index in enumerate(predicted.indices):
        choice = int(logits[row].argmax())
        label = classes[predicted.labels[row]]
        name = images.source.name(int(index))
        writer.writerow([name, label, classes[choice], f"{shares[row, choice]:.6f}"])
    return stream.getvalue()


def _check_destinations(config: ImageEvalConfig) -> None:
    """Refuse folders in the place of the result before the work; makes the folders around it."""
    for flag, name in {"--output": config.output, "--predictions": config.predictions}.items():
        if name and Path(name).is_dir():
            raise ValueError(f"{flag} {name}: expected a file's name, got a folder")
        if name:
            Path(name).parent.mkdir(parents=True, exist_ok=True)


def print_report(content: Mapping[str, Any]) -> None:
    """Print the per-class table and the scores on stdout."""
    rows = content["classes"]
    width = max(len("class"), *(len(row["name"]) for row in rows))
    print(f"{'class':{width}}  images   top-1  most often taken for")
    for row in rows:
        other = f"{row['mistaken_for']} ({row['mistakes']})" if row["mistaken_for"] else ""
        print(f"{row['name']:{width}}  {row['images']:6d}  {row['top1']:6.2f}  {other}".rstrip())
    scores = content["scores"]
    top5 = f", top-5 {scores['top5']:.2f} %" if "top5" in scores else ""
    print(
        f"top-1 {scores['top1']:.2f} %{top5}, loss {scores['loss']:.4f}, {content['images']} "
        f"images in {duration(content['seconds'])} ({content['images_per_second']:.0f} images/s)"
    )
