"""Fusions against the table of the specification, with an average as the pooling.

Dims, all different: B 3, N 5, C 12, K 2.
"""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from sot_paddle.features import Features
from sot_paddle.heads import fusion
from sot_paddle.heads.pooling import AveragePooling

B, N, C, CLASSES = 3, 5, 12, 2
MASK = np.array([[True] * 5, [True, True, False, False, False], [False, True, True, False, True]])
TWO_KINDS = {
    "sum_fc": fusion.SumHead,
    "concat": fusion.ConcatHead,
    "aggre_all": fusion.AllTokensHead,
    "sum_loss": fusion.SumLossHead,
}


@pytest.fixture(autouse=True)
def _double(float64) -> None:
    """Everything here is built in float64."""


@pytest.fixture
def arrays() -> tuple[np.ndarray, np.ndarray]:
    """Class tokens (B, C) and words (B, N, C), far apart."""
    rng = np.random.default_rng(2)
    return rng.normal(size=(B, C)) + 5.0, rng.normal(size=(B, N, C)) - 3.0


@pytest.fixture
def given(arrays) -> Features:
    cls, words = arrays
    return Features(paddle.to_tensor(cls), paddle.to_tensor(words), paddle.to_tensor(MASK))


def build(name: str, *, mask_padding: bool = False, dropout: float = 0.0):
    head = TWO_KINDS[name](
        AveragePooling(C), CLASSES, dim=C, mask_padding=mask_padding, dropout=dropout
    )
    with paddle.no_grad():
        for index, parameter in enumerate(head.parameters()):  # biases too: they start at zero
            paddle.assign(parameter + 0.1 * (index + 1), output=parameter)
    return head


def word_fc(head, x: np.ndarray) -> np.ndarray:
    return x @ head.word_fc.weight.numpy() + head.word_fc.bias.numpy()


def cls_fc(head, x: np.ndarray) -> np.ndarray:
    return x @ head.cls_fc.weight.numpy() + head.cls_fc.bias.numpy()


def averages(words: np.ndarray, masked: bool) -> np.ndarray:
    rows = zip(words, MASK if masked else np.ones_like(MASK), strict=True)
    return np.stack([sample[valid].mean(axis=0) for sample, valid in rows])


def close(tensor: paddle.Tensor, expected: np.ndarray) -> None:
    np.testing.assert_allclose(tensor.numpy(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("masked", [False, True])
def test_sum_fc_adds_two_scores_with_two_biases(arrays, given, masked: bool) -> None:
    head, taps = build("sum_fc", mask_padding=masked), {}
    cls, pooled = arrays[0], averages(arrays[1], masked)
    close(head(given, taps), word_fc(head, pooled) + cls_fc(head, cls))
    assert list(taps) == ["head.representation", "head.word_logits", "head.cls_logits"]
    close(taps["head.representation"], pooled)
    close(taps["head.word_logits"], word_fc(head, pooled))
    close(taps["head.cls_logits"], cls_fc(head, cls))


@pytest.mark.parametrize("masked", [False, True])
def test_concat_puts_the_class_token_first(arrays, given, masked: bool) -> None:
    head, taps = build("concat", mask_padding=masked), {}
    joined = np.concatenate([arrays[0], averages(arrays[1], masked)], axis=1)
    close(head(given, taps), word_fc(head, joined))
    assert list(taps) == ["head.representation", "head.word_logits"]


@pytest.mark.parametrize("masked", [False, True])
def test_aggre_all_pools_the_class_token_as_a_valid_token(arrays, given, masked: bool) -> None:
    head, taps = build("aggre_all", mask_padding=masked), {}
    cls, words = arrays
    rows = []
    for b in range(B):
        valid = words[b][MASK[b]] if masked else words[b]
        rows.append(np.concatenate([cls[b : b + 1], valid]).mean(axis=0))
    close(head(given, taps), word_fc(head, np.stack(rows)))
    assert list(taps) == ["head.representation", "head.word_logits"]


def test_sum_loss_returns_a_pair_in_training_and_the_sum_in_eval(arrays, given) -> None:
    head, taps = build("sum_loss"), {}
    word, cls = word_fc(head, averages(arrays[1], False)), cls_fc(head, arrays[0])
    pair = head(given, taps)
    assert isinstance(pair, tuple)
    close(pair[0], cls)
    close(pair[1], word)
    assert list(taps) == ["head.representation", "head.word_logits", "head.cls_logits"]
    head.eval()
    close(head(given), cls + word)


def test_word_tokens_ignore_the_class_token(arrays, given) -> None:
    head, taps = fusion.WordHead(AveragePooling(C), CLASSES, mask_padding=True), {}
    expected = word_fc(head, averages(arrays[1], True))
    close(head(given, taps), expected)
    close(head(Features(None, given.words, given.mask)), expected)
    assert list(taps) == ["head.representation", "head.word_logits"]


def test_class_token_heads(arrays, given) -> None:
    cls = arrays[0]
    plain, taps = fusion.ClassTokenHead(C, CLASSES), {}
    close(plain(given, taps), cls_fc(plain, cls))
    assert list(taps) == ["head.cls_logits"]

    wide, taps = fusion.ExpandedHead(C, CLASSES), {}
    projected = cls @ wide.proj.weight.numpy() + wide.proj.bias.numpy()
    close(wide(given, taps), cls_fc(wide, projected))
    assert list(taps) == ["head.projected", "head.cls_logits"]
    close(taps["head.projected"], projected)

    pooler, taps = fusion.PoolerHead(C, CLASSES, dropout=0.0), {}
    pooled = np.tanh(cls @ pooler.dense.weight.numpy() + pooler.dense.bias.numpy())
    close(pooler(given, taps), cls_fc(pooler, pooled))
    assert list(taps) == ["head.pooled", "head.cls_logits"]
    close(taps["head.pooled"], pooled)


@pytest.mark.parametrize("name", sorted(TWO_KINDS))
def test_dropout_acts_on_the_representation_alone(given, name: str) -> None:
    """The tap before dropout is whole; in eval mode nothing is dropped."""
    head, plain = build(name, dropout=0.5), build(name)
    plain.set_state_dict(head.state_dict())
    for mode in (head, plain):
        mode.eval()
    close(head(given), plain(given).numpy())
    head.train()
    plain.train()
    taps, whole = {}, {}
    head(given, taps)
    plain(given, whole)
    close(taps["head.representation"], whole["head.representation"].numpy())
    assert np.abs(taps["head.word_logits"].numpy() - whole["head.word_logits"].numpy()).max() > 1e-3
    if "head.cls_logits" in taps:
        close(taps["head.cls_logits"], whole["head.cls_logits"].numpy())


@pytest.mark.parametrize("head", ["plain", "wide", "pooler"])
def test_dropout_acts_before_the_classifier_of_the_class_token(given, head: str) -> None:
    built = {
        "plain": lambda: fusion.ClassTokenHead(C, CLASSES, dropout=0.5),
        "wide": lambda: fusion.ExpandedHead(C, CLASSES, dropout=0.5),
        "pooler": lambda: fusion.PoolerHead(C, CLASSES, dropout=0.5),
    }[head]()
    seen = []
    built.cls_fc.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].numpy()))
    built(given)
    built.eval()
    built(given)
    dropped = seen[0] == 0.0
    assert 0 < dropped.mean() < 1
    np.testing.assert_allclose(seen[0][~dropped], 2.0 * seen[1][~dropped], rtol=1e-12)
    assert seen[1].all()


def test_without_a_mask_mask_padding_changes_nothing(arrays) -> None:
    head = build("aggre_all", mask_padding=True)
    unmasked = Features(*(paddle.to_tensor(array) for array in arrays))
    full = Features(unmasked.cls, unmasked.words, paddle.ones([B, N], dtype="bool"))
    close(head(unmasked), head(full).numpy())
