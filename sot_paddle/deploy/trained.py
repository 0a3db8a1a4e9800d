"""A trained folder as something to export or to predict with: model, recipe, tokenizer's files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from paddle import nn

from sot_paddle.config import SPANS, build_record
from sot_paddle.data.glue_tasks import TASKS
from sot_paddle.data.squad.answers import DecodingOptions
from sot_paddle.deploy.recipe import Recipe, SpanRecipe, TextRecipe
from sot_paddle.reading import read_object
from sot_paddle.tasks.images import eval_transform
from sot_paddle.tasks.state_options import DECODING
from sot_paddle.train.model_folder import (
    TextModel,
    find_model_folder,
    load_trained,
    load_trained_text,
)
from sot_paddle.train.run_folder import RUN
from sot_paddle.train.saved_model import CONFIG, find_text_folder

_STRIDE = 128
"""As published."""
_TEXT_INPUTS = ("input_ids", "token_type_ids", "attention_mask")


@dataclass(frozen=True)
class Trained:
    """A trained model."""

    model: nn.Layer  # with its weights, in evaluation mode, float32
    recipe: Recipe
    folder: Path  # where it was found; the tokenizer's files are there
    notes: tuple[str, ...] = ()  # what could not be read and was assumed


def open_trained(place: str | Path, *, ema: bool = True) -> Trained:
    """Rebuild a model from a training's folder, or a folder with a model in it.

    Args:
        place: what ``tools/train_glue.py``, ``tools/train_squad.py`` or ``tools/train_image.py``
            wrote: the run's folder, its ``best`` or ``last``, or a checkpoint.
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
            "tools/train_image.py wrote, or its best or last (a model on hidden states, whose "
            "encoder it does not hold, predicts with tools/train_adapter.py --do_predict)"
        )
    model, config = load_trained(place, ema=ema)
    classes = config.classes or tuple(map(str, range(config.num_classes)))
    recipe = Recipe(model.name, classes, ("images",), eval_transform(config))
    return Trained(model, recipe, folder)


def _text(folder: Path) -> Trained:
    subject = load_trained_text(folder)
    tokenizer = subject.tokenizer
    task = TASKS.get(str(read_object(folder / CONFIG).get("task", "")).lower())
    recipe = Recipe(
        subject.model.name,
        subject.labels,
        text_inputs(subject.model),
        TextRecipe(
            subject.model.backbone.tokenizer,
            tokenizer.max_length,
            subject.padding,
            tokenizer.do_lower_case,
            subject.num_texts,
            task.text if task else (),
            tokenizer.trunc_medium,
        ),
        _spans(subject) if subject.model.head_config.pooling == SPANS else None,
    )
    return Trained(subject.model, recipe, folder, subject.notes)


def text_inputs(model: nn.Layer) -> tuple[str, ...]:
    """Names of the inputs that a language model reads, in the order of its export."""
    encoder = getattr(model, model.backbone.prefix)
    unread = getattr(encoder, "unread_inputs", ())
    return tuple(name for name in _TEXT_INPUTS if name not in unread)


def _spans(subject: TextModel) -> SpanRecipe:
    """How the run that a model comes from asked and answered, else as published."""
    names = {"null_score": "null_score", **DECODING}
    stated = {key: subject.options[name] for key, name in names.items() if name in subject.options}
    decoding = build_record(DecodingOptions, stated, where=RUN)
    stride = subject.options.get("doc_stride", _STRIDE)
    return build_record(SpanRecipe, {"stride": stride, "decoding": decoding}, where=RUN)
