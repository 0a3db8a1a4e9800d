"""Which calls run natively: every question that the native operators ask of what they are given.

A model asks each of them in a few ways only. Here they are asked of what they must leave to the
framework too: other shapes, other precisions, nothing at all, a layer that somebody watches, a
function that was replaced. The answers are stated here, by what the operators' documentation says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from unittest import mock

import paddle
import pytest
from paddle import _C_ops, nn
from paddle.nn import functional as F

from sot_paddle.ops import (
    adamw,
    attention,
    dense_block,
    dispatch,
    dropout,
    feed_forward,
    image_norm,
    layers,
    linear,
    second_order,
    stem,
    token_norm,
    transition,
)
from tests.sot_paddle.ops.native_operators import learned, rand, replaced, seeded_program, watched

Answers = Iterator[tuple[str, object, object]]
"""What is asked, the answer, and what it has to be."""


def of_dispatch() -> Answers:
    """Precisions, hooks, classes."""
    x, other = rand(2, 3), rand(2, 3, dtype="float64")
    yield "float32", dispatch.runs_natively(x), True
    yield "float64", dispatch.runs_natively(other), False
    yield "float64 where it has it", dispatch.runs_natively(other, (paddle.float64,)), True
    before = nn.Linear(2, 2)
    before.register_forward_pre_hook(lambda *given: None)
    plain = nn.Linear(2, 2)
    yield "plain layers", dispatch.is_plain(nn.Linear, [plain, nn.Linear(2, 2)]), True
    yield "a layer of another class", dispatch.is_plain(nn.Linear, [plain, nn.ReLU()]), False
    yield "watched before", dispatch.is_plain(nn.Linear, [plain, before]), False
    yield "watched after", dispatch.is_plain(nn.Linear, [watched(nn.Linear(2, 2))]), False


def of_updates() -> Answers:
    """Weights, gradients, moments and powers that a native step takes."""
    held = [rand(3, 2) for _ in range(4)] + [rand(1), rand(1)]
    for what, at, other, wanted in (
        ("all", 0, held[0], True),
        ("a weight of float64", 0, rand(3, 2, dtype="float64"), False),
        ("a moment of float64", 3, rand(3, 2, dtype="float64"), False),
        ("a power of float64", 5, rand(1, dtype="float64"), False),
    ):
        given = [*held[:at], other, *held[at + 1 :]]
        yield f"update of {what}", adamw.updates_natively(given), wanted


def of_dropout() -> Answers:
    """Where masks come from, and which dropout layers are only that."""
    yield "masks of our own", dropout.draws_plainly(), False
    with replaced(F, "dropout"):
        yield "another dropout", dropout.draws_plainly(), True
    with replaced(_C_ops, "dropout"):
        yield "another kernel", dropout.draws_plainly(), True
    with seeded_program():
        yield "a program's seed", dropout.draws_plainly(), True
    for kind in (nn.Dropout, layers.Dropout):
        yield f"{kind.__module__} dropout", layers.drops_unseen(kind(0.1)), True
        most = kind(1.0 - 2.0**-24)  # the last rate that is below 1 in float32
        yield f"{kind.__module__} dropout of nearly all", layers.drops_unseen(most), True
        yield f"{kind.__module__} dropout of all", layers.drops_unseen(kind(1.0)), False
        yield f"{kind.__module__} dropout, watched", layers.drops_unseen(watched(kind(0.1))), False


def of_attention() -> Answers:
    """Queries, keys, values and what is added to the scores."""
    x, takes = rand(2, 3, 8), attention.attends_natively
    for what, parts, wanted in (
        ("parts", [x, x, x], True),
        ("a number", [rand(1, 1, 1)], True),
        ("nothing", [rand(0, 3, 8)], False),
        ("longer keys", [x, rand(2, 4, 8), rand(2, 4, 8)], False),
        ("keys of float64", [x, rand(2, 3, 8, dtype="float64"), x], False),
        ("parts of float64", [rand(2, 3, 8, dtype="float64")], False),
    ):
        yield what, takes(parts, None), wanted
    with replaced(F, "softmax"):
        yield "another softmax", takes([x], None), False
    with seeded_program():
        yield "a program's seed for attention", takes([x], None), False
    for shape in ((2, 1, 1, 3), (2, 1, 3, 3), (1, 2, 3, 3)):
        yield f"bias {shape}", takes([x], rand(*shape)), True
    for shape in ((3, 3), (2, 3, 3), (1, 2, 1, 3, 3), (2, 1, 2, 3), (2, 1, 3, 1)):
        yield f"bias {shape}", takes([x], rand(*shape)), False
    yield "bias of float64", takes([x], rand(2, 1, 1, 3, dtype="float64")), False
    bias = learned(rand(2, 1, 1, 3))
    yield "a bias that learns", takes([x], bias), False
    with paddle.no_grad():
        yield "a bias that learns elsewhere", takes([x], bias), True


def of_feed_forward() -> Answers:
    """The part of a layer that is fused, and what may stand in it."""
    ours = layers.Linear
    pair, bare = (ours(8, 16), ours(16, 8)), ours(8, 16, bias_attr=False)
    for shape, wanted in (
        *(((2, 8), True), ((1, 8), True), ((2, 1, 8), True)),
        *(((8,), False), ((0, 8), False), ((2, 4), False)),
    ):
        yield f"fused {shape}", feed_forward.fuses(rand(*shape), *pair), wanted
    with paddle.no_grad():
        yield "fused without gradients", feed_forward.fuses(rand(2, 8), *pair), True
    yield "fused without a bias", feed_forward.fuses(rand(2, 8), bare, pair[1]), False
    other = ours(16, 8).to(dtype="float64")
    yield "fused with float64", feed_forward.fuses(rand(2, 8), pair[0], other), False
    for module, name in ((F, "gelu"), (F, "linear")):
        with replaced(module, name):
            yield f"fused with another {name}", feed_forward.fuses(rand(2, 8), *pair), False
    drop = layers.Dropout(0.1)
    yield "a part in training", layers.feeds_unseen(rand(2, 8), pair, [drop]), True
    drop.eval()
    yield "a part", layers.feeds_unseen(rand(2, 8), pair, [drop]), True
    for what, linears, drops in (
        ("linear", (watched(ours(8, 16)), pair[1]), [drop]),
        ("dropout", pair, [watched(drop)]),
        ("dropout of all", pair, [layers.Dropout(1.0)]),
        ("dropout of rows", pair, [layers.Dropout(0.1, axis=0)]),
        ("dropout by inference", pair, [layers.Dropout(0.1, mode="downscale_in_infer")]),
    ):
        yield f"a part, {what}", layers.feeds_unseen(rand(2, 8), linears, drops), False


def of_joined_layers() -> Answers:
    """Layers whose products are made in one."""

    def joined(x: paddle.Tensor, first: nn.Layer, second: nn.Layer) -> bool:
        with mock.patch.object(paddle, "split", wraps=paddle.split) as split:
            layers.side_by_side(x, [first, second])
        return bool(split.call_count)

    def bare(kind: type[nn.Linear] = nn.Linear) -> nn.Linear:
        return kind(8, 3, bias_attr=False)

    x = rand(2, 1, 8)
    yield "joined", joined(x, bare(), bare()), True
    yield "joined, ours", joined(x, bare(layers.Linear), bare(layers.Linear)), True
    yield "joined, watched", joined(x, bare(), watched(bare())), False
    yield "joined, nothing", joined(rand(0, 8), bare(), bare()), False
    yield "joined with a bias", joined(x, bare(), nn.Linear(8, 3)), False
    wide = (bare().to(dtype="float64") for _ in range(2))
    yield "joined in float64", joined(rand(2, 8, dtype="float64"), *wide), False
    with replaced(F, "linear"):
        yield "joined with another linear", joined(x, bare(), bare()), False
        yield "another linear", linear.replaced(), True
    with paddle.no_grad():
        yield "joined without gradients", joined(x, bare(), bare()), False


def of_images() -> Answers:
    """Pixels: four axes, float32, at least one."""
    scale = rand(3)
    asked: dict[str, Callable[[paddle.Tensor], object]] = {
        "image norm": image_norm.takes,
        "dense block": lambda x: dense_block.takes(x, [rand(4, 3, 1, 1)]),
        "transition": lambda x: transition.takes(x, scale, rand(4, 3, 1, 1)),
        "stem": lambda x: stem.takes(x, rand(4, 3, 3, 3)),
    }
    functions = {
        "image norm": ("batch_norm",),
        "dense block": ("conv2d", "relu"),
        "transition": ("batch_norm", "conv2d", "avg_pool2d"),
        "stem": ("conv2d", "max_pool2d"),
    }
    for what, takes in asked.items():
        for shape, wanted in (
            *(((2, 3, 4, 4), True), ((1, 1, 1, 1), True)),
            *(((0, 3, 4, 4), False), ((3, 4, 4), False), ((2, 3, 1, 4, 4), False)),
        ):
            yield f"{what} {shape}", bool(takes(rand(*shape))), wanted
        yield f"{what} float64", takes(rand(2, 3, 4, 4, dtype="float64")), False
        for name in functions[what]:
            with replaced(F, name):
                yield f"{what}, another {name}", takes(rand(2, 3, 4, 4)), False
    x, other = rand(2, 3, 4, 4), rand(4, 3, 1, 1, dtype="float64")
    yield "dense block, float64 weights", dense_block.takes(x, [rand(4, 3, 1, 1), other]), False
    yield "stem, float64 weights", stem.takes(x, other), False
    yield "transition, float64 weights", transition.takes(x, scale, other), False
    yield "transition, float64 scale", transition.takes(x, rand(3, dtype="float64"), x), False
    yield "stem, images that learn", stem.takes(learned(rand(2, 3, 4, 4)), rand(4, 3, 3, 3)), False
    with paddle.no_grad():
        yield "stem, none learns", stem.takes(learned(rand(2, 3, 4, 4)), rand(4, 3, 3, 3)), True


def of_second_order() -> Answers:
    """Tokens, their masks and the heads that they are divided among."""
    for width, heads, centring, mask, wanted in (
        *((8, 2, "scalar", None, True), (8, 2, "none", (2, 3), True)),
        *((8, 2, "channel", (2, 2), False), (8, 2, "other", None, False)),
        *((6, 2, "scalar", None, False), (8, 3, "scalar", None, False)),
    ):
        given = None if mask is None else rand(*mask)
        found = second_order.takes_heads(rand(2, 3, width), heads, centring, given)
        yield f"heads {width, heads, centring, mask}", found, wanted
    pixels, wide = rand(2, 3, 8, 1), rand(2, 3, 8, dtype="float64")
    yield "heads of pixels", second_order.takes_heads(pixels, 2, "none", None), False
    yield "heads of float64", second_order.takes_heads(wide, 2, "none", None), False
    scale = rand(8)
    for what, x, weight, mask, wanted in (
        *(("tokens", rand(2, 3, 8), scale, None, True), ("pixels", pixels, scale, None, False)),
        ("tokens with a mask", rand(2, 3, 8), scale, rand(2, 3), True),
        ("tokens with another mask", rand(2, 3, 8), scale, rand(2, 2), False),
        ("tokens of float64", wide, scale, None, False),
        ("tokens, float64 weights", rand(2, 3, 8), rand(8, dtype="float64"), None, False),
    ):
        yield what, token_norm.takes(x, weight, mask), wanted
    norm = learned(rand(2, 3, 2, 2)), rand(3), rand(3)
    images = image_norm.normalize(*norm, None, epsilon=0.1)
    squares = transition.transition(*norm, rand(4, 3, 1, 1), None, step=2, epsilon=0.1)
    tokens = token_norm.normalize(learned(rand(2, 3, 8)), scale, scale, 0.1, None)
    for what, found in (("images", images), ("squares", squares), ("tokens", tokens)):
        alone = [part.stop_gradient for part in found]
        yield f"gradients of {what} and their moments", alone, [False, True, True]


PARTS = (of_dispatch, of_updates, of_dropout, of_attention, of_feed_forward, of_joined_layers)
PARTS = (*PARTS, of_images, of_second_order)


@pytest.mark.native
@pytest.mark.parametrize("part", PARTS)
def test_what_runs_natively(part: Callable[[], Answers]) -> None:
    wrong = [what for what, answer, wanted in part() if answer != wanted]
    assert wrong == []
