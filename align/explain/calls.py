"""Experiments on one wrong layer: its options, arrays and calls are edited until it agrees.

`align.pair.bench` runs the layer again. Of a wrong backward pass: what cuts the graph, on one side
only. Of a loss: its calls with the arguments that PyTorch's loss gives the same functions.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from operator import methodcaller
from typing import Any, NamedTuple

import numpy as np
import paddle

from align.explain import layer_edits
from align.explain.call_rows import CUT_ROWS, NUMBERS, ROWS
from align.explain.call_values import EVERY, Around, CallRow
from align.explain.experiment import fewest, first_cause
from align.explain.hints import UNKNOWN
from align.explain.layer_edits import Changes
from align.explain.loss_causes import LossRun
from align.explain.options import PADDLE_NAMES, argument_edits
from align.frameworks import on_paddle, on_torch
from align.frameworks.on_paddle import ERRORS, LOWEST
from align.frameworks.other_arithmetic import NEAR, by_pytorch, clips
from align.frameworks.watched_calls import (
    DIGITS,
    LOSSES,
    MOVES,
    Answer,
    TorchCall,
    TorchCalls,
    WatchedCall,
    attributes,
    modules_of,
    noting,
    watched,
    watched_in,
)
from align.judge.bounds import ISOLATED
from align.judge.judging import alike
from align.pair.any_pair import AnyPair
from align.pair.bench import Bench, agrees_in_float32, refutes_paddle
from align.pair.isolation import Guilty
from align.pair.side import is_large
from align.record.arrays import leaves
from align.record.recording import ROOT
from align.record.results import Tolerance

MANY = 200  # watched calls of one layer; beyond that it is a whole network
LARGE = 4_000_000  # elements of the tensor in question; experiments on more take too long
WORK = 200_000_000  # elements times trials of one layer
LEAST, MOST = 100, 2_000  # trials of a large layer, and of a small one
TRIALS = 200
ROUNDED = Tolerance("scaled", NEAR, "to tell a number held in float32, not to judge it")
LOST = "no fault of the port: Paddle's {} loses digits; computed by PyTorch's function it agrees"
CLIPPED = (
    f"no fault of the port: Paddle's {{}} counts no score as more than {LOWEST:g} below the "
    "largest; computed by PyTorch's function it agrees"
)
COARSE = {"interpolate", "selu", "hardsigmoid"}
"""Functions that compute with numbers in float32 in every precision."""
IN_FLOAT32 = (
    "perhaps no fault of the port: Paddle computes {} in float32 ({}) in the float64 run, too, "
    "PyTorch in float64: leave the dtype to the default, or compare in float32 alone"
)
PERHAPS = (
    "perhaps no fault of the port: Paddle may hold a number in float32, which changes as little"
)

Watch = Callable[[Answer], AbstractContextManager]
"""Hands calls to an answer for the length of a ``with`` block."""


class LayerStudy(NamedTuple):
    """What experiments say of one wrong layer, sentences, "" for what is not known.

    Attributes:
        proved: after which edit the layer agrees, or what both sides' records of its calls say.
        guess: what is odd about the layer otherwise.
        missing: what PyTorch alone calls in it.
    """

    proved: str = ""
    guess: str = ""
    missing: str = ""


def study(pair: AnyPair, wrong: Guilty, like: str = "") -> LayerStudy:
    """Experiment on one wrong layer.

    Args:
        like: the cause at another layer; only edits of the same words are tried, "" for all.
    """
    size = 0 if wrong.expected is None else wrong.expected.size
    if size > LARGE:
        return LayerStudy()
    small = pair.dtype == "float64" and alike(wrong.ours, wrong.expected, ROUNDED)
    with Bench(pair, wrong.place).ready() as bench, np.errstate(all="ignore"):
        calls: list[WatchedCall] = []
        wrong_as_it_is = bench.trial(_watching(bench, noting(calls)))
        if not wrong_as_it_is:  # alone it agrees, or does not run
            return LayerStudy()

        def passes(answer: Answer) -> bool:
            return bench.mended_by(_watching(bench, answer))

        excuse = _excuse(pair, calls, passes, watched_in, small)
        if excuse:
            return LayerStudy(excuse)
        if pair.dtype == "float64" and any(call.name in COARSE for call in calls):
            bench.rule = ISOLATED["float32"]  # the right option leaves what float32 rounds, too
        recorded = layer_edits.recorded(bench)
        guess = layer_edits.unused(pair, bench) or layer_edits.arguments(bench)
        if not guess:
            guess = _in_float32(pair, calls) or perhaps(pair) * small
        budget = max(LEAST, min(MOST, WORK // max(size, 1)))
        changes = _changes(pair, bench, calls if len(calls) <= MANY else [])
        if like:
            changes = (change for change in changes if _in_words(change[0]) == _in_words(like))
        proved = first_cause(changes, bench.mended_by, budget)
        missing = "" if proved else _missing(pair, bench, calls)
        return LayerStudy(proved or recorded, guess, missing)


def _in_float32(pair: AnyPair, calls: Sequence[WatchedCall]) -> str:
    """Name the first call that Paddle alone makes in float32 in a float64 run, "" for none."""
    for call in calls if pair.dtype == "float64" and not pair.mixed else ():
        tensors = leaves((call.args, call.kwargs), on_paddle.is_tensor)
        if any(tensor.dtype == paddle.float32 for _, tensor in tensors):
            return IN_FLOAT32.format(call.name, call.place)
    return ""


def _in_words(cause: str) -> str:
    """A cause without its numbers, which are others in another layer."""
    return re.sub(r"\d+", "", cause)


def _watching(bench: Bench, answer: Answer) -> AbstractContextManager:
    """Every call in the layer's own code through ``answer``."""
    return watched_in(bench.layer, answer, lambda: bench.inside)


def perhaps(pair: AnyPair) -> str:
    """Guess what changes as little as a number held in float32."""
    advice = '; compare with dtype="float32" too'
    return PERHAPS if "float32" in pair.plan.dtypes else PERHAPS + advice


def _excuse(
    pair: AnyPair,
    calls: Sequence[WatchedCall],
    passes: Callable[[Answer], bool],
    watch: Callable[[paddle.nn.Layer, Answer], AbstractContextManager],
    small: bool,
) -> str:
    """Name functions that lose digits in Paddle; the pair goes on with PyTorch's. "" for none.

    Args:
        small: the difference is one of digits; else only what clips is tried.
    """
    tried = [call for call in calls if (call.name in DIGITS if small else clips(call))]
    place_of = {call.name: call.place for call in tried}
    blamed = fewest([*place_of], lambda names: passes(by_pytorch(names)), TRIALS)
    if not blamed:
        return ""
    title = (LOST if small else CLIPPED).format(" and ".join(blamed))
    says = f"{title} ({', '.join(place_of[name] for name in blamed)})"
    pair.setup.mends[says] = lambda model: watch(model, by_pytorch(blamed))
    return says


def _changes(pair: AnyPair, bench: Bench, calls: list[WatchedCall]) -> Changes:
    """Every edit, the plain ones first."""
    _, module, _ = pair.layer(bench.key)
    yield from layer_edits.unequal_options(bench, module)
    yield from layer_edits.looked_up(bench)
    yield from layer_edits.weights(bench)
    torch_calls = _torch_calls(pair, module)
    around = Around(_masks(bench, module), _widths(bench, calls), torch_calls)
    for call, says, answer in call_edits(ROWS, calls, around):
        yield _with_line(bench, says, call), _watching(bench, answer)
    for numbers in _together(calls):
        call = calls[numbers[0]]
        for says, values in argument_edits(call, calls, torch_calls):
            answer = _instead(numbers, methodcaller("with_arguments", values))
            says = _with_line(bench, f"{says}; with PyTorch's it agrees", call)
            yield says, _watching(bench, answer)
    for call, says, answer in call_edits(NUMBERS, calls, around):
        yield _with_line(bench, says, call), _watching(bench, answer)


def _torch_calls(pair: AnyPair, module: Any, *, own_code: bool = False) -> list[TorchCall]:
    """The calls in PyTorch's layer, or model, in one run; ``own_code``: none of its modules."""
    with _running(on_torch, [] if module is None else module.modules()) as running:

        def in_layer() -> bool:
            return running[-1:] == [module] if own_code else bool(running)

        with TorchCalls() if module is None else TorchCalls(in_layer) as recorder:
            pair.run_reference()
    return recorder.calls


@contextlib.contextmanager
def _running(side: Any, layers: Iterable[Any]) -> Iterator[list[Any]]:
    """Those of some layers that are running at a time, the innermost last."""
    running: list[Any] = []

    def leave(*_: Any) -> None:
        running.pop()

    with contextlib.ExitStack() as hooks:
        for layer in layers:
            hooks.enter_context(side.hook(layer, lambda called, *_: running.append(called), leave))
        yield running


def _missing(pair: AnyPair, bench: Bench, calls: Sequence[WatchedCall]) -> str:
    """Name the functions that PyTorch's layer alone calls, in the user's own code."""
    _, module, _ = pair.layer(bench.key)
    if module is None or type(module).__module__.startswith("torch."):
        return ""
    torch_calls = _torch_calls(pair, module, own_code=True)
    torch_names = {PADDLE_NAMES.get(call.name, call.name) for call in torch_calls} & DIGITS
    paddle_names = {call.name for call in calls} & DIGITS
    if paddle_names - torch_names - {*MOVES}:  # written in other words
        return ""
    names = sorted(torch_names - paddle_names - {*MOVES})
    says = f"PyTorch calls {', '.join(names)} there, Paddle does not"
    return f"perhaps a call is missing: {says}" if names else ""


def call_edits(
    rows: Sequence[CallRow], calls: Sequence[WatchedCall], around: Around
) -> Iterator[tuple[WatchedCall, str, Answer]]:
    """Yield what may be wrong with calls, by a table: the first call, the sentence, right answers.

    Each call, and the calls of one line together, are edited by every row; then all calls that a
    row is about together by that row (two functions that share a default).
    """
    groups: list[tuple[list[int], Sequence[CallRow]]]
    groups = [(numbers, rows) for numbers in _together(calls)]
    for row in rows:
        numbers = [call.number for call in calls if row.functions != EVERY and row.is_about(call)]
        if numbers and (numbers, rows) not in groups:
            groups.append((numbers, [row]))
    for numbers, rows_to_try in groups:
        call = calls[numbers[0]]
        name = " and ".join(dict.fromkeys(calls[number].name for number in numbers))
        for row in rows_to_try:
            if not row.is_about(call):
                continue
            try:
                values = list(row.values(call, around))
                sentences = [row.sentence(call, value, name) for value in values]
            except ERRORS:  # a call of an unforeseen form has no such edit
                continue
            for says, value in zip(sentences, values, strict=True):
                yield call, says, _instead(numbers, row.with_value(value))


def _with_line(bench: Bench, says: str, call: WatchedCall) -> str:
    """A sentence with the line of the call; inside one layer of the framework it says nothing."""
    is_of_paddle = (
        type(bench.layer).__module__.startswith("paddle.nn.") and not bench.layer.sublayers()
    )
    return says if is_of_paddle else f"{says} ({call.place})"


def _together(calls: Sequence[WatchedCall]) -> list[list[int]]:
    """Calls to change: every one by itself, then all of one line of the source (a loop)."""
    lines: dict[tuple[str, str], list[int]] = {}
    for call in calls:
        lines.setdefault((call.name, call.place), []).append(call.number)
    return [[c.number] for c in calls] + [line for line in lines.values() if len(line) > 1]


def _instead(numbers: Sequence[int], answer: Answer) -> Answer:
    """Some calls answered in another way, all others as they are."""
    return lambda call: answer(call) if call.number in numbers else call.go()


def _masks(bench: Bench, module: Any) -> list[np.ndarray]:
    """Arrays that may be masks: flags, whole numbers 0 and 1, zeros and low values.

    They are looked for among what the partner and the model were given, and among constants that
    both layers hold.
    """
    constants = [] if module is None else [on_torch.numpy(b) for b in module.buffers()]
    constants += [on_paddle.numpy(b) for b in bench.layer.buffers()]
    masks = []
    for array in (*bench.seen_by_partner(), *constants):
        if array.dtype.kind == "f":
            low = array <= -100
            is_mask = low.any() and bool((low | (array == 0)).all())
        else:
            is_mask = array.ndim > 1 and set(np.unique(array)) <= {0, 1}
        if is_mask:
            masks.append(array)
    return masks


def _widths(bench: Bench, calls: list[WatchedCall]) -> list[int]:
    """Last sizes of the layer's inputs and of what it multiplies: widths of one or all heads."""
    arrays: list[Any] = []
    if bench.partner is not None:
        arrays += bench.partner.inputs.values()
    elif bench.layer_call is not None:
        arrays += [x for _, x in leaves(bench.layer_call[1:], on_paddle.is_tensor)]
    for call in calls:
        if call.name in ("matmul", "bmm"):
            arrays += call.args[:2]
    return sorted({x.shape[-1] for x in arrays if len(x.shape) > 1})


NO_GRAD = "no_grad() cuts the graph: no gradient passes there, in PyTorch it does"
OTHERWISE = (
    "the forward pass is right and the gradient is not, and no cut of the graph explains it: "
    "perhaps a backward pass of its own (PyLayer) is wrong"
)
WRONG_IN_FLOAT64 = (
    "no fault of the port: an operator of Paddle's computes a wrong gradient in float64 here; "
    "finite differences of Paddle's own loss give PyTorch's, and in float32 both sides agree: "
    "write it in another form, or compare in float32"
)


def explain_backward(pair: AnyPair, key: str, formula: str) -> str:
    """Explain a wrong backward pass of one layer; `formula` where no experiment succeeds."""
    if pair.dtype == "float64" and refutes_paddle(pair) and agrees_in_float32(pair):
        return WRONG_IN_FLOAT64
    if key == ROOT:
        return _explain_model(pair) or formula
    bench = Bench(pair, key)
    if bench.partner is None:
        return formula
    with bench.ready():
        if bench.layer_call is None:
            return formula
    calls: list[WatchedCall] = []
    watch = partial(watched_in, bench.layer)
    ours = bench.gradients(watch(noting(calls)))
    if ours is None or bench.are_right(ours):
        return formula
    cause = first_cause(_cuts(watch, calls), bench.gradients_mended_by, TRIALS)
    return cause or (OTHERWISE if formula == UNKNOWN else formula)


def _explain_model(pair: AnyPair) -> str:
    """What is cut in the model's own code: after the edit every gradient of the pass is right."""
    model = pair.model
    if is_large(on_paddle, model):
        return ""
    calls: list[WatchedCall] = []
    with _running(on_paddle, model.sublayers()) as running:

        def watch(answer: Answer) -> AbstractContextManager:
            return watched_in(model, answer, lambda: not running)

        def right(change: AbstractContextManager) -> bool:
            running.clear()  # of a trial that failed in a layer
            with contextlib.suppress(*ERRORS), change, pair.pass_ours() as recording:
                return all(comparison.passed for comparison in pair.gradients(recording))
            return False

        if right(contextlib.nullcontext()):
            return ""
        with watch(noting(calls)), pair.pass_ours(backward=False):
            pass
        return first_cause(_cuts(watch, calls if len(calls) <= MANY else []), right, TRIALS)


def _cuts(watch: Watch, calls: Sequence[WatchedCall]) -> Changes:
    yield NO_GRAD, attributes(paddle, no_grad=contextlib.nullcontext)
    for call, says, answer in call_edits(CUT_ROWS, calls, Around()):
        yield f"{says} ({call.place})", watch(answer)


def _watching_loss(loss: Any) -> Watch:
    """Every call of a loss, whose module may hold functions under names of its own."""
    layers = [loss, *loss.sublayers()] if isinstance(loss, paddle.nn.Layer) else []
    module = sys.modules.get(getattr(getattr(loss, "func", loss), "__module__", ""))
    owners = (*modules_of(layers), *filter(None, [module]))
    return lambda answer: watched(lambda: True, answer, owners)


def excuse_loss(pair: AnyPair, loss: Any, agrees: Callable[[], bool], small: bool) -> str:
    """Name functions that a loss of Paddle's loses digits in, "" where PyTorch's do not mend it.

    Args:
        agrees: runs Paddle's loss again and judges it.
        small: as of `_excuse`.
    """
    watch, calls = _watching_loss(loss), []

    def passes(answer: Answer) -> bool:
        with watch(answer):
            return agrees()

    passes(noting(calls))
    return _excuse(pair, calls, passes, lambda _, answer: watch(answer), small)


def loss_reruns(
    run_ours: Callable[[], LossRun], run_theirs: Callable[[], LossRun], loss: Any
) -> Iterator[tuple[str, LossRun]]:
    """Run Paddle's loss of the reference's output with a call changed to PyTorch's, in words."""
    watch, calls = _watching_loss(loss), []
    with TorchCalls() as recorder:
        run_theirs()
    with watch(noting(calls)):
        run_ours()
    for call in (call for call in calls if call.name in LOSSES):
        for says, arguments in argument_edits(call, calls, recorder.calls):
            answer = _instead([call.number], methodcaller("with_arguments", arguments))
            with contextlib.suppress(*ERRORS):
                with watch(answer):
                    run = run_ours()
                yield f"{says} ({call.place})", run
