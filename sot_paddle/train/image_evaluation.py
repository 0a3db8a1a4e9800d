"""The image evaluation command: weights of any origin, and their scores."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paddle import nn

from sot_paddle import distributed
from sot_paddle.convert.formats.source import open_source
from sot_paddle.data import imagenet_a
from sot_paddle.data.image_folder import check_class_count
from sot_paddle.data.image_transforms import EvalTransform
from sot_paddle.distributed import say
from sot_paddle.registry import create_model
from sot_paddle.runtime import environment_stamp
from sot_paddle.tasks import images
from sot_paddle.tasks.image_options import ImageEvalConfig
from sot_paddle.train import model_folder, run_folder
from sot_paddle.train.device import prepare_device, seed_everything
from sot_paddle.train.evaluation import duration, predict
from sot_paddle.train.model_folder import ImageModelConfig


def run_config(config: ImageEvalConfig) -> None:
    """Evaluate, print and write what the options ask for."""
    content = evaluate(config)
    if distributed.rank():
        return
    scores = content["scores"]
    top5 = f", top-5 {scores['top5']:.2f} %" if "top5" in scores else ""
    print(
        f"top-1 {scores['top1']:.2f} %{top5}, loss {scores['loss']:.4f}, {content['images']} "
        f"images in {duration(content['seconds'])} ({content['images_per_second']:.0f} images/s)"
    )
    if config.output:
        Path(config.output).parent.mkdir(parents=True, exist_ok=True)
        run_folder.write_json(Path(config.output), content)


def evaluate(config: ImageEvalConfig) -> dict[str, Any]:
    """Evaluate a model; returns JSON-ready scores (top1, top5, loss), images and options.

    Raises:
        ValueError: options, images, weights or a destination that cannot be used.
        TrainingStopped: the model's output is not finite.
    """
    prepare_device(dtype=config.dtype, cpu=config.cpu, cpu_precision=config.cpu_precision)
    if config.output and Path(config.output).is_dir():
        raise ValueError(f"--output {config.output}: expected a file's name, got a folder")
    seed_everything(0)
    place = Path(config.weights)
    if not place.exists():
        raise ValueError(f"--weights {place}: there is no such file or folder")
    file = model_folder.weights_file(place, ema=not config.no_ema)
    trained = model_folder.read_model_config(file.parent) if file else None
    transform = _transform(config, trained)
    listed = images.load_evaluation(config, transform)
    classes = listed.source.classes
    model = _build(config, file or place, trained, len(classes))
    _check_classes(config, model, trained, classes)
    say(f"{model.name}: weights {file or place}")
    say(f"{len(listed)} images of {len(classes)} classes, {transform.img_size} pixels")
    split = images.ImageSplit(listed, config.batch_size, config.workers, config.dtype)
    predicted = predict(model, split)
    logits = imagenet_a.gather_scores(predicted.outputs) if config.imagenet_a else predicted.outputs
    return {
        "model": model.name,
        "weights": str(file or place),
        "images": len(predicted.labels),
        "scores": images.score(logits, predicted.labels),
        "seconds": predicted.seconds,
        "images_per_second": len(predicted.labels) / predicted.seconds,
        "processes": distributed.world_size(),
        "options": vars(config),
        "environment": environment_stamp(),
    }


def _build(
    config: ImageEvalConfig, place: Path, trained: ImageModelConfig | None, in_data: int
) -> nn.Layer:
    """The model that the options name, of a training or any checkpoint, with its weights.

    Args:
        in_data: classes of the images, as many as the model's where nothing else says them.
    """
    if trained:
        name, classes, stated = trained.model, trained.num_classes, trained.options
        if config.model and config.model != name:
            raise ValueError(f"{place} is of a {name}, and --model is {config.model}: drop it")
        if config.num_classes is not None and config.num_classes != classes:
            raise ValueError(
                f"{place} has {classes} classes, and --num-classes is {config.num_classes}"
            )
    else:
        name, stated = config.model, {}
        classes = config.num_classes
        if classes is None:
            classes = imagenet_a.IMAGENET_CLASSES if config.imagenet_a else in_data
        if not name:
            source = open_source(place)
            if not model_folder.is_of_images(source):
                raise ValueError(f"{place} does not say which image model it is of: give --model")
            name, _, stated = model_folder.stated_model(source)
    size = {} if config.img_size is None else {"img_size": config.img_size}
    model = create_model(name, classes, **{**stated, **config.model_options, **size})
    ema = False if config.no_ema and not trained else None
    fitted = model_folder.load_foreign(model, place, ema=ema)
    if fitted.fresh:  # to evaluate a tensor at its random start would mean nothing
        raise ValueError(
            f"{place} does not fit {name} with {classes} classes: it gives no value to "
            f"{fitted.fresh[0]}; check --model, --num-classes and --set"
        )
    model.eval()
    return model


def _transform(config: ImageEvalConfig, trained: ImageModelConfig | None) -> EvalTransform:
    """The options, then what the weights' folder says, then the published values."""
    base = trained or EvalTransform()
    fields = dataclasses.fields(EvalTransform)
    options = {field.name: getattr(config, field.name) for field in fields}
    return dataclasses.replace(base, **{k: v for k, v in options.items() if v is not None})


def _check_classes(
    config: ImageEvalConfig,
    model: nn.Layer,
    trained: ImageModelConfig | None,
    classes: Sequence[str],
) -> None:
    """Refuse images of other classes than the model's."""
    if config.imagenet_a:
        if model.num_classes != imagenet_a.IMAGENET_CLASSES:
            raise ValueError(
                "--imagenet-a needs a model of ImageNet's 1000 classes, this one has "
                f"{model.num_classes}"
            )
        return
    check_class_count(classes, model.num_classes, config.data_dir)
    for in_model, in_data in zip(trained.classes if trained else (), classes, strict=False):
        if in_model != in_data:
            raise ValueError(
                f"{config.data_dir} has other classes than the model was trained on: {in_data!r} "
                f"where the model has {in_model!r}"
            )
