"""The head on the class tokens of chosen layers. Values: cases layers_*."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from sot_paddle.config import HeadConfig
from sot_paddle.heads import build_head
from sot_paddle.registry import create_model

C, LAYERS, K = 4, 4, 3
TINY = {"hidden_size": 8, "num_hidden_layers": 3, "num_attention_heads": 2, "vocab_size": 20}
TINY |= {"intermediate_size": 12, "max_position_embeddings": 9, "pooling": "layers"}

pytestmark = pytest.mark.usefixtures("float64")


def build(**options):
    config = HeadConfig(pooling="layers", **options)
    return build_head(config, dim=C, num_classes=K, num_layers=LAYERS)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"layers": (0, 4)}, "numbers from 0 to 3 of this model"),
        ({"fusion": "concat"}, "needs such a backbone and no fusion, got fusion 'concat'"),
    ],
)
def test_refusals(options, match) -> None:
    with pytest.raises(ValueError, match=match):
        build(**options)


def test_a_model_hands_over_its_layers_and_a_backbone_without_is_refused() -> None:
    model = create_model("bert_base", K, layers=(0, 2), **TINY).eval()
    ids = paddle.to_tensor([[2, 5, 6], [2, 7, 3]])
    logits, taps = model(ids, return_taps=True)
    tokens = [taps[f"layers.{layer}"][:, 0].numpy() for layer in (0, 2)]
    np.testing.assert_array_equal(taps["head.pooled"].numpy(), np.concatenate(tokens, axis=1))
    np.testing.assert_array_equal(model(ids).numpy(), logits.numpy())
    with pytest.raises(ValueError, match="which is no class token of openai-gpt"):
        create_model("openai_gpt", K, **TINY | {"intermediate_size": 32})
    with pytest.raises(ValueError, match="class token of a language model's layers"):
        create_model("deit_tiny", K, pooling="layers", depth=1)
