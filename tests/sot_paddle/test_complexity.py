"""Counting by hand, and the published figures."""

from __future__ import annotations

import paddle
import pytest
from paddle import nn

from sot_paddle import complexity, create_model
from sot_paddle.backbones.layers import Attention
from sot_paddle.backbones.token_stages import NonLocalBlock
from sot_paddle.config import HeadConfig
from sot_paddle.features import Features
from sot_paddle.heads import build_head
from sot_paddle.registry import PUBLISHED_COSTS


def test_linear_and_convolution_by_hand() -> None:
    model = nn.Sequential(nn.Conv2D(4, 6, 3, padding=1, groups=2), nn.Flatten(2), nn.Linear(35, 8))
    counted = complexity.count_multiply_adds(model, paddle.ones([1, 4, 5, 7]))
    assert counted.layers == 6 * 5 * 7 * (4 // 2) * 9 + 6 * 35 * 8
    assert (counted.products, counted.total) == (0, counted.layers)
    doubled = complexity.count_multiply_adds(model, paddle.ones([2, 4, 5, 7]))
    assert doubled.layers == 2 * counted.layers


def test_attention_by_hand() -> None:
    counted = complexity.count_multiply_adds(Attention(12, 3), paddle.ones([2, 5, 12]))
    assert counted.layers == 2 * 5 * (12 * 36 + 12 * 12)
    assert counted.products == 2 * (2 * 5 * 5 * 12)


def test_non_local_block_by_hand() -> None:
    block = NonLocalBlock(6, 8, inner_dim=4)
    counted = complexity.count_multiply_adds(block, paddle.ones([1, 6, 3, 5]))
    assert counted.layers == 15 * (3 * 6 * 4 + 4 * 8 + 6 * 8)
    assert counted.products == 2 * 15 * 15 * 4


class Words(nn.Layer):
    def __init__(self, **options) -> None:
        super().__init__()
        self.head = build_head(HeadConfig(**options), dim=12, num_classes=3, has_class_token=False)

    def forward(self, tokens: paddle.Tensor) -> paddle.Tensor:
        return self.head(Features(None, tokens))


@pytest.mark.parametrize(
    ("options", "layers", "products"),
    [
        ({"pooling": "gap"}, 12 * 3, 0),
        ({"pooling": "mgcrp", "head_num_heads": 2, "wr_dim": 4}, 7 * 12 * 16 + 32 * 3, 7 * 2 * 16),
        ({"pooling": "mgcrp_qk", "q_dim": 6, "k_dim": 5}, 7 * 12 * 11 + 30 * 3, 7 * 30),
        (
            {"pooling": "gcp", "head_num_heads": 2, "qkv_dim": 3, "mpn_iter": 3},
            7 * 12 * 6 + 21 * 3,
            7 * 36 + (1 + 3 + 2) * 6**3,
        ),
        ({"pooling": "gcp_text", "q_dim": 5}, 7 * 12 * 5 + 15 * 3, 7 * 25 + (1 + 3 + 2) * 5**3),
    ],
)
def test_heads_by_hand(options: dict, layers: int, products: int) -> None:
    model = Words(**options)
    counted = complexity.count_multiply_adds(model, paddle.randn([1, 7, 12]))
    assert (counted.layers, counted.products) == (layers, products)


def test_published_multiply_adds_of_the_base_model() -> None:
    """A.8's counts: convolutions and linear layers, and with the matrix products.

    Those of the smaller models are in tests/tools/test_model_table.py.
    """
    counted = complexity.count_multiply_adds(create_model("sot_base"))
    assert counted.layers / 1e9 == pytest.approx(14.539, abs=0.0005)
    assert counted.total / 1e9 == pytest.approx(15.52, abs=0.006)
    assert counted.layers / 1e9 == pytest.approx(PUBLISHED_COSTS["sot_base"][1], abs=0.05)


def test_text_models_are_counted_too(tiny_bert) -> None:
    ids = paddle.ones([1, 6], dtype="int64")
    counted = complexity.count_multiply_adds(tiny_bert("bert_base", hidden_size=12), ids)
    layers = 2 * 6 * (4 * 12 * 12 + 2 * 12 * 20) + 12 * 12 + 12 * 3
    assert counted == complexity.MultiplyAdds(layers, 2 * 2 * 6 * 6 * 12)
