"""Compare a file of one model read into one of another size, and the resampling that this takes.

Ours goes the way of a training: a PyTorch file, ``load_foreign``. The reference resizes the tables
with PyTorch's interpolation.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
import torch
from torch.nn import functional

import sot_paddle
import sot_torch_ref
from sot_paddle import resampling
from sot_paddle.checkpoint import write_tensors
from sot_paddle.train.model_folder import load_foreign
from sot_torch_ref.resampling import resize_position_embedding
from tests.parity.model_inputs import image_inputs
from tests.parity.models import models_of_equal_weights, to_paddle_names
from tests.parity.sides import FLOAT64, assert_same, paddle_precision, torch_precision

CLASSES = 3
DEIT = {"embed_dim": 6, "depth": 1, "num_heads": 1, "mlp_ratio": 1.0}
SOT = {
    "embed_dim": 20,
    "depth": 1,
    "num_heads": 4,
    "mlp_ratio": 1.5,
    "token_type": "resnet",
    "token_dim": 8,
    "head_num_heads": 3,
    "wr_dim": 4,
    "head_dropout": 0.0,
}
RESIZED: list[tuple[str, dict[str, Any], dict[str, int], dict[str, int], str]] = [
    # model, its options, sizes of the file, sizes wanted, precision
    ("deit_tiny", DEIT, {"img_size": 224}, {"img_size": 384}, "float64"),  # 14 x 14 to 24 x 24
    ("deit_tiny", DEIT, {"img_size": 224}, {"img_size": 160}, "float64"),  # the kernel stretches
    ("sot_tiny", SOT, {"img_size": 24}, {"img_size": 32}, "float64"),  # a fixed table
    ("sot_tiny", SOT, {"img_size": 24}, {"img_size": 32}, "float32"),
]


@pytest.mark.parametrize(("name", "options", "old_sizes", "new_sizes", "dtype"), RESIZED)
def test_read_into_another_size(
    name: str,
    options: Mapping[str, Any],
    old_sizes: Mapping[str, int],
    new_sizes: Mapping[str, int],
    dtype: str,
    tmp_path: Path,
) -> None:
    """Every tensor, a fixed table as built, and in float64 the logits."""
    source = models_of_equal_weights(name, {**options, **old_sizes}, dtype, classes=CLASSES)[1]
    state = {key: tensor.numpy() for key, tensor in source.state_dict().items()}
    images = image_inputs(1, new_sizes["img_size"])["images"].astype(dtype)
    write_tensors(tmp_path / "source.safetensors", state, {})
    with paddle_precision(dtype), paddle.no_grad():
        model = sot_paddle.create_model(name, CLASSES, **options, **new_sizes)
        model.eval()
        built = dict(model.named_buffers()).get("pos_embed")
        built = None if built is None else built.numpy().copy()
        assert not load_foreign(model, tmp_path / "source.safetensors").fresh
        paddle_values = {key: tensor.numpy() for key, tensor in model.state_dict().items()}
        logits = model(paddle.to_tensor(images)).numpy()
    with torch_precision(dtype), torch.no_grad():
        torch_model = sot_torch_ref.create_model(name, CLASSES, **options, **new_sizes).eval()
        torch_built = dict(torch_model.named_buffers()).get("pos_embed")
        torch_built = None if torch_built is None else torch_built.numpy().copy()
        load_resized(torch_model, state, has_fixed_positions=torch_built is not None)
        torch_values = to_paddle_names(name, torch_model, dict(torch_model.state_dict()))
        torch_logits = torch_model(torch.tensor(images)).numpy()
    assert (built is None) == (torch_built is None)
    if torch_built is not None:
        assert_same({"as built": built}, {"as built": torch_built}, bound=FLOAT64)
    if dtype == "float64":
        assert_same({"logits": logits}, {"logits": torch_logits})
    # in float32 too: the same numbers, rounded once
    assert_same(paddle_values, torch_values, bound=FLOAT64)


def load_resized(
    torch_model: torch.nn.Module, state: Mapping[str, np.ndarray], *, has_fixed_positions: bool
) -> None:
    """Load the tensors of a file into a reference model of another size."""
    tensors = {}
    for name, own in torch_model.state_dict().items():
        table = torch.tensor(state[name])
        if name == "pos_embed" and has_fixed_positions:
            table = own
        elif name == "pos_embed":
            table = resize_position_embedding(table, own.shape[1] - 1)
        tensors[name] = table
    torch_model.load_state_dict(tensors, strict=True)


@pytest.mark.parametrize(
    ("old", "new"), [(1, 3), (2, 7), (5, 4), (7, 3), (13, 4), (14, 10), (6, 11)]
)
def test_bicubic_weights_of_an_axis(old: int, new: int) -> None:
    """PyTorch has no such function: it resamples the rows of an identity."""
    identity = torch.eye(old, dtype=torch.float64)[:, None, None, :]
    resampled = functional.interpolate(
        identity, size=(1, new), mode="bicubic", align_corners=False, antialias=True
    )
    assert_same(
        {"weights": resampling.bicubic_weights(old, new)},
        {"weights": resampled[:, 0, 0].numpy().T},
    )
