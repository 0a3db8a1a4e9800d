"""The command that answers questions (``tools/train_squad.py``)."""

from __future__ import annotations

from typing import Any

from sot_paddle.data.splits import TokenSplit
from sot_paddle.data.squad import SpanFeatures
from sot_paddle.data.subword import SubwordTokenizer
from sot_paddle.tasks.squad import SquadTask, load_squad
from sot_paddle.tasks.state_options import SquadTrainConfig
from sot_paddle.train.adapter_command import optimizer_of_full_batches
from sot_paddle.train.text_command import run_text


def run_config(config: SquadTrainConfig) -> dict[str, Any]:
    """Run the command; see `sot_paddle.train.run.train`."""
    return run_text(config, _squad_of_texts, optimizer_of_full_batches)


def _squad_of_texts(config: SquadTrainConfig, tokenizer: SubwordTokenizer) -> SquadTask:
    padding = {"pad": "max_length", "max_length": config.length, "pad_id": tokenizer.pad_id}

    def feed(split: str, features: SpanFeatures) -> TokenSplit:
        return TokenSplit(features.tokens, config.per_gpu_eval_batch_size, **padding)

    return load_squad(SquadTask, config, tokenizer, feed)
