"""Options of the classification of whole texts (``tools/train_text.py``)."""

from __future__ import annotations

import math
from typing import Any

from sot_paddle.config import LAYER_POOLINGS, LAYERS
from sot_paddle.data.documents import LAYOUTS, task_title
from sot_paddle.data.glue_tasks import OWN
from sot_paddle.data.subword import HEAD
from sot_paddle.options import option, record
from sot_paddle.tasks.text_options import ClassifierOptions

ALL_LAYERS, POOLED = -1, -2
"""What ``--layers`` means beside the numbers of layers (D.3)."""

OPTIMIZERS = ("bert_adam", "hf_adamw", "adamw")
"""Those of BERT's own releases: bert_adam corrects no bias and clips each tensor by itself."""

SCHEDULES = ("linear_drop", "linear", "cosine", "constant")
"""linear_drop is linear to 0 from the first step on, under a warm-up."""


@record
class DocumentTrainConfig(ClassifierOptions):
    r"""Fine-tune a language model on whole texts: IMDB, TREC, Yahoo Answers or your own tables.

    Names and defaults are those of the original's run_classifier_discriminative.py where it has
    them (D.2 to D.4). Texts are tokenized when a batch asks for them. The same command continues a
    run that was interrupted, bit for bit.

    examples:
      python tools/train_text.py --task_name IMDB --data_dir aclImdb --do_lower_case \
          --model_name_or_path CHECKPOINT --do_train --do_eval --max_seq_length 512 \
          --trunc_medium 128 --layers 11 --discr --layer_learning_rate 2e-5 --output_dir OUT
      python tools/train_text.py --task_name own --data_dir MY_TABLES \
          --model_name_or_path CHECKPOINT --do_train --do_eval --output_dir OUT
    """

    program = "train_text.py"

    task_name: str = option("", f"{', '.join(LAYOUTS)} (any case), or {OWN} (own tables)")
    trunc_medium: int = option(HEAD, "kept: -2 head, -1 tail, 0 both, k first and tail", low=HEAD)
    layers: tuple[int, ...] = option((POOLED,), "from 0; -1 all, -2 the model's own classifier")
    pooling_type: str | None = option(None, "over layers, none: all", choices=LAYER_POOLINGS[1:])
    discr: bool = option(False, "each layer has a learning rate of its own")
    layer_learning_rate: tuple[float, ...] | None = option(None, "discr: the last layer's, or all")
    layer_learning_rate_decay: float = option(0.95, "discr: from a layer to the one before", low=0)
    optimizer: str | None = option(None, "bert_adam is published", choices=OPTIMIZERS)
    lr_scheduler: str = option("linear_drop", "linear_drop is published", choices=SCHEDULES)
    paddle_compat: bool = option(False, "optimizer, schedule and rates of the Paddle port")
    per_gpu_train_batch_size: int = 32
    weight_decay: float = 0.01
    adam_epsilon: float = 1e-6
    warmup_proportion: float = 0.1
    save_steps: int = 500
    save_total_limit: int | None = 2

    tokenizer_settings = {"tokenize_chinese_chars": False}  # as the original's fine-tuning

    def __post_init__(self) -> None:
        self.require("task_name", "data_dir", "model_name_or_path", "output_dir")
        object.__setattr__(self, "task_name", task_title(self.task_name))
        compatible = {"optimizer": (None, "adamw"), "lr_scheduler": ("linear_drop", "linear")}
        for name, allowed in compatible.items() if self.paddle_compat else ():
            if getattr(self, name) not in allowed:
                raise ValueError(f"paddle_compat chooses optimizer and rates: leave {name} out")
            object.__setattr__(self, name, allowed[-1])
        object.__setattr__(self, "optimizer", self.optimizer or "bert_adam")
        super().__post_init__()
        lowest = min(self.layers, default=-3)
        if lowest < POOLED:
            raise ValueError(f"layers must be numbers from 0, or -1, or -2, got {self.layers}")
        if lowest < 0 and len(self.layers) > 1:
            raise ValueError(f"layers {lowest} stands alone, got {self.layers}")
        if self.pooling_type is not None and lowest == POOLED:
            raise ValueError("pooling_type needs layers: 0 and above, or -1 for all")
        if self.layer_learning_rate is not None and not self.discr:
            raise ValueError("layer_learning_rate means nothing without discr")
        if self.discr and not self.learning_rate > 0:
            raise ValueError(f"discr needs a learning_rate above 0, got {self.learning_rate}")
        for rate in self.layer_learning_rate or ():
            if rate < 0:
                raise ValueError(f"layer_learning_rate must be at least 0, got {rate}")

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
    def clipping(self) -> str:
        """How gradients are clipped, a key of `sot_paddle.train.optimizer.CLIPPINGS`."""
        return "tensor" if self.paddle_compat or self.optimizer == "bert_adam" else "global"

    def warmup(self, steps: int) -> float:
        """Steps of warm-up of a schedule of so many; whole ones in the Paddle port (D.4)."""
        warmup = super().warmup(steps)
        return math.floor(warmup) if self.paddle_compat else warmup
