"""Paddle's loss again, with one of its calls as PyTorch's: options, and what the call is given."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import paddle
from paddle.nn import functional as F

from align.explain.calls import partner_calls
from align.explain.losses.loss_causes import LossRun
from align.frameworks import on_paddle, on_torch
from align.frameworks.on_paddle import ERRORS
from align.frameworks.watched_calls import (
    LOSSES,
    TorchCall,
    TorchCalls,
    WatchedCall,
    modules_of,
    watched,
)

GIVEN: Mapping[str, Callable[[paddle.Tensor], paddle.Tensor]] = {
    "its logarithm": paddle.log,
    "its exponential": paddle.exp,
    "its sigmoid": F.sigmoid,
    "its softmax": F.softmax,
    "the logarithm of its softmax": F.log_softmax,
    "the logarithm of its sigmoid": F.log_sigmoid,
}
"""What PyTorch may hand to a loss instead of what Paddle does."""
NEAR = 1e-6


def reruns(
    run_ours: Callable[[], LossRun], run_theirs: Callable[[], LossRun], loss: Any
) -> Iterator[tuple[str, LossRun]]:
    """Runs of Paddle's loss with a call changed to what PyTorch's has, in words.

    Args:
        run_ours: Paddle's loss of the reference's output.
        run_theirs: PyTorch's.
        loss: Paddle's, whose module may hold functions under names of its own.
    """
    layers = [loss, *loss.sublayers()] if isinstance(loss, paddle.nn.Layer) else []
    module = sys.modules.get(getattr(loss, "__module__", ""))
    owners = (*modules_of(layers), *filter(None, [module]))
    calls: list[WatchedCall] = []
    with TorchCalls() as theirs:
        run_theirs()
    with watched(lambda: True, lambda call: calls.append(call) or call.go(), owners):
        run_ours()
    for call in (one for one in calls if one.name in LOSSES):
        changes = [
            (said, partial(_with, values))
            for said, values in partner_calls.changes(call, calls, theirs.calls)
        ]
        for said, change in [*changes, *_given(call, theirs.calls)]:
            answer = partial(_instead, call.number, change)
            try:
                with watched(lambda: True, answer, owners):
                    made = run_ours()
            except ERRORS:
                continue
            yield f"{said} ({call.place})", made


def _with(values: Mapping[str, Any], call: WatchedCall) -> Any:
    return call.with_arguments(values)


def _instead(number: int, change: Callable[[WatchedCall], Any], call: WatchedCall) -> Any:
    return change(call) if call.number == number else call.go()


def _moved(at: int, move: Callable[[paddle.Tensor], paddle.Tensor], call: WatchedCall) -> Any:
    return call.go(*call.args[:at], move(call.args[at]), *call.args[at + 1 :])


def _given(
    call: WatchedCall, theirs: list[TorchCall]
) -> Iterator[tuple[str, Callable[[WatchedCall], Any]]]:
    """The first two tensors, each replaced by what PyTorch's call is given."""
    for partner in (one for one in theirs if one.name == call.name):
        given = [v for v in partner.arguments.values() if on_torch.is_tensor(v)][:2]
        for at, (own, expected) in enumerate(zip(call.args, given, strict=False)):
            b = on_torch.numpy(expected)
            for what, move in GIVEN.items() if paddle.is_floating_point(own) else ():
                a = on_paddle.numpy(move(own))
                if a.shape == b.shape and np.allclose(a, b, NEAR, NEAR):
                    said = f"{('input', 'label')[at]} of {call.name}: PyTorch hands over {what}"
                    yield said, partial(_moved, at, move)
