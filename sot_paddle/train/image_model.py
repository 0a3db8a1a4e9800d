"""An image model on disk: a folder from which it is rebuilt without a flag, and other weights."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddle import nn

from sot_paddle.config import HEAD_QKV_BIAS, build_record
from sot_paddle.convert.formats.checkpoint_reading import Fitted, read_for_model
from sot_paddle.data.image_transforms import EvalTransform
from sot_paddle.distributed import say
from sot_paddle.reading import read_object
from sot_paddle.registry import create_model
from sot_paddle.train.model_folder import CONFIG, EMA, WEIGHTS, config_file, find_folder
from sot_paddle.weights import check_options, fill_tensor, load_weights

KIND = "sot_paddle image model"
AVERAGE, RAW, ONLY = "the moving average", "the raw weights", "the only weights there are"
"""Which of a training's two sets of weights was taken."""
_RESAMPLED = ("img_size", "window_size")
"""Options that a checkpoint may differ in: its tensors are fitted to the model's."""
_OF_TOKENS = ("token_type", "token_dim", "large_output", "dense_norm", "patch_size", "patch_norm")
"""Options of the token embedding; without effect where that starts afresh."""


@dataclass(frozen=True, kw_only=True)
class ImageModelConfig(EvalTransform):
    """Everything that rebuilds an image model, and its evaluation transform.

    Attributes:
        model: registry name.
        num_classes: K.
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
    """The folder with an image model that a path means, or None; see model_folder.find_folder."""
    return find_folder(place, lambda content: content.get("kind") == KIND)


def weights_file(place: Path, *, ema: bool) -> Path:
    """The weights that a trained folder (or its run's folder, or a file in it) means."""
    folder = find_model_folder(place)
    if folder is None:
        raise ValueError(
            f"{place} holds no trained image model ({CONFIG} and {WEIGHTS} or {EMA}): give the "
            "folder that tools/train_image.py wrote, or its best or last"
        )
    if place.is_file() and place.name == EMA and not ema:
        raise ValueError(f"{place} is the moving average: name {WEIGHTS} for the raw weights")
    file = place if place.is_file() else folder / (EMA if ema else WEIGHTS)
    if not file.is_file():
        raise ValueError(f"{folder} has no {file.name}")
    return file


def weight_set(file: Path) -> str:
    """Which set of weights a trained folder's file holds, in words."""
    return {EMA: AVERAGE, WEIGHTS: RAW}.get(file.name, ONLY)


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
        place: as ``tools/train_image.py`` left it.
        ema: the moving average, as the original evaluates; False for the raw weights.

    Returns:
        (model in evaluation mode, its configuration).
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
        place: a file or folder.
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


def fitted_set(fitted: Fitted) -> str:
    """Which set of weights was taken from a file that is no trained folder's, in words."""
    return {True: AVERAGE, False: RAW, None: ONLY}[fitted.averaged]
