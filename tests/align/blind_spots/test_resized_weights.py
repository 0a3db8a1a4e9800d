"""Faults in tables made for another size, and in the fixed one as built: caught, at the table."""

import numpy as np
import pytest

from align.cases.tables.cases_models import OF_TWO_SIZES
from align.weights.engine import adapting
from sot_paddle import resampling
from sot_paddle.backbones import vit

BIAS = "stages.0.blocks.0.attn.relative_position_bias_table"
BUILT = "pos_embed (as built)"
GROWN, SHRUNK, WINDOWS = "resized_positions_384", "resized_positions_160", "resized_windows_8"
right_weights = resampling.bicubic_weights
right_table = resampling.sinusoid_table


@pytest.fixture
def place(run_case, failed):
    """The first failing comparison of a case."""

    def first(case, dtype="float64"):
        return next(iter(failed(run_case(case, "weights", dtype))), None)

    return first


@pytest.mark.parametrize(
    ("case", "dtype"), [(case.name, dtype) for case in OF_TWO_SIZES for dtype in case.dtypes]
)
def test_the_cases_pass_as_the_product_is(case, dtype, run_case):
    result = run_case(case, "weights", dtype)
    assert (result.failures, result.problems) == ([], [])
    compared = {comparison.name for comparison in result.comparisons}
    assert ("logits" in compared) == (dtype == "float64")


def test_another_cubic_parameter(place, monkeypatch):
    monkeypatch.setattr(resampling, "_SHARP", -0.5)
    assert place(WINDOWS) == BIAS
    assert place(GROWN) is None
    monkeypatch.undo()
    monkeypatch.setattr(resampling, "_SMOOTH", -0.75)
    assert place(GROWN) == "pos_embed"
    assert place(WINDOWS) is None


@pytest.mark.parametrize(("case", "table"), [(SHRUNK, "pos_embed"), (WINDOWS, BIAS)])
def test_antialiasing_the_other_way(case, table, place, monkeypatch):
    def other(old, new, *, antialias):
        return right_weights(old, new, antialias=not antialias)

    monkeypatch.setattr(resampling, "bicubic_weights", other)
    assert place(case) == table


@pytest.mark.parametrize(("case", "table"), [(GROWN, "pos_embed"), (WINDOWS, BIAS)])
def test_corners_aligned(case, table, place, monkeypatch):
    def aligned(old, new, *, antialias):
        weights = np.zeros((new, old))
        for row, center in zip(weights, np.linspace(0, old - 1, new), strict=True):
            near = np.arange(int(center) - 1, int(center) + 3)
            share = resampling.cubic(near - center, -0.5 if antialias else -0.75)
            np.add.at(row, near.clip(0, old - 1), share)
        return weights

    monkeypatch.setattr(resampling, "bicubic_weights", aligned)
    assert place(case) == table


def test_the_class_token_taken_for_a_word(place, monkeypatch):
    right = resampling.resample_position_embedding

    def last(table, tokens):
        return np.roll(right(table, tokens), -1, axis=1)

    monkeypatch.setattr(adapting, "resample_position_embedding", last)
    assert place(GROWN) == "pos_embed"


def exchanged(positions, dim):
    """Sine and cosine exchanged: sin^2 + cos^2 = 1, and the angle of channel 1 is that of 0."""
    table = right_table(positions, dim + dim % 2)
    return table.reshape(1, positions, -1, 2)[..., ::-1].reshape(1, positions, -1)[..., :dim]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_sine_and_cosine_exchanged_in_the_model(dtype, place, monkeypatch):
    monkeypatch.setattr(vit, "sinusoid_table", exchanged)
    assert place("resized_sinusoid", dtype) == BUILT


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_sine_and_cosine_exchanged_in_the_conversion(dtype, place, monkeypatch):
    monkeypatch.setattr(adapting, "sinusoid_table", exchanged)
    assert place("resized_sinusoid", dtype) == "pos_embed"


class Unrounded(np.ndarray):
    """An array that stays in float64."""

    def astype(self, *_args, **_options):
        return np.asarray(self)


def test_the_table_in_float64_where_float32_was_published(place, monkeypatch):
    def unrounded(positions, dim):
        return right_table(positions, dim).view(Unrounded)

    monkeypatch.setattr(vit, "sinusoid_table", unrounded)
    assert place("resized_sinusoid") == BUILT
    monkeypatch.undo()
    monkeypatch.setattr(adapting, "sinusoid_table", unrounded)
    assert place("resized_sinusoid") == "pos_embed"
