"""Options of every command that reads a language model, and of every training on text."""

from __future__ import annotations

from typing import Any

from sot_paddle.backbones.families import TEXT_BACKBONES
from sot_paddle.options import Options, RunOptions, changeable, option, record

_TYPES = tuple(TEXT_BACKBONES)


@record
class CheckpointOptions(Options):
    """Which language model, and where it runs; by itself it is frozen, with its own head."""

    model_type: str = option(_TYPES[0], "of the checkpoint", choices=_TYPES)
    model_name_or_path: str = changeable("", "checkpoint folder, or a name found locally")
    config_name: str = changeable("", "config.json, if not the checkpoint's own")
    tokenizer_name: str = changeable("", "vocabulary, if not the checkpoint's own")
    cache_dir: str = changeable("", "where to look for named checkpoints")
    no_cuda: bool = changeable(False, "use the CPU even where there is a GPU")

    freeze_encoder = False
    hidden_dropout_prob = attention_probs_dropout_prob = None
    length = None  # tokens of a row, None where the options do not say it
    do_lower_case = None  # None: as the vocabulary
    tokenizer_settings = {}  # of WordPiece, after those of the checkpoint's tokenizer_config.json

    @property
    def resolved_pooling(self) -> str:
        """The pooling in the names of :class:`sot_paddle.config.HeadConfig`."""
        return TEXT_BACKBONES[self.model_type].plain

    @property
    def head_options(self) -> dict[str, Any]:
        """Options of the head for ``create_model``."""
        return {"pooling": self.resolved_pooling}

    @property
    def encoder_options(self) -> dict[str, Any]:
        """Options of the encoder for ``create_model`` that go before the checkpoint's."""
        names = ("freeze_encoder", "hidden_dropout_prob", "attention_probs_dropout_prob")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}


@record
class TunedOptions(CheckpointOptions):
    """A language model that is trained itself."""

    freeze_encoder: bool = option(False, "train the head only")
    hidden_dropout_prob: float | None = option(None, "encoder dropout, else its own", low=0)
    attention_probs_dropout_prob: float | None = option(None, "of attention, likewise", low=0)
    fp16: bool = option(False, "mixed precision in float16 (GPU)")
    bf16: bool = option(False, "mixed precision in bfloat16 (GPU)")
    fp16_opt_level: str = option("O1", "O1 or O2", choices=("O1", "O2"))

    @property
    def half(self) -> str:
        """Mixed precision, "" for none."""
        return "float16" if self.fp16 else "bfloat16" if self.bf16 else ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fp16 and self.bf16:
            raise ValueError("fp16 and bf16 exclude each other: give one")
        if self.half and self.dtype != "float32":
            raise ValueError(f"mixed precision needs dtype float32, got {self.dtype}")


@record
class TextRunOptions(RunOptions):
    """What a training on text can be asked for; the names are those of the original's (B.2)."""

    do_train: bool = changeable(False, "train")
    do_eval: bool = changeable(False, "evaluate on the development set")
    do_predict: bool = changeable(False, "predict the test file, with the best weights")
    per_gpu_train_batch_size: int = option(8, "examples of a forward pass in training", low=1)
    per_gpu_eval_batch_size: int = changeable(8, "examples of one in evaluation", low=1)
    learning_rate: float = option(5e-05, "its peak, such as 2e-5", low=0)
    weight_decay: float = option(0.0, "decay of all but biases and LayerNorm weights", low=0)
    adam_epsilon: float = option(1e-8, "epsilon of the optimizer", low=0)
    correct_bias: bool = option(True, "bias correction of hf_adamw; --set correct_bias=false")
    max_grad_norm: float = option(1.0, "gradient norm limit, 0 for none", low=0)
    num_train_epochs: float = option(3.0, "passes over the training data", gt=0)
    warmup_proportion: float = option(0.0, "share of the run that warms up", low=0.0, high=1.0)
    warmup_steps: int = option(0, "steps of warm-up, go before warmup_proportion", low=0)
    optimizer: str = option("hf_adamw", "as published, or another", choices=("hf_adamw", "adamw"))
    lr_scheduler: str = option("linear", "of the rate", choices=("linear", "cosine", "constant"))
    evaluate_during_training: bool = changeable(False, "evaluate at every logging step")
    logging_steps: int = changeable(50, "optimizer steps between log lines", low=1)
    save_steps: int = changeable(50, "optimizer steps between checkpoints", low=1)
    eval_steps: int | None = changeable(None, "steps between evaluations, else epochs", low=1)

    half, fp16_opt_level = "", "O1"  # see `TunedOptions`
    clipping = "global"  # of gradients, a key of `sot_paddle.train.optimizer.CLIPPINGS`

    def warmup(self, steps: int) -> float:
        """Steps of warm-up of a schedule of so many steps, possibly a fraction."""
        return self.warmup_steps or self.warmup_proportion * steps

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.early_stopping_patience is not None and not self.do_eval:
            raise ValueError("early_stopping_patience needs do_eval: it watches the dev metric")
        if not self.correct_bias and self.optimizer != "hf_adamw":
            raise ValueError("correct_bias=false is an option of optimizer hf_adamw alone")


@record
class ClassifierOptions(TunedOptions, TextRunOptions):
    """A language model with a head that gives each text one label."""

    task_name: str = option("", "the task")
    data_dir: str = changeable("", "folder with the task's files")
    max_seq_length: int = option(128, "tokens, longer texts are cut", low=8)
    do_lower_case: bool = option(False, "lower-case the text, whatever the vocabulary")
    padding: str = option("max_length", "of a batch", choices=("max_length", "longest"))
    head_dropout: float | None = option(None, "dropout of the head, else its own", low=0)

    @property
    def length(self) -> int:
        """Tokens of a row at most."""
        return self.max_seq_length
