"""The layers that a wrong container calls: how often, in which order, what comes after them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import paddle

from align.explain.calls.call_values import activated
from align.frameworks import on_paddle
from align.frameworks.swapping import attributes
from align.pair.any_pair import AnyPair
from align.pair.bench import Bench
from align.record.arrays import leaves
from align.record.recording import ROOT

INSERTED = ("ReLU", "GELU (erf)", "tanh", "SiLU", "sigmoid")


def insertions(bench: Bench) -> Iterator[tuple[str, AbstractContextManager]]:
    """An activation after each of the layers that the container calls."""
    for key in dict.fromkeys(bench.children):
        for name in INSERTED:
            said = f"activation: {name} is missing after {key} (Paddle: the identity)"
            yield said, _after(bench, key, name)


def _after(bench: Bench, key: str, name: str) -> AbstractContextManager:
    def change(called: str, output: Any) -> Any:
        hit = called == key and isinstance(output, paddle.Tensor)
        return activated(name, output) if hit else output

    return attributes(bench, after=change)


def recorded(bench: Bench) -> str:
    """What both records say of the calls inside, after a trial of the layer as it is: a fact."""
    return _swapped(bench) or _uneven(bench)


def _swapped(bench: Bench) -> str:
    """Two layers called the other way round, the first of which got a wrong input."""
    own, expected = _calls(bench)
    if sorted(own) != sorted(expected):
        return ""
    shown = {one.shown_at for one in bench.guilty}
    for a, b in zip(own, expected, strict=True):
        if a != b and f"input of {a}" in shown:
            return f"order of the layers: Paddle calls {a} before {b}, PyTorch {b} before {a}"
    return ""


def _uneven(bench: Bench) -> str:
    """A layer that Paddle calls less often or more often than PyTorch."""
    own, expected = (Counter(names) for names in _calls(bench))
    idle = bench.idle_inside()
    for name in expected:
        if own[name] != expected[name] and name not in idle:
            counts = _times(own[name]), _times(expected[name])
            return "{} is {} called in Paddle, {} in PyTorch".format(name, *counts)
    return ""


def unused(pair: AnyPair, bench: Bench) -> str:
    """A parameter of the layer that has no part in Paddle's result: it gets no gradient."""
    expected = pair.setup.weights.to_paddle(pair.reference.gradients)
    prefix = "" if bench.key == ROOT else f"{bench.key.partition('#')[0]}."
    for name, gradient in expected.items():
        own = name.removeprefix(prefix)
        if not name.startswith(prefix) or "." in own or not gradient.any():
            continue
        ours = pair.ours.gradients.get(name)
        if ours is None or not ours.any():
            return f"{name} is not used in Paddle (no gradient reaches it), in PyTorch it is"
    return ""


def arguments(bench: Bench) -> str:
    """A guess: a tensor that PyTorch hands to the layer and Paddle does not."""
    if bench.held is None or bench.partner is None:
        return ""
    given = [t for _, t in leaves(bench.held[1:], on_paddle.is_tensor)]
    own = Counter(tuple(t.shape) for t in given)
    expected = Counter(a.shape for _, a in bench.partner.inputs)
    missing, more = list((expected - own).elements()), list((own - expected).elements())
    if not missing or len(more) > len(missing):
        return ""
    if more:
        return f"{bench.key} is given a tensor of shape {more[0]}, in PyTorch of {missing[0]}"
    return (
        f"{bench.key} is given {len(given)} tensors, in PyTorch {len(bench.partner.inputs)}: one "
        f"of shape {missing[0]} is left out (perhaps a mask)"
    )


def _calls(bench: Bench) -> tuple[list[str], list[str]]:
    """Layers with a partner that the layer calls itself, in Paddle and in PyTorch."""
    paired = set(bench.judge.modules.to_paddle.values())
    own = [name for key in bench.children if (name := key.partition("#")[0]) in paired]
    return own, [key.partition("#")[0] for key in bench.partners_inside()]


def _times(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")
