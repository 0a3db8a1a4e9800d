"""Faults in tables made for another size, and in the fixed one as built: caught, at the table."""

import numpy as np
import pytest

from align.cases.tables.cases_models import OF_TWO_SIZES
from sot_paddle import resampling
from sot_paddle.backbones import vit
from sot_paddle.convert.engine import adapting

BIAS = "stages.0.blocks.0.attn.relative_position_bias_table"
BUILT = "pos_embed (as built)"
GROWN, SHRUNK, WINDOWS, SINUSOID = (
    f"resized_{name} weights float64"
    for name in ("positions_384", "positions_160", "windows_8", "sinusoid")
)
AXIS = (resampling, "bicubic_weights")
CENTERS = "(np.arange(new) + 0.5) * scale"
CORNERS = "np.linspace(0, old - 1, new) + 0.5"
LAST = ("[table[:, :1], words[None]]", "[words[None], table[:, :1]]")
EXCHANGED = ("sinusoid_table", "np.sin(angle), np.cos(angle)", "np.cos(angle), np.sin(angle)")

CHANGES = [
    (GROWN, *AXIS, "_SMOOTH)", "-0.75)", "pos_embed"),
    (WINDOWS, *AXIS, "_SHARP)", "-0.5)", BIAS),
    (SHRUNK, *AXIS, "if antialias:", "if not antialias:", "pos_embed"),
    (WINDOWS, *AXIS, "if antialias:", "if not antialias:", BIAS),
    (GROWN, *AXIS, CENTERS, CORNERS, "pos_embed"),
    (WINDOWS, *AXIS, CENTERS, CORNERS, BIAS),
    (GROWN, adapting, "resample_position_embedding", *LAST, "pos_embed"),
    *(
        (SINUSOID.replace("64", size), module, *EXCHANGED, place)
        for size in ("64", "32")
        for module, place in ((vit, BUILT), (adapting, "pos_embed"))
    ),
    # in float64 where float32 was published
    (SINUSOID, vit.VisionTransformer, "__init__", ".astype(np.float32)", "", BUILT),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: f"{change[0]} {change[3]}")
def test_a_change_is_caught_at_its_table(caught, change):
    caught(*change)


@pytest.mark.parametrize(
    ("case", "dtype"), [(case.name, dtype) for case in OF_TWO_SIZES for dtype in case.dtypes]
)
def test_the_logits_are_compared_in_float64(case, dtype, run_case):
    result = run_case(case, "weights", dtype)
    assert (result.failures, result.problems) == ([], [])
    compared = {comparison.name for comparison in result.comparisons}
    assert ("logits" in compared) == (dtype == "float64")


class Unrounded(np.ndarray):
    """An array that stays in float64."""

    def astype(self, *_args, **_options):
        return np.asarray(self)


def test_the_table_of_the_conversion_in_float64(run_case, failed, monkeypatch):
    right = resampling.sinusoid_table
    monkeypatch.setattr(adapting, "sinusoid_table", lambda *size: right(*size).view(Unrounded))
    assert failed(run_case(*SINUSOID.split()))[0] == "pos_embed"
