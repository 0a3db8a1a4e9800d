"""Options of GLUE training: one frozen record; command_line.py fills it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sot_paddle.config import CLASS_TOKEN_POOLINGS, FUSIONS, POOLINGS, check_finite
from sot_paddle.data.glue_tasks import TASKS, get_task
from sot_paddle.registry import HEADS, SECOND_ORDER, TEXT_BACKBONES

OWN = "own"
"""Task name of a user's own TSV files."""

MGCRP_BY_TASK: Mapping[str, Mapping[str, float]] = {
    "MNLI": {"q_dim": 112, "k_dim": 48, "head_dropout": 0.7},
    "QNLI": {"q_dim": 112, "k_dim": 48, "head_dropout": 0.5},
    "RTE": {"q_dim": 56, "k_dim": 32, "head_dropout": 0.8},
    "CoLA": {"q_dim": 96, "k_dim": 48, "head_dropout": 0.5},
}
"""Published head settings (B.1); other tasks take the RTE column, the code's default."""

_TYPES = tuple(TEXT_BACKBONES)
_MAY_DIFFER = frozenset(
    {
        "data_dir",
        "output_dir",
        "cache_dir",
        "model_name_or_path",
        "config_name",
        "tokenizer_name",
        "do_train",
        "do_eval",
        "do_predict",
        "evaluate_during_training",
        "per_gpu_eval_batch_size",
        "eval_all_checkpoints",
        "eval_steps",
        "logging_steps",
        "save_steps",
        "save_total_limit",
        "keep_states",
        "overwrite_output_dir",
        "overwrite_cache",
        "no_cuda",
        "local_rank",
        "server_ip",
        "server_port",
        "seeds",
        "resume",
        "early_stopping_patience",
    }
)
"""Options that do not enter a training step, so that a resumed run may change them."""


def _option(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class TrainConfig:
    """Every option of ``tools/train_glue.py``; the names are the flags.

    The first block has the names and defaults of the original's ``run_glue.py`` (B.2). An option
    that is None is filled in from the task or the checkpoint.
    """

    task_name: str = _option(
        "", ", ".join(task.title for task in TASKS.values()) + " (any case), or own (own TSV files)"
    )
    data_dir: str = _option("", "folder with the task's train.tsv, dev.tsv, test.tsv")
    model_type: str = _option(_TYPES[0], ", ".join(_TYPES))
    model_name_or_path: str = _option(
        "", "checkpoint folder (Hugging Face or converted), or a name found locally"
    )
    output_dir: str = _option(
        "", "folder for checkpoints, metrics.json, logs, predictions; of one run at a time"
    )
    config_name: str = _option("", "config.json, or its folder, if not the checkpoint's own")
    tokenizer_name: str = _option(
        "", "the vocabulary's folder (or file), if not the checkpoint's own"
    )
    cache_dir: str = _option("", "where to look for named checkpoints and cache tokenized data")
    max_seq_length: int = _option(128, "tokens per example, longer ones are cut")
    do_train: bool = _option(False, "train")
    do_eval: bool = _option(False, "evaluate on the dev file")
    do_predict: bool = _option(False, "require the test file (it is predicted whenever present)")
    evaluate_during_training: bool = _option(False, "evaluate at every logging step")
    do_lower_case: bool = _option(False, "lower-case the text, whatever the vocabulary")
    per_gpu_train_batch_size: int = _option(8, "examples per process and forward pass")
    per_gpu_eval_batch_size: int = _option(8, "examples per process in evaluation")
    gradient_accumulation_steps: int = _option(1, "forward passes per optimizer step")
    learning_rate: float = _option(5e-5, "peak learning rate")
    weight_decay: float = _option(0.0, "decay of all but biases and LayerNorm weights")
    adam_epsilon: float = _option(1e-8, "epsilon of the optimizer")
    max_grad_norm: float = _option(1.0, "global gradient norm limit, 0 for none")
    num_train_epochs: float = _option(3.0, "passes over the training file")
    max_steps: int = _option(-1, "optimizer steps; above 0 it overrides the epochs")
    warmup_steps: int = _option(0, "optimizer steps of linear warm-up")
    logging_steps: int = _option(50, "optimizer steps between log lines")
    save_steps: int = _option(50, "optimizer steps between checkpoints")
    eval_all_checkpoints: bool = _option(False, "evaluate every saved checkpoint at the end")
    no_cuda: bool = _option(False, "use the CPU even where there is a GPU")
    overwrite_output_dir: bool = _option(
        False,
        "start afresh: remove an older run, refused where there is anything else",
    )
    overwrite_cache: bool = _option(False, "tokenize again")
    seed: int = _option(42, "random seed")
    fp16: bool = _option(False, "mixed precision in float16 (GPU)")
    fp16_opt_level: str = _option("O1", "O1 or O2")
    local_rank: int = _option(-1, "accepted; processes come from paddle.distributed.launch")
    server_ip: str = _option("", "accepted and ignored (remote debugging of the original)")
    server_port: str = _option("", "accepted and ignored (remote debugging of the original)")

    head: str = _option("mgcrp", "mgcrp (published second-order head) or plain")
    pooling: str | None = _option(None, "any pooling, overrides --head: " + ", ".join(POOLINGS))
    fusion: str | None = _option(None, ", ".join(FUSIONS))
    normalization: str | None = _option(None, "power norm of the pooling")
    q_dim: int | None = _option(None, "MGCrP q, by task when not given")
    k_dim: int | None = _option(None, "MGCrP k, by task when not given")
    head_dropout: float | None = _option(None, "dropout of the head, by task when not given")
    head_num_heads: int = _option(6, "heads of --pooling mgcrp and gcp")
    wr_dim: int = _option(14, "width of --pooling mgcrp")
    hidden_dropout_prob: float | None = _option(None, "encoder dropout, config.json's if not given")
    attention_probs_dropout_prob: float | None = _option(None, "attention dropout, likewise")
    mask_padding: bool = _option(False, "head statistics over valid tokens only")
    padding: str = _option("max_length", "max_length (published) or longest (needs mask_padding)")
    freeze_encoder: bool = _option(False, "train the head only")
    optimizer: str = _option("hf_adamw", "hf_adamw (published) or adamw")
    lr_scheduler: str = _option("linear", "linear (published), cosine or constant")
    bf16: bool = _option(False, "mixed precision in bfloat16 (GPU)")
    regression: bool = _option(False, "task_name own: the label is a score")
    dtype: str = _option("float32", "float32, or float64 for checks")
    seeds: tuple[int, ...] | None = _option(None, "several runs, such as 42,43,44")
    resume: str = _option("auto", "auto (continue what is in the folder), never, or a checkpoint")
    eval_steps: int | None = _option(None, "steps between evaluations, each epoch if not given")
    early_stopping_patience: int | None = _option(None, "stop after so many evaluations in vain")
    save_total_limit: int | None = _option(None, "checkpoints to keep, all if not given")
    keep_states: int = _option(2, "checkpoints that keep their optimizer state for resuming")

    def __post_init__(self) -> None:
        for name in ("task_name", "data_dir", "model_name_or_path", "output_dir"):
            if not getattr(self, name):
                raise ValueError(f"{name} is required (--{name}, or in the --config file)")
        check_finite(self)
        own = self.task_name.lower() == OWN
        object.__setattr__(self, "task_name", OWN if own else get_task(self.task_name).title)
        if self.regression and not own:
            raise ValueError(f"regression is for task_name own only, got {self.task_name}")
        if self.seeds is not None:
            object.__setattr__(self, "seeds", tuple(self.seeds))
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}"
                )
        for name, lowest in _LOWEST.items():
            value = getattr(self, name)
            if value is not None and value < lowest:
                raise ValueError(f"{name} must be at least {lowest}, got {value}")
        self._check_combinations()

    def _check_combinations(self) -> None:
        if self.max_steps == 0 or self.max_steps < -1:
            raise ValueError(f"max_steps must be positive, or -1 for epochs, got {self.max_steps}")
        if self.num_train_epochs <= 0:
            raise ValueError(f"num_train_epochs must be above 0, got {self.num_train_epochs}")
        if self.early_stopping_patience is not None and not self.do_eval:
            raise ValueError("early_stopping_patience needs do_eval: it watches the dev metric")
        if self.fp16 and self.bf16:
            raise ValueError("fp16 and bf16 exclude each other: give one")
        if (self.fp16 or self.bf16) and self.dtype != "float32":
            raise ValueError(f"mixed precision needs dtype float32, got {self.dtype}")
        if self.seeds is not None and len(set(self.seeds)) != len(self.seeds):
            raise ValueError(f"seeds must differ, got {','.join(map(str, self.seeds))}")
        if self.seeds is not None and not self.seeds:
            raise ValueError("seeds must name one seed at least")
        if self.padding == "longest" and self.needs_padding_mask and not self.mask_padding:
            raise ValueError(
                "padding longest changes what this head computes with the make-up of each batch, "
                "because it counts padded positions: add mask_padding, or use padding max_length"
            )

    @property
    def resolved_pooling(self) -> str:
        """The pooling in the names of :class:`sot_paddle.config.HeadConfig`."""
        plain = TEXT_BACKBONES[self.model_type].plain
        return self.pooling or (SECOND_ORDER if self.head == "mgcrp" else plain)

    @property
    def needs_padding_mask(self) -> bool:
        """Whether the head looks at word tokens, padded ones included unless masked."""
        return self.resolved_pooling not in CLASS_TOKEN_POOLINGS and (self.fusion != "class_token")

    @property
    def head_options(self) -> dict[str, Any]:
        """Options of the head for ``create_model``, the task's published values filled in."""
        options: dict[str, Any] = {
            "pooling": self.resolved_pooling,
            "fusion": self.fusion,
            "normalization": self.normalization,
            "mask_padding": self.mask_padding,
            "head_dropout": self.head_dropout,
        }
        published = MGCRP_BY_TASK.get(self.task_name, MGCRP_BY_TASK["RTE"])
        if self.resolved_pooling == SECOND_ORDER:
            for name, value in published.items():
                given = getattr(self, name)
                options[name] = value if given is None else given
        elif self.resolved_pooling == "gcp_text":
            options["q_dim"] = published["q_dim"] if self.q_dim is None else self.q_dim
        elif self.resolved_pooling in ("mgcrp", "gcp"):
            options |= {"head_num_heads": self.head_num_heads, "wr_dim": self.wr_dim}
        return options

    def identity(self) -> dict[str, Any]:
        """The options that decide what training computes; a resumed run must repeat them."""
        values = dataclasses.asdict(self)
        return {key: value for key, value in values.items() if key not in _MAY_DIFFER} | {
            "head_options": self.head_options
        }


_CHOICES: Mapping[str, tuple[str, ...]] = {
    "model_type": _TYPES,
    "fp16_opt_level": ("O1", "O2"),
    "head": HEADS,
    "pooling": (None, *POOLINGS),  # type: ignore[assignment]
    "padding": ("max_length", "longest"),
    "optimizer": ("hf_adamw", "adamw"),
    "lr_scheduler": ("linear", "cosine", "constant"),
    "dtype": ("float32", "float64"),
}
_LOWEST: Mapping[str, float] = {
    "max_seq_length": 8,
    "per_gpu_train_batch_size": 1,
    "per_gpu_eval_batch_size": 1,
    "gradient_accumulation_steps": 1,
    "learning_rate": 0,
    "weight_decay": 0,
    "adam_epsilon": 0,
    "max_grad_norm": 0,
    "head_dropout": 0,
    "hidden_dropout_prob": 0,
    "attention_probs_dropout_prob": 0,
    "warmup_steps": 0,
    "logging_steps": 1,
    "save_steps": 1,
    "seed": 0,
    "eval_steps": 1,
    "early_stopping_patience": 1,
    "save_total_limit": 1,
    "keep_states": 1,
}
