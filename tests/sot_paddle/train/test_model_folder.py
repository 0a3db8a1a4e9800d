"""A trained folder rebuilds its model without a flag; other weights go through the converter."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sot_paddle.registry import create_model
from sot_paddle.train.ema import ModelEma
from sot_paddle.train.model_folder import (
    ImageModelConfig,
    find_model_folder,
    flat_options,
    load_foreign,
    load_trained,
    weight_set,
    weights_file,
)
from sot_paddle.train.saved_model import CONFIG, EMA, WEIGHTS
from sot_paddle.weights import save_weights

VIT = {"img_size": 16, "embed_dim": 12, "depth": 1, "num_heads": 3, "wr_dim": 4}
VIT |= {"head_num_heads": 2, "drop_path_rate": 0.1, "head_qkv_bias": True}


def _write(folder: Path, name: str, options: dict, classes=("a", "b", "c")):
    model = create_model(name, len(classes), **options)
    ema = ModelEma(model, 0.5)
    for parameter in model.parameters():
        parameter.set_value(parameter * 2.0 + 0.1)
    ema.update()
    config = ImageModelConfig(
        **{"model": name, "num_classes": len(classes), "options": flat_options(model)},
        **{"classes": classes, "img_size": 16, "crop_pct": 0.9, "interpolation": "bilinear"},
        **{"mean": (0.1, 0.2, 0.3), "std": (1.0, 2.0, 3.0)},
    )
    folder.mkdir(parents=True)
    save_weights(model, folder / WEIGHTS)
    with ema.in_place():
        save_weights(model, folder / EMA)
    (folder / CONFIG).write_bytes(config.file()[CONFIG])
    return model, ema, config


def test_what_a_path_means(tmp_path):
    _write(tmp_path / "run" / "best", "sot_tiny", VIT)
    best = tmp_path / "run" / "best"
    assert find_model_folder(tmp_path / "run") == best
    assert find_model_folder(best / WEIGHTS) == best
    assert weights_file(tmp_path / "run", ema=True) == best / EMA
    assert weights_file(best / WEIGHTS, ema=True) == best / WEIGHTS
    assert weights_file(best / WEIGHTS, ema=False) == best / WEIGHTS
    assert [weight_set(best / name) for name in (EMA, WEIGHTS)] == [
        "the moving average",
        "the raw weights",
    ]
    assert find_model_folder(tmp_path) is None
    with pytest.raises(ValueError, match="holds no trained image model"):
        load_trained(tmp_path)
    (best / EMA).unlink()
    with pytest.raises(ValueError, match="has no ema.safetensors"):
        load_trained(best)


@pytest.mark.parametrize(
    ("saved", "built", "said"),
    [
        ({"num_heads": 2}, {}, "made with num_heads=2, the model has 3; build it with num_heads=2"),
        ({"large_output": True, "wr_dim": 5}, {}, "made with large_output=True"),
        ({"token_type": "linear", "alpha": 0.25}, {}, "made with alpha=0.25"),
        ({"token_type": "linear", "alpha": 0.25, "wr_dim": 5}, {}, ""),  # both start afresh
        ({}, {"head_dropout": 0.3, "drop_rate": 0.2}, ""),
        ({"img_size": 32}, {}, ""),
    ],
)
def test_options_that_no_shape_shows_are_compared_where_weights_are_taken(
    tmp_path, saved, built, said
):
    save_weights(create_model("sot_tiny", 3, **{**VIT, **saved}), tmp_path / "w.safetensors")
    model = create_model("sot_tiny", 3, **{**VIT, **built})
    before = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    if said:
        with pytest.raises(ValueError, match=said):
            load_foreign(model, tmp_path / "w.safetensors")
        kept = set(before)
    else:
        kept = set(load_foreign(model, tmp_path / "w.safetensors").fresh)
        assert bool(kept) == ("wr_dim" in saved)
    for name in kept:
        np.testing.assert_array_equal(model.state_dict()[name].numpy(), before[name])
