"""What a figure shows, ready to be drawn: the same rows become a PNG and a page.

A row is one image or one sentence; a panel is one part of the score in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib
import numpy as np
from PIL import Image

from sot_paddle.explain.image_maps import to_heat
from sot_paddle.explain.parts import PartEvidence
from sot_paddle.explain.word_impact import SentenceEvidence

RIGHT, WRONG = "\u2713", "\u2717"
PICTURE = 224
"""Smaller images are enlarged to at least so many pixels, so that a map on them stays smooth."""

_COLOURS = "turbo"
_OPACITY = 0.55
_WEAK, _STRONG = np.array([158, 197, 235.0]), np.array([64, 190, 92.0])  # blue to green


@dataclass(frozen=True, eq=False)
class Panel:
    """One part of the score for one image or sentence.

    Attributes:
        name: of the part.
        verdict: what it predicts, with mark and probability, as text.
        mark: ``RIGHT``, ``WRONG``, or "" when the label is not known.
        margin: of the explained class.
        picture: uint8 (S, S, 3), the image under its map; None for sentences.
        colours: (W, 3) uint8 of each word; None for images.
        impacts: (W,) of each word; None for images.
    """

    name: str
    verdict: str
    mark: str
    margin: float
    picture: np.ndarray | None = None
    colours: np.ndarray | None = None
    impacts: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Row:
    """One image or sentence.

    Attributes:
        name: of the image; "" for a sentence.
        label: its class, "" when not known.
        target: the class that is explained, "" for regression.
        panels: one for each part of the score.
        picture: uint8 (S, S, 3) as the model sees it; None for sentences.
        words: text of each word; () for images.
        second: number of the first word of the second sentence, None for single ones.
        left_out: words that the model does not read.
    """

    name: str
    label: str
    target: str
    panels: tuple[Panel, ...]
    picture: np.ndarray | None = None
    words: tuple[str, ...] = ()
    second: int | None = None
    left_out: int = 0


def image_row(
    name: str,
    pixels: np.ndarray,
    parts: Sequence[PartEvidence],
    classes: Sequence[str],
    label: str = "",
) -> Row:
    """Put the maps of one image, uint8 (S, S, 3) as the model sees it, on it."""
    factor = -(-PICTURE // len(pixels))
    picture = pixels.repeat(factor, axis=0).repeat(factor, axis=1)
    panels = tuple(
        _panel(part, classes, label, picture=overlay(picture, part.evidence)) for part in parts
    )
    return Row(name, label, classes[parts[0].target], panels, picture)


def sentence_row(evidence: SentenceEvidence, labels: Sequence[str], label: str = "") -> Row:
    """Colour the words of one sentence or pair; without class names it is a regression."""
    words = evidence.words
    second = next((place for place, word in enumerate(words) if word.sentence), None)
    panels = tuple(
        _panel(part, labels, label, colours=word_colours(part.evidence), impacts=part.evidence)
        for part in evidence.parts
    )
    target = labels[evidence.parts[0].target] if labels else ""
    texts = tuple(word.text for word in words)
    return Row("", label, target, panels, words=texts, second=second, left_out=evidence.left_out)


def short(text: str) -> str:
    """A text that fits below a picture."""
    return text if len(text) <= 22 else f"{text[:20]}…"


def _panel(
    evidence: PartEvidence, classes: Sequence[str], label: str, **drawn: np.ndarray
) -> Panel:
    if not classes:  # regression
        verdict = f"{evidence.logits[0]:.2f}"
        return Panel(evidence.part.name, verdict, "", evidence.margin, **drawn)
    choice = classes[evidence.choice]
    mark = "" if not label else RIGHT if choice == label else WRONG
    verdict = f"{mark} {short(choice)}, {100 * evidence.probability:.0f} %".strip()
    return Panel(evidence.part.name, verdict, mark, evidence.margin, **drawn)


def overlay(pixels: np.ndarray, evidence: np.ndarray) -> np.ndarray:
    """An image under its heat map.

    Args:
        pixels: uint8 (S, S, 3).
        evidence: (g, g), signed.

    Returns:
        uint8 (S, S, 3): grey image, blue where nothing speaks for the class, red where most does.
    """
    heat = to_heat(evidence, len(pixels))
    colours = matplotlib.colormaps[_COLOURS](0.08 + 0.87 * heat)[..., :3] * 255.0
    grey = np.asarray(Image.fromarray(pixels).convert("L"), dtype=np.float64)[..., None]
    return np.rint((1.0 - _OPACITY) * grey + _OPACITY * colours).astype(np.uint8)


def word_colours(impacts: np.ndarray) -> np.ndarray:
    """Colours (W, 3) uint8 of words by the size of their impacts (W,): green for the strongest of
    the sentence, blue for none."""
    size = np.abs(impacts)
    strength = size / size.max() if size.max() > 0 else size
    return np.rint(_WEAK + strength[:, None] * (_STRONG - _WEAK)).astype(np.uint8)
