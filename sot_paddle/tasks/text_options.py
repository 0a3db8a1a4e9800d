"""Options of every command that reads a language model, and of every training on text."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from sot_paddle.options import RunOptions, changeable, option
from sot_paddle.registry import TEXT_BACKBONES

_TYPES = tuple(TEXT_BACKBONES)
_EXAMPLES = "examples per process and forward pass"
_STEPS = "optimizer steps"


@dataclass(frozen=True)
class CheckpointOptions:
    """Which language model, and where it runs; by itself it is frozen, with its own head."""

    model_type: str = option(_TYPES[0], ", ".join(_TYPES), choices=_TYPES)
    model_name_or_path: str = changeable(
        "", "checkpoint folder (Hugging Face or converted), or a name found locally"
    )
    config_name: str = changeable("", "config.json, or its folder, if not the checkpoint's own")
    tokenizer_name: str = changeable(
        "", "the vocabulary's folder (or file), if not the checkpoint's own"
    )
    cache_dir: str = changeable("", "where to look for named checkpoints and cache tokenized data")
    no_cuda: bool = changeable(False, "use the CPU even where there is a GPU")

    freeze_encoder = False
    hidden_dropout_prob = None
    attention_probs_dropout_prob = None

    @property
    def length(self) -> int | None:
        """Tokens of a row, None where the options do not say it."""
        return None

    @property
    def resolved_pooling(self) -> str:
        """The pooling in the names of :class:`sot_paddle.config.HeadConfig`."""
        return TEXT_BACKBONES[self.model_type].plain

    @property
    def head_options(self) -> dict[str, Any]:
        """Options of the head for ``create_model``."""
        return {"pooling": self.resolved_pooling}

    def require(self, *names: str) -> None:
        """Refuse a run without these options.

        Raises:
            ValueError: naming the first that is not given.
        """
        for name in names:
            if not getattr(self, name):
                raise ValueError(f"{name} is required (--{name}, or in the --config file)")


@dataclass(frozen=True)
class TunedOptions(CheckpointOptions):
    """A language model that is trained itself."""

    freeze_encoder: bool = option(False, "train the head only")
    hidden_dropout_prob: float | None = option(
        None, "encoder dropout, config.json's if not given", low=0
    )
    attention_probs_dropout_prob: float | None = option(
        None, "attention dropout, config.json's if not given", low=0
    )
    fp16: bool = option(False, "mixed precision in float16 (GPU)")
    bf16: bool = option(False, "mixed precision in bfloat16 (GPU)")
    fp16_opt_level: str = option("O1", "O1 or O2", choices=("O1", "O2"))

    @property
    def half(self) -> str:
        """Mixed precision, "" for none."""
        return "float16" if self.fp16 else "bfloat16" if self.bf16 else ""

    @property
    def half_flag(self) -> str:
        """The flag that asks for it, "" for none."""
        return "--fp16" if self.fp16 else "--bf16" if self.bf16 else ""

    def check_half(self) -> None:
        """Refuse mixed precision that contradicts itself.

        Raises:
            ValueError: naming the options.
        """
        if self.fp16 and self.bf16:
            raise ValueError("fp16 and bf16 exclude each other: give one")
        if self.half and self.dtype != "float32":
            raise ValueError(f"mixed precision needs dtype float32, got {self.dtype}")


@dataclass(frozen=True)
class TextRunOptions(RunOptions):
    """What a training on text can be asked for; the names are those of the original's (B.2)."""

    do_train: bool = changeable(False, "train")
    do_eval: bool = changeable(False, "evaluate on the development set")
    do_predict: bool = changeable(False, "predict the test file, with the best weights")
    per_gpu_train_batch_size: int = option(8, "batch of training", unit=_EXAMPLES, low=1)
    per_gpu_eval_batch_size: int = changeable(8, "batch of evaluation", unit=_EXAMPLES, low=1)
    learning_rate: float = option(5e-5, "its peak", example="2e-5", low=0)
    weight_decay: float = option(0.0, "decay of all but biases and LayerNorm weights", low=0)
    adam_epsilon: float = option(1e-8, "epsilon of the optimizer", low=0)
    correct_bias: bool = option(True, "bias correction of hf_adamw; --set correct_bias=false")
    max_grad_norm: float = option(1.0, "global gradient norm limit, 0 for none", low=0)
    num_train_epochs: float = option(3.0, "passes over the training file", example="10")
    warmup_proportion: float = option(
        0.0, "linear warm-up over this share of the run", low=0.0, high=1.0
    )
    logging_steps: int = changeable(50, "between log lines", unit=_STEPS, low=1)
    save_steps: int = changeable(50, "between checkpoints", unit=_STEPS, low=1)
    eval_steps: int | None = changeable(
        None, "between evaluations, each epoch if not given", unit=_STEPS, low=1
    )
    seeds: tuple[int, ...] | None = changeable(None, "several runs", example="42,43,44")

    optimizer, lr_scheduler, warmup_steps = "hf_adamw", "linear", 0
    clipping = "global"
    evaluate_during_training = False
    half, half_flag, fp16_opt_level = "", "", "O1"

    @property
    def kind(self) -> str:
        """The optimizer, a key of `sot_paddle.train.optimizer.OPTIMIZERS`."""
        return self.optimizer

    @property
    def schedule(self) -> str:
        """The schedule, a key of `sot_paddle.train.schedule.SCHEDULES`."""
        return self.lr_scheduler

    def warmup(self, steps: int) -> float:
        """Steps of warm-up of a schedule of so many steps, possibly a fraction."""
        return self.warmup_steps or self.warmup_proportion * steps

    def check(self) -> None:
        """Refuse impossible values.

        Raises:
            ValueError: naming the option.
        """
        super().check()
        if self.num_train_epochs <= 0:
            raise ValueError(f"num_train_epochs must be above 0, got {self.num_train_epochs}")
        if self.early_stopping_patience is not None and not self.do_eval:
            raise ValueError("early_stopping_patience needs do_eval: it watches the dev metric")
        if self.seeds is not None and len(set(self.seeds)) != len(self.seeds):
            raise ValueError(f"seeds must differ, got {','.join(map(str, self.seeds))}")
        if self.seeds is not None and not self.seeds:
            raise ValueError("seeds must name one seed at least")


def other(record: type, name: str, default: Any, text: str = "") -> Any:
    """An option of a record again, with another default.

    Args:
        record: declares it.
        name: of the option.
        default: its value when it is not given.
        text: what ``--help`` says, "" for the same.
    """
    facts = record.__dataclass_fields__[name].metadata
    told = {"help": text} if text else {}
    return dataclasses.field(default=default, metadata={**facts, **told})
