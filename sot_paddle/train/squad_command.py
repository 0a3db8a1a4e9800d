"""The command that answers questions (``tools/train_squad.py``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sot_paddle.backbones.families import TEXT_BACKBONES
from sot_paddle.data.splits import TokenSplit
from sot_paddle.data.tokenizers import FAMILIES
from sot_paddle.tasks.squad import Asked, SquadTask, load_squad, read_windows
from sot_paddle.tasks.state_options import SquadTrainConfig
from sot_paddle.train.adapter_command import optimizer_of_full_batches
from sot_paddle.train.text_command import run_text


def run_config(config: SquadTrainConfig) -> dict[str, Any]:
    """Run the command; see `sot_paddle.train.run.train`."""
    return run_text(config, _squad_of_texts, optimizer_of_full_batches)


def _squad_of_texts(config: SquadTrainConfig, vocabulary: Mapping[str, bytes]) -> SquadTask:
    family = FAMILIES[TEXT_BACKBONES[config.model_type].tokenizer]
    tokenizer = family.from_files(vocabulary, max_length=config.length)
    padding = {"pad": "max_length", "max_length": config.length, "pad_id": tokenizer.pad_id}

    def ask(split: str, file: str) -> Asked:
        labelled = split == "train" or config.do_eval
        questions, features = read_windows(
            config, tokenizer, file, config.length, labelled=labelled
        )
        windows = TokenSplit(features.tokens, config.per_gpu_eval_batch_size, **padding)
        return Asked(questions, features, windows)

    return load_squad(SquadTask, config, ask, tokenizer.vocab_size)
