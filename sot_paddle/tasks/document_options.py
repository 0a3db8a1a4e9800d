"""Options of the classification of whole texts (``tools/train_text.py``)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from sot_paddle.config import LAYER_POOLINGS, LAYERS
from sot_paddle.data.documents.layouts import LAYOUTS, OWN, task_title
from sot_paddle.data.subword import HEAD
from sot_paddle.options import changeable, option
from sot_paddle.tasks.text_options import TextRunOptions, TunedOptions, other

ALL_LAYERS, POOLED = -1, -2
"""What ``--layers`` means beside the numbers of layers (D.3)."""


@dataclass(frozen=True)
class DocumentTrainConfig(TunedOptions, TextRunOptions):
    """Every option of ``tools/train_text.py``; the names are the flags.

    Names and defaults are those of the original's ``run_classifier_discriminative.py`` where it
    has them (D.2 to D.4). ``paddle_compat`` trains as the Paddle port of it does.
    """

    task_name: str = option("", f"{', '.join(LAYOUTS)} (any case), or {OWN} (own tables)")
    data_dir: str = changeable("", "folder with the task's files", example="aclImdb")
    text_columns: tuple[str, ...] = option(
        (), f"task_name {OWN}: one or two columns with text, found by their names if not given"
    )
    label_column: str = option("label", f"task_name {OWN}: column of the label")
    max_seq_length: int = option(128, "longer texts are cut", unit="tokens", low=8)
    trunc_medium: int = option(
        HEAD,
        "which tokens of a long text are kept: -2 the first, -1 the last, 0 as many of both ends, "
        "k the first k and the last of the rest",
        low=HEAD,
    )
    do_lower_case: bool = option(False, "lower-case the text, whatever the vocabulary")
    padding: str = option(
        "max_length",
        "max_length (published) or longest of the batch",
        choices=("max_length", "longest"),
    )
    layers: tuple[int, ...] = option(
        (POOLED,),
        "whose class token is classified: numbers from 0, -1 every layer, -2 the last one through "
        "the model's own classifier",
        example="10 11",
    )
    pooling_type: str | None = option(
        None, "over layers: max, mean, or none: one after the other", choices=LAYER_POOLINGS[1:]
    )
    head_dropout: float | None = option(
        None, "dropout before the classifier, the encoder's if not given", low=0
    )
    discr: bool = option(
        False, "each layer has a learning rate of its own, see layer_learning_rate"
    )
    layer_learning_rate: tuple[float, ...] | None = option(
        None, "with discr: of the last layer, or of every layer from the first", example="2e-5"
    )
    layer_learning_rate_decay: float = option(
        0.95, "with discr: factor from a layer to the one before it", low=0
    )
    discr_blocks: bool = option(
        False, "with discr: a third of the layers at learning_rate / 2.6, a third at 2.6 times it"
    )
    optimizer: str | None = option(
        None,
        "bert_adam (published: no bias correction, each tensor clipped), hf_adamw or adamw",
        choices=("bert_adam", "hf_adamw", "adamw"),
    )
    lr_scheduler: str = option(
        "linear_drop",
        "linear_drop (published: linear to 0 from the first step on, under a warm-up), linear, "
        "cosine or constant",
        choices=("linear_drop", "linear", "cosine", "constant"),
    )
    paddle_compat: bool = option(
        False,
        "optimizer, schedule and rates of the Paddle port: adamw, linear, decay ** 0.5 on weights",
    )
    per_gpu_train_batch_size: int = other(TextRunOptions, "per_gpu_train_batch_size", 32)
    weight_decay: float = other(TextRunOptions, "weight_decay", 0.01)
    adam_epsilon: float = other(TextRunOptions, "adam_epsilon", 1e-6)
    warmup_proportion: float = other(TextRunOptions, "warmup_proportion", 0.1)
    max_grad_norm: float = other(
        TextRunOptions,
        *("max_grad_norm", 1.0),
        "gradient norm limit, 0 for none; of each tensor with bert_adam, else of all together",
    )
    save_steps: int = other(TextRunOptions, "save_steps", 500)
    save_total_limit: int | None = other(TextRunOptions, "save_total_limit", 2)

    def __post_init__(self) -> None:
        self.require("task_name", "data_dir", "model_name_or_path", "output_dir")
        object.__setattr__(self, "task_name", task_title(self.task_name))
        self.check()
        self.check_half()
        self._check_rows()
        self._check_layers()
        self._check_rates()

    def _check_rows(self) -> None:
        named = self.text_columns or self.label_column != "label"
        if named and self.task_name != OWN:
            raise ValueError(f"text_columns and label_column are for task_name {OWN}")
        if len(self.text_columns) > 2:
            raise ValueError(f"text_columns must be one or two, got {len(self.text_columns)}")

    def _check_layers(self) -> None:
        if not self.layers or min(self.layers) < POOLED or self.layers.count(-1) > 1:
            raise ValueError(f"layers must be numbers from 0, or -1, or -2, got {self.layers}")
        if min(self.layers) < 0 and len(self.layers) > 1:
            raise ValueError(f"layers {min(self.layers)} stands alone, got {self.layers}")
        if self.pooling_type is not None and self.layers == (POOLED,):
            raise ValueError("pooling_type needs layers: 0 and above, or -1 for all")

    def _check_rates(self) -> None:
        if self.layer_learning_rate is not None and not self.discr:
            raise ValueError("layer_learning_rate means nothing without discr")
        if self.discr_blocks and (not self.discr or self.layer_learning_rate is not None):
            raise ValueError("discr_blocks needs discr and goes by learning_rate alone")
        if self.discr and not self.learning_rate > 0:
            raise ValueError(f"discr needs a learning_rate above 0, got {self.learning_rate}")
        for rate in self.layer_learning_rate or ():
            if rate < 0:
                raise ValueError(f"layer_learning_rate must be at least 0, got {rate}")
        default = type(self).lr_scheduler
        chosen = {
            "optimizer": self.optimizer is not None,
            "lr_scheduler": self.lr_scheduler != default,
            "discr_blocks": self.discr_blocks,
        }
        if self.paddle_compat and any(chosen.values()):
            left = next(name for name, given in chosen.items() if given)
            raise ValueError(f"paddle_compat chooses optimizer and rates: leave {left} out")
        if not self.correct_bias and self.optimizer != "hf_adamw":
            raise ValueError("correct_bias is an option of optimizer hf_adamw")

    @property
    def length(self) -> int:
        """Tokens of a row at most."""
        return self.max_seq_length

    @property
    def head_options(self) -> dict[str, Any]:
        """Options of the head for ``create_model``."""
        options = {"pooling": self.resolved_pooling, "head_dropout": self.head_dropout}
        if options["pooling"] != LAYERS:
            return options
        chosen = () if self.layers == (ALL_LAYERS,) else self.layers
        pooling = self.pooling_type or LAYER_POOLINGS[0]
        return {**options, "layers": chosen, "layer_pooling": pooling}

    @property
    def resolved_pooling(self) -> str:
        """The pooling in the names of :class:`sot_paddle.config.HeadConfig`."""
        return super().resolved_pooling if self.layers == (POOLED,) else LAYERS

    @property
    def kind(self) -> str:
        """The optimizer with its default filled in."""
        return "adamw" if self.paddle_compat else self.optimizer or "bert_adam"

    @property
    def clipping(self) -> str:
        """How gradients are clipped, a key of `sot_paddle.train.optimizer.CLIPPINGS`."""
        return "tensor" if self.paddle_compat or self.kind == "bert_adam" else "global"

    @property
    def schedule(self) -> str:
        """The schedule, a key of `sot_paddle.train.schedule.SCHEDULES`."""
        return "linear" if self.paddle_compat else self.lr_scheduler

    def warmup(self, steps: int) -> float:
        """Steps of warm-up of a schedule of so many; whole ones in the Paddle port (D.4)."""
        warmup = self.warmup_proportion * steps
        return math.floor(warmup) if self.paddle_compat else warmup
