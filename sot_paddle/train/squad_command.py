"""The command that fine-tunes a language model on SQuAD (``tools/train_squad.py``)."""

from __future__ import annotations

from typing import Any

from sot_paddle.data.squad.questions import read_questions
from sot_paddle.data.squad.span_features import span_features
from sot_paddle.data.subword import SubwordTokenizer
from sot_paddle.data.token_features import PadCollator
from sot_paddle.data.tokenizer_families import FAMILIES
from sot_paddle.registry import TEXT_BACKBONES
from sot_paddle.tasks.squad import AskedSplit, SquadTask, load_squad
from sot_paddle.tasks.state_options import SQUAD_COMMAND as COMMAND
from sot_paddle.tasks.state_options import SquadTrainConfig
from sot_paddle.tasks.tokens import TokenSplit
from sot_paddle.train import pretrained, session
from sot_paddle.train.adapter_command import optimizer_of_full_batches
from sot_paddle.train.setup import Setup
from sot_paddle.train.text_command import TextSource, checkpoint_of, plan


def run_config(config: SquadTrainConfig) -> dict[str, Any]:
    """Run every seed of a configuration; see :func:`.session.run_setup`."""
    source = TextSource(config, checkpoint_of(config))
    family = FAMILIES[TEXT_BACKBONES[config.model_type].tokenizer]
    tokenizer = family.from_files(source.found.vocabulary, max_length=config.length)
    sizes = pretrained.encoder_of(config, source.found)
    pretrained.require_embeddings(tokenizer.vocab_size, sizes)
    task = _task(config, tokenizer)
    return session.run_setup(Setup(config, task, source, plan(config), optimizer_of_full_batches))


run_command = session.training(COMMAND, run_config)
"""Run ``tools/train_squad.py``; see :func:`.session.training`."""


def _task(config: SquadTrainConfig, tokenizer: SubwordTokenizer) -> SquadTask:
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
