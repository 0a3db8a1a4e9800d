"""Options of the commands on hidden states: which rows, which encoder, how they are trained on."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from sot_paddle.config import SPANS
from sot_paddle.data.glue_tasks import get_task
from sot_paddle.data.squad.span_decoding import NULL_SCORES, DecodingOptions
from sot_paddle.data.stored.original_rows import LENGTHS, ROWS
from sot_paddle.data.stored.state_files import DTYPES
from sot_paddle.options import changeable, check, option
from sot_paddle.tasks.text_options import CheckpointOptions, TextRunOptions, TunedOptions, other

SQUAD = "SQuAD"
LIVE = "live"
MODELS = ("adapter", "probes")

SQUAD_LENGTH = 384


@dataclass(frozen=True)
class StateRows(CheckpointOptions):
    """Which rows, and which language model makes their hidden states."""

    task_name: str = option("", f"a GLUE task (any case), or {SQUAD}")
    data_dir: str = changeable("", "folder of the GLUE task's files")
    train_file: str = changeable("", f"{SQUAD}: training questions, in the official format")
    predict_file: str = changeable("", f"{SQUAD}: development questions, in the official format")
    max_seq_length: int | None = option(
        None, f"of a row, the task's if not given; {SQUAD} 384", unit="tokens", low=8
    )
    doc_stride: int = option(128, f"{SQUAD}: what windows of a context share", unit="tokens", low=0)
    published_labels: bool = option(
        False, f"{SQUAD}: the original's slip for answers at a window's end"
    )
    rows: str = option(
        "original", "original (CoLA, MSR as published) or all (GLUE's own rows)", choices=ROWS
    )

    def __post_init__(self) -> None:
        self.require("task_name")
        squad = self.task_name.lower() in ("squad", "squad2", "squadv2", "squad2.0")
        name = SQUAD if squad else get_task(self.task_name).title
        object.__setattr__(self, "task_name", name)
        check(self)

    @property
    def squad(self) -> bool:
        """Whether it is question answering."""
        return self.task_name == SQUAD

    @property
    def length(self) -> int:
        """Tokens of a row."""
        default = SQUAD_LENGTH if self.squad else LENGTHS.get(self.task_name.lower(), 128)
        return self.max_seq_length or default


@dataclass(frozen=True)
class ExtractConfig(StateRows):
    """Every option of ``tools/extract_hidden_states.py``."""

    splits: str = option("", "splits with commas between [train and the development splits]")
    output_dir: str = option("", "folder of the files; a run that was stopped goes on")
    dtype: str = option("float32", "float32 (published) or float16 (half the disk)", choices=DTYPES)
    batch_size: int = option(8, "of a forward pass", unit="rows", low=1)
    embed_batch_size: int = option(1, "that a reader has to read together", unit="rows", low=1)
    overwrite: bool = option(False, "begin anew instead of going on")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("model_name_or_path", "output_dir")


@dataclass(frozen=True)
class RecipeOptions(StateRows, TextRunOptions):
    """The published recipe (C.4) where it is not GLUE training's, and how spans are chosen."""

    do_predict: bool = other(
        TextRunOptions,
        *("do_predict", False),
        "predict: GLUE test files, or the answers to --predict_file",
    )
    per_gpu_train_batch_size: int = other(TextRunOptions, "per_gpu_train_batch_size", 16)
    per_gpu_eval_batch_size: int = other(TextRunOptions, "per_gpu_eval_batch_size", 16)
    learning_rate: float = other(TextRunOptions, "learning_rate", 1e-5)
    weight_decay: float = other(
        TextRunOptions, "weight_decay", 0.01, "decay (l2) of all but biases and normalisations"
    )
    adam_epsilon: float = other(TextRunOptions, "adam_epsilon", 1e-6)
    correct_bias: bool = other(
        TextRunOptions, "correct_bias", False, "bias correction in the optimizer"
    )
    max_grad_norm: float = other(TextRunOptions, "max_grad_norm", 0.0)
    warmup_proportion: float = other(TextRunOptions, "warmup_proportion", 0.1)
    num_train_epochs: float = other(TextRunOptions, "num_train_epochs", 1.0)
    save_steps: int = other(TextRunOptions, "save_steps", 500)
    save_total_limit: int | None = other(TextRunOptions, "save_total_limit", 2)
    seed: int = other(TextRunOptions, "seed", 1)
    n_best_size: int = changeable(20, f"{SQUAD}: starts and ends that are combined", low=1)
    max_answer_length: int = changeable(30, f"{SQUAD}: longest answer", unit="tokens", low=1)
    null_score_diff_threshold: float = changeable(0.0, f"{SQUAD}: no answer from here on")
    null_score: str = changeable(
        "published", f"{SQUAD}: {' or '.join(NULL_SCORES)} of the windows", choices=NULL_SCORES
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("output_dir")
        self.check()
        if not (self.do_train or self.do_eval or self.do_predict):
            raise ValueError("nothing to do: give --do_train, --do_eval or --do_predict")

    @property
    def decoding(self) -> DecodingOptions:
        """How answers are chosen."""
        return DecodingOptions(
            n_best=self.n_best_size,
            max_tokens=self.max_answer_length,
            threshold=self.null_score_diff_threshold,
            null_score=self.null_score,
        )


@dataclass(frozen=True)
class StateTrainConfig(RecipeOptions):
    """Every option of ``tools/train_adapter.py``."""

    states: str = changeable(LIVE, "live (made while training), or a folder of stored states")
    model: str = option(
        "adapter", "adapter (AdapterPooler) or probes (each layer alone)", choices=MODELS
    )
    adapter_dim: int = option(0, "width of the adapter; 0 (published): as many as tokens", low=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.states == LIVE and not self.model_name_or_path:
            raise ValueError("states live needs --model_name_or_path: the encoder that makes them")


@dataclass(frozen=True)
class SquadTrainConfig(TunedOptions, RecipeOptions):
    """Every option of ``tools/train_squad.py``."""

    task_name: str = other(StateRows, "task_name", SQUAD, f"{SQUAD}, nothing else")
    data_dir: str = other(StateRows, "data_dir", "", "not taken, GLUE's")
    rows: str = other(StateRows, "rows", "original", "not taken, GLUE's")
    learning_rate: float = other(TextRunOptions, "learning_rate", 2e-5)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.squad:
            raise ValueError(f"task_name must be {SQUAD}, got {self.task_name}: use train_glue.py")
        for item in dataclasses.fields(self):
            if item.name in ("data_dir", "rows") and getattr(self, item.name) != item.default:
                raise ValueError(f"{item.name} means nothing for {SQUAD}: leave it out")
        self.require("model_name_or_path")
        self.check_half()

    @property
    def resolved_pooling(self) -> str:
        """The head of question answering."""
        return SPANS
