"""A trained text model on disk: rebuilt from its folder without a flag, tokenizer included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paddle import nn

from sot_paddle.config import SPANS
from sot_paddle.data.glue_tasks import TASKS
from sot_paddle.data.subword import HEAD, SubwordTokenizer
from sot_paddle.data.tokenizers import FAMILIES
from sot_paddle.reading import field_of, read_object
from sot_paddle.tasks.state_options import SQUAD_LENGTH
from sot_paddle.train import run_folder
from sot_paddle.train.model_folder import from_pretrained
from sot_paddle.train.saved_model import CONFIG, find_text_folder

_LENGTH = 128
"""Tokens of a row where the run's options are not there: the default of training."""


@dataclass(frozen=True)
class TextModel:
    """A trained text model and what its sentences go through.

    Attributes:
        model: with its weights, in evaluation mode.
        tokenizer: cuts and lower-cases as in training.
        labels: class names; () for regression.
        num_texts: 1 for sentences, 2 for pairs, None when the task is not one of GLUE's.
        padding: ``"max_length"`` or ``"longest"``, as in training.
        notes: what could not be read and was assumed.
        options: of the run, {} when they are not there.
    """

    model: nn.Layer
    tokenizer: SubwordTokenizer
    labels: tuple[str, ...]
    num_texts: int | None
    padding: str
    notes: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


def load_trained_text(place: str | Path, *, max_length: int | None = None) -> TextModel:
    """Rebuild a trained model from the folder of ``tools/train_glue.py`` (or its ``best``).

    Length, padding and lower-casing come from the run's options. They belong to the model: the
    published head counts padded positions.

    Args:
        place: a run's folder, its ``best``, ``last`` or a checkpoint.
        max_length: tokens of a row, None for the run's.
    """
    folder = find_text_folder(Path(place))
    if folder is None:
        raise ValueError(
            f"{place} holds no trained text model ({CONFIG} with sot_head): give the folder that "
            "tools/train_glue.py wrote, or its best"
        )
    model = from_pretrained(folder)
    config, where = read_object(folder / CONFIG), str(folder / CONFIG)
    options, notes = _options(folder)
    limit = model.backbone.position_limit(model.encoder_config)
    usual = SQUAD_LENGTH if model.head_config.pooling == SPANS else _LENGTH
    length = max_length or options.get("max_seq_length") or min(usual, limit)
    if length > limit:
        raise ValueError(f"{folder} has positions for {limit} tokens, asked for {length}")
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
        notes,
        options,
    )


def _options(folder: Path) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The options of the run that a folder belongs to, and a note when they are not there."""
    for place in (folder, folder.resolve().parent):
        if (place / run_folder.RUN).is_file():
            run = place / run_folder.RUN
            options = field_of({"options": {}, **read_object(run)}, "options", dict, str(run))
            return {key: value for key, value in options.items() if value is not None}, ()
    note = f"no {run_folder.RUN} beside {folder}: sentences are padded to {_LENGTH} tokens and"
    return {}, (f"{note} lower-cased as the vocabulary says, unless the options say otherwise",)
