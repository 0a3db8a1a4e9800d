"""Experiments on one wrong layer: its options, arrays and calls are edited until it agrees.

`align.pair.bench` runs the layer again. Of a wrong backward pass: what cuts the graph, on one side
only. Of a loss: its calls with the arguments that PyTorch's loss gives the same functions.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import combinations
from operator import methodcaller
from typing import Any, NamedTuple, TypeVar

import numpy as np
import paddle

from align.explain import layer_edits
from align.explain.call_rows import (
    COARSE,
    CUT_ROWS,
    EXCUSED,
    LOSS_ROWS,
    NUMBERS,
    ROWS,
    WRONG_GRADIENTS,
    exactly,
    has_exact_form,
)
from align.explain.call_values import EVERY, Around, CallRow
from align.explain.experiment import fewest, first_cause
from align.explain.hints import UNKNOWN
from align.explain.loss_causes import LossRun
from align.explain.options import FUNCTIONS, argument_edits
from align.frameworks import on_paddle, on_torch
from align.frameworks.on_paddle import ERRORS
from align.frameworks.watched_calls import (
    DIGITS,
    LOSSES,
    MOVES,
    NEAR,
    Rounded,
    TorchCall,
    TorchCalls,
    WatchedCall,
    attributes,
    modules_of,
    watched,
    watched_in,
)
from align.judge.bounds import ISOLATED
from align.judge.judging import alike
from align.pair.any_pair import AnyPair
from align.pair.bench import Bench, GradientBench, agrees_in_float32, refutes_paddle
from align.pair.isolation import Guilty
from align.pair.side import is_large
from align.record.arrays import leaves
from align.record.recording import ROOT, Recording
from align.record.results import Tolerance

MANY = 200  # watched calls of one layer; beyond that it is a whole network
LARGE = 4_000_000  # elements of the tensor in question; experiments on more take too long
WORK = 200_000_000  # elements times trials of one layer
LEAST, MOST = 100, 2_000  # trials of a large layer, and of a small one
TRIALS = 200
ROUNDED = Tolerance("scaled", NEAR, "to tell a number held in float32, not to judge it")
ROUNDED_NUMBERS = (
    "no fault of the port: Paddle holds the numbers given to {} in float32, with PyTorch's rounded "
    "to float32 it agrees"
)
PERHAPS = (
    "perhaps no fault of the port: Paddle may hold a number in float32, which changes as little"
)
ADVICE = '; compare with dtype="float32" too'

Changes = Iterator[tuple[str, AbstractContextManager]]
Answer = Callable[[WatchedCall], Any]
Watch = Callable[[Answer], AbstractContextManager]
Run = TypeVar("Run")


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


def study(pair: AnyPair, wrong: Guilty) -> LayerStudy:
    """Experiment on one wrong layer."""
    size = 0 if wrong.expected is None else wrong.expected.size
    if size > LARGE:
        return LayerStudy()
    small = pair.dtype == "float64" and alike(wrong.ours, wrong.expected, ROUNDED)
    excuse = _rounding(pair, wrong) if small else ""
    if excuse:
        return LayerStudy(excuse)
    with Bench(pair, wrong.place).ready() as bench, np.errstate(all="ignore"):
        calls: list[WatchedCall] = []
        if not bench.trial(_watching(bench, _noting(calls))):
            return LayerStudy()  # it does not fail on its own
        if pair.dtype == "float64" and _with_exact_form(COARSE, calls):
            if not alike(wrong.ours, wrong.expected, EXCUSED):
                bench.rule = ISOLATED["float32"]  # an option too many beside float32's places
            else:
                watch = functools.partial(_watching, bench)
                excuse = _excused(pair, COARSE, calls, watch, bench.mended_by)
            if excuse:
                return LayerStudy(excuse)
        recorded = layer_edits.recorded(bench)
        guess = layer_edits.unused(pair, bench) or layer_edits.arguments(bench)
        budget = max(LEAST, min(MOST, WORK // max(size, 1)))
        changes = _changes(pair, bench, wrong, calls if len(calls) <= MANY else [])
        proved = first_cause(changes, bench.mended_by, budget)
        missing = "" if proved else _missing(pair, bench, calls)
        return LayerStudy(proved or recorded, guess or perhaps(pair) * small, missing)


def _noting(calls: list[WatchedCall]) -> Answer:
    """Write calls down and make them."""
    return lambda call: calls.append(call) or call.go()


def _watching(bench: Bench, answer: Answer) -> AbstractContextManager:
    """Every call in the layer's own code through ``answer``."""
    return watched_in(bench.layer, answer, lambda: bench.inside)


def _rounding(pair: AnyPair, wrong: Guilty) -> str:
    """Says whose numbers Paddle holds in float32, where a layer is off by as little as that."""
    other = copy.copy(pair)

    def agrees(recording: Recording) -> bool:
        other.deep = recording
        with Bench(other, wrong.place).ready() as bench:
            return bench.trial() == []

    return excused_rounding(pair, lambda: pair.run_reference(deep=True), agrees)


def excused_rounding(pair: AnyPair, run: Callable[[], Run], passes: Callable[[Run], bool]) -> str:
    """Name the functions whose numbers Paddle holds in float32; "" without.

    The pair keeps how to go on with PyTorch's rounded, too.

    Args:
        pair: in float64.
        run: the reference, whole or in part.
        passes: whether such a run agrees with Paddle's.
    """

    def agrees(names: Sequence[str]) -> bool:
        with Rounded(names):
            result = run()
        return passes(result)

    with Rounded() as seen:
        run()
    met = seen.met
    named = {ROUNDED_NUMBERS.format(" and ".join(n)): n for n in [*zip(met), *combinations(met, 2)]}
    says = first_cause(named.items(), agrees, TRIALS)
    if says:
        pair.setup.mends[says] = lambda _: Rounded(named[says])
    return says


def perhaps(pair: AnyPair) -> str:
    """Guess what changes as little as a number held in float32."""
    return PERHAPS + ADVICE * ("float32" not in pair.plan.dtypes)


def _excused(
    pair: AnyPair,
    rows: Sequence[CallRow],
    calls: Sequence[WatchedCall],
    watch: Watch,
    passes: Callable[[AbstractContextManager], bool],
    mend: Callable[[Any, Answer], AbstractContextManager] = watched_in,
) -> str:
    """Says which functions of Paddle are to blame; the pair keeps how to go on without their fault.

    A wrong gradient is put right only beside a comparison in float32, which runs the port as it is.
    """
    blamed = fewest(
        _with_exact_form(rows, calls), lambda chosen: passes(watch(exactly(chosen))), TRIALS
    )
    sentences = []
    for row in blamed:
        call = next(call for call in calls if has_exact_form(row, call))
        sentences.append(f"{row.sentence(call, None, call.name)} ({call.place})")
    says = "; ".join(sentences)
    if says and (rows is COARSE or "float32" in pair.plan.dtypes):
        pair.setup.mends[says] = lambda model: mend(model, exactly(blamed))
    return says


def _with_exact_form(rows: Sequence[CallRow], calls: Sequence[WatchedCall]) -> list[CallRow]:
    return [row for row in rows if any(has_exact_form(row, call) for call in calls)]


def _changes(pair: AnyPair, bench: Bench, wrong: Guilty, calls: list[WatchedCall]) -> Changes:
    """Every edit, the plain ones first."""
    _, module, _ = pair.layer(bench.key)
    yield from layer_edits.unequal_options(bench, module)
    yield from layer_edits.rows(bench, wrong)
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
    """The calls that PyTorch's layer makes in one run, with those of the modules in it or alone."""
    running: list[Any] = []

    def leave(*_: Any) -> None:
        running.pop()

    def active() -> bool:
        return module is None or (running[-1:] == [module] if own_code else bool(running))

    with contextlib.ExitStack() as hooks:
        for inner in [] if module is None else module.modules():
            hooks.enter_context(on_torch.hook(inner, lambda x, *_: running.append(x), leave))
        recorder = hooks.enter_context(TorchCalls(active))
        pair.run_reference()
    return recorder.calls


def _missing(pair: AnyPair, bench: Bench, calls: Sequence[WatchedCall]) -> str:
    """Name the functions that PyTorch's layer alone calls, in the user's own code."""
    _, module, _ = pair.layer(bench.key)
    if module is None or type(module).__module__.startswith("torch."):
        return ""
    torch_calls = _torch_calls(pair, module, own_code=True)
    new = DIGITS - {*MOVES, *(call.name for call in calls)}
    names = sorted({FUNCTIONS.get(call.name, call.name) for call in torch_calls} & new)
    says = f"PyTorch calls {', '.join(names)} there, Paddle does not"
    return f"perhaps a call is missing: {says}" if names else ""


def call_edits(
    rows: Sequence[CallRow], calls: Sequence[WatchedCall], around: Around
) -> Iterator[tuple[WatchedCall, str, Answer]]:
    """Yield what may be wrong with each call, by a table: the call, the sentence, right answers.

    At last with all calls of a row at once (two functions that share a default).
    """
    groups: list[tuple[list[int], Sequence[CallRow]]]
    groups = [(numbers, rows) for numbers in _together(calls)]
    for row in rows:
        numbers = [call.number for call in calls if row.functions != EVERY and row.is_about(call)]
        if numbers and (numbers, rows) not in groups:
            groups.append((numbers, [row]))
    for numbers, tried in groups:
        call = calls[numbers[0]]
        name = " and ".join(dict.fromkeys(calls[number].name for number in numbers))
        for row in tried:
            try:
                values = list(row.values(call, around)) if row.is_about(call) else []
                sentences = [row.sentence(call, value, name) for value in values]
            except ERRORS:  # a call of an unforeseen form has no such edit
                continue
            for says, value in zip(sentences, values, strict=True):
                yield call, says, _instead(numbers, functools.partial(_answer, row, value))


def _answer(row: CallRow, value: Any, call: WatchedCall) -> Any:
    return row.answer(call, value)


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
    """Last sizes of what is multiplied in the layer and of its inputs: widths of a head, of all."""
    tensors = leaves(bench.layer_call[1:], on_paddle.is_tensor) if bench.layer_call else []
    arrays = [*bench.partner.inputs.values()] if bench.partner else [x for _, x in tensors]
    for call in calls:
        arrays += call.args[:2] if call.name in ("matmul", "bmm") else ()
    shapes = [tuple(x.shape) for x in arrays]
    return sorted({shape[-1] for shape in shapes if len(shape) > 1})


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
    rows: Sequence[CallRow] = ()
    if pair.dtype == "float64" and refutes_paddle(pair) and agrees_in_float32(pair):
        rows, formula = WRONG_GRADIENTS, WRONG_IN_FLOAT64
    if key == ROOT:
        return _explain_model(pair, rows) or formula
    bench = Bench(pair, key)
    if bench.partner is None:
        return formula
    with bench.ready():
        if bench.layer_call is None:
            return formula
    trial = GradientBench(pair, bench.layer_call, bench.partner)
    calls: list[WatchedCall] = []
    watch = functools.partial(watched_in, trial.layer)
    ours = trial.gradients(watch(_noting(calls)))
    if ours is None or trial.right(ours):
        return formula
    cause = _excused(pair, rows, calls, watch, trial.mended_by)
    cause = cause or first_cause(_cuts(watch, calls), trial.mended_by, TRIALS)
    return cause or (OTHERWISE if formula == UNKNOWN else formula)


def _explain_model(pair: AnyPair, rows: Sequence[CallRow]) -> str:
    """What is cut in the model's own code: after the edit every gradient of the pass is right."""
    model, depth = pair.model, []

    def watch(answer: Answer) -> AbstractContextManager:
        return watched_in(model, answer, lambda: not depth)

    def right(change: AbstractContextManager) -> bool:
        depth.clear()  # of a trial that failed in a layer
        with contextlib.suppress(*ERRORS), change, pair.pass_ours() as recording:
            return all(comparison.passed for comparison in pair.gradients(recording))
        return False

    if is_large(on_paddle, model) or right(contextlib.nullcontext()):
        return ""
    calls: list[WatchedCall] = []
    with contextlib.ExitStack() as stack:
        for layer in model.sublayers():
            stack.enter_context(
                on_paddle.hook(layer, lambda *_: depth.append(1), lambda *_: depth.pop() and None)
            )
        with watch(_noting(calls)), pair.pass_ours(backward=False):
            pass
        calls = calls if len(calls) <= MANY else []
        cause = _excused(pair, rows, calls, watch, right)
        return cause or first_cause(_cuts(watch, calls), right, TRIALS)


def _cuts(watch: Watch, calls: Sequence[WatchedCall]) -> Changes:
    yield NO_GRAD, attributes(paddle, no_grad=contextlib.nullcontext)
    for call, says, answer in call_edits(CUT_ROWS, calls, Around()):
        yield f"{says} ({call.place})", watch(answer)


def excused_loss(
    pair: AnyPair, run_ours: Callable[[], LossRun], passes: Callable[[LossRun], bool]
) -> str:
    """Say which functions of Paddle are to blame for a loss, see `_excused`; "" for none."""
    watch, calls = _watching_loss(pair.plan.loss[1]), []

    def right(change: AbstractContextManager) -> bool:
        with change:
            run = run_ours()
        return passes(run)

    if right(watch(_noting(calls))):  # a native operator is wrong, which is not watched
        return ""
    return _excused(pair, COARSE, calls, watch, right, lambda _, answer: watch(answer))


def _watching_loss(loss: Any) -> Watch:
    """Every call of a loss, whose module may hold functions under names of its own."""
    layers = [loss, *loss.sublayers()] if isinstance(loss, paddle.nn.Layer) else []
    module = sys.modules.get(getattr(loss, "__module__", ""))
    owners = (*modules_of(layers), *filter(None, [module]))
    return lambda answer: watched(lambda: True, answer, owners)


def loss_reruns(
    run_ours: Callable[[], LossRun], run_theirs: Callable[[], LossRun], loss: Any
) -> Iterator[tuple[str, LossRun]]:
    """Run Paddle's loss of the reference's output with a call changed to PyTorch's, in words."""
    watch, calls = _watching_loss(loss), []
    with TorchCalls() as recorder:
        run_theirs()
    with watch(_noting(calls)):
        run_ours()
    edits = []
    for call in (call for call in calls if call.name in LOSSES):
        for says, arguments in argument_edits(call, calls, recorder.calls):
            answer = _instead([call.number], methodcaller("with_arguments", arguments))
            edits.append((call, says, answer))
    for call, says, answer in [*edits, *call_edits(LOSS_ROWS, calls, Around())]:
        with contextlib.suppress(*ERRORS):
            with watch(answer):
                run = run_ours()
            yield f"{says} ({call.place})", run
