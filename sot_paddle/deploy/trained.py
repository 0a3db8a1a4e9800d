"""A trained folder as something to export or to predict with: model, recipe, tokenizer's files."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path

from paddle import nn

from sot_paddle.data.glue_tasks import TASKS
from sot_paddle.data.tokenizer_families import FAMILIES
from sot_paddle.deploy.recipe import ImageRecipe, Recipe, TextRecipe
from sot_paddle.train.image_model import find_model_folder, load_trained
from sot_paddle.train.model_folder import CONFIG, read_object
from sot_paddle.train.text_model import find_text_folder, load_trained_text

_TEXT_INPUTS = ("input_ids", "token_type_ids", "attention_mask")


@dataclass(frozen=True)
class Trained:
    """A trained model.

    Attributes:
        model: with its weights, in evaluation mode, float32.
        recipe: what it needs beside its weights.
        folder: where it was found; the tokenizer's files are there.
        notes: what could not be read and was assumed.
    """

    model: nn.Layer
    recipe: Recipe
    folder: Path
    notes: tuple[str, ...] = ()

    @property
    def tokenizer_files(self) -> dict[str, bytes]:
        """Files of the tokenizer by name; {} for images."""
        details = self.recipe.preparation
        if not isinstance(details, TextRecipe):
            return {}
        found = (self.folder / name for name in FAMILIES[details.tokenizer].files)
        return {path.name: path.read_bytes() for path in found if path.is_file()}


def open_trained(place: str | Path, *, ema: bool = True) -> Trained:
    """Rebuild a model from a training's folder, or a folder with a model in it.

    Args:
        place: what ``tools/train_glue.py`` or ``tools/train_image.py`` wrote: the run's folder,
            its ``best`` or ``last``, or a checkpoint.
        ema: images: the moving average, as evaluations take it; False for the raw weights.

    Raises:
        ValueError: there is no such model, or its files do not fit together.
    """
    place = Path(place)
    folder = find_text_folder(place) if place.is_dir() else None
    if folder is not None:
        return _text(folder)
    folder = find_model_folder(place)
    if folder is None:
        raise ValueError(
            f"{place} holds no trained model: give the folder that tools/train_glue.py or "
            "tools/train_image.py wrote, or its best or last"
        )
    return _image(place, folder, ema)


def _text(folder: Path) -> Trained:
    found = load_trained_text(folder)
    tokenizer = found.tokenizer
    taken = inspect.signature(found.model.forward).parameters
    task = TASKS.get(str(read_object(folder / CONFIG).get("task", "")).lower())
    recipe = Recipe(
        found.model.name,
        found.labels,
        tuple(name for name in _TEXT_INPUTS if name in taken),
        TextRecipe(
            found.model.backbone.tokenizer,
            tokenizer.max_length,
            found.padding,
            tokenizer.do_lower_case,
            found.num_texts,
            task.text if task else (),
        ),
    )
    return Trained(found.model, recipe, folder, found.notes)


def _image(place: Path, folder: Path, ema: bool) -> Trained:
    model, config = load_trained(place, ema=ema)
    transform = (config.img_size, config.crop_pct, config.interpolation, config.mean, config.std)
    classes = config.classes or tuple(map(str, range(config.num_classes)))
    recipe = Recipe(model.name, classes, ("images",), ImageRecipe(*transform))
    return Trained(model, recipe, folder)
