"""A trained folder as something to export or to predict with: model, recipe, tokenizer's files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from paddle import nn

from sot_paddle.config import SPANS
from sot_paddle.data.image_transforms import EvalTransform
from sot_paddle.deploy.recipe import Recipe, TextRecipe
from sot_paddle.options import part_of
from sot_paddle.train.model_folder import find_folder, load_trained, load_trained_text

_TEXT_INPUTS = ("input_ids", "token_type_ids", "attention_mask")  # in the order of an export


@dataclass(frozen=True)
class Trained:
    """A trained model."""

    model: nn.Layer  # with its weights, in evaluation mode, float32
    recipe: Recipe
    folder: Path  # where it was found; the tokenizer's files are there


def open_trained(place: str | Path, *, ema: bool = True) -> Trained:
    """Rebuild a model from a training's folder, or a folder with a model in it.

    Args:
        place: what ``tools/train_glue.py`` or ``tools/train_image.py`` wrote: the run's folder, its
            ``best`` or ``last``, or a checkpoint.
        ema: images: the moving average, as evaluations take it; False for the raw weights.

    Raises:
        ValueError: there is no such model, its files do not fit together, or it answers questions.
    """
    place = Path(place)
    folder = find_folder(place, of_images=False) if place.is_dir() else None
    if folder is not None:
        return _text(folder)
    folder = find_folder(place, of_images=True)
    if folder is None:
        raise ValueError(
            f"{place} holds no trained model: give the folder that tools/train_glue.py or "
            "tools/train_image.py wrote, or its best or last (a model on hidden states, whose "
            "encoder it does not hold, predicts with tools/train_adapter.py --do_predict)"
        )
    model, config = load_trained(place, ema=ema)
    recipe = Recipe(model.name, config.classes, ("images",), part_of(config, EvalTransform))
    return Trained(model, recipe, folder)


def _text(folder: Path) -> Trained:
    subject = load_trained_text(folder)
    model, tokenizer = subject.model, subject.tokenizer
    if model.head_config.pooling == SPANS:
        raise ValueError(
            f"{folder} answers questions, which is neither exported nor predicted with: "
            f"give tools/train_squad.py --do_predict --model_name_or_path {folder} --predict_file"
        )
    preparation = TextRecipe(
        model.backbone.tokenizer,
        tokenizer.max_length,
        subject.padding,
        tokenizer.do_lower_case,
        subject.num_texts,
        tokenizer.trunc_medium,
    )
    unread = getattr(getattr(model, model.backbone.prefix), "unread_inputs", ())
    inputs = tuple(name for name in _TEXT_INPUTS if name not in unread)
    recipe = Recipe(model.name, subject.labels, inputs, preparation)
    return Trained(model, recipe, folder)
