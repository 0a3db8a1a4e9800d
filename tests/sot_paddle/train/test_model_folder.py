"""A trained folder rebuilds its model without a flag; other weights go through the converter."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest import mock

import numpy as np
import paddle
import pytest

from sot_paddle.checkpoint import read_tensors
from sot_paddle.registry import create_model
from sot_paddle.train import model_folder
from sot_paddle.train.ema import ModelEma
from sot_paddle.train.model_folder import (
    CONFIG,
    EMA,
    WEIGHTS,
    ImageModelConfig,
    find_model_folder,
    fitted_set,
    flat_options,
    load_foreign,
    load_trained,
    weight_set,
    weights_file,
)
from sot_paddle.weights import save_weights

VIT = {
    "img_size": 16,
    "embed_dim": 12,
    "depth": 1,
    "num_heads": 3,
    "wr_dim": 4,
    "head_num_heads": 2,
    "drop_path_rate": 0.1,
    "head_qkv_bias": True,
}
SWIN = {
    "img_size": 16,
    "embed_dim": 8,
    "depths": (1, 1),
    "num_heads": (2, 4),
    "window_size": 2,
    "patch_size": 4,
}


def _write(folder: Path, name: str, options: dict, classes=("a", "b", "c")):
    model = create_model(name, len(classes), **options)
    ema = ModelEma(model, 0.5)
    for parameter in model.parameters():
        parameter.set_value(parameter * 2.0 + 0.1)
    ema.update()
    config = ImageModelConfig(
        model=name,
        num_classes=len(classes),
        options=flat_options(model),
        classes=classes,
        img_size=16,
        crop_pct=0.9,
        interpolation="bilinear",
        mean=(0.1, 0.2, 0.3),
        std=(1.0, 2.0, 3.0),
    )
    folder.mkdir(parents=True)
    save_weights(model, folder / WEIGHTS)
    with ema.in_place():
        save_weights(model, folder / EMA)
    (folder / CONFIG).write_bytes(config.file()[CONFIG])
    return model, ema, config


@pytest.mark.parametrize(
    ("name", "options"), [("sot_tiny", VIT), ("swin_tiny", SWIN)], ids=["vit", "swin"]
)
def test_a_folder_rebuilds_its_model(tmp_path, name, options):
    model, ema, config = _write(tmp_path / "best", name, options)
    model.eval()
    images = paddle.randn([2, 3, 16, 16])
    raw, found = load_trained(tmp_path / "best", ema=False)
    assert found == config
    assert not raw.training
    np.testing.assert_array_equal(raw(images).numpy(), model(images).numpy())
    averaged, _ = load_trained(tmp_path)  # the run's folder: its best
    with ema.in_place():
        np.testing.assert_array_equal(averaged(images).numpy(), model(images).numpy())
    assert not np.array_equal(averaged(images).numpy(), raw(images).numpy())
    assert flat_options(raw) == flat_options(model)


def test_what_a_path_means(tmp_path):
    _write(tmp_path / "run" / "best", "sot_tiny", VIT)
    best = tmp_path / "run" / "best"
    assert find_model_folder(tmp_path / "run") == best
    assert find_model_folder(best / WEIGHTS) == best
    assert weights_file(tmp_path / "run", ema=True) == best / EMA
    assert weights_file(best / WEIGHTS, ema=True) == best / WEIGHTS
    assert weights_file(best / WEIGHTS, ema=False) == best / WEIGHTS
    with pytest.raises(ValueError, match=r"is the moving average: name model.safetensors"):
        weights_file(best / EMA, ema=False)
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


@dataclass
class Reader:
    """Plays a converter of files that have one set of weights, or an average too."""

    arrays: dict
    averages: dict = field(default_factory=dict)
    fresh: tuple = ()
    notes: tuple = ("resized: nothing",)
    metadata: dict = field(default_factory=dict)
    averaged: bool | None = None

    def __call__(self, place, model, shapes, *, ema=None):
        assert model == "sot_tiny"
        chosen = self.arrays if ema is False or not self.averages else self.averages
        assert {name: tuple(array.shape) for name, array in chosen.items()} == dict(shapes)
        arrays = {k: v for k, v in chosen.items() if k not in self.fresh}
        averaged = chosen is self.averages if self.averages else None
        return replace(self, arrays=arrays, averaged=averaged)


def _load(model, place, reader, **options):
    with mock.patch.object(model_folder, "read_for_model", reader):
        return load_foreign(model, place, **options)


def _arrays(model, value):
    return {k: np.full(t.shape, value, "float32") for k, t in model.state_dict().items()}


def test_foreign_weights_prefer_the_average_and_leave_the_rest_fresh(tmp_path):
    model = create_model("sot_tiny", 3, **VIT)
    ones, twos = _arrays(model, 1), _arrays(model, 2)
    before = model.head.word_fc.weight.numpy().copy()
    fitted = _load(model, tmp_path, Reader(ones, twos, fresh=("head.word_fc.weight",)))
    assert fitted.notes == ("resized: nothing",)
    assert fitted_set(fitted) == "the moving average"
    assert float(model.norm.weight.mean()) == 2.0
    np.testing.assert_array_equal(model.head.word_fc.weight.numpy(), before)
    fitted = _load(model, tmp_path, Reader(ones, twos), ema=False)
    assert fitted_set(fitted) == "the raw weights"
    assert float(model.norm.weight.mean()) == 1.0
    fitted = _load(model, tmp_path, Reader(twos))
    assert fitted_set(fitted) == "the only weights there are"
    assert float(model.norm.weight.mean()) == 2.0


def _saved(folder: Path, **options) -> tuple[dict, dict]:
    """Arrays and metadata of a file of this project."""
    save_weights(create_model("sot_tiny", 3, **{**VIT, **options}), folder / "w.safetensors")
    tensors, metadata = read_tensors(folder / "w.safetensors")
    return {name: np.array(tensors[name]) for name in tensors}, metadata


@pytest.mark.parametrize(
    ("made", "wanted", "said"),
    [
        ({"num_heads": 2}, {}, "made with num_heads=2, the model has 3; build it with num_heads=2"),
        ({"alpha": 0.25}, {}, "made with alpha=0.25, the model has 0.5"),
        ({}, {"layer_norm_eps": 1e-3}, "made with layer_norm_eps=1e-05"),
        ({}, {"head_dropout": 0.3, "drop_rate": 0.2}, ""),
        ({"img_size": 32}, {"img_size": 16}, ""),
    ],
)
def test_options_that_no_shape_shows_are_compared(tmp_path, made, wanted, said):
    arrays, metadata = _saved(tmp_path, **made)
    model = create_model("sot_tiny", 3, **{**VIT, **wanted})
    state = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    arrays = {n: a if a.shape == state[n].shape else state[n] for n, a in arrays.items()}
    reader = Reader(arrays, metadata=metadata)
    if not said:
        _load(model, tmp_path / "w.safetensors", reader)
        return
    with pytest.raises(ValueError, match=said):
        _load(model, tmp_path / "w.safetensors", reader)
    for name, tensor in model.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), state[name])


def test_options_of_what_starts_afresh_are_free(tmp_path):
    _, metadata = _saved(tmp_path, alpha=0.25, token_type="linear")
    model = create_model("sot_tiny", 3, **VIT)
    ones = _arrays(model, 1)
    head, tokens = (
        tuple(name for name in ones if name.startswith(part)) for part in ("head.", "embed.")
    )
    _load(model, tmp_path, Reader(ones, fresh=(*head, *tokens), metadata=metadata))
    for fresh, said in ((head, "token_type='linear'"), (tokens, "alpha=0.25")):
        with pytest.raises(ValueError, match=said):
            _load(model, tmp_path, Reader(ones, fresh=fresh, metadata=metadata))
