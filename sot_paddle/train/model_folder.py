"""Models rebuilt from a checkpoint of any kind, and trained ones with all that they go with."""

from __future__ import annotations

import dataclasses
import logging
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddle import nn

from sot_paddle.checkpoint import FORMAT, metadata_json
from sot_paddle.config import (
    HEADS,
    PLAIN,
    SECOND_ORDER,
    build_record,
    require_one_of,
    some,
)
from sot_paddle.convert.formats.checkpoint_reading import (
    BIAS_TABLE,
    POSITIONS,
    Fitted,
    read_for_model,
)
from sot_paddle.convert.formats.source import Source, open_source
from sot_paddle.data.glue_tasks import TASKS
from sot_paddle.data.image_transforms import EvalTransform
from sot_paddle.data.subword import HEAD, SubwordTokenizer
from sot_paddle.data.tokenizers import FAMILIES
from sot_paddle.distributed import say
from sot_paddle.reading import (
    MANIFEST,
    field_of,
    listed_files,
    named_in_refusals,
    read_json,
    verify,
)
from sot_paddle.registry import create_model, image_defaults, list_models
from sot_paddle.resampling import window_of
from sot_paddle.train import pretrained, run_folder
from sot_paddle.train.run_folder import CONFIG, EMA, WEIGHTS, config_file
from sot_paddle.weights import (
    check_options,
    fill,
    flat_options,
    load_weights,
    stated_options,
)

_LOG = logging.getLogger(__name__)

_KIND = "sot_paddle image model"
"""What config.json says of a model of images; one of texts has the options of its head."""
_LENGTH = 128
"""Tokens of a row of text where the run's options are not there: the default of training."""
_RESAMPLED = ("img_size",)
"""Options that a checkpoint may differ in: its tensors are fitted to the model's."""
_OF_TOKENS = ("token_type", "token_dim", "large_output", "dense_norm", "patch_size", "patch_norm")
"""Options of the token embedding; without effect where that starts afresh."""


@dataclass(frozen=True, kw_only=True)
class ImageModelConfig(EvalTransform):
    """Everything that rebuilds an image model, and its evaluation transform."""

    model: str
    num_classes: int
    options: dict  # flat ones of ``create_model``, all of them
    classes: tuple[str, ...]  # names; a label is a position in it

    def file(self) -> dict[str, bytes]:
        """The configuration as a file of the model's folder."""
        return config_file({"kind": _KIND, **dataclasses.asdict(self)})


def find_folder(place: Path, *, of_images: bool) -> Path | None:
    """The folder with a model that a path means: itself, ``best`` or ``last`` in it, or None.

    Args:
        of_images: a model of images, else one of texts.
    """
    folders = [place.parent] if place.is_file() else [place, place / "best", place / "last"]
    for folder in folders:
        if folder is not folders[0] and folder.is_dir() and listed_files(folder / MANIFEST):
            verify(folder / CONFIG)  # it is a run's: it has one, or is damaged
        elif not os.path.lexists(folder / CONFIG):
            continue
        content = read_json(folder / CONFIG)
        is_image_model = content.get("kind") == _KIND
        is_text_model = isinstance(content.get("sot_head"), dict)
        if is_image_model if of_images else is_text_model:
            return folder
    return None


def weights_file(place: Path, *, ema: bool) -> Path | None:
    """The weights that a trained folder (or its run's folder, or a file in it) means, or None."""
    folder = find_folder(place, of_images=True)
    if folder is None:
        return None
    file = place if place.is_file() else folder / (EMA if ema else WEIGHTS)
    if not file.is_file():
        raise ValueError(f"{folder} has no {file.name}")
    return file


def read_model_config(folder: Path) -> ImageModelConfig:
    """Read the configuration of a trained folder."""
    path = folder / CONFIG
    values = {key: value for key, value in read_json(path).items() if key != "kind"}
    return build_record(ImageModelConfig, values, where=str(path))


def load_trained(place: str | Path, *, ema: bool = True) -> tuple[nn.Layer, ImageModelConfig]:
    """Rebuild a trained model from its folder (or the folder of its run, or its weights file).

    Args:
        ema: the moving average, as the original evaluates; False for the raw weights.
    """
    file = weights_file(Path(place), ema=ema)
    if file is None:
        raise ValueError(
            f"{place} holds no trained image model ({CONFIG} and {WEIGHTS} or {EMA}): give the "
            "folder that tools/train_image.py wrote, or its best or last"
        )
    config = read_model_config(file.parent)
    model = create_model(config.model, config.num_classes, **config.options)
    load_weights(model, file)
    model.eval()
    return model, config


def load_foreign(model: nn.Layer, place: Path, *, ema: bool | None = None) -> Fitted:
    """Load a checkpoint of any origin, sizes adapted, into a model.

    Args:
        model: of the registry; what the checkpoint does not fit keeps its initialisation.
        ema: None takes averaged weights where the file has them, as the original evaluates;
            False the raw ones.

    Returns:
        What was loaded and what was not; its notes have been said.
    """
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    fitted = read_for_model(place, model.name, shapes, ema=ema)
    parts = {name.partition(".")[0] for name in set(shapes) - set(fitted.fresh)}
    exempt = _RESAMPLED if "embed" in parts else (*_RESAMPLED, *_OF_TOKENS)
    stated = stated_options(fitted.metadata, model, has_head="head" in parts)
    check_options(place, stated, model, exempt=exempt)
    fill(model, fitted.arrays, place, fitted.fresh)
    for note in fitted.notes:
        say(note)
    if fitted.averaged is not None:
        say(f"taken: {'the moving average' if fitted.averaged else 'the raw weights'}")
    return fitted


def is_of_images(source: Source) -> bool:
    """Whether a checkpoint says that it is of an image model."""
    return source.metadata.get("model") in list_models("vision") and FORMAT in source.metadata


def stated_model(source: Source) -> tuple[str, int | None, dict[str, Any]]:
    """Registry name, classes and options of the image model that a file says it is of."""
    with named_in_refusals(source.path):
        head = metadata_json(source.metadata, "head_config")
        options = flat_options(metadata_json(source.metadata, "config"), head)
        classes = metadata_json(source.metadata, "num_classes", int) or None
    options.pop("model", None)
    classes = options.pop("num_classes", classes)
    name, shapes = source.metadata["model"], source.shapes
    if POSITIONS in shapes and "img_size" not in options:
        side = math.isqrt(shapes[POSITIONS][1] - 1)
        options["img_size"] = side * image_defaults(name).patch_size
    tables = [window_of(shape[0]) for key, shape in shapes.items() if key.endswith(BIAS_TABLE)]
    if tables and "window_size" not in options:
        options["window_size"] = max(tables)
    return name, classes, options


def from_pretrained(
    source: str | os.PathLike[str],
    *,
    head: str | None = None,
    num_classes: int | None = None,
    **options: Any,
) -> nn.Layer:
    """Build a model with the weights and the sizes of a checkpoint; nothing is written.

    Args:
        source: a Hugging Face folder or file (or a name in its cache), a file or folder that
            ``tools/convert_weights.py`` or `save_weights` wrote, or the folder of a training (its
            best weights; of images their moving average).
        head: of a language model: ``"mgcrp"`` or ``"plain"``; None for the checkpoint's own.
        num_classes: outputs of a new classifier; None for the checkpoint's own.
        options: of the model, as `create_model` takes them, such as ``q_dim=12``; they go before
            the checkpoint's.

    Returns:
        The model in evaluation mode. What the checkpoint does not have of the head is new, with
        random weights, and a log line names it.

    Raises:
        ValueError: there is no such checkpoint, or it does not tell what the model needs; says
            which file and what to give.
    """
    path = pretrained.locate(str(source), "")
    if path is None:
        raise ValueError(
            f"{source}: no such file or folder, nor a name in the hub cache, and nothing is "
            "downloaded (random weights: sot_paddle.create_model)"
        )
    path = weights_file(path, ema=True) or path
    if path.is_dir():
        path = find_folder(path, of_images=False) or path
    opened = open_source(path)
    of_images = is_of_images(opened)
    if of_images and head is not None:
        raise ValueError(f"{path} is of an image model: give pooling in the place of head")
    require_one_of("head", head, (None, *HEADS))
    new_head = options.get("pooling") or {"mgcrp": SECOND_ORDER}.get(head, head)
    if of_images:
        name, classes, stated = stated_model(opened)
    else:
        checkpoint = pretrained.read(path, opened, pooling=new_head)
        classes = checkpoint.num_classes
    outputs = classes if num_classes is None else num_classes
    if outputs is None:
        raise ValueError(
            f"{path} holds no trained classifier: give num_classes (and, of a language model, "
            "head='mgcrp' for the second-order head)"
        )
    if of_images:
        model = create_model(name, outputs, **{**stated, **options})
        fresh = load_foreign(model, path).fresh
    else:
        plain, trained_head = checkpoint.backbone.plain, checkpoint.head
        pooling = plain if new_head == PLAIN else new_head or trained_head.get("pooling", plain)
        of_head = trained_head if trained_head.get("pooling") == pooling else {"pooling": pooling}
        model = checkpoint.build(outputs, {**of_head, **options})
        fresh = pretrained.load(model, checkpoint)
        if not fresh:
            check_options(path, trained_head, model)
    asks_for_new = num_classes is not None or new_head is not None or (of_images and options)
    if fresh and not asks_for_new:
        raise ValueError(
            f"{path}: {fresh[0]} is missing or of another size: give the options that it was "
            "trained with, or num_classes (and of a language model head) for a new head"
        )
    if fresh and not of_images:  # of those it has been said
        _LOG.warning("%s: new, with random weights: %s", path, some(fresh))
    model.eval()
    return model


@dataclass(frozen=True)
class TextModel:
    """A trained text model and what its sentences go through."""

    model: nn.Layer  # with its weights, in evaluation mode
    tokenizer: SubwordTokenizer  # cuts and lower-cases as in training
    labels: tuple[str, ...]  # class names; () for regression
    num_texts: int | None  # 1 for sentences, 2 for pairs, None when the task is not one of GLUE's
    padding: str  # ``"max_length"`` or ``"longest"``, as in training


def load_trained_text(place: str | Path) -> TextModel:
    """Rebuild a trained model from the folder of ``tools/train_glue.py`` (or its ``best``).

    Length, padding and lower-casing come from the run's options. They belong to the model: the
    published head counts padded positions.

    Args:
        place: a run's folder, its ``best``, ``last`` or a checkpoint.
    """
    folder = find_folder(Path(place), of_images=False)
    if folder is None:
        raise ValueError(
            f"{place} holds no trained text model ({CONFIG} with sot_head): give the folder that "
            "tools/train_glue.py wrote, or its best"
        )
    model = from_pretrained(folder)
    config, where = read_json(folder / CONFIG), str(folder / CONFIG)
    options = _run_options(folder)
    limit = model.backbone.position_limit(model.encoder_config)
    length = options.get("max_seq_length") or min(_LENGTH, limit)
    tokenizer = (
        FAMILIES[model.backbone.tokenizer]
        .build(folder, do_lower_case=options.get("do_lower_case"), max_length=length)
        .truncating(options.get("trunc_medium", HEAD))
    )
    task = TASKS.get(str(config.get("task", "")).lower())
    return TextModel(
        model,
        tokenizer,
        tuple(map(str, field_of(config, "id2label", dict, where).values())),
        len(task.text) if task else None,
        options.get("padding", "max_length"),
    )


def _run_options(folder: Path) -> dict[str, Any]:
    """The options of the run that a folder belongs to, {} with a warning where there are none."""
    for place in (folder, folder.resolve().parent):
        if (place / run_folder.RUN).is_file():
            run = place / run_folder.RUN
            options = field_of(read_json(run), "options", dict, str(run), {})
            return {key: value for key, value in options.items() if value is not None}
    _LOG.warning(
        "no %s beside %s: sentences are padded to %d tokens and lower-cased as the vocabulary says",
        *(run_folder.RUN, folder, _LENGTH),
    )
    return {}
