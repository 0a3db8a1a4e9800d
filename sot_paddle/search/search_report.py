"""What a search found: a table (Markdown, CSV), a plot, and the best options as a config."""

from __future__ import annotations

import csv
import dataclasses
import io
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import yaml
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from optuna.trial import FrozenTrial, TrialState

from sot_paddle.atomic import write_atomically
from sot_paddle.command_line import literal
from sot_paddle.search.space import Parameter, SearchSpace
from sot_paddle.search.study import REASON, assigned

TABLE, CSV, PLOT, BEST = "trials.md", "trials.csv", "trials.png", "best.yaml"

_STATES: Mapping[TrialState, str] = {
    TrialState.COMPLETE: "complete",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
}
_INK, _SOFT, _GOOD = "#1c2024", "#9aa3ad", "#1d7a4a"
_PANEL, _HEIGHT, _DPI = 4.2, 3.4, 120  # inches, inches, pixels per inch


def write_table(study: optuna.Study, space: SearchSpace, folder: Path) -> None:
    """Write the finished trials as Markdown, best first, and as CSV, in the order of drawing."""
    names, rows = table(study, space)
    write_atomically(folder / CSV, _csv(names, rows).encode())
    ordered = sorted(rows, key=lambda row: _rank(row, space))
    write_atomically(folder / TABLE, _markdown(names, ordered, space).encode())


def write_plot(study: optuna.Study, space: SearchSpace, folder: Path) -> None:
    """Draw the scores by trial and by each drawn option (PNG)."""
    trials = [trial for trial in study.trials if trial.state in _STATES]
    write_atomically(folder / PLOT, _plot(trials, space))


def write_best(study: optuna.Study, space: SearchSpace, folder: Path) -> None:
    """Write the options of the best trial as a file for the training command's ``--config``."""
    best = study.best_trial
    text = f"# trial {best.number} of the search, {space.metric} {best.value:.6g}\n"
    text += f"# beside another --config: {shlex.join(assigned(best.params))}\n"
    text += yaml.safe_dump(_as_in_a_file(space.command, best.params), sort_keys=False)
    write_atomically(folder / BEST, text.encode())


def _as_in_a_file(command: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as ``--config`` takes them: of images those of the model have a key of their own."""
    if command != "train_image":
        return dict(options)
    from sot_paddle.train.image_flags import TRAINING  # loads Paddle, which a search does without

    own = {field.name for field in dataclasses.fields(TRAINING.record)}
    of_model = {
        name: literal(value) if isinstance(value, str) else value
        for name, value in options.items()
        if name not in own
    }
    found = {name: value for name, value in options.items() if name in own}
    return found | ({TRAINING.rest: of_model} if of_model else {})


def table(study: optuna.Study, space: SearchSpace) -> tuple[list[str], list[list[Any]]]:
    """The finished trials in the order in which they were drawn.

    Returns:
        Names of the columns, and the rows: trial, state, score (None for a failed one; for a
        pruned one the last it had), optimizer steps evaluated last, drawn options, reason of a
        failure.
    """
    names = ["trial", "state", space.metric, "last step", *space.parameters, "reason"]
    rows = [
        [
            trial.number,
            _STATES[trial.state],
            trial.value,
            trial.last_step,
            *(trial.params.get(name) for name in space.parameters),
            trial.user_attrs.get(REASON, ""),
        ]
        for trial in study.trials
        if trial.state in _STATES
    ]
    return names, rows


def _rank(row: Sequence[Any], space: SearchSpace) -> tuple[int, float, int]:
    """Complete trials first, the best of them first."""
    number, state, score = row[:3]
    worth = 0.0 if score is None else -score if space.maximise else score
    return list(_STATES.values()).index(state), worth, number


def _csv(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows([names, *rows])
    return stream.getvalue()


def _markdown(names: Sequence[str], rows: Sequence[Sequence[Any]], space: SearchSpace) -> str:
    lines = [f"# {len(rows)} trials of {space.command}: {space.direction} {space.metric}", ""]
    lines += markdown_table(names, rows)
    return "\n".join(lines) + "\n"


def markdown_table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Lines of a Markdown table; numbers to six digits, None empty."""

    def cell(value: Any) -> str:
        text = f"{value:.6g}" if isinstance(value, float) else "" if value is None else str(value)
        return text.replace("|", "\\|")

    lines = [names, ["---"] * len(names), *rows]
    return [f"| {' | '.join(map(cell, line))} |" for line in lines]


def _plot(trials: Sequence[FrozenTrial], space: SearchSpace) -> bytes:
    """Score by trial with the best so far, and score by each drawn option."""
    count = 1 + len(space.parameters)
    figure = Figure(figsize=(_PANEL * count, _HEIGHT), dpi=_DPI, facecolor="white")
    panels = figure.subplots(1, count, squeeze=False)[0]
    scored = [trial for trial in trials if trial.value is not None and np.isfinite(trial.value)]
    _draw_history(panels[0], scored, space)
    for axes, (name, parameter) in zip(panels[1:], space.parameters.items(), strict=True):
        _draw_parameter(axes, scored, name, parameter)
    for axes in panels:
        axes.set_ylabel(space.metric, color=_INK)
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    stream = io.BytesIO()
    figure.savefig(stream, format="png")
    return stream.getvalue()


def _draw_history(axes: Axes, trials: Sequence[FrozenTrial], space: SearchSpace) -> None:
    _points(axes, [trial.number for trial in trials], trials)
    done = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    if done:
        best = (np.maximum if space.maximise else np.minimum).accumulate([t.value for t in done])
        numbers = [trial.number for trial in done]
        axes.plot(numbers, best, color=_GOOD, drawstyle="steps-post", label="best so far")
    if trials:
        axes.legend(frameon=False, fontsize=8)
    axes.set_xlabel("trial", color=_INK)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _draw_parameter(
    axes: Axes, trials: Sequence[FrozenTrial], name: str, parameter: Parameter
) -> None:
    values = [trial.params[name] for trial in trials]
    if parameter.values is not None:  # a choice: one place for each value
        axes.set_xticks(range(len(parameter.values)), [str(value) for value in parameter.values])
        values = [parameter.values.index(value) for value in values]
    elif parameter.kind == "log_uniform":
        axes.set_xscale("log")
    _points(axes, values, trials)
    axes.set_xlabel(name, color=_INK)


def _points(axes: Axes, places: Sequence[float], trials: Sequence[FrozenTrial]) -> None:
    for state, marker, color in (
        (TrialState.COMPLETE, "o", _INK),
        (TrialState.PRUNED, "x", _SOFT),
    ):
        chosen = [(x, t.value) for x, t in zip(places, trials, strict=True) if t.state == state]
        if chosen:
            axes.scatter(
                *zip(*chosen, strict=True), marker=marker, color=color, s=22, label=_STATES[state]
            )
