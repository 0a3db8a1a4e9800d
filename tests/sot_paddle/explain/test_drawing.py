"""Figures: colours, marks, sizes; texts that are no mathematics; layers."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from PIL import Image

from sot_paddle.explain.figures import (
    RIGHT,
    WRONG,
    ExplainedImage,
    image_figure,
    layer_figure,
    layer_scores,
    sentence_figure,
    verdict,
    word_colours,
)
from sot_paddle.explain.parts import Part, PartEvidence
from sot_paddle.explain.word_impact import SentenceEvidence, Word

PARTS = [Part(name, ()) for name in ("ClassT", "WordT", "ClassT+WordT")]
LOGITS = [[2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [2.0, 2.5, 0.0]]
ODD = "<script>alert('&')</script> $x^$"
CLASSES = ("ant", ODD, "cow")


def evidence(values: list[np.ndarray], classes: int = 3) -> list[PartEvidence]:
    return [
        PartEvidence(part, np.array(scores[:classes]), value)
        for part, scores, value in zip(PARTS, LOGITS, values, strict=True)
    ]


def explained_image(label: str = "") -> ExplainedImage:
    pixels = np.random.default_rng(0).integers(0, 255, (32, 32, 3)).astype(np.uint8)
    return ExplainedImage(
        "a & b.png", pixels, evidence(list(np.eye(4)[:3, None] * np.eye(4))), label
    )


def sentence(words=("red", ODD, "cat", "日本"), classes: int = 3) -> SentenceEvidence:
    placed = tuple(Word(text, int(index > 1), (1,)) for index, text in enumerate(words))
    impacts = [np.linspace(-1, 0.5, len(words)) * scale for scale in (1.0, 2.0, 0.0)]
    return SentenceEvidence(placed, tuple(evidence(impacts, classes)))


def picture(png: bytes) -> Image.Image:
    opened = Image.open(io.BytesIO(png))
    assert opened.format == "PNG"
    return opened


def test_marks_and_shares() -> None:
    values = [np.zeros(1)] * 3
    texts = [verdict(part, CLASSES, "ant")[0] for part in evidence(values)]
    assert texts[:2] == [f"{RIGHT} ant, 79 %", f"{WRONG} {ODD[:20]}…, 58 %"]
    assert verdict(evidence(values)[0], CLASSES, "")[0] == "ant, 79 %"
    assert verdict(evidence(values, 1)[0], (), "")[0] == "2.00"


def test_the_map_is_red_where_the_evidence_is() -> None:
    maps = [np.array([[0.0, 0.0], [-1.0, 3.0]])] * 3
    drawn = ExplainedImage("a", np.full((32, 32, 3), 128, np.uint8), evidence(maps), "")
    panel = np.asarray(picture(image_figure([drawn], CLASSES)).convert("RGB")).astype(int)
    panel = panel[80:320, 330:560]  # inside of the first map
    difference = panel[..., 0] - panel[..., 2]  # red less blue
    assert difference[-20:, -20:].mean() > 40
    assert difference[:20, :20].mean() < 0
    assert difference[-20:, :20].mean() < 0


def test_the_strongest_word_is_green_whatever_its_sign() -> None:
    colours = word_colours(np.array([-2.0, 0.0, 1.0]))
    assert colours.tolist() == [[64, 190, 92], [158, 197, 235], [111, 194, 164]]
    assert word_colours(np.zeros(2)).tolist() == [[158, 197, 235]] * 2


def test_the_figures_are_pictures_of_the_expected_size() -> None:
    images = picture(image_figure([explained_image("ant"), explained_image()], CLASSES))
    alone = picture(image_figure([explained_image("ant")], CLASSES))
    assert images.width == alone.width
    assert images.height > 1.7 * alone.height
    few = picture(sentence_figure([sentence()], ["ant"], CLASSES))
    long = picture(sentence_figure([sentence(["word", "x" * 80] * 9, 1)], [""], ()))
    assert few.width == long.width < 1600
    assert long.height > 2.5 * few.height
    pair, single = sentence(("a", "b", "c")), sentence(("a", "b"))  # a pair has a line for each
    heights = [picture(sentence_figure([row], [""], CLASSES)).height for row in (pair, single)]
    assert heights[0] > heights[1]


def test_scores_of_layers_come_in_their_order(tmp_path) -> None:
    each = [layer / 20 for layer in range(13)]
    best = {"step": "3", "acc": 0.9, "layer_1_loss": 0.2}
    best |= {f"layer_{layer}_acc": value for layer, value in reversed([*enumerate(each)])}
    content = {"task": "RTE", "metric": "acc", "best": best}
    (tmp_path / "metrics.json").write_text(json.dumps(content), encoding="utf-8")
    title, scores = layer_scores(tmp_path)
    assert title == f"RTE acc {tmp_path.name}"
    assert scores.tolist() == each
    with pytest.raises(ValueError, match="nor probes of layers"):
        layer_scores(tmp_path / "none")


def test_the_best_layer_of_each_run_is_the_brightest() -> None:
    # also of runs with one title
    columns = [("RTE acc", np.array([0.5, np.nan, 0.6])), ("RTE acc", np.array([90.0, 70.0, 80.0]))]
    pixels = np.asarray(Image.open(io.BytesIO(layer_figure(columns))).convert("RGB")).astype(int)
    yellow = (np.abs(pixels - [253, 231, 36]).sum(axis=2) < 30).nonzero()
    middle = (yellow[1].min() + yellow[1].max()) / 2
    # the last layer is drawn first: the first run's best is at the top, the other's at the bottom
    left, right = (yellow[0][side].mean() for side in (yellow[1] < middle, yellow[1] > middle))
    assert left < right
