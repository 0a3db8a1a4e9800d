"""What is in a decay group of the vision release is decayed, and nothing else."""

from __future__ import annotations

import paddle
import pytest

from sot_paddle.registry import create_model
from sot_paddle.train.optimizer import decay_filter, decayed_names_by_shape

TINY = {"img_size": 16, "embed_dim": 12, "depth": 1, "num_heads": 3, "wr_dim": 4}


def test_frozen_parameters_are_in_no_group() -> None:
    model = create_model("sot_tiny", 3, **TINY)
    model.blocks[0].mlp.fc1.weight.stop_gradient = True
    assert "blocks.0.mlp.fc1.weight" not in decayed_names_by_shape(model)


@pytest.mark.parametrize("decayed", [True, False])
def test_decay_reaches_the_group_only(decayed: bool) -> None:
    """With a zero gradient only decay moves a weight: by the factor 1 - lr wd."""
    model = create_model("sot_tiny", 3, **TINY)
    names = decayed_names_by_shape(model)
    optimizer = paddle.optimizer.AdamW(
        0.5,
        parameters=model.parameters(),
        weight_decay=0.25,
        apply_decay_param_fun=decay_filter(model, decayed_names_by_shape),
    )
    before = {name: p.numpy().copy() for name, p in model.named_parameters()}
    (sum(p.sum() for p in model.parameters()) * 0.0).backward()
    optimizer.step()
    for name, parameter in model.named_parameters():
        if (name in names) == decayed:
            expected = before[name] * (0.875 if decayed else 1.0)
            assert paddle.allclose(parameter, paddle.to_tensor(expected)), name
