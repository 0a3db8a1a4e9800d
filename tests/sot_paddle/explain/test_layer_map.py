"""The heat map over layers: which layer is best, colours by column, refusals."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from PIL import Image

from sot_paddle.explain.layer_map import (
    best_layer,
    layer_figure,
    layer_scores,
    layer_table,
    run_command,
    shades,
)


def write(folder, task: str, scores: dict[str, list[float | None]], metric: str = "acc") -> None:
    named = {f"layer_{at}_{name}": v for name, each in scores.items() for at, v in enumerate(each)}
    folder.mkdir(exist_ok=True)
    content = {"task": task, "metric": metric, "best": {"step": "3", "acc": 0.9, **named}}
    (folder / "metrics.json").write_text(json.dumps(content), encoding="utf-8")


def test_scores_come_in_the_order_of_the_layers(tmp_path) -> None:
    each = [at / 20 for at in range(13)]
    write(tmp_path, "RTE", {"acc": each, "loss": each[::-1]})
    assert layer_scores(tmp_path) == {"RTE acc": each}
    assert layer_scores(tmp_path, ["loss", "acc"]) == {"RTE loss": each[::-1], "RTE acc": each}
    write(tmp_path, "RTE", {"acc": [0.5, None]})
    assert np.isnan(layer_scores(tmp_path)["RTE acc"][1])


def test_each_column_has_its_own_colours() -> None:
    nan = np.nan
    values = np.array(
        [[0.5, 70.0, 1.0, nan, nan], [0.7, 50.0, 1.0, 2.0, nan], [0.6, 55.0, 1.0, 4.0, nan]]
    )
    expected = [[0.0, 1.0, 0.5, 0.0, 0.5], [1.0, 0.0, 0.5, 0.0, 0.5], [0.5, 0.25, 0.5, 1.0, 0.5]]
    np.testing.assert_allclose(shades(values), expected)
    assert [best_layer(column) for column in values.T] == [1, 0, 0, 2, 0]


def test_the_figure_has_a_row_for_each_layer_and_a_column_for_each_run() -> None:
    columns = {"RTE acc": [0.5, 0.7, 0.6], "MRPC f1": [0.9, 0.7, 0.8]}
    small = Image.open(io.BytesIO(layer_figure({"RTE acc": [0.5, 0.7, 0.6]})))
    picture = Image.open(io.BytesIO(layer_figure(columns)))
    taller = Image.open(io.BytesIO(layer_figure({n: [*v, 0.1] for n, v in columns.items()})))
    assert picture.size[0] > small.size[0]
    assert taller.size[1] - picture.size[1] == round(0.3 * 160)
    pixels = np.asarray(picture.convert("RGB")).astype(int)
    yellow = (np.abs(pixels - [253, 231, 36]).sum(axis=2) < 30).nonzero()
    middle = pixels.shape[1] // 2
    # the last layer is drawn first: RTE's best is in the middle, MRPC's at the bottom
    left, right = (yellow[0][side].mean() for side in (yellow[1] < middle, yellow[1] > middle + 80))
    assert left < right


def test_the_table_marks_the_best_layer() -> None:
    lines = layer_table({"RTE acc": [0.5, 0.7, 0.6], "MRPC f1": [0.9, 0.7, 0.8]}).splitlines()
    assert [line.split() for line in lines] == [
        ["layer", "RTE", "acc", "MRPC", "f1"],
        ["2", "0.6000", "0.8000"],
        ["1", "0.7000*", "0.7000"],
        ["embeddings", "0.5000", "0.9000*"],
    ]


def test_the_command_draws_several_runs(tmp_path, capsys) -> None:
    for name, task in (("a", "RTE"), ("b", "RTE"), ("c", "MRPC")):
        write(tmp_path / name, task, {"acc": [0.5, 0.75]})
    runs = [str(tmp_path / name) for name in "abc"]
    out = tmp_path / "map.png"
    assert run_command([*runs, "--out", str(out)]) == 0
    Image.open(out).verify()
    printed = capsys.readouterr().out
    assert f"RTE acc {runs[1]}" in printed
    assert printed.splitlines()[-1] == str(out)


def test_what_is_no_run_of_probes_is_refused(tmp_path, capsys) -> None:
    assert run_command([str(tmp_path), "--out", str(tmp_path / "x")]) == 2
    assert capsys.readouterr().err.startswith(f"layer_map: cannot read {tmp_path}")
    write(tmp_path, "RTE", {})
    with pytest.raises(ValueError, match="has no scores of layers: give a run of --model probes"):
        layer_scores(tmp_path)
    write(tmp_path, "RTE", {"acc": [0.5]})
    with pytest.raises(ValueError, match="has no layer scores 'f1'; it has acc"):
        layer_scores(tmp_path, ["f1"])
    with pytest.raises(ValueError, match=r"the runs have \[1, 2\] layers"):
        layer_figure({"a": [0.1], "b": [0.1, 0.2]})
