"""Rows, the PNG and the page: colours, marks, nothing from elsewhere, texts escaped; layers."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from PIL import Image

from sot_paddle.explain.figures import (
    RIGHT,
    WRONG,
    image_figure,
    image_row,
    layer_figure,
    layer_scores,
    overlay,
    page,
    sentence_figure,
    sentence_row,
    word_colours,
)
from sot_paddle.explain.parts import Part, PartEvidence
from sot_paddle.explain.word_impact import SentenceEvidence, Word
from tests.html_tags import Page, assert_stands_alone

PARTS = [Part(name, (), f"what {name} is") for name in ("ClassT", "WordT", "ClassT+WordT")]
EVIL = "<script>alert('&')</script> $x^$"


def evidence(values: list[np.ndarray], logits: list[list[float]]) -> list[PartEvidence]:
    return [
        PartEvidence(part, np.array(score), 1, value)
        for part, score, value in zip(PARTS, logits, values, strict=True)
    ]


LOGITS = [[2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [2.0, 2.5, 0.0]]


def pictures(label: str = "", classes=("ant", EVIL, "cow")):
    maps = [np.zeros((4, 4)) for _ in range(3)]
    for place, each in enumerate(maps):
        each[place, place] = 1.0
    pixels = np.random.default_rng(0).integers(0, 255, (32, 32, 3)).astype(np.uint8)
    return image_row("a & b.png", pixels, evidence(maps, LOGITS), classes, label)


def sentences(labels=("no", EVIL, "yes"), label: str = "", words=("red", EVIL, "cat", "日本")):
    placed = tuple(Word(text, int(index > 1), 0, 1) for index, text in enumerate(words))
    impacts = [np.linspace(-1, 0.5, len(words)) * scale for scale in (1.0, 2.0, 0.0)]
    logits = [score[: len(labels) or 1] for score in LOGITS]
    parts = evidence(impacts, logits)
    if not labels:
        parts = [PartEvidence(p.part, p.logits, 0, p.evidence) for p in parts]
    return sentence_row(SentenceEvidence(placed, tuple(parts), 3), labels, label)


def test_marks_shares_and_margins() -> None:
    row = pictures(label="ant")
    assert [panel.mark for panel in row.panels] == [RIGHT, WRONG, WRONG]
    assert row.panels[0].verdict == f"{RIGHT} ant, 79 %"
    assert row.panels[1].verdict == f"{WRONG} {EVIL[:20]}…, 58 %"
    assert row.panels[1].margin == 1.0
    assert (row.target, row.picture.shape) == (EVIL, (224, 224, 3))
    assert {panel.mark for panel in pictures().panels} == {""}
    score = sentences(labels=())
    assert (score.panels[0].verdict, score.panels[0].mark) == ("2.00", "")
    assert score.target == ""


def test_the_map_is_red_where_the_evidence_is() -> None:
    drawn = overlay(np.full((64, 64, 3), 128, np.uint8), np.array([[0.0, 0.0], [0.0, 3.0]]))
    red, blue = drawn[..., 0].astype(int), drawn[..., 2].astype(int)
    assert (red - blue)[60, 60] > 40
    assert (red - blue)[4, 4] < -20


def test_the_strongest_word_is_green_whatever_its_sign() -> None:
    colours = word_colours(np.array([-2.0, 0.0, 1.0]))
    assert colours.tolist() == [[64, 190, 92], [158, 197, 235], [111, 194, 164]]
    assert word_colours(np.zeros(2)).tolist() == [[158, 197, 235]] * 2


@pytest.mark.parametrize("rows", [[pictures("ant"), pictures()], [sentences(label="no")]])
def test_the_page_is_self_contained_and_escaped(rows) -> None:
    parsed = assert_stands_alone(page(EVIL, b"figure", rows, PARTS))
    assert parsed.values("src") == ["data:image/png;base64,ZmlndXJl"]
    assert EVIL in parsed.text
    for part in PARTS:
        assert part.note in parsed.text
    assert RIGHT in parsed.text


def test_words_carry_their_impact_and_pairs_break() -> None:
    parsed = Page(page("t", b"", [sentences()], PARTS))
    assert parsed.tags.count("br") == 3  # one for each part, before the second sentence
    assert "red-1.00" in parsed.text
    assert "red-2.00" in parsed.text
    assert parsed.text.count("3 more not read") == 3


def test_the_figures_are_pictures_of_the_expected_size() -> None:
    images = Image.open(io.BytesIO(image_figure([pictures("ant"), pictures()])))
    assert images.format == "PNG"
    one = Image.open(io.BytesIO(image_figure([pictures("ant")])))
    assert images.width == one.width
    assert images.height > 1.7 * one.height
    few = Image.open(io.BytesIO(sentence_figure([sentences()])))
    long = Image.open(io.BytesIO(sentence_figure([sentences(words=["word", "x" * 300] * 9)])))
    assert few.width < long.width < 1600
    assert long.height > 3 * few.height


def test_scores_of_layers_come_in_their_order(tmp_path) -> None:
    each = [layer / 20 for layer in range(13)]
    best = {"step": "3", "acc": 0.9, "layer_1_loss": 0.2}
    best |= {f"layer_{layer}_acc": value for layer, value in reversed([*enumerate(each)])}
    content = {"task": "RTE", "metric": "acc", "best": best}
    (tmp_path / "metrics.json").write_text(json.dumps(content), encoding="utf-8")
    title, scores = layer_scores(tmp_path)
    assert title == f"RTE acc {tmp_path.name}"
    assert scores.tolist() == each


def test_the_best_layer_of_each_run_is_the_brightest() -> None:
    # also of runs with one title
    columns = [("RTE acc", np.array([0.5, np.nan, 0.6])), ("RTE acc", np.array([90.0, 70.0, 80.0]))]
    pixels = np.asarray(Image.open(io.BytesIO(layer_figure(columns))).convert("RGB")).astype(int)
    yellow = (np.abs(pixels - [253, 231, 36]).sum(axis=2) < 30).nonzero()
    middle = (yellow[1].min() + yellow[1].max()) / 2
    # the last layer is drawn first: the first run's best is at the top, the other's at the bottom
    left, right = (yellow[0][side].mean() for side in (yellow[1] < middle, yellow[1] > middle))
    assert left < right
