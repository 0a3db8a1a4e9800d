"""What a run leaves behind: scores of last, best and all checkpoints, predictions."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import math
from collections.abc import Mapping
from typing import Any

from sot_paddle import distributed
from sot_paddle.distributed import say
from sot_paddle.reading import read_json
from sot_paddle.runtime import environment_stamp
from sot_paddle.train import checkpointing, run_folder
from sot_paddle.train.evaluation import predict
from sot_paddle.train.setup import Run

Scores = dict[str, float]

_ABOUT_BEST = "best.json"


def score(run: Run) -> Scores:
    """Score the weights of a run and, with the prefix ``ema_``, their moving average."""
    scores = _score_model(run)
    if run.ema is not None:
        with run.ema.in_place():
            averaged = _score_model(run)
        scores |= {f"ema_{name}": value for name, value in averaged.items()}
    return scores


def _score_model(run: Run) -> Scores:
    """Scores of the model; those of further dev splits carry the split's name."""
    distributed.share_buffers(run.model)
    merged: Scores = {}
    for index, (name, split) in enumerate(run.task.dev.items()):
        scores = run.task.score(name, predict(run.model, split, autocast=run.autocast))
        merged |= scores if index == 0 else {f"{name}_{k}": v for k, v in scores.items()}
    return merged


def is_better(scores: Scores, best: Scores | None, run: Run) -> bool:
    """Whether an evaluation is better than the best so far; see :func:`_order`."""
    return best is None or _order(scores, run) > _order(best, run)


def _order(scores: Scores, run: Run) -> tuple[bool, float, float]:
    """What orders evaluations: the main score, and where equal the task's tie breaker, if any.

    NaN is worse than any number.
    """
    value = scores[run.metric] if run.task.maximise else -scores[run.metric]
    if math.isnan(value):
        return False, 0.0, 0.0
    tie = run.metric.removesuffix(run.task.metric) + run.task.tie_breaker
    return True, value, -scores.get(tie, 0.0)


def load_trained(run: Run) -> str | None:
    """Without training: take the newest weights of the output folder, if there are any; the best
    ones where nothing is evaluated.

    Returns:
        Their step as text, ``"given"`` for those of ``best``; None where there are none.
    """
    folders = run_folder.weights_in(run.root)
    if not folders:
        return None
    whole = [folder for folder in folders if checkpointing.is_whole(folder)]
    if not whole:
        raise ValueError(
            f"{folders[-1]} is damaged, and {run.root} holds no other weights: train again, or "
            "choose another --output_dir to evaluate --model_name_or_path"
        )
    chosen = whole[-1] if run.task.dev or whole[0].name != run_folder.BEST else whole[0]
    config = read_json(chosen / run_folder.CONFIG)
    run_folder.require_classes(config, run.task.classes, chosen)
    run.restore(chosen)
    say(f"weights: {chosen}")
    if chosen.name == run_folder.BEST:
        return "given"
    return chosen.name.removeprefix(checkpointing.PREFIX)


def finish(
    run: Run,
    *,
    step: str,
    trained: Mapping[str, Any] | None = None,
    evaluations: Mapping[str, Scores] | None = None,
) -> dict[str, Any]:
    """Write the scores of last and best, of all checkpoints when asked, and predictions.

    Args:
        run: with the weights of the last step in its model.
        step: the last step as text, ``"given"`` for weights that were given.
    """
    task, options, evaluations = run.task, run.setup.options, dict(evaluations or {})
    result: dict[str, Any] = {} if trained is None else {"train": trained}
    if task.dev:
        if step not in evaluations:
            evaluations[step] = score(run)
        result["last"] = {"step": step} | evaluations[step]
        if options.eval_all_checkpoints:
            _evaluate_checkpoints(run, evaluations)
        result["best"] = _choose_best(run, evaluations, last=step)
    content = {
        "task": task.title,
        "model": run.model.name,
        "metric": run.metric,
        "seed": options.seed,
        **result,
        "evaluations": evaluations,
        "predictions": _predict_tests(run),
        "options": vars(options),
        "environment": environment_stamp(),
        "finished": True,
    }
    path = run.root / run_folder.scores_file(run.root, options)
    distributed.on_first_process(lambda: run_folder.write_json(path, content))
    return content


def _evaluate_checkpoints(run: Run, evaluations: dict[str, Scores]) -> None:
    for folder in checkpointing.list_checkpoints(run.root):
        step = folder.name.removeprefix(checkpointing.PREFIX)
        if step in evaluations or not checkpointing.is_whole(folder):
            continue
        run.restore(folder)
        evaluations[step] = score(run)
        say(f"{folder.name}: {_shown(evaluations[step])}")


def _choose_best(run: Run, evaluations: Mapping[str, Scores], *, last: str) -> dict[str, Any]:
    """The best evaluation whose weights are there; leaves them in the model and in ``best``."""
    metric, best = run.metric, run.root / run_folder.BEST
    about = read_json(best / _ABOUT_BEST) if checkpointing.is_whole(best) else {}
    kept = str(about.get("step", ""))

    def rank(item: tuple[str, Scores]) -> tuple[Any, ...]:
        return _order(item[1], run), item[0] == kept  # of equal ones whose weights are there

    for step, scores in sorted(evaluations.items(), key=rank, reverse=True):
        folder = best if step == kept else run.root / f"{checkpointing.PREFIX}{step}"
        has_weights = checkpointing.is_whole(folder)
        if step == last or has_weights:
            break
        say(f"the weights of step {step} ({metric} {scores[metric]:.4f}) are no longer there")
    say(f"best: step {step} {_shown(scores)}")
    if has_weights:
        run.restore(folder)
    if step.isdigit() and (step != kept or about["evaluation_data"] != run.evaluation_data):
        if not kept or run.setup.options.do_train:
            write_best(run, int(step), scores[metric])
        elif step != kept:
            say(f"{best} stays: it holds step {kept}, which a training chose")
    return {"step": step} | scores


def write_best(run: Run, step: int, value: float) -> None:
    """Write the model and its main score into the folder ``best``, on the first process."""
    about = {"step": step, "metric": run.metric, "value": None if math.isnan(value) else value}
    about["evaluation_data"] = run.evaluation_data
    files = itertools.chain([(_ABOUT_BEST, json.dumps(about).encode())], run.files())

    def write() -> None:
        checkpointing.write_folder(run.root / run_folder.BEST, files)

    distributed.on_first_process(write)


def _predict_tests(run: Run) -> dict[str, str]:
    """Predict every test split with the weights in the model (the best ones); file of each."""
    written = {}
    for name, split in run.task.test.items():
        with contextlib.nullcontext() if run.ema is None else run.ema.in_place():
            outputs = predict(run.model, split, autocast=run.autocast)
        write = functools.partial(run.task.write_predictions, run.root, name, outputs)
        distributed.on_first_process(write)
        written[name] = run.task.prediction_file(name)
        say(f"predictions of {name}: {run.root / written[name]}")
    return written


def _shown(scores: Mapping[str, float]) -> str:
    return " ".join(f"{name} {value:.4f}" for name, value in scores.items())
