"""Options of GLUE training (``tools/train_glue.py``)."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sot_paddle.config import CLASS_TOKEN_POOLINGS, FUSIONS, NORMALIZATIONS, POOLINGS
from sot_paddle.data.glue_tasks import TASKS, get_task
from sot_paddle.options import changeable, option
from sot_paddle.registry import HEADS, SECOND_ORDER
from sot_paddle.tasks.text_options import TextRunOptions, TunedOptions

OWN = "own"
"""Task name of a user's own TSV files."""

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


@dataclass(frozen=True)
class TrainConfig(TunedOptions, TextRunOptions):
    """Every option of ``tools/train_glue.py``; the names are the flags.

    The first block has the names and defaults of the original's ``run_glue.py`` (B.2). An option
    that is None is filled in from the task or the checkpoint.
    """

    task_name: str = option(
        "", ", ".join(task.title for task in TASKS.values()) + " (any case), or own (own TSV files)"
    )
    data_dir: str = changeable(
        "", "folder with the task's train.tsv, dev.tsv, test.tsv", example="GLUE/RTE"
    )
    max_seq_length: int = option(128, "longer examples are cut", unit="tokens", low=8)
    evaluate_during_training: bool = changeable(False, "evaluate at every logging step")
    do_lower_case: bool = option(False, "lower-case the text, whatever the vocabulary")
    warmup_steps: int = option(0, "linear warm-up", unit="optimizer steps", low=0)
    overwrite_cache: bool = changeable(False, "tokenize again")
    local_rank: int = changeable(-1, "accepted; processes come from paddle.distributed.launch")
    server_ip: str = changeable("", "accepted and ignored (remote debugging of the original)")
    server_port: str = changeable("", "accepted and ignored (remote debugging of the original)")

    head: str = option("mgcrp", "mgcrp (published second-order head) or plain", choices=HEADS)
    pooling: str | None = option(None, "any pooling, goes before --head", choices=POOLINGS)
    fusion: str | None = option(
        None, "how the head uses class token and words, " + ", ".join(FUSIONS)
    )
    normalization: str | None = option(
        None,
        "power norm of the pooling",
        choices=tuple(dict.fromkeys(itertools.chain(*NORMALIZATIONS.values()))),
    )
    q_dim: int | None = option(None, "MGCrP q, by task when not given", low=1)
    k_dim: int | None = option(None, "MGCrP k, by task when not given", low=1)
    head_dropout: float | None = option(None, "dropout of the head, by task when not given", low=0)
    head_num_heads: int = option(6, "heads of --pooling mgcrp and gcp", low=1)
    wr_dim: int = option(14, "width of --pooling mgcrp", low=1)
    mask_padding: bool = option(False, "head statistics over valid tokens only")
    padding: str = option(
        "max_length",
        "max_length (published) or longest (needs mask_padding)",
        choices=("max_length", "longest"),
    )
    optimizer: str = option(
        "hf_adamw", "hf_adamw (published) or adamw", choices=("hf_adamw", "adamw")
    )
    lr_scheduler: str = option(
        "linear", "linear (published), cosine or constant", choices=("linear", "cosine", "constant")
    )
    regression: bool = option(False, "task_name own: the label is a score")

    def __post_init__(self) -> None:
        self.require("task_name", "data_dir", "model_name_or_path", "output_dir")
        own = self.task_name.lower() == OWN
        object.__setattr__(self, "task_name", OWN if own else get_task(self.task_name).title)
        self.check()
        self.check_half()
        if self.regression and not own:
            raise ValueError(f"regression is for task_name own only, got {self.task_name}")
        if self.warmup_proportion and self.warmup_steps:
            raise ValueError("warmup_proportion and warmup_steps exclude each other: give one")
        if not self.correct_bias and self.optimizer != "hf_adamw":
            raise ValueError(
                f"{self.optimizer} always corrects the bias, correct_bias is hf_adamw's"
            )
        by_words = self.resolved_pooling not in CLASS_TOKEN_POOLINGS
        by_words &= self.fusion != "class_token"
        if self.padding == "longest" and by_words and not self.mask_padding:
            raise ValueError(
                "padding longest changes what this head computes with the make-up of each batch, "
                "because it counts padded positions: add mask_padding, or use padding max_length"
            )

    @property
    def length(self) -> int:
        """Tokens of a row at most."""
        return self.max_seq_length

    @property
    def resolved_pooling(self) -> str:
        """The pooling in the names of :class:`sot_paddle.config.HeadConfig`."""
        return self.pooling or (SECOND_ORDER if self.head == "mgcrp" else super().resolved_pooling)

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

    @property
    def unused_sizes(self) -> list[str]:
        """Sizes that are given and that the head does not have."""
        own = () if self.fusion == "class_token" else HEAD_SIZES.get(self.resolved_pooling, ())
        known = dict.fromkeys(itertools.chain(*HEAD_SIZES.values()))
        default = {item.name: item.default for item in dataclasses.fields(self)}
        return [name for name in known if name not in own and getattr(self, name) != default[name]]

    def identity(self) -> dict[str, Any]:
        """See :meth:`RunOptions.identity`; the head's options as they are filled in."""
        return super().identity() | {"head_options": self.head_options}
