"""Compare what dropout and stochastic depth drop in whole models.

Each side draws from its own generator, so shares are compared, not masks: the share that is
dropped, the share on which neighbouring samples agree (independent draws agree on p^2 + (1 - p)^2
of it). Both are binomial: two of n draws differ by more than six standard deviations of their
difference with a probability of 2e-9, with n of at least 1,000 in less than ten times as many.
Seeds are fixed: a pass stays one on every machine. Exact are the layers that draw, the scale of
what is kept, and what a mask is shared by.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import paddle
import pytest
import torch

from sot_paddle.backbones.layers import DropPath
from sot_torch_ref.backbones.layers import DropPath as TorchDropPath
from tests.parity.built_torch import renamed
from tests.parity.model_inputs import image_inputs, text_inputs
from tests.parity.models import BERT, HEAD, encoder_options, models_of_equal_weights
from tests.parity.sides import assert_same, paddle_precision

SEED, SIGMAS = 23, 6.0
SCALE_BOUND = 1e-6  # of 1 / (1 - p), whose p a kernel may hold in float32
RATES = {"drop_rate": 0.2, "attn_drop_rate": 0.3, "drop_path_rate": 0.4, "mlp_ratio": 1.0}
VIT = {
    **RATES,
    "token_type": "patch",
    "img_size": 8,
    "patch_size": 4,
    "embed_dim": 6,
    "depth": 3,
    "num_heads": 2,
    "head_num_heads": 2,
    "wr_dim": 3,
    "head_dropout": 0.5,
}
WINDOWS = {
    **RATES,
    "img_size": 8,
    "patch_size": 2,
    "embed_dim": 4,
    "depths": (2, 1),
    "num_heads": (2, 1),
    "window_size": 2,
}
PLAIN_VIT = {
    "drop_rate": 0.2,
    "img_size": 8,
    "patch_size": 4,
    "embed_dim": 6,
    "depth": 1,
    "num_heads": 1,
    "mlp_ratio": 1.0,
}
TINY = {**encoder_options(12, 1, 20, 30, 18), **HEAD}
CONV_BERT = {"embedding_size": 9, "pad_token_id": 28, "initializer_range": 0.2}


def text_options(options: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Give the encoder both rates and leave that of the head to its default."""
    rates = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3}
    kept = {name: value for name, value in options.items() if name != "head_dropout"}
    return {**kept, **more, **rates}


MODELS: list[tuple[str, dict[str, Any], int]] = [
    # name, options, samples of the batch
    ("deit_tiny_sot", VIT, 1000),
    ("swin_tiny", WINDOWS, 1000),
    ("deit_tiny", {**PLAIN_VIT, "pooling": "pooler"}, 500),  # the head's rate is that of the tokens
    ("deit_tiny", {**PLAIN_VIT, "pooling": "fc", "head_dropout": 0.4}, 500),
    ("deit_tiny", {**PLAIN_VIT, "pooling": "none", "head_dropout": 0.4}, 500),
    ("bert_base", text_options(BERT), 400),
    ("bert_base_mgcrp", text_options(BERT), 400),
    ("bert_base", {**text_options(BERT, pooling="spans"), "head_dropout": 0.4}, 400),
    ("roberta_base", text_options(TINY, type_vocab_size=1, pad_token_id=1), 400),
    ("openai_gpt", text_options(TINY, type_vocab_size=1, intermediate_size=48), 400),
    ("conv_bert_base", text_options(TINY, **CONV_BERT), 400),
]


@pytest.mark.parametrize(("name", "options", "samples"), MODELS)
def test_what_a_model_drops(name: str, options: Mapping[str, Any], samples: int) -> None:
    """Which layers draw, how much and how they scale it, what shares a draw; none in evaluation."""
    if "img_size" in options:
        inputs = image_inputs(samples, options["img_size"])
    else:
        inputs = text_inputs(options, (6, 4) * (samples // 2), length=6)
    classes = 2 if options.get("pooling") == "spans" else 3
    model, torch_model = models_of_equal_weights(name, dict(options), "float64", classes=classes)
    model.eval()
    assert paddle_draws_of(model, inputs) == {}
    assert torch_draws_of(torch_model.eval(), inputs) == {}
    model.train()
    paddle_draws = paddle_draws_of(model, inputs)
    torch_draws = torch_draws_of(torch_model.train(), inputs)
    assert_same(shared_by(paddle_draws), shared_by(torch_draws))
    assert_same(scales_of(paddle_draws), scales_of(torch_draws), bound=SCALE_BOUND)
    for layer, torch_draw in torch_draws.items():
        assert_same_shares(paddle_draws[layer], torch_draw, layer)


@dataclass(frozen=True)
class Draw:
    """One draw: a call of a dropout function or of stochastic depth that changed its input.

    Attributes:
        kept: (B, units) bool; B is what stands on the first axis (samples, or samples and heads).
        known: (B, units) bool; an input of 0 does not show whether it was kept.
        scales: smallest and largest factor on what was kept, 0 where nothing was.
    """

    kept: np.ndarray
    known: np.ndarray
    scales: tuple[float, float]

    def is_shared(self, axis: int) -> bool:
        """Tell whether one value holds along an axis, for every index of the other one."""
        some_kept = (self.kept & self.known).any(axis=axis)
        some_dropped = (~self.kept & self.known).any(axis=axis)
        return not (some_kept & some_dropped).any()

    def of_samples(self) -> Draw:
        """Return the draw with one unit for each sample."""
        kept = (self.kept & self.known).any(axis=1, keepdims=True)
        return Draw(kept, self.known.any(axis=1, keepdims=True), self.scales)

    def shares(self) -> tuple[np.ndarray, np.ndarray]:
        """Return what was dropped, and whether neighbouring samples fared alike; bool."""
        draw = self.of_samples() if self.is_shared(1) else self
        even, odd = slice(0, len(draw.kept) // 2 * 2, 2), slice(1, None, 2)
        both = draw.known[even] & draw.known[odd]
        return ~draw.kept[draw.known], (draw.kept[even] == draw.kept[odd])[both]


class DrawRecorder:
    """Collects draws under the layer that makes them; ``inside`` are the layers being run."""

    def __init__(self) -> None:
        self.draws: dict[str, Draw] = {}
        self.inside: list[str] = []

    def note(self, before: np.ndarray, after: np.ndarray) -> None:
        """Keep a draw as the first, second, ... one of the layer."""
        if np.array_equal(before, after):
            return
        layer = self.inside[-1] if self.inside else "(the model)"
        count = 1 + sum(name.partition(" #")[0] == layer for name in self.draws)
        before, after = before.reshape(len(before), -1), after.reshape(len(after), -1)
        kept = after != 0.0
        factors = after[kept] / before[kept] if kept.any() else np.zeros(1)
        scales = float(factors.min()), float(factors.max())
        self.draws[f"{layer} #{count}"] = Draw(kept, before != 0.0, scales)

    def enter(self, name: str) -> Callable[..., None]:
        """Return the hook before a layer."""

        def hook(*_: Any) -> None:
            self.inside.append(name)

        return hook

    def leave(self, layer: Any, inputs: tuple, output: Any) -> None:
        """Note what stochastic depth has dropped; the hook behind a layer."""
        if isinstance(layer, DropPath | TorchDropPath):
            self.note(inputs[0].numpy(), output.numpy())
        self.inside.pop()

    def dropout(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a dropout function that notes what it drops."""

        def noted(x: Any, *args: Any, **kwargs: Any) -> Any:
            before = x.numpy().copy()
            output = original(x, *args, **kwargs)
            self.note(before, output.numpy())
            return output

        return noted


def paddle_draws_of(model: paddle.nn.Layer, inputs: Mapping[str, np.ndarray]) -> dict[str, Draw]:
    """Run our model and return every draw by its layer."""
    recorder, functional = DrawRecorder(), paddle.nn.functional
    with contextlib.ExitStack() as hooks:
        for name, layer in model.named_sublayers():
            hooks.callback(layer.register_forward_pre_hook(recorder.enter(name)).remove)
            hooks.callback(layer.register_forward_post_hook(recorder.leave).remove)
        noted = recorder.dropout(functional.dropout)
        hooks.enter_context(mock.patch.object(functional, "dropout", noted))
        hooks.enter_context(paddle_precision("float64"))
        paddle.seed(SEED)
        with paddle.no_grad():
            model(**{name: paddle.to_tensor(array) for name, array in inputs.items()})
    return recorder.draws


def torch_draws_of(model: torch.nn.Module, inputs: Mapping[str, np.ndarray]) -> dict[str, Draw]:
    """Run the reference and return every draw by our name of its layer."""
    recorder, functional = DrawRecorder(), torch.nn.functional
    with contextlib.ExitStack() as hooks:
        for name, module in model.named_modules():
            if name:
                enter = recorder.enter(renamed(name))
                hooks.callback(module.register_forward_pre_hook(enter).remove)
                hooks.callback(module.register_forward_hook(recorder.leave).remove)
        noted = recorder.dropout(functional.dropout)
        hooks.enter_context(mock.patch.object(functional, "dropout", noted))
        hooks.enter_context(torch.random.fork_rng())
        torch.manual_seed(SEED)
        with torch.no_grad():
            model(**{name: torch.tensor(array) for name, array in inputs.items()})
    return recorder.draws


def shared_by(draws: Mapping[str, Draw]) -> dict[str, list[bool]]:
    """Tell of every draw whether samples, and whether units of a sample, share one value."""
    return {layer: [draw.is_shared(0), draw.is_shared(1)] for layer, draw in draws.items()}


def scales_of(draws: Mapping[str, Draw]) -> dict[str, tuple[float, float]]:
    """Return smallest and largest factor of every draw."""
    return {layer: draw.scales for layer, draw in draws.items()}


def assert_same_shares(paddle_draw: Draw, torch_draw: Draw, layer: str) -> None:
    """Assert that the shares are those of equal probabilities."""
    dropped, agreeing = paddle_draw.shares()
    torch_dropped, torch_agreeing = torch_draw.shares()
    rate = torch_dropped.mean()
    both = rate**2 + (1.0 - rate) ** 2
    limit = SIGMAS * math.sqrt(2.0 * rate * (1.0 - rate) / torch_dropped.size)
    assert abs(dropped.mean() - rate) <= limit, f"{layer}: share dropped"
    limit = SIGMAS * math.sqrt(2.0 * both * (1.0 - both) / torch_agreeing.size)
    difference = agreeing.mean() - torch_agreeing.mean()
    assert abs(difference) <= limit, f"{layer}: share on which neighbours agree"


def test_a_draw_is_read_where_the_input_is_not_zero() -> None:
    before = np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 4.0]])
    recorder = DrawRecorder()
    recorder.note(before, before)
    assert recorder.draws == {}
    recorder.note(before, 2.0 * before * np.array([[1.0], [0.0]]))
    draw = recorder.draws["(the model) #1"]
    assert (draw.scales, draw.is_shared(0), draw.is_shared(1)) == ((2.0, 2.0), False, True)
    assert draw.of_samples().kept.tolist() == [[True], [False]]
    one_of_two = Draw(np.array([[True, False]]), np.array([[True, True]]), (1.0, 1.0))
    assert not one_of_two.is_shared(1)
