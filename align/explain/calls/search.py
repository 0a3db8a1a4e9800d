"""Try the candidate edits of a wrong layer: its options, calls, arrays, the layers inside.

Of a wrong backward pass: what cuts the graph, on one side only.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import paddle

from align.explain.arrays.gradient_edits import UNKNOWN
from align.explain.calls import layer_edits, number_edits, partner_calls
from align.explain.calls.call_values import EVERY, Around, CallRow
from align.explain.calls.finite_differences import agrees_in_float32, refutes_paddle
from align.explain.calls.framework_rows import COARSE, EXCUSED, WRONG_GRADIENTS, exactly, is_about
from align.explain.calls.place_rows import PLACE_ROWS
from align.explain.calls.value_rows import VALUE_ROWS
from align.explain.experiment import fewest, first_cause
from align.frameworks import on_paddle, on_torch
from align.frameworks.on_paddle import ERRORS
from align.frameworks.watched_calls import (
    NEAR,
    PERHAPS,
    TorchCalls,
    WatchedCall,
    attributes,
    mending,
    watched_in,
)
from align.judge.bounds import ISOLATED
from align.judge.judging import alike
from align.pair import runs
from align.pair.any_pair import AnyPair
from align.pair.bench import Bench, GradientBench
from align.pair.isolation import Guilty
from align.record.arrays import replace
from align.record.recording import ROOT, Recording
from align.record.results import Tolerance

MANY = 200  # watched calls of one layer; beyond that it is a whole network
LARGE = 4_000_000  # elements of the tensor in question; experiments on more take too long
WORK = 200_000_000  # elements times trials of one layer
LEAST, MOST = 100, 2_000  # trials of a large layer, and of a small one

ROUNDED = Tolerance("scaled", NEAR, "to tell a number held in float32, not to judge it")
ROWS = (*VALUE_ROWS, *PLACE_ROWS)

Changes = Iterator[tuple[str, AbstractContextManager]]
Answer = Callable[[WatchedCall], Any]


def study(pair: AnyPair, guilty: Guilty) -> tuple[str, str, str]:
    """Experiment on one wrong layer: three sentences, "" for what is not known.

    Returns:
        The cause after whose edit the layer agrees; what both sides' records of the calls in it
        say; what is odd about the layer otherwise, a guess.
    """
    size = 0 if guilty.expected is None else guilty.expected.size
    if size > LARGE:
        return "", "", ""
    small = pair.dtype == "float64" and alike(guilty.ours, guilty.expected, ROUNDED)
    blamed = _rounding(pair, guilty) if small else ""
    if blamed:
        return blamed, "", ""
    with Bench(pair, guilty.place).ready() as bench, np.errstate(all="ignore"):
        calls: list[WatchedCall] = []
        if not bench.trial(watching(bench, lambda call: calls.append(call) or call.go())):
            return "", "", ""  # it does not fail on its own
        if pair.dtype == "float64" and any(is_about(row, c) for row in COARSE for c in calls):
            if not alike(guilty.ours, guilty.expected, EXCUSED):
                bench.rule = ISOLATED["float32"]  # an option too many beside float32's places
            else:
                watch = functools.partial(watching, bench)
                blamed = _blamed(pair, COARSE, calls, watch, bench.mended_by)
            if blamed:
                return blamed, "", ""
        drawn = _drawn(bench)
        recorded = layer_edits.recorded(bench)
        guess = layer_edits.unused(pair, bench) or layer_edits.arguments(bench) or PERHAPS * small
        budget = max(LEAST, min(MOST, WORK // max(size, 1)))
        changes = _changes(
            pair, bench, guilty, calls if len(calls) <= MANY else [], 0 if drawn else budget
        )
        return first_cause(changes, bench.mended_by, budget) or drawn, recorded, guess


def _rounding(pair: AnyPair, guilty: Guilty) -> str:
    """Says whose numbers Paddle holds in float32, where a layer is off by as little as that."""
    held = copy.copy(pair)

    def agrees(recording: Recording) -> bool:
        held.deep = recording
        with Bench(held, guilty.place).ready() as bench:
            return bench.trial() == []

    said, mend = mending(lambda: pair.run_reference(deep=True), agrees, TRIALS)
    pair.setup.mends |= {said: mend} if said else {}
    return said


def _blamed(
    pair: AnyPair,
    rows: Sequence[CallRow],
    calls: Sequence[WatchedCall],
    watch: Callable[[Answer], AbstractContextManager],
    passes: Callable[[AbstractContextManager], bool],
) -> str:
    """Says which functions of Paddle are to blame; the pair keeps how to go on without their fault.

    A wrong gradient is put right only beside a comparison in float32, which runs the port as it is.
    """
    fitting = [row for row in rows if any(is_about(row, call) for call in calls)]
    blamed = fewest(fitting, lambda some: passes(watch(exactly(some))), TRIALS)
    first = [(row, next(call for call in calls if is_about(row, call))) for row in blamed]
    said = "; ".join(f"{row.sentence(c, None, c.name)} ({c.place})" for row, c in first)
    if said and (rows is COARSE or "float32" in pair.plan.dtypes):
        pair.setup.mends[said] = lambda layer: watched_in(layer, exactly(blamed))
    return said


def _drawn(bench: Bench) -> str:
    """Says that Paddle's layer does not repeat itself: then no number can be fitted."""
    first, second = ([one.ours for one in bench.trial() or ()] for _ in range(2))
    pairs = zip(first, second, strict=False)
    if all(a.shape == b.shape and np.allclose(a, b, equal_nan=True) for a, b in pairs):
        return ""
    return (
        "two runs of the Paddle side differ there: something is drawn by chance (noise, a dropout "
        "of its own); hand the same numbers to both sides as an input"
    )


def _changes(
    pair: AnyPair, bench: Bench, guilty: Guilty, calls: list[WatchedCall], budget: int
) -> Changes:
    """Every edit, the plain ones first; numbers are fitted within a budget of trials."""
    _, module, _ = pair.layer(bench.key)
    yield from layer_edits.options(bench, module)
    yield from layer_edits.rows(bench, guilty)
    yield from layer_edits.weights(bench)
    yield from layer_edits.insertions(bench)
    around = Around(_masks(bench, module), _widths(bench, calls), calls)
    for call, said, answer in edits(ROWS, calls, around):
        yield _told(bench, said, call), watching(bench, answer)
    yield from _partners(pair, bench, module, calls)
    yield from layer_edits.inputs(bench)
    for numbers in number_edits.lines(calls):
        if bench.trials >= budget:
            return
        call = calls[numbers[0]]
        for said, answer in number_edits.fitted(call, _miss(bench, numbers)):
            yield _told(bench, said, call), watching(bench, instead(numbers, answer))


def _partners(pair: AnyPair, bench: Bench, module: Any, calls: list[WatchedCall]) -> Changes:
    """Calls with the arguments that PyTorch's layer gives the same functions."""
    depth: list[Any] = []
    hooks = contextlib.nullcontext()
    if module is not None:
        hooks = on_torch.hook(module, lambda *_: depth.append(1), lambda *_: depth.pop() and None)
    with hooks, TorchCalls(lambda: module is None or bool(depth)) as theirs:
        pair.run_reference()
    for numbers in together(calls):
        call = calls[numbers[0]]
        for said, values in partner_calls.changes(call, calls, theirs.calls):
            answer = instead(numbers, functools.partial(_put, values))
            yield _told(bench, f"{said}; with PyTorch's it agrees", call), watching(bench, answer)


def _put(values: Mapping[str, Any], call: WatchedCall) -> Any:
    return call.with_arguments(values)


def edits(
    rows: Sequence[CallRow], calls: Sequence[WatchedCall], around: Around
) -> Iterator[tuple[WatchedCall, str, Answer]]:
    """What may be wrong with each call, by a table: the call, the sentence, the right answers.

    At last with all calls of a row at once (two functions that share a default).
    """
    groups = [(numbers, rows) for numbers in together(calls)]
    for row in rows:
        numbers = [call.number for call in calls if call.name in row.functions.split()]
        if numbers and (numbers, rows) not in groups:
            groups.append((numbers, [row]))
    for numbers, tried in groups:
        call = calls[numbers[0]]
        name = " and ".join(dict.fromkeys(calls[number].name for number in numbers))
        for row in tried:
            if row.functions != EVERY and call.name not in row.functions.split():
                continue
            try:
                held = [(row.sentence(call, v, name), v) for v in row.values(call, around)]
            except ERRORS:  # a call of an unforeseen form has no such edit
                continue
            for said, value in held:
                right = instead(numbers, lambda one, row=row, v=value: row.answer(one, v))
                yield call, said, right


def _told(bench: Bench, said: str, call: WatchedCall) -> str:
    """A sentence with the line of the call; inside one layer of the framework it says nothing."""
    own = type(bench.layer).__module__.startswith("paddle.nn.") and not bench.layer.sublayers()
    return said if own else f"{said} ({call.place})"


def together(calls: Sequence[WatchedCall]) -> list[list[int]]:
    """Calls to change: every one by itself, then all of one line of the source (a loop)."""
    lines: dict[tuple[str, str], list[int]] = {}
    for call in calls:
        lines.setdefault((call.name, call.place), []).append(call.number)
    return [[c.number] for c in calls] + [held for held in lines.values() if len(held) > 1]


def instead(numbers: Sequence[int], answer: Answer) -> Answer:
    """Some calls answered in another way, all others as they are."""
    return lambda call: answer(call) if call.number in numbers else call.go()


def _miss(bench: Bench, numbers: Sequence[int]) -> number_edits.Miss:
    """How far the layer is off along its own error."""
    first = bench.trial()[0]
    if first.ours.shape != first.expected.shape:
        return lambda answer: None
    error = first.ours - first.expected
    energy = float(np.vdot(error, error))

    def miss(answer: Answer) -> float | None:
        held = bench.trial(watching(bench, instead(numbers, answer)))
        if not held:
            return None if held is None else 0.0
        same = held[0].shown_at == first.shown_at and held[0].ours.shape == error.shape
        return float(np.vdot(held[0].ours - first.expected, error)) / energy if same else None

    return miss


def watching(bench: Bench, answer: Answer) -> AbstractContextManager:
    """Every call in the layer's own code through ``answer``."""
    return watched_in(bench.layer, answer, lambda: bench.inside)


def _masks(bench: Bench, module: Any) -> list[np.ndarray]:
    """Arrays that may be masks: flags, whole numbers 0 and 1, zeros and low values.

    They are looked for among what the partner and the model were given, and among constants that
    both layers hold.
    """
    constants = [] if module is None else [on_torch.numpy(b) for b in module.buffers()]
    constants += [on_paddle.numpy(b) for b in bench.layer.buffers()]
    found = []
    for array in (*bench.seen_by_partner(), *constants):
        if array.dtype.kind == "f":
            low = array <= -100
            good = low.any() and bool((low | (array == 0)).all())
        else:
            good = array.ndim > 1 and set(np.unique(array)) <= {0, 1}
        if good:
            found.append(array)
    return found


def _widths(bench: Bench, calls: list[WatchedCall]) -> list[int]:
    """Last sizes of what is multiplied in the layer and of its inputs: widths of a head, of all."""
    products = [call.args[:2] for call in calls if call.name in ("matmul", "bmm")]
    found = [x.shape[-1] for pair in products for x in pair if len(x.shape) > 1]
    inputs = bench.partner.inputs if bench.partner else []
    found += [a.shape[-1] for _, a in inputs if a.ndim > 1]
    return sorted(dict.fromkeys(found))


TRIALS = 200
CUT_ROWS = (
    CallRow(
        "detach",
        "detach() cuts the graph: no gradient passes there, in PyTorch it does",
        lambda call, _: call.args[0],
    ),
    CallRow(
        "diag_embed",
        "paddle.diag_embed has no gradient: it cuts the graph; multiply by an identity",
        lambda call, _: (
            call.args[0].unsqueeze(-1)
            * paddle.eye(call.args[0].shape[-1], dtype=call.args[0].dtype)
        ),
    ),
    CallRow(
        EVERY,
        "PyTorch cuts the graph after {name}, Paddle does not: detach() is missing",
        lambda call, _: call.go().detach(),
    ),
)
"""Cuts of the graph: on one side only."""
OTHERWISE = (
    "the forward pass is right and the gradient is not, and no cut of the graph explains it: "
    "perhaps a backward pass of its own (PyLayer) is wrong"
)

WRONG_IN_FLOAT64 = (
    "no fault of the port: an operator of Paddle's computes a wrong gradient in float64 here; "
    "finite differences of Paddle's own loss give PyTorch's, and in float32 both sides agree: "
    "write it in another form, or compare in float32"
)


def explained(pair: AnyPair, key: str, formula: str) -> str:
    """The cause of a wrong backward pass of one layer; `formula` where no experiment succeeds."""
    rows: Sequence[CallRow] = ()
    if pair.dtype == "float64" and refutes_paddle(pair) and agrees_in_float32(pair):
        rows, formula = WRONG_GRADIENTS, WRONG_IN_FLOAT64
    if key == ROOT:
        return _explained_whole(pair, rows) or formula
    bench = Bench(pair, key)
    if bench.partner is None:
        return formula
    with bench.ready():
        if bench.held is None:
            return formula
    trial = GradientBench(pair, bench.held, bench.partner)
    calls: list[WatchedCall] = []
    ours = trial.gradients(watched_in(trial.layer, lambda call: calls.append(call) or call.go()))
    if ours is None or trial.right(ours):
        return formula
    watch = functools.partial(watched_in, trial.layer)
    found = _blamed(pair, rows, calls, watch, trial.mended_by)
    found = found or first_cause(_cuts(watch, calls), trial.mended_by, TRIALS)
    return found or (OTHERWISE if formula == UNKNOWN else formula)


def _explained_whole(pair: AnyPair, rows: Sequence[CallRow]) -> str:
    """What is cut in the model's own code: after the edit every gradient of the pass is right."""
    layer_cuts = list(_layer_cuts(pair))  # of the recorded pass, before others run
    model, depth = pair.model, []

    def watch(answer: Answer) -> AbstractContextManager:
        return watched_in(model, answer, lambda: not depth)

    def right(change: AbstractContextManager) -> bool:
        depth.clear()  # of a trial that failed in a layer
        try:
            with change, pair.pass_ours() as found:
                return all(one.passed for one in pair.gradients(found))
        except ERRORS:
            return False

    if runs.is_large(on_paddle, model) or right(contextlib.nullcontext()):
        return ""
    calls: list[WatchedCall] = []
    with contextlib.ExitStack() as stack:
        for layer in model.sublayers():
            hooks = lambda *_: depth.append(1), lambda *_: depth.pop() and None
            stack.enter_context(on_paddle.hook(layer, *hooks))
        with watch(lambda call: calls.append(call) or call.go()), pair.pass_ours(backward=False):
            pass
        calls = calls if len(calls) <= MANY else []
        found = _blamed(pair, rows, calls, watch, right)
        return found or first_cause([*_cuts(watch, calls), *layer_cuts], right, TRIALS)


def _layer_cuts(pair: AnyPair) -> Changes:
    """What a call of a layer is given, or returns, detached."""
    layers = on_paddle.modules(pair.model)
    for call in (call for call in pair.ours.calls.values() if call.parent == ROOT):
        for where in ("before", "after"):
            says = (
                f"PyTorch cuts the graph {where} {call.key}, Paddle does not: detach() is missing"
            )
            yield says, _detached(layers[call.name], call.number, where)


@contextlib.contextmanager
def _detached(layer: Any, number: int, where: str) -> Iterator[None]:
    seen = itertools.count(1)

    def cut(value: Any) -> Any:
        return replace(value, on_paddle.is_tensor, lambda _, tensor: tensor.detach())

    def before(_: Any, *given: Any) -> Any:
        return cut(given) if where == "before" and next(seen) == number else None

    def after(_: Any, args: tuple, kwargs: dict, output: Any) -> Any:
        return cut(output) if where == "after" and next(seen) == number else None

    with on_paddle.hook(layer, before, after):
        yield


def _cuts(watch: Callable[[Answer], Any], calls: Sequence[WatchedCall]) -> Changes:
    said = "no_grad() cuts the graph: no gradient passes there, in PyTorch it does"
    yield said, attributes(paddle, no_grad=contextlib.nullcontext)
    for call, said, answer in edits(CUT_ROWS, calls, Around()):
        yield f"{said} ({call.place})", watch(answer)
