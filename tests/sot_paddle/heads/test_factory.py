"""Every pooling with every fusion: builds, runs, differentiates; what cannot work is refused.

Dims, all different: B 3, N 5, C 12, K 2.
"""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from sot_paddle.config import CLASS_TOKEN_POOLINGS, FUSIONS, POOLINGS, HeadConfig
from sot_paddle.features import Features
from sot_paddle.heads import build_head
from sot_paddle.registry import create_model

B, N, C, CLASSES = 3, 5, 12, 2
SIZES = {"q_dim": 7, "k_dim": 6, "head_num_heads": 3, "wr_dim": 4, "qkv_dim": 2}
WORD_POOLINGS = tuple(name for name in POOLINGS if name not in CLASS_TOKEN_POOLINGS)


def head(pooling: str, fusion: str | None = None, *, class_token: bool = True, **options):
    """Build a small head."""
    config = HeadConfig(pooling=pooling, fusion=fusion, **{"head_dropout": 0.0, **SIZES, **options})
    return build_head(config, dim=C, num_classes=CLASSES, has_class_token=class_token)


def features() -> Features:
    rng = np.random.default_rng(4)
    cls, words = (
        paddle.to_tensor(rng.normal(size=s), stop_gradient=False) for s in ([B, C], [B, N, C])
    )
    dtype = paddle.get_default_dtype()
    return Features(cls.astype(dtype), words.astype(dtype))


@pytest.mark.parametrize("fusion", FUSIONS)
@pytest.mark.parametrize("pooling", WORD_POOLINGS)
def test_every_pooling_with_every_fusion(pooling: str, fusion: str) -> None:
    built = head(pooling, fusion)
    logits = built(features())
    parts = logits if fusion == "sum_loss" else (logits,)
    assert isinstance(logits, tuple) == (fusion == "sum_loss")
    assert [part.shape for part in parts] == [[B, CLASSES]] * (2 if fusion == "sum_loss" else 1)
    sum((part**2).sum() for part in parts).backward()
    without = {name for name, p in built.named_parameters() if p.grad is None}
    unused = {"cls_fc.weight", "cls_fc.bias"} if fusion in ("concat", "aggre_all") else set()
    assert without == unused
    for name, parameter in built.named_parameters():
        if name not in unused:
            assert np.isfinite(parameter.grad.numpy()).all(), name
            assert parameter.grad.numpy().any(), name
    built.eval()
    assert built(features()).shape == [B, CLASSES]


CLASSIFIER = {"cls_fc.weight": [C, 2], "cls_fc.bias": [2]}
DENSE = {"dense.weight": [C, C], "dense.bias": [C]}


@pytest.mark.parametrize(
    ("pooling", "expected"), [("none", CLASSIFIER), ("pooler", {**DENSE, **CLASSIFIER})]
)
def test_class_token_poolings_take_no_fusion(pooling, expected) -> None:
    built = head(pooling)
    with pytest.raises(ValueError, match="pools no words: leave fusion out, got 'con"):
        head(pooling, "concat")
    assert {name: list(p.shape) for name, p in built.named_parameters()} == expected
    logits = built(features())
    assert logits.shape == [B, CLASSES]
    (logits**2).sum().backward()
    assert all(parameter.grad.numpy().any() for parameter in built.parameters())


@pytest.mark.parametrize(
    ("pooling", "fusion", "message"),
    [
        ("mgcrp", "concat", "fusion 'concat' needs a class token.*use fusion 'word_tokens'"),
        ("mgcrp", "class_token", "fusion 'class_token' needs the class token"),
        ("pooler", None, "pooling 'pooler' needs the class token.*use pooling 'mgcrp_qk'"),
    ],
)
def test_what_needs_a_class_token_is_refused_without(pooling, fusion, message) -> None:
    with pytest.raises(ValueError, match=message):
        head(pooling, fusion, class_token=False)


@pytest.mark.parametrize(
    ("pooling", "options", "sizes", "message"),
    [
        ("spans", {}, {"num_classes": 3}, "scores the start and the end"),
        ("spans", {"fusion": "concat"}, {}, "pools no words: leave fusion out, got 'concat'"),
        ("spans", {}, {"has_class_token": False}, "needs the class token"),
        ("layers", {"layers": (0, 4)}, {"num_layers": 4}, "numbers from 0 to 3 of this model"),
    ],
)
def test_heads_that_do_not_fit_their_model_are_refused(pooling, options, sizes, message) -> None:
    config = HeadConfig(pooling=pooling, **options)
    with pytest.raises(ValueError, match=message):
        build_head(config, **{"dim": C, "num_classes": 2, **sizes})


TINY = {"hidden_size": 8, "num_hidden_layers": 3, "num_attention_heads": 2, "vocab_size": 20}
TINY |= {"intermediate_size": 12, "max_position_embeddings": 9, "pooling": "layers"}


def test_a_model_hands_over_its_layers_and_a_backbone_without_is_refused(float64) -> None:
    model = create_model("bert_base", 3, layers=(0, 2), **TINY).eval()
    ids = paddle.to_tensor([[2, 5, 6], [2, 7, 3]])
    logits, taps = model(ids, return_taps=True)
    tokens = [taps[f"layers.{layer}"][:, 0].numpy() for layer in (0, 2)]
    np.testing.assert_array_equal(taps["head.pooled"].numpy(), np.concatenate(tokens, axis=1))
    np.testing.assert_array_equal(model(ids).numpy(), logits.numpy())
    with pytest.raises(ValueError, match="which is no class token of openai-gpt"):
        create_model("openai_gpt", 3, **TINY | {"intermediate_size": 32})
    with pytest.raises(ValueError, match="class token of a language model's layers"):
        create_model("deit_tiny", 3, pooling="layers", depth=1)
