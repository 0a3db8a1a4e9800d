"""RandAugment: which operations, how strong; drawn apart from applied.

The default recipe is ``rand-m9-mstd0.5-inc1``: two of fifteen operations per image, with
repetition, each carried out with probability one half at a magnitude from N(9, .5) clipped to
0..10. Source: specs.md A.9 (timm 0.3.4).

Where timm's versions differ this follows 0.3.4, except that ``inc0`` means what it says (0.3.4
takes any digit for "on").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from sot_paddle.data.errors import DataError
from sot_paddle.data.image_operations import (
    INCREASING,
    MAX_MAGNITUDE,
    PLAIN,
    Argument,
    level_to_argument,
)

RESAMPLINGS = (Image.Resampling.BILINEAR, Image.Resampling.BICUBIC)
SECTIONS = "m (magnitude), n (operations), mstd (deviation), inc (0 or 1), p (probability)"
_SECTION = re.compile(r"(mstd|inc|m|n|p)(\d+(?:\.\d+)?)")


@dataclass(frozen=True)
class RandAugmentConfig:
    """Options of RandAugment; the defaults are those of a bare ``rand``.

    Attributes:
        magnitude: mean magnitude; values above 10 act like 10.
        layers: operations drawn per image.
        std: standard deviation of the magnitude.
        increasing: use the operations that become stronger with the magnitude.
        prob: probability that a drawn operation is carried out.

    Raises:
        DataError: a probability above 1.
    """

    magnitude: float = MAX_MAGNITUDE
    layers: int = 2
    std: float = 0.0
    increasing: bool = False
    prob: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.prob <= 1:
            raise DataError(f"RandAugment: expected a probability from 0 to 1, got {self.prob}")

    @property
    def names(self) -> tuple[str, ...]:
        """The operations to draw from."""
        return INCREASING if self.increasing else PLAIN


_OPTIONS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "m": ("magnitude", float),
    "n": ("layers", int),
    "mstd": ("std", float),
    "inc": ("increasing", lambda text: text == "1"),
    "p": ("prob", float),
}
"""Section of a policy's text -> the option that it sets, and how its number is read."""


def parse_randaugment(text: str) -> RandAugmentConfig:
    """Read a string like ``rand-m9-mstd0.5-inc1``.

    Raises:
        DataError: another policy, an unknown or repeated section, or an impossible value.
    """
    policy, *sections = text.split("-")
    if policy != "rand":
        raise DataError(
            f"auto-augment: expected rand-..., for example rand-m9-mstd0.5-inc1, got {text!r}; "
            "the AutoAugment and AugMix policies are not offered"
        )
    values: dict[str, str] = {}
    for section in sections:
        match = _SECTION.fullmatch(section)
        if match is None or match[1] in values:
            problem = "repeated" if match else "unknown"
            raise DataError(
                f"auto-augment {text!r}: {problem} section {section!r}; expected each at most "
                f"once: {SECTIONS}"
            )
        values[match[1]] = match[2]
    whole = {key: values[key] for key in ("m", "n", "inc") if key in values}
    wrong = [key for key, value in whole.items() if not value.isdigit()]
    if wrong or whole.get("inc", "0") not in ("0", "1"):
        raise DataError(
            f"auto-augment {text!r}: expected whole numbers for m and n, and 0 or 1 for inc"
        )
    given = {name: kind(values[key]) for key, (name, kind) in _OPTIONS.items() if key in values}
    return RandAugmentConfig(**given)


@dataclass(frozen=True)
class DrawnOperation:
    """One operation to carry out.

    Attributes:
        name: of the operation.
        argument: see :func:`~sot_paddle.data.image_operations.level_to_argument`.
        resampling: for operations that move pixels.
    """

    name: str
    argument: Argument
    resampling: Image.Resampling


def draw_operations(
    rng: np.random.Generator,
    config: RandAugmentConfig,
    resamplings: tuple[Image.Resampling, ...] = RESAMPLINGS,
) -> tuple[DrawnOperation, ...]:
    """Draw what to do to one image.

    Args:
        rng: advanced by the same number of draws whatever they give.
        config: the recipe.
        resamplings: one of them is drawn per operation.

    Returns:
        At most ``config.layers`` operations, in order.
    """
    drawn = []
    for _ in range(config.layers):
        name = config.names[rng.integers(len(config.names))]
        carried_out = rng.random() < config.prob
        magnitude = config.magnitude + config.std * rng.standard_normal()
        negate = bool(rng.random() < 0.5)
        resampling = resamplings[rng.integers(len(resamplings))]
        if carried_out:
            argument = level_to_argument(name, min(max(magnitude, 0.0), MAX_MAGNITUDE), negate)
            drawn.append(DrawnOperation(name, argument, resampling))
    return tuple(drawn)
