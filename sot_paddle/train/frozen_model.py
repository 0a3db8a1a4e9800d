"""A frozen language model from a checkpoint, for commands that use its hidden states."""

from __future__ import annotations

from pathlib import Path

from sot_paddle.data.stored.live_sources import FrozenModel
from sot_paddle.data.subword import SubwordTokenizer
from sot_paddle.data.tokenizer_families import FAMILIES
from sot_paddle.distributed import say
from sot_paddle.registry import TEXT_BACKBONES
from sot_paddle.tasks.state_options import StateRows
from sot_paddle.tasks.text_options import CheckpointOptions
from sot_paddle.train import pretrained


def load_frozen(options: StateRows) -> FrozenModel:
    """Read a checkpoint: a Hugging Face folder, or a folder that tools/train_glue.py wrote.

    Args:
        options: which, and the tokens of a row.

    Raises:
        ValueError: nothing there, or a model with fewer positions.
    """
    found = pretrained.find(options)
    model = pretrained.build(options, found, 2)
    loaded, _ = pretrained.load(model, found)
    model.eval()
    for parameter in model.parameters():
        parameter.stop_gradient = True
    family = FAMILIES[model.backbone.tokenizer]
    tokenizer = family.from_files(found.vocabulary, max_length=options.length, tie_break="fast")
    say(f"encoder: {loaded} tensors from {found.origin}")
    return FrozenModel(model, tokenizer, options.length)


def read_tokenizer(options: CheckpointOptions, max_length: int) -> SubwordTokenizer:
    """The tokenizer alone, for states that are stored.

    Raises:
        ValueError: no vocabulary is named, or there is none.
    """
    place = Path(options.tokenizer_name or options.model_name_or_path)
    if not str(place) or not place.exists():
        raise ValueError(f"{str(place)!r} holds no vocabulary: give --tokenizer_name (its folder)")
    family = FAMILIES[TEXT_BACKBONES[options.model_type].tokenizer]
    return family.build(place, max_length=max_length, tie_break="fast")
