"""The command that pre-trains a language model (``tools/pretrain.py``)."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddle import nn

from sot_paddle.backbones.families import TEXT_BACKBONES
from sot_paddle.backbones.pretraining import PretrainingModel
from sot_paddle.config import EncoderConfig, build_record
from sot_paddle.data.pretraining.instance_files import InstanceRows
from sot_paddle.data.pretraining.prepared import PAIRS, StoredRows, form_of
from sot_paddle.data.subword import SubwordTokenizer
from sot_paddle.heads.pretraining import PretrainingHeadConfig
from sot_paddle.tasks.losses import row_sums
from sot_paddle.tasks.pretraining import PretrainingSplit, PretrainingTask, WordMasks
from sot_paddle.tasks.pretraining_options import PretrainConfig
from sot_paddle.tasks.task import Task
from sot_paddle.train import pretrained, text_command
from sot_paddle.train.optimizer import decayed_names
from sot_paddle.train.pretrained import Pretrained
from sot_paddle.train.run import train
from sot_paddle.train.run_folder import open_folder

_NORM = "head.words.norm.weight"


def run_config(config: PretrainConfig) -> dict[str, Any]:
    """Run the command; see `sot_paddle.train.run.train`."""
    text_command.prepare_text_device(config)
    data = {"--data_dir": config.data_dir, "--eval_data_dir": config.eval_data_dir}
    data = {flag: Path(name) if name else None for flag, name in data.items()}
    with open_folder(config, {**pretrained.sources(config), **data}) as resume_from:
        checkpoint = pretrained.find(config, pretraining_heads=True)
        tokenizer = checkpoint.tokenizer(config.block_size)
        judged = form_of(Path(config.data_dir)) != PAIRS
        config = config.filled(judged)
        sizes = encoder_config(config, checkpoint, tokenizer)
        task = _task(config, sizes, tokenizer, judged, checkpoint.origin)
        source = PretrainingSource(config, checkpoint, sizes, judged)
        make_optimizer = functools.partial(text_command.optimizer, decay=decayed)
        return train(text_command.text_setup(config, task, source, make_optimizer), resume_from)


def decayed(model: nn.Layer) -> set[str]:
    """Names of the parameters that decay: neither biases nor weights of layer norms.

    Source: specs.md D.1 and E.3.
    """
    return decayed_names(model) - {_NORM}


def encoder_config(
    config: PretrainConfig, checkpoint: Pretrained, tokenizer: SubwordTokenizer
) -> EncoderConfig:
    """Sizes of the encoder: the checkpoint's, or from scratch the options' and the vocabulary's."""
    backbone = checkpoint.backbone
    sizes = {**backbone.presets[checkpoint.preset], **backbone.read_config(checkpoint.config)}
    if checkpoint.arrays and config.architecture:
        first = next(iter(config.architecture))
        raise ValueError(f"{first} is for weights from scratch: {checkpoint.origin} has its own")
    if not checkpoint.arrays:
        sizes |= config.architecture
        sizes["pad_token_id"] = tokenizer.pad_id
        if "vocab_size" not in checkpoint.config:
            sizes["vocab_size"] = tokenizer.vocab_size
    sizes |= config.encoder_options
    encoder = build_record(backbone.options, sizes, where=checkpoint.preset)
    pretrained.require_embeddings(tokenizer.vocab_size, encoder)
    return encoder


def _task(
    config: PretrainConfig,
    sizes: EncoderConfig,
    tokenizer: SubwordTokenizer,
    judged: bool,
    origin: str,
) -> PretrainingTask:
    limit = TEXT_BACKBONES[config.model_type].position_limit(sizes)
    if not judged:
        pretrained.require_positions(limit, config.block_size, origin, "lower --block_size")
    masks = WordMasks(config.block_size, config.mlm_probability, config.seed, tokenizer)

    def split(place: str, *, evaluated: bool = False) -> PretrainingSplit:
        rows = InstanceRows(Path(place)) if judged else StoredRows(Path(place), PAIRS)
        if rows.vocab_size > tokenizer.vocab_size:
            raise ValueError(
                f"{place} holds ids up to {rows.vocab_size - 1}, the vocabulary has "
                f"{tokenizer.vocab_size} entries: prepare it with the same tokenizer"
            )
        if judged:
            advice = f"prepare {place} with a smaller --max_seq_length"
            pretrained.require_positions(limit, rows.max_seq_length, origin, advice)
        size = config.per_gpu_eval_batch_size
        return PretrainingSplit(rows, None if judged else masks, size, evaluated)

    return PretrainingTask(
        config.per_gpu_train_batch_size,
        config.paddle_compat,
        train=split(config.data_dir),
        dev={"dev": split(config.eval_data_dir, evaluated=True)} if config.do_eval else {},
    )


@dataclass(frozen=True)
class PretrainingSource(text_command.TextSource):
    """The model of a pre-training; its checkpoint is one of the encoder for the other commands."""

    config: PretrainConfig
    sizes: EncoderConfig
    judged: bool

    def build(self, task: Task) -> nn.Layer:
        """The encoder with fresh weights, and the head of its tasks."""
        model = PretrainingModel(
            TEXT_BACKBONES[self.config.model_type],
            self.sizes,
            PretrainingHeadConfig(next_sentence=self.judged),
            name=self.checkpoint.preset,
        )
        model.judge = row_sums
        return model

    def about(self, model: nn.Layer) -> str:
        """The tasks, and the architecture that was asked for."""
        tasks = "masked words and next sentence" if self.judged else "masked words"
        options = [f"{name} {value}" for name, value in self.config.architecture.items()]
        return ", ".join([tasks, *options])

    def about_head(self, model: nn.Layer, task: Task) -> Mapping[str, Any]:
        """Nothing: the head is not loaded by another command."""
        return {}
