"""A frozen language model from a checkpoint, for commands that use its hidden states."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from sot_paddle.data.stored.live_sources import FrozenModel
from sot_paddle.data.subword import SubwordTokenizer
from sot_paddle.data.tokenizer_families import FAMILIES
from sot_paddle.distributed import say
from sot_paddle.registry import TEXT_BACKBONES
from sot_paddle.tasks.glue_options import TrainConfig
from sot_paddle.train import pretrained
from sot_paddle.train.pretrained import Converter


class EncoderOptions(Protocol):
    """The options that name a checkpoint and its tokenizer; as those of the same names of GLUE
    training."""

    model_type: str
    model_name_or_path: str
    tokenizer_name: str
    config_name: str
    cache_dir: str


def checkpoint_files(options: EncoderOptions) -> dict[str, Path | None]:
    """What is read from the disk for the model, by flag; None for a flag that is not given."""
    return pretrained.sources(_as_text(options)) if options.model_name_or_path else {}


def load_frozen(options: EncoderOptions, max_length: int, convert: Converter) -> FrozenModel:
    """Read a checkpoint: a Hugging Face folder, or a folder that tools/train_glue.py wrote.

    Args:
        options: which.
        max_length: tokens of a row.
        convert: turns a checkpoint of PyTorch into this project's tensors.

    Raises:
        ValueError: nothing there, or a model with fewer positions.
    """
    config = _as_text(options)
    found = pretrained.find(config, convert)
    model = pretrained.build(config, found, 2)
    loaded, _ = pretrained.load(model, found)
    model.eval()
    for parameter in model.parameters():
        parameter.stop_gradient = True
    limit = model.backbone.position_limit(model.encoder_config)
    if max_length > limit:
        raise ValueError(f"{found.origin} has positions for {limit} tokens, asked for {max_length}")
    family = FAMILIES[model.backbone.tokenizer]
    tokenizer = family.from_files(found.vocabulary, max_length=max_length, tie_break="fast")
    say(f"encoder: {loaded} tensors from {found.origin}")
    return FrozenModel(model, tokenizer, max_length)


def read_tokenizer(options: EncoderOptions, max_length: int) -> SubwordTokenizer:
    """The tokenizer alone, for states that are stored.

    Raises:
        ValueError: no vocabulary is named, or there is none.
    """
    place = Path(options.tokenizer_name or options.model_name_or_path)
    if not str(place) or not place.exists():
        raise ValueError(f"{str(place)!r} holds no vocabulary: give --tokenizer_name (its folder)")
    family = FAMILIES[TEXT_BACKBONES[options.model_type].tokenizer]
    return family.build(place, max_length=max_length, tie_break="fast")


def _as_text(options: EncoderOptions) -> TrainConfig:
    """The same as options of GLUE training, which finds and builds language models."""
    return TrainConfig(
        task_name="RTE",
        data_dir=".",
        output_dir=".",
        head="plain",
        model_type=options.model_type,
        model_name_or_path=options.model_name_or_path,
        tokenizer_name=options.tokenizer_name,
        config_name=options.config_name,
        cache_dir=options.cache_dir,
    )
