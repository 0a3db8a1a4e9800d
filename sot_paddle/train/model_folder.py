"""Models rebuilt from a checkpoint of any kind; image models also from the folder of a training."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddle import nn

from sot_paddle.checkpoint import FORMAT, metadata_json
from sot_paddle.config import (
    HEAD_QKV_BIAS,
    HEADS,
    PLAIN,
    SECOND_ORDER,
    build_record,
    require_one_of,
    some,
)
from sot_paddle.convert.engine.build import build_plan
from sot_paddle.convert.engine.description import image_options
from sot_paddle.convert.engine.known_models import TEXT_FAMILIES
from sot_paddle.convert.engine.registry import fits, recognise, table_of
from sot_paddle.convert.formats.checkpoint_reading import (
    BIAS_TABLE,
    POSITIONS,
    Fitted,
    read_for_model,
)
from sot_paddle.convert.formats.source import Source
from sot_paddle.data.image_transforms import EvalTransform
from sot_paddle.distributed import say
from sot_paddle.reading import named_in_refusals, read_object
from sot_paddle.registry import create_model, image_defaults, list_models
from sot_paddle.resampling import window_of
from sot_paddle.train import pretrained
from sot_paddle.train.saved_model import (
    CONFIG,
    EMA,
    WEIGHTS,
    check_trained_head,
    config_file,
    find_folder,
    find_text_folder,
)
from sot_paddle.weights import check_options, fill_tensor, load_weights

_LOG = logging.getLogger(__name__)

KIND = "sot_paddle image model"
AVERAGE, RAW, ONLY = "the moving average", "the raw weights", "the only weights there are"
"""Which of a training's two sets of weights was taken."""
_RESAMPLED = ("img_size",)
"""Options that a checkpoint may differ in: its tensors are fitted to the model's."""
_OF_TOKENS = ("token_type", "token_dim", "large_output", "dense_norm", "patch_size", "patch_norm")
"""Options of the token embedding; without effect where that starts afresh."""


@dataclass(frozen=True, kw_only=True)
class ImageModelConfig(EvalTransform):
    """Everything that rebuilds an image model, and its evaluation transform.

    Attributes:
        options: flat options of ``create_model``, all of them.
        classes: class names; a label is a position in it.
    """

    model: str
    num_classes: int
    options: dict
    classes: tuple[str, ...]

    def build(self, **overrides: Any) -> nn.Layer:
        """The model with random weights; overrides go before the recorded options."""
        return create_model(self.model, self.num_classes, **{**self.options, **overrides})

    def file(self) -> dict[str, bytes]:
        """The configuration as a file of the model's folder."""
        return config_file({"kind": KIND, **dataclasses.asdict(self)})


def flat_options(model: nn.Layer) -> dict[str, Any]:
    """All options of a built image model, as ``create_model`` takes them."""
    head = dataclasses.asdict(model.head_config)
    head[HEAD_QKV_BIAS] = head.pop("qkv_bias")
    return dataclasses.asdict(model.backbone_config) | head


def find_model_folder(place: Path) -> Path | None:
    """The folder with an image model that a path means, or None; see `find_folder`."""
    return find_folder(place, lambda content: content.get("kind") == KIND)


def weights_file(place: Path, *, ema: bool) -> Path:
    """The weights that a trained folder (or its run's folder, or a file in it) means."""
    folder = find_model_folder(place)
    if folder is None:
        raise ValueError(
            f"{place} holds no trained image model ({CONFIG} and {WEIGHTS} or {EMA}): give the "
            "folder that tools/train_image.py wrote, or its best or last"
        )
    file = place if place.is_file() else folder / (EMA if ema else WEIGHTS)
    if not file.is_file():
        raise ValueError(f"{folder} has no {file.name}")
    return file


def read_model_config(folder: Path) -> ImageModelConfig:
    """Read the configuration of a trained folder."""
    path = folder / CONFIG
    names = {field.name for field in dataclasses.fields(ImageModelConfig)}
    values = read_object(path, dict.fromkeys(names, (object, bool)) | {"options": dict})
    values.pop("kind", None)
    options = values["options"]
    for name, value in options.items():
        options[name] = tuple(value) if isinstance(value, list) else value  # JSON has no tuples
    return build_record(ImageModelConfig, values, where=str(path))


def load_trained(place: str | Path, *, ema: bool = True) -> tuple[nn.Layer, ImageModelConfig]:
    """Rebuild a trained model from its folder (or the folder of its run, or its weights file).

    Args:
        ema: the moving average, as the original evaluates; False for the raw weights.
    """
    file = weights_file(Path(place), ema=ema)
    config = read_model_config(file.parent)
    model = config.build()
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
    state = model.state_dict()
    shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
    fitted = read_for_model(place, model.name, shapes, ema=ema)
    taken = set(state) - set(fitted.fresh)
    parts = {name.partition(".")[0] for name in taken}
    exempt = _RESAMPLED if "embed" in parts else (*_RESAMPLED, *_OF_TOKENS)
    check_options(place, fitted.metadata, model, has_head="head" in parts, exempt=exempt)
    for name in taken:
        fill_tensor(name, state[name], fitted.arrays[name], place)
    for note in fitted.notes:
        say(note)
    return fitted


def weight_set(file: Path, fitted: Fitted) -> str:
    """Which set of weights was taken from a file, of a training or of any origin, in words."""
    if find_model_folder(file) is not None:
        return {EMA: AVERAGE, WEIGHTS: RAW}.get(file.name, ONLY)
    return {True: AVERAGE, False: RAW, None: ONLY}[fitted.averaged]


def is_of_images(source: Source) -> bool:
    """Whether a checkpoint is of an image model."""
    if FORMAT in source.metadata:
        return source.metadata.get("model") in list_models("vision")
    table = table_of(source.tensors.shapes)
    return table is not None and table.family not in TEXT_FAMILIES


def image_from_pretrained(
    place: Path, source: Source, num_classes: int | None, options: Mapping[str, Any]
) -> nn.Layer:
    """Build an image model with the sizes and weights of a checkpoint."""
    if find_model_folder(place) is not None:
        config = read_model_config(source.path.parent)
        name, classes, stated = config.model, config.num_classes, config.options
    else:
        with named_in_refusals(source.path):
            name, classes, stated = stated_model(source)
    if num_classes is None and classes is None:
        raise ValueError(f"{place} holds no trained classifier: give num_classes")
    if "num_heads" not in {**stated, **options} and not _has_size(name, stated):
        raise ValueError(f"{place} is no {name} by its size and tells no num_heads: give them")
    outputs = classes if num_classes is None else num_classes
    model = create_model(name, outputs, **{**stated, **options})
    fitted = load_foreign(model, source.path)
    if fitted.fresh and num_classes is None and not options:
        raise ValueError(
            f"{place} gives no value to {fitted.fresh[0]} of {name}: give num_classes for a new "
            "classifier, or the options that the model was made with"
        )
    model.eval()
    return model


def stated_model(source: Source) -> tuple[str, int | None, dict[str, Any]]:
    """Registry name, classes and options of the image model that a file is of."""
    shapes = source.tensors.shapes
    if FORMAT in source.metadata:
        name = source.metadata["model"]
        classes = metadata_json(source.metadata, "num_classes", int) or None
        head = metadata_json(source.metadata, "head_config")
        if head:
            head[HEAD_QKV_BIAS] = head.pop("qkv_bias")
        stated = {**metadata_json(source.metadata, "config"), **head}
    else:
        layout, side = recognise(shapes)
        table = table_of(shapes)
        names = [name for name in list_models("vision") if fits(table, name)]
        plan = build_plan(layout, names[0], shapes, reverse=side == "paddle")
        stated, classes = image_options(plan), None
        name = next((name for name in names if _has_size(name, stated)), names[0])
    options = {key: tuple(v) if isinstance(v, list) else v for key, v in stated.items()}
    options.pop("model", None)
    classes = options.pop("num_classes", classes)
    if POSITIONS in shapes and "img_size" not in options:
        side = math.isqrt(shapes[POSITIONS][1] - 1)
        options["img_size"] = side * image_defaults(name).patch_size
    tables = [window_of(shape[0]) for key, shape in shapes.items() if key.endswith(BIAS_TABLE)]
    if tables and "window_size" not in options:
        options["window_size"] = max(tables)
    return name, classes, options


def _has_size(name: str, stated: Mapping[str, Any]) -> bool:
    """Whether a registry name has the width and depth that a file tells."""
    defaults = dataclasses.asdict(image_defaults(name))
    sizes = ("embed_dim", "depth", "depths")
    return all(
        json.dumps(defaults[key]) == json.dumps(stated[key]) for key in sizes if key in stated
    )


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
    if find_model_folder(path) is not None:
        path = weights_file(path, ema=True)
    if path.is_dir():
        path = find_text_folder(path) or path
    opened = pretrained.open_weights(path)
    if is_of_images(opened):
        if head is not None:
            raise ValueError(f"{path} is of an image model: give pooling in the place of head")
        return image_from_pretrained(path, opened, num_classes, options)
    require_one_of("head", head, (None, *HEADS))
    new_head = options.get("pooling") or {"mgcrp": SECOND_ORDER}.get(head, head)
    checkpoint = pretrained.read(path, opened, pooling=new_head)
    pretrained.note_unstated(checkpoint, options)
    classes = checkpoint.num_classes if num_classes is None else num_classes
    if classes is None:
        raise ValueError(
            f"{checkpoint.origin} holds no trained classifier: give num_classes (and head='mgcrp' "
            "for the second-order head)"
        )
    plain = checkpoint.backbone.plain
    pooling = plain if new_head == PLAIN else new_head or checkpoint.head.get("pooling", plain)
    of_head = checkpoint.head if checkpoint.head.get("pooling") == pooling else {"pooling": pooling}
    model = checkpoint.build(classes, {**of_head, **options})
    _, fresh = pretrained.load(model, checkpoint)
    if not fresh:
        check_trained_head(model, checkpoint.head, checkpoint.origin)
    elif num_classes is None and new_head is None:
        raise ValueError(
            f"{checkpoint.origin}: {fresh[0]} is missing or of another size: give the options that "
            "its head was trained with, or head and num_classes for a new one"
        )
    else:
        _LOG.warning("%s: new, with random weights: %s", checkpoint.origin, some(fresh))
    model.eval()
    return model
