"""Options of pre-training (``tools/pretrain.py``)."""

from __future__ import annotations

import dataclasses
from typing import Any

from sot_paddle.options import Options, changeable, option, record
from sot_paddle.tasks.document_options import OPTIMIZERS, SCHEDULES
from sot_paddle.tasks.text_options import TextRunOptions, TunedOptions


@record
class ArchitectureOptions(Options):
    """Options of the encoder that change its architecture, for weights from scratch."""

    attention_kernel: str | None = option(None, "from scratch: such as 'qk_convq_convk 8'")
    attention_head_size: int | None = option(None, "from scratch: channels of a head", low=1)
    qk: str | None = option(None, "from scratch: such as 'convolution_depth 4 1'")
    value_forward: str | None = option(None, "from scratch: how values are made")
    remove_qk: bool = option(False, "from scratch: queries and keys are the hidden states")
    remove_position_embeddings: bool = option(False, "from scratch: no absolute positions")
    embedding_size: int | None = option(None, "from scratch: size of the embeddings", low=1)


@record
class PretrainConfig(ArchitectureOptions, TunedOptions, TextRunOptions):
    r"""Pre-train a language model: further from a checkpoint, or from scratch.

    On instances of both tasks, or on pairs with words masked anew in every epoch. Defaults are
    those of BERT's further pre-training. The same command continues a run that was interrupted, bit
    for bit. OUT/last is a --model_name_or_path of the other training commands.

    examples:
      python tools/prepare_pretraining.py --form instances --input imdb.txt \
          --tokenizer_name CHECKPOINT --output_dir data/imdb
      python tools/pretrain.py --model_name_or_path CHECKPOINT --data_dir data/imdb --do_train \
          --max_steps 100000 --warmup_steps 10000 --output_dir output/further
    more: docs/text.md
    """

    program = "pretrain.py"

    data_dir: str = changeable("", "what prepare_pretraining.py made, instances or pairs")
    eval_data_dir: str = changeable("", "the same, to evaluate on")
    do_eval: bool = changeable(False, "beside do_train: on eval_data_dir")
    do_predict: bool = changeable(False, "refused: nothing is predicted")
    block_size: int = option(128, "pairs: longer rows are cut, in tokens", low=8)
    mlm_probability: float = option(0.15, "pairs: share of masked words", low=0, high=1)
    paddle_compat: bool = option(False, "the Paddle port's loss of the words, AdamW and clipping")
    optimizer: str | None = option(None, "None: as published", choices=OPTIMIZERS)
    lr_scheduler: str | None = option(None, "None: as published", choices=SCHEDULES)
    per_gpu_train_batch_size: int = 32
    per_gpu_eval_batch_size: int = 32
    weight_decay: float = 0.01
    adam_epsilon: float = 1e-6
    warmup_proportion: float = 0.1
    num_train_epochs: float = 1.0
    save_steps: int = 1000
    save_total_limit: int | None = 2

    def __post_init__(self) -> None:
        self.require("data_dir", "model_name_or_path", "output_dir")
        super().__post_init__()
        if self.do_predict:
            raise ValueError("do_predict: pre-training predicts nothing")
        if not self.do_train:
            raise ValueError("do_train is required (--do_train): do_eval scores beside it")
        if self.do_eval and not self.eval_data_dir:
            raise ValueError("do_eval needs --eval_data_dir, prepared as --data_dir is")

    def filled(self, judged: bool) -> PretrainConfig:
        """Fill in optimizer and schedule where they are not given.

        Args:
            judged: whether the next sentence is judged: the recipe of BERT, else that of the
                convolution BERT.
        """
        published = ("bert_adam", "linear_drop") if judged else ("hf_adamw", "linear")
        if self.paddle_compat:
            published = ("adamw", "linear")
        return dataclasses.replace(
            self,
            optimizer=self.optimizer or published[0],
            lr_scheduler=self.lr_scheduler or published[1],
        )

    @property
    def clipping(self) -> str:
        """Gradients are clipped together, by the Paddle port one by one."""
        return "tensor" if self.paddle_compat else "global"

    @property
    def architecture(self) -> dict[str, Any]:
        """Options of the encoder that are given."""
        fields = dataclasses.fields(ArchitectureOptions)
        values = {field.name: getattr(self, field.name) for field in fields}
        return {name: value for name, value in values.items() if value not in (None, False)}
