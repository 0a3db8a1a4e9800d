"""Swin: dtypes, refusals; presets and counts: tests/parity/test_built.py."""

from __future__ import annotations

import numpy as np
import paddle
import pytest


def images(batch: int = 2, size: int = 24, seed: int = 0) -> paddle.Tensor:
    values = np.random.default_rng(seed).normal(size=(batch, 3, size, size))
    return paddle.to_tensor(values).astype(paddle.get_default_dtype())


def test_a_cast_model_keeps_its_integer_index(tiny_vision) -> None:
    """Layer.to(dtype) casts integer buffers too; at 529 rows bfloat16 would round the index."""
    model = tiny_vision("swin_tiny").to(dtype="float64")
    assert model(images().astype("float64")).dtype == paddle.float64
    attn = model.stages[0].blocks[1].attn
    assert attn._index[0].dtype == paddle.int64
    assert attn.shift_mask.dtype == paddle.float64


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"token_type": "densenet"}, "needs 6 x 6 tokens, token_type 'densenet' .* gives 3 x 3"),
        ({"token_type": "inception", "large_output": True}, "gives 12 x 12; use 'patch'"),
        ({"depths": (2,)}, r"one entry for each of 1 to 16 stages, got \(2,\) and \(2, 4\)"),
        ({"depths": (2, 0)}, r"depths\[1\] must be at least 1, got 0"),
        ({"num_heads": (2, 3)}, "a multiple of num_heads in stage 1, got 16 and 3"),
        ({"depths": (2, "one")}, "depths must be a whole number, got 'one'"),
        ({"img_size": 26}, "img_size must be a multiple of patch_size 4, got 26"),
        ({"fusion": "sum_fc"}, "fusion 'sum_fc' needs a class token, and this backbone has none"),
        (
            {"pooling": "none"},
            "pooling 'none' uses the class token only, and this backbone has none",
        ),
        ({"window_size": 0}, "window_size must be at least 1, got 0"),
        ({"position": "learned"}, "unknown option 'position' for swin_tiny"),
    ],
)
def test_refusals(tiny_vision, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tiny_vision("swin_tiny", **options)


def test_another_patch_size_admits_other_tokens(tiny_vision) -> None:
    model = tiny_vision("swin_tiny", token_type="densenet", patch_size=8)
    assert model.embed.grid == 3
    assert model(images()).shape == [2, 3]
