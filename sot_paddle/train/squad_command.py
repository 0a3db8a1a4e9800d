"""The command that fine-tunes a language model on SQuAD (``tools/train_squad.py``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sot_paddle.backbones.families import TEXT_BACKBONES
from sot_paddle.data.squad.questions import read_questions
from sot_paddle.data.squad.span_features import span_features
from sot_paddle.data.token_features import PadCollator
from sot_paddle.data.tokenizer_families import FAMILIES
from sot_paddle.tasks.squad import AskedSplit, SquadTask, load_squad
from sot_paddle.tasks.state_options import SQUAD_COMMAND as COMMAND
from sot_paddle.tasks.state_options import SquadTrainConfig
from sot_paddle.tasks.tokens import TokenSplit
from sot_paddle.train import session
from sot_paddle.train.adapter_command import optimizer_of_full_batches
from sot_paddle.train.text_command import run_text


def run_config(config: SquadTrainConfig) -> dict[str, Any]:
    """Run every seed of a configuration; see :func:`.session.run_setup`."""
    return run_text(config, _load_task, optimizer_of_full_batches)


run_command = session.training(COMMAND, run_config)
"""Run ``tools/train_squad.py``; see :func:`.session.training`."""


def _load_task(config: SquadTrainConfig, vocabulary: Mapping[str, bytes]) -> SquadTask:
    family = FAMILIES[TEXT_BACKBONES[config.model_type].tokenizer]
    tokenizer = family.from_files(vocabulary, max_length=config.length)
    collate = PadCollator("max_length", config.length, tokenizer.pad_id)

    def ask(split: str, file: str) -> AskedSplit:
        questions = read_questions(file, labelled=split == "train" or config.do_eval)
        features = span_features(
            questions,
            tokenizer,
            max_length=config.length,
            stride=config.doc_stride,
            published_labels=config.published_labels,
        )
        windows = TokenSplit(features.tokens, collate, config.per_gpu_eval_batch_size)
        return AskedSplit(questions, features, windows)

    return load_squad(SquadTask, config, ask, tokenizer.vocab_size)
