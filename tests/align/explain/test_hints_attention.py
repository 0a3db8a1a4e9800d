"""Slips in attention, found from queries, keys, values and masks: separate and packed."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from align.explain import formulas
from align.explain.hints import layer_hints
from align.pair.isolation import Guilty

RNG = np.random.default_rng(5)
BATCH, LENGTH, WIDTH, HEADS = 2, 5, 12, 3
DEPTH = WIDTH // HEADS
Q, K, V = (2 * RNG.normal(size=(BATCH, LENGTH, WIDTH)) for _ in range(3))
MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
HIDDEN = (MASK == 0)[:, None, None, :]
LATER = np.triu(np.ones((LENGTH, LENGTH), bool), 1)
LAYER = SimpleNamespace(num_heads=HEADS)


def attend(q=Q, k=K, v=V, scale=DEPTH**-0.5, hidden=None, value=-1e9, axis=-1, heads=HEADS, **how):
    q, k, v = (t.reshape(BATCH, LENGTH, heads, -1).swapaxes(1, 2) for t in (q, k, v))
    scores = scale * (q @ k.swapaxes(-1, -2))
    if hidden is not None:
        put = value if how.get("put") else scores + value
        scores = np.where(hidden, put, scores)
    made = formulas.softmax(scores, axis) @ v
    made = made if how.get("apart") else made.swapaxes(1, 2)
    return made.reshape(BATCH, LENGTH, WIDTH)


def cause(ours, expected, masks=(), packed=False) -> str:
    parts = [("output of q", Q), ("output of k", K), ("output of v", V)]
    if packed:
        parts = [("output of qkv", np.concatenate([Q, K, V], -1))]
    inputs = [("input 0", RNG.normal(size=Q.shape)), *masks, *parts]
    return layer_hints.explain(
        Guilty("attn", None, "attn", inputs, ours, expected), {}, LAYER, None
    )


FLAGS = [("input 1", MASK)]
ADDED = [("input 1", np.where(HIDDEN, -1e4, 0.0))]
MASKED = attend(hidden=HIDDEN)
SLIPS = {
    "scale missing": (
        (attend(scale=1.0), attend()),
        "scale: Paddle multiplies the scores by 1 = 1, PyTorch by 1/sqrt(d) = 0.5 (d = 4)",
    ),
    "scale of the width": ((attend(scale=WIDTH**-0.5), attend()), "by 1/sqrt(C) = 0.2887"),
    "axis": ((attend(axis=-2), attend()), "softmax axis: Paddle takes axis -2"),
    "swapped": (
        (attend(K, Q), attend()),
        "swapped operands: queries and keys are exchanged, the scores are transposed",
    ),
    "values for keys": (
        (attend(Q, V, K), attend()),
        "Paddle takes output of q, output of v, output of k",
    ),
    "ignored": (
        (attend(), MASKED, FLAGS),
        "the attention mask is ignored: Paddle attends to the masked positions (3, 4 of row 1)",
    ),
    "added mask ignored": ((attend(), MASKED, ADDED), "the attention mask is ignored"),
    "inverted": ((attend(hidden=~HIDDEN), MASKED, FLAGS), "the attention mask is inverted"),
    "added mask inverted": ((attend(hidden=~HIDDEN), MASKED, ADDED), "mask is inverted"),
    "weak": (
        (attend(hidden=HIDDEN, value=-2.5), MASKED, FLAGS),
        "mask value: Paddle adds -2.5 at the masked positions (fitted), too weak",
    ),
    "weak value put": (
        (attend(hidden=HIDDEN, value=-1.5, put=True), MASKED, FLAGS),
        "mask value: Paddle puts -1.5 at the masked positions",
    ),
    "mask in Paddle only": ((MASKED, attend(), FLAGS), "an attention mask in Paddle only"),
    "causal missing": ((attend(), attend(hidden=LATER)), "the causal mask is missing"),
    "causal in Paddle only": ((attend(hidden=LATER), attend()), "a causal mask in Paddle only"),
    "heads": (
        (attend(heads=2, scale=6**-0.5), attend()),
        "number of heads: Paddle computes with 2, PyTorch with 3",
    ),
    "heads left apart": ((attend(apart=True), attend()), "the heads are not put back"),
    "packed, values first": (
        (attend(V, K, Q), attend(), (), True),
        "Paddle takes third 3 of qkv, third 2 of qkv, third 1 of qkv",
    ),
}


@pytest.mark.parametrize("name", SLIPS)
def test_a_slip_in_attention_is_named(name: str) -> None:
    given, expected = SLIPS[name]
    assert expected in cause(*given)


@pytest.mark.parametrize("name", ["scale missing", "weak", "causal missing"])
def test_another_difference_is_not_called_one_of_these(name: str) -> None:
    (ours, expected, *rest), said = SLIPS[name]
    said = said.removeprefix("scale: ")
    noise = np.abs(ours - expected).max() * RNG.normal(size=ours.shape)
    assert said.split(":")[0] not in cause(ours + noise, expected, *rest)


def test_scores_with_a_mask_are_explained_by_where_they_are_hidden() -> None:
    scores = RNG.normal(size=(BATCH, HEADS, LENGTH, LENGTH))
    masked = np.where(HIDDEN, -1e9, scores)
    assert "mask is ignored, or its value is too weak to hide (3, 4 of row 1)" in cause(
        scores, masked
    )
    assert "causal mask is missing" in cause(scores, np.where(LATER, -1e9, scores))
    assert "mask is inverted" in cause(np.where(HIDDEN, scores, -1e9), masked)
    assert cause(scores + RNG.normal(size=scores.shape), masked) == ""


def test_the_masked_positions_are_those_of_the_whole_batch() -> None:
    flags = np.ones((7, LENGTH), int)
    flags[5, 2:] = 0
    q, k, v = (np.concatenate([t, t, t, t])[:7] for t in (Q, K, V))
    scores = [split(t) for t in (q, k, v)]
    made = []
    for hidden in (None, (flags == 0)[:, None, None, :]):
        s = DEPTH**-0.5 * (scores[0] @ scores[1].swapaxes(-1, -2))
        s = s if hidden is None else np.where(hidden, -1e9, s)
        made.append((formulas.softmax(s, -1) @ scores[2]).swapaxes(1, 2).reshape(7, LENGTH, WIDTH))
    parts = [("input 1", flags), ("output of q", q), ("output of k", k), ("output of v", v)]
    guilty = Guilty("attn", None, "attn", parts, *made)
    assert (
        "ignored: Paddle attends to the masked positions (2, 3, 4 of row 5)"
        in layer_hints.explain(guilty, {}, LAYER, None)
    )


def split(t: np.ndarray) -> np.ndarray:
    return t.reshape(t.shape[0], LENGTH, HEADS, -1).swapaxes(1, 2)
