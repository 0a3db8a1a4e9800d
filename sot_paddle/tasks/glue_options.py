"""Options of GLUE training (``tools/train_glue.py``)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from sot_paddle.config import (
    CLASS_TOKEN_POOLINGS,
    FUSIONS,
    HEADS,
    NORMS,
    POOLINGS,
    SECOND_ORDER,
)
from sot_paddle.data.glue_tasks import OWN, TASKS, get_task
from sot_paddle.options import changeable, option, record
from sot_paddle.tasks.text_options import ClassifierOptions

MGCRP_BY_TASK: Mapping[str, Mapping[str, float]] = {
    "MNLI": {"q_dim": 112, "k_dim": 48, "head_dropout": 0.7},
    "QNLI": {"q_dim": 112, "k_dim": 48, "head_dropout": 0.5},
    "RTE": {"q_dim": 56, "k_dim": 32, "head_dropout": 0.8},
    "CoLA": {"q_dim": 96, "k_dim": 48, "head_dropout": 0.5},
}
"""Published head settings (B.1); other tasks take the RTE column, the code's default."""

HEAD_SIZES: Mapping[str, tuple[str, ...]] = {
    "mgcrp_qk": ("q_dim", "k_dim"),
    "gcp_text": ("q_dim",),
    "mgcrp": ("head_num_heads", "wr_dim"),
    "gcp": ("head_num_heads",),
}
"""Pooling -> the sizes that it has; the others have none."""


@record
class TrainConfig(ClassifierOptions):
    r"""Fine-tune a language model with the second-order head on a GLUE task or your own TSV files.

    Or with its own head, --head plain. The flags are those of the original's run_glue.py (B.2); an
    option that is None is filled in from the task or the checkpoint. The same command continues a
    run that was interrupted, bit for bit.

    example:
      python tools/train_glue.py --task_name RTE --data_dir GLUE/RTE --do_lower_case \
          --model_name_or_path CHECKPOINT --do_train --do_eval --output_dir OUT
    more: docs/training.md
    """

    program = "train_glue.py"
    no_effect = {
        "--local-rank N": "processes come from paddle.distributed.launch",
        "--server-ip IP": "it is the original's remote debugging",
        "--server-port N": "it is the original's remote debugging",
    }

    task_name: str = option("", ", ".join([*(task.title for task in TASKS.values()), OWN]))
    overwrite_cache: bool = changeable(False, "no effect: tokenized data are not kept on disk")
    head: str = option("mgcrp", "mgcrp (published second-order head) or plain", choices=HEADS)
    pooling: str | None = option(None, "any pooling, goes before --head", choices=POOLINGS)
    fusion: str | None = option(None, "of class token and words: " + ", ".join(FUSIONS))
    normalization: str | None = option(None, "power norm of the pooling", choices=NORMS)
    q_dim: int | None = option(None, "MGCrP q, by task when not given", low=1)
    k_dim: int | None = option(None, "MGCrP k, by task when not given", low=1)
    head_num_heads: int = option(6, "heads of --pooling mgcrp and gcp", low=1)
    wr_dim: int = option(14, "width of --pooling mgcrp", low=1)
    mask_padding: bool = option(False, "head statistics over valid tokens only")
    regression: bool = option(False, "task_name own: the label is a score")

    def __post_init__(self) -> None:
        self.require("task_name", "data_dir", "model_name_or_path", "output_dir")
        is_own = self.task_name.lower() == OWN
        object.__setattr__(self, "task_name", OWN if is_own else get_task(self.task_name).title)
        super().__post_init__()
        if self.regression and not is_own:
            raise ValueError(f"regression is for task_name own only, got {self.task_name}")
        if self.warmup_proportion and self.warmup_steps:
            raise ValueError("warmup_proportion and warmup_steps exclude each other: give one")
        by_words = self.resolved_pooling not in CLASS_TOKEN_POOLINGS
        by_words &= self.fusion != "class_token"
        if self.padding == "longest" and by_words and not self.mask_padding:
            raise ValueError(
                "padding longest changes what this head computes with the make-up of each batch, "
                "because it counts padded positions: add mask_padding, or use padding max_length"
            )

    @property
    def resolved_pooling(self) -> str:
        """The pooling in the names of :class:`sot_paddle.config.HeadConfig`."""
        return self.pooling or (SECOND_ORDER if self.head == "mgcrp" else super().resolved_pooling)

    @property
    def head_options(self) -> dict[str, Any]:
        """Options of the head for ``create_model``, the task's published values filled in."""
        pooling = self.resolved_pooling
        names = ("fusion", "normalization", "mask_padding", "head_dropout")
        names += HEAD_SIZES.get(pooling, ())
        options = {"pooling": pooling, **{name: getattr(self, name) for name in names}}
        published = MGCRP_BY_TASK.get(self.task_name, MGCRP_BY_TASK["RTE"])
        by_task = {SECOND_ORDER: tuple(published), "gcp_text": ("q_dim",)}
        for name in by_task.get(pooling, ()):
            options[name] = published[name] if options[name] is None else options[name]
        return options

    @property
    def unused_sizes(self) -> list[str]:
        """Sizes that are given and that the head does not have."""
        used = () if self.fusion == "class_token" else HEAD_SIZES.get(self.resolved_pooling, ())
        sizes = dict.fromkeys(itertools.chain(*HEAD_SIZES.values()))
        changed = [name for name in sizes if getattr(self, name) != getattr(type(self), name)]
        return [name for name in changed if name not in used]

    def identity(self) -> dict[str, Any]:
        """See :meth:`RunOptions.identity`; the head's options as they are filled in."""
        return super().identity() | {"head_options": self.head_options}
