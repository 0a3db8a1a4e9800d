"""Kinds of case about the parts of a training run: single updates and what feeds the processes."""

from __future__ import annotations

from dataclasses import dataclass

from align.cases.kinds.case_kinds import Recipe


@dataclass(frozen=True)
class UpdateCase:
    """Some parameters of every kind that weight decay tells apart, under given gradients.

    Attributes:
        recipe: of the optimizer; it has no schedule here.
        norm: global norm of every step's gradients, in units of the recipe's clip norm; None
            leaves them over eight orders of magnitude, as they are drawn.
        reloaded: each step of ours is made by a fresh optimizer that loads the last one's state.
    """

    name: str
    recipe: Recipe
    norm: float | None = None
    reloaded: bool = False
    steps: tuple[str, ...] = ("optimizer",)
    dtypes: tuple[str | None, ...] = ("float64",)
    quick: bool = True


@dataclass(frozen=True)
class FeedingCase:
    """What the sampler that trains gives to each process, and how it weights their losses.

    Attributes:
        rows: examples of the data set.
        batch: examples of a global batch; the last one of an epoch is smaller.
        processes: that share it.
        epochs: passes over the data.
        start: (epoch, batch) at which a resumed run begins.
        pad: ``max_length`` or ``longest`` of the process's share.
        pad_id: token id of padding.
    """

    name: str
    rows: int = 11
    batch: int = 4
    processes: int = 2
    epochs: int = 2
    start: tuple[int, int] = (0, 0)
    pad: str = "max_length"
    pad_id: int = 0
    steps: tuple[str, ...] = ("data",)
    dtypes: tuple[str | None, ...] = (None,)
    quick: bool = True
