"""Options of the commands on hidden states: which rows, which encoder, how they are trained on."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sot_paddle.config import check_finite
from sot_paddle.data.glue_tasks import get_task
from sot_paddle.data.squad.span_decoding import NULL_SCORES, DecodingOptions
from sot_paddle.data.stored.original_rows import LENGTHS, ROWS
from sot_paddle.data.stored.state_files import DTYPES
from sot_paddle.registry import TEXT_BACKBONES

SQUAD = "SQuAD"
LIVE = "live"
MODELS = ("adapter", "probes")

_SQUAD_LENGTH = 384
_TYPES = tuple(TEXT_BACKBONES)


def option(default: Any, text: str) -> Any:
    """A field with the words that ``--help`` says of it."""
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class StateRows:
    """Which rows, and which language model makes their hidden states."""

    task_name: str = option("", f"a GLUE task (any case), or {SQUAD}")
    data_dir: str = option("", "folder of the GLUE task's files")
    train_file: str = option("", f"{SQUAD}: training questions, in the official format")
    predict_file: str = option("", f"{SQUAD}: development questions, in the official format")
    max_seq_length: int | None = option(None, f"tokens of a row, the task's; {SQUAD} 384")
    doc_stride: int = option(128, f"{SQUAD}: tokens that windows of a context share")
    published_labels: bool = option(
        False, f"{SQUAD}: the original's slip for answers at a window's end"
    )
    rows: str = option("original", "original (CoLA, MSR as published) or all (GLUE's own rows)")
    model_type: str = option(_TYPES[0], ", ".join(_TYPES))
    model_name_or_path: str = option(
        "", "checkpoint of the encoder: Hugging Face, or a folder of train_glue.py"
    )
    config_name: str = option("", "config.json, or its folder, if not the checkpoint's own")
    tokenizer_name: str = option("", "vocab.txt, or its folder, if not the checkpoint's own")
    cache_dir: str = option("", "where to look for named checkpoints")
    no_cuda: bool = option(False, "use the CPU even where there is a GPU")

    def __post_init__(self) -> None:
        if not self.task_name:
            raise ValueError("task_name is required (--task_name, or in the --config file)")
        check_finite(self)
        squad = self.task_name.lower() in ("squad", "squad2", "squadv2", "squad2.0")
        name = SQUAD if squad else get_task(self.task_name).title
        object.__setattr__(self, "task_name", name)
        require_choice("rows", self.rows, ROWS)
        require_choice("model_type", self.model_type, _TYPES)
        require_least(self, {"doc_stride": 0, "max_seq_length": 8})

    @property
    def squad(self) -> bool:
        """Whether it is question answering."""
        return self.task_name == SQUAD

    @property
    def length(self) -> int:
        """Tokens of a row."""
        default = _SQUAD_LENGTH if self.squad else LENGTHS.get(self.task_name.lower(), 128)
        return self.max_seq_length or default


@dataclass(frozen=True)
class ExtractConfig(StateRows):
    """Every option of ``tools/extract_hidden_states.py``."""

    splits: str = option("", "splits with commas between [train and the development splits]")
    output_dir: str = option("", "folder of the files; a run that was stopped goes on")
    dtype: str = option("float32", "float32 (published) or float16 (half the disk)")
    batch_size: int = option(8, "rows of a forward pass")
    embed_batch_size: int = option(1, "rows that a reader has to read together")
    overwrite: bool = option(False, "begin anew instead of going on")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("model_name_or_path", "output_dir"):
            if not getattr(self, name):
                raise ValueError(f"{name} is required (--{name}, or in the --config file)")
        require_choice("dtype", self.dtype, DTYPES)
        require_least(self, {"batch_size": 1, "embed_batch_size": 1})


_MAY_DIFFER = frozenset(
    {
        *("data_dir", "train_file", "predict_file", "states", "output_dir", "cache_dir"),
        *("model_name_or_path", "config_name", "tokenizer_name", "no_cuda"),
        *("do_train", "do_eval", "do_predict", "per_gpu_eval_batch_size", "eval_all_checkpoints"),
        *("eval_steps", "logging_steps", "save_steps", "save_total_limit", "keep_states"),
        *("overwrite_output_dir", "seeds", "resume", "early_stopping_patience"),
        *("n_best_size", "max_answer_length", "null_score_diff_threshold", "null_score"),
    }
)
"""Options that do not enter a training step, so that a resumed run may change them."""


@dataclass(frozen=True)
class RecipeOptions(StateRows):
    """The published recipe (C.4) and what every training run is asked."""

    output_dir: str = option("", "folder for checkpoints, metrics.json, logs, predictions")
    do_train: bool = option(False, "train")
    do_eval: bool = option(False, "evaluate on the development set")
    do_predict: bool = option(False, "predict: GLUE test files, or the answers to --predict_file")
    per_gpu_train_batch_size: int = option(16, "rows per process and forward pass")
    per_gpu_eval_batch_size: int = option(16, "rows per process in evaluation")
    gradient_accumulation_steps: int = option(1, "forward passes per optimizer step")
    learning_rate: float = option(1e-5, "peak learning rate")
    weight_decay: float = option(0.01, "decay (l2) of all but biases and normalisations")
    adam_epsilon: float = option(1e-6, "epsilon of the optimizer")
    correct_bias: bool = option(False, "bias correction in the optimizer")
    max_grad_norm: float = option(0.0, "global gradient norm limit, 0 for none")
    warmup_proportion: float = option(0.1, "share of the steps with a rising rate")
    num_train_epochs: float = option(1.0, "passes over the training rows")
    max_steps: int = option(-1, "optimizer steps; above 0 it overrides the epochs")
    logging_steps: int = option(50, "optimizer steps between log lines")
    save_steps: int = option(500, "optimizer steps between checkpoints")
    eval_steps: int | None = option(None, "steps between evaluations, each epoch if not given")
    eval_all_checkpoints: bool = option(False, "evaluate every saved checkpoint at the end")
    early_stopping_patience: int | None = option(None, "stop after so many evaluations in vain")
    save_total_limit: int | None = option(2, "checkpoints to keep")
    keep_states: int = option(2, "checkpoints that keep their optimizer state for resuming")
    overwrite_output_dir: bool = option(False, "start afresh: remove an older run")
    resume: str = option("auto", "auto (continue what is in the folder), never, or a checkpoint")
    seed: int = option(1, "random seed")
    seeds: tuple[int, ...] | None = option(None, "several runs, such as 1,2,3")
    dtype: str = option("float32", "float32, or float64 for checks")
    n_best_size: int = option(20, f"{SQUAD}: starts and ends that are combined")
    max_answer_length: int = option(30, f"{SQUAD}: tokens of an answer at most")
    null_score_diff_threshold: float = option(0.0, f"{SQUAD}: no answer from here on")
    null_score: str = option("published", f"{SQUAD}: {' or '.join(NULL_SCORES)} of the windows")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.output_dir:
            raise ValueError("output_dir is required (--output_dir, or in the --config file)")
        require_choice("dtype", self.dtype, ("float32", "float64"))
        require_choice("null_score", self.null_score, NULL_SCORES)
        counts = ("per_gpu_train_batch_size", "per_gpu_eval_batch_size", "n_best_size")
        counts += ("gradient_accumulation_steps", "max_answer_length", "logging_steps")
        require_least(self, dict.fromkeys((*counts, "save_steps", "keep_states"), 1))
        require_least(self, {"eval_steps": 1, "early_stopping_patience": 1})
        require_least(self, {"weight_decay": 0.0, "max_grad_norm": 0.0, "warmup_proportion": 0.0})
        if self.seeds is not None:
            object.__setattr__(self, "seeds", tuple(self.seeds))
        if not (self.do_train or self.do_eval or self.do_predict):
            raise ValueError("nothing to do: give --do_train, --do_eval or --do_predict")
        if self.early_stopping_patience is not None and not self.do_eval:
            raise ValueError("early_stopping_patience needs do_eval: it watches the dev metric")

    @property
    def decoding(self) -> DecodingOptions:
        """How answers are chosen."""
        return DecodingOptions(
            n_best=self.n_best_size,
            max_tokens=self.max_answer_length,
            threshold=self.null_score_diff_threshold,
            null_score=self.null_score,
        )

    def identity(self) -> dict[str, Any]:
        """The options that decide what training computes; a resumed run must repeat them."""
        values = dataclasses.asdict(self)
        return {key: value for key, value in values.items() if key not in _MAY_DIFFER}


@dataclass(frozen=True)
class StateTrainConfig(RecipeOptions):
    """Every option of ``tools/train_adapter.py``."""

    states: str = option(LIVE, "live (made while training), or a folder of stored states")
    model: str = option("adapter", "adapter (AdapterPooler) or probes (each layer alone)")
    adapter_dim: int = option(0, "width of the adapter; 0 (published): as many as tokens")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("model", self.model, MODELS)
        require_least(self, {"adapter_dim": 0})
        if self.states == LIVE and not self.model_name_or_path:
            raise ValueError("states live needs --model_name_or_path: the encoder that makes them")


@dataclass(frozen=True)
class SquadTrainConfig(RecipeOptions):
    """Every option of ``tools/train_squad.py``."""

    task_name: str = option(SQUAD, f"{SQUAD}, nothing else")
    learning_rate: float = option(2e-5, "peak learning rate")
    freeze_encoder: bool = option(False, "train the head only")
    hidden_dropout_prob: float | None = option(None, "encoder dropout, config.json's if not given")
    attention_probs_dropout_prob: float | None = option(None, "attention dropout, likewise")
    fp16: bool = option(False, "mixed precision in float16 (GPU)")
    bf16: bool = option(False, "mixed precision in bfloat16 (GPU)")
    fp16_opt_level: str = option("O1", "O1 or O2")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.squad:
            raise ValueError(f"task_name must be {SQUAD}, got {self.task_name}: use train_glue.py")
        if not self.model_name_or_path:
            raise ValueError("model_name_or_path is required (--model_name_or_path)")
        if self.fp16 and self.bf16:
            raise ValueError("fp16 and bf16 exclude each other: give one")
        require_choice("fp16_opt_level", self.fp16_opt_level, ("O1", "O2"))


def require_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Refuse a value that is not among those allowed.

    Raises:
        ValueError: naming them.
    """
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")


def require_least(record: Any, least: Mapping[str, float]) -> None:
    """Refuse options below their smallest value; None is none.

    Raises:
        ValueError: naming the first.
    """
    for name, lowest in least.items():
        value = getattr(record, name)
        if value is not None and value < lowest:
            raise ValueError(f"{name} must be at least {lowest:g}, got {value}")
