"""What export.json holds comes back, and damage is one line."""

from __future__ import annotations

import json

import pytest

from sot_paddle.deploy.recipe import RECIPE, is_export, read_recipe, recipe_json


def test_it_comes_back(exports, tmp_path):
    for name in ("rte", "stsb", "swin"):
        recipe = read_recipe(exports[name][1])
        (tmp_path / RECIPE).write_text(recipe_json(recipe, {"bound": 1}), encoding="utf-8")
        assert read_recipe(tmp_path) == recipe
    assert read_recipe(exports["stsb"][1]).labels == ()
    assert is_export(tmp_path)
    assert not is_export(tmp_path / "none")


@pytest.mark.parametrize(
    "edit",
    [
        {"version": 2},
        {"kind": "other"},
        {"preparation": {"sound": {}}},
        {"preparation": {"text": {"max_length": 3}}},
        {"preparation": {"image": {"img_size": 16, "crop_pct": 1.0}}},
        {"spans": ...},
        {"preparation": []},
        {"labels": ...},
    ],
)
def test_damage_is_one_line(exports, tmp_path, edit):
    content = json.loads((exports["rte"][1] / RECIPE).read_text(encoding="utf-8"))
    content = {key: value for key, value in {**content, **edit}.items() if value is not ...}
    (tmp_path / RECIPE).write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ValueError, match="is not what tools/export.py of this version writes"):
        read_recipe(tmp_path)
