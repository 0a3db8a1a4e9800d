"""The scores a head is made of (ClassT, WordT, their sum), and what is explained of them.

Shape legend: B samples, K classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import paddle
from paddle import nn
from scipy.special import softmax

from sot_paddle.heads import fusion


@dataclass(frozen=True)
class Part:
    """One classifier's score, or a sum of several: its logits are the sum of the taps (B, K)."""

    name: str  # as in the original's comparison
    taps: tuple[str, ...]


_CLASS = Part("ClassT", ("head.cls_logits",))
_WORD = Part("WordT", ("head.word_logits",))
_SUM = Part("ClassT+WordT", _CLASS.taps + _WORD.taps)
_JOINT = Part("ClassT+WordT", ("logits",))  # one classifier on both: each has no score of its own

_PARTS: Mapping[type, tuple[Part, ...]] = {
    **dict.fromkeys((fusion.SumHead, fusion.SumLossHead), (_CLASS, _WORD, _SUM)),
    **dict.fromkeys((fusion.ClassTokenHead, fusion.ExpandedHead, fusion.PoolerHead), (_CLASS,)),
    **dict.fromkeys((fusion.TwoLayerHead, fusion.ScoreHead), (_CLASS,)),
    fusion.WordHead: (_WORD,),
    **dict.fromkeys((fusion.ConcatHead, fusion.AllTokensHead), (_JOINT,)),
}


def parts_of(model: nn.Layer) -> tuple[Part, ...]:
    """The parts of a model's score; the last one is what the model predicts with.

    Raises:
        ValueError: a head that is none of the project's.
    """
    kind = type(model.head)
    if kind not in _PARTS:
        raise ValueError(f"the parts of a {kind.__name__} are not known; see docs/models.md")
    return _PARTS[kind]


@dataclass(frozen=True, eq=False)
class PartEvidence:
    """What one part of the score says, and why."""

    part: Part
    logits: np.ndarray  # (K,) float64, of this part alone
    evidence: np.ndarray  # of any shape, in units of the margin; above 0 speaks for the class

    @property
    def choice(self) -> int:
        """The class that this part alone predicts (0 for regression)."""
        return int(self.logits.argmax())

    @property
    def probability(self) -> float:
        """Share of the choice in the softmax of this part's logits."""
        return float(softmax(self.logits).max())


def contrast(target: int, num_classes: int) -> np.ndarray:
    """Weights of the logits whose sum is the margin of a class, which is explained.

    ``margin = z_target - mean of the other z``: the softmax does not change when a number is
    added to all logits, so one logit alone says nothing. With one output it is that output.

    Returns:
        (K,) float64; they sum to 0, or to 1 when K is 1.
    """
    if num_classes == 1:
        return np.ones(1)
    weights = np.full(num_classes, -1.0 / (num_classes - 1))
    weights[target] = 1.0
    return weights


def part_logits(parts: Sequence[Part], taps: Mapping[str, paddle.Tensor]) -> list[np.ndarray]:
    """The logits (B, K) of each part in float64.

    Raises:
        ValueError: the model's output is not finite.
    """
    logits = [sum(taps[name].astype("float64").numpy() for name in part.taps) for part in parts]
    if not all(np.isfinite(each).all() for each in logits):
        raise ValueError("the model's output is not a finite number: its weights are damaged")
    return logits
