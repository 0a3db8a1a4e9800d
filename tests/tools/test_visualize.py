"""The tool itself: a real run in its own process, a refusal of one line, and its size."""

from __future__ import annotations

import pytest

from tests.sot_paddle.explain import tiny_models
from tests.tools import tool_runs


@pytest.mark.long
def test_a_trained_folder_and_the_digits(tmp_path):
    folder = tiny_models.write_image_model(tmp_path / "model")
    flags = ("--no-ema", "--out", tmp_path / "out", "--cpu")
    done = tool_runs.run("visualize", folder, "digits", *flags)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == [str(tmp_path / "out" / "images.png")]
    assert done.stderr.splitlines()[0] == "1 of 10: digit 0"
