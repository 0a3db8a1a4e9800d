"""The command that fine-tunes a language model on SQuAD (``tools/train_squad.py``)."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from sot_paddle import distributed
from sot_paddle.command_line import Command, parse
from sot_paddle.config import SPANS
from sot_paddle.data.paddle_dataset import PadCollator
from sot_paddle.data.squad.questions import read_questions
from sot_paddle.data.squad.span_features import span_features
from sot_paddle.data.subword import SubwordTokenizer
from sot_paddle.data.tokenizer_families import FAMILIES
from sot_paddle.failures import exit_status
from sot_paddle.registry import TEXT_BACKBONES
from sot_paddle.tasks.glue_options import TrainConfig
from sot_paddle.tasks.squad import AskedSplit, SquadTask
from sot_paddle.tasks.state_options import SQUAD, SquadTrainConfig
from sot_paddle.tasks.tokens import TokenSplit
from sot_paddle.train import pretrained, session
from sot_paddle.train.adapter_command import optimizer, plan
from sot_paddle.train.device import prepare_device
from sot_paddle.train.optimizer import decayed_names
from sot_paddle.train.pretrained import Converter
from sot_paddle.train.setup import Setup
from sot_paddle.train.text_command import TextSource

COMMAND = Command(
    "train_squad.py",
    SquadTrainConfig,
    """\
Fine-tune a language model on SQuAD 2.0: spans over windows of long contexts. Writes
predictions.json, null_odds.json and nbest_predictions.json in the official form, and the official
scores in metrics.json. The same command continues a run that was interrupted, bit for bit.""",
    """\
examples:
  python tools/train_squad.py --model_name_or_path CHECKPOINT --train_file train-v2.0.json \\
      --predict_file dev-v2.0.json --do_train --do_eval --do_predict --output_dir output/squad
  python tools/train_squad.py --model_name_or_path output/squad/best --predict_file dev-v2.0.json \\
      --do_predict --null_score_diff_threshold -1.5 --output_dir output/answers
""",
)


class _SpanModel(TrainConfig):
    """Options of GLUE training that build a language model with the head of spans."""

    @property
    def resolved_pooling(self) -> str:
        """The head of question answering."""
        return SPANS

    @property
    def head_options(self) -> dict[str, Any]:
        """Options of the head for ``create_model``."""
        return {"pooling": SPANS}


def run_command(arguments: Sequence[str], convert: Converter) -> int:
    """Run ``tools/train_squad.py``.

    Args:
        arguments: the command line without the program's name.
        convert: turns a checkpoint of PyTorch into this project's tensors.

    Returns:
        0 when all is done, 2 when the command was refused or had to stop, 130 when it was
        interrupted.
    """
    status = exit_status("train_squad", lambda: run_config(parse(COMMAND, arguments), convert))
    return distributed.leave(status)


def run_config(config: SquadTrainConfig, convert: Converter) -> dict[str, Any]:
    """Run every seed of a configuration; returns what the top metrics.json holds.

    Raises:
        ValueError: options or data that cannot be used.
        TrainingStopped: a run ended early.
    """
    half = "--fp16" if config.fp16 else "--bf16" if config.bf16 else ""
    prepare_device(dtype=config.dtype, cpu=config.no_cuda, half=half)
    text = _as_text(config)
    session.check_folders(config, pretrained.sources(text))
    source = TextSource(text, pretrained.find(text, convert))
    family = FAMILIES[TEXT_BACKBONES[config.model_type].tokenizer]
    tokenizer = family.from_files(source.found.vocabulary, max_length=config.length)
    task = _task(config, tokenizer)
    rows = 0 if task.train is None else len(task.train)
    precision = "float16" if config.fp16 else "bfloat16" if config.bf16 else ""
    return session.run_setup(
        Setup(
            config,
            task,
            source,
            plan(config, half=precision, half_level=config.fp16_opt_level),
            functools.partial(optimizer, config, rows, decayed_names),
        )
    )


def _as_text(config: SquadTrainConfig) -> TrainConfig:
    return _SpanModel(
        task_name="RTE",
        data_dir=".",
        output_dir=config.output_dir,
        head="plain",
        do_train=config.do_train,
        model_type=config.model_type,
        model_name_or_path=config.model_name_or_path,
        tokenizer_name=config.tokenizer_name,
        config_name=config.config_name,
        cache_dir=config.cache_dir,
        freeze_encoder=config.freeze_encoder,
        hidden_dropout_prob=config.hidden_dropout_prob,
        attention_probs_dropout_prob=config.attention_probs_dropout_prob,
    )


def _task(config: SquadTrainConfig, tokenizer: SubwordTokenizer) -> SquadTask:
    def asked(flag: str, file: str) -> AskedSplit:
        if not file:
            raise ValueError(f"{SQUAD} needs --{flag}, questions in the official format")
        questions = read_questions(file)
        features = span_features(
            questions,
            tokenizer,
            max_length=config.length,
            stride=config.doc_stride,
            published_labels=config.published_labels,
        )
        collate = PadCollator("max_length", config.length, tokenizer.pad_id)
        windows = TokenSplit(features.tokens, collate, config.per_gpu_eval_batch_size)
        return AskedSplit(questions, features, windows)

    train = asked("train_file", config.train_file) if config.do_train else None
    scored = config.do_eval or config.do_predict
    dev = {"dev": asked("predict_file", config.predict_file)} if scored else {}
    return SquadTask(
        config.per_gpu_train_batch_size,
        config.decoding,
        train=train,
        dev=dev if config.do_eval else {},
        test=dev if config.do_predict else {},
        vocab_size=tokenizer.vocab_size,
    )
