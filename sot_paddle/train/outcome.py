"""What a run leaves behind: scores of last, best and all checkpoints, predictions."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from pathlib import Path

from sot_paddle import distributed, reading
from sot_paddle.distributed import say
from sot_paddle.reading import read_json, read_object
from sot_paddle.runtime import environment_stamp
from sot_paddle.tasks.task import Predictions, Split
from sot_paddle.train import checkpointing, model_folder, run_folder, run_record
from sot_paddle.train.evaluation import predict
from sot_paddle.train.setup import Kept, Run

Scores = dict[str, float]

_ABOUT_BEST = "best.json"


def current_scores(run: Run, step: str) -> Scores:
    """Scores of the weights and, with the prefix ``ema_``, of their moving average.

    Outputs of the best evaluation so far are kept where a split is scored and predicted.
    """
    scores, outputs = _scores(run)
    if run.ema is not None:
        with run.ema.in_place():
            averaged, outputs = _scores(run)
        scores |= {f"ema_{name}": value for name, value in averaged.items()}
    value = scores[run.metric]
    if is_better(run, value, run.outputs and run.outputs.value):
        run.outputs = Kept(
            *(step, value),
            {
                name: outputs[scored]
                for name, split in run.task.test.items()
                for scored in run.task.dev
                if run.task.dev[scored] is split
            },
        )
    return scores


def _scores(run: Run) -> tuple[Scores, dict[str, Predictions]]:
    """Scores and outputs of the model; scores of further dev splits carry the split's name."""
    distributed.share_buffers(run.model)
    merged: Scores = {}
    outputs = {}
    for index, (name, split) in enumerate(run.task.dev.items()):
        outputs[name] = predict(run.model, split, autocast=run.autocast, report=say)
        scores = run.task.score(name, outputs[name])
        merged |= scores if index == 0 else {f"{name}_{k}": v for k, v in scores.items()}
    return merged, outputs


def is_better(run: Run, value: float, best: float | None) -> bool:
    """Whether a main score is better than the best so far; NaN is worse than any number."""
    if best is None or math.isnan(best):
        return best is None or not math.isnan(value)
    return value > best if run.task.maximise else value < best


def load_trained(run: Run) -> bool:
    """Without training: take the newest weights of the output folder, if there are any; the best
    ones where nothing is evaluated.

    Raises:
        ValueError: there are some, and all are damaged, or they are of other classes.
    """
    there = run_folder.weights_in(run.root)
    if not there:
        return False
    whole = [folder for folder in there if checkpointing.is_whole(folder)]
    if not whole:
        raise ValueError(
            f"{there[-1]} is damaged, and {run.root} holds no other weights: train again, or "
            "choose another --output_dir to evaluate --model_name_or_path"
        )
    chosen = whole[-1] if run.task.dev or whole[0].name != run_folder.BEST else whole[0]
    config = read_object(chosen / model_folder.CONFIG)
    model_folder.require_classes(config, run.task.classes, chosen)
    run.restore(chosen)
    if chosen.name != run_folder.BEST:
        run.result["step"] = int(chosen.name.removeprefix(checkpointing.PREFIX))
    say(f"weights: {chosen}")
    return True


def finish(run: Run) -> None:
    """Scores of last and best, of all checkpoints when asked, predictions; all in one file."""
    result, task, options = run.result, run.task, run.setup.options
    run.stop.wait_no_longer()  # all is saved
    evaluations: dict[str, Scores] = result.pop("evaluations", {})
    step = str(result.get("train", {}).get("steps", result.pop("step", "given")))
    if task.dev:
        if step not in evaluations:
            evaluations[step] = current_scores(run, step)
        result["last"] = {"step": step} | evaluations[step]
        if options.eval_all_checkpoints:
            _evaluate_checkpoints(run, evaluations)
        _choose_best(run, evaluations, last=step)
    run.result = {
        "task": task.title,
        "model": run.model.name,
        "metric": run.metric,
        "seed": run.seed,
        **result,
        "evaluations": evaluations,
        "predictions": _predict(run),
        "options": vars(options),
        "environment": environment_stamp(),
        "finished": True,
    }
    name = run_folder.scores_file(run.root, options)
    distributed.on_first_process(lambda: run_folder.write_entry(run.root, name, run.result))


def _evaluate_checkpoints(run: Run, evaluations: dict[str, Scores]) -> None:
    for folder in checkpointing.list_checkpoints(run.root):
        step = folder.name.removeprefix(checkpointing.PREFIX)
        if step in evaluations or not checkpointing.is_whole(folder):
            continue
        run.restore(folder)
        evaluations[step] = current_scores(run, step)
        say(f"{folder.name}: {_shown(evaluations[step])}")


def _choose_best(run: Run, evaluations: Mapping[str, Scores], *, last: str) -> None:
    """Name the best evaluation whose weights are there; leave them in the model and in ``best``."""
    metric, best = run.metric, run.root / run_folder.BEST
    ranked = sorted(
        evaluations.items(), key=lambda item: item[1][metric], reverse=run.task.maximise
    )
    ranked.sort(key=lambda item: item[1][metric] != item[1][metric])  # NaN last
    kept, value, data = kept_best(best)
    if kept in evaluations and value == ranked[0][1][metric]:
        ranked.insert(0, (kept, evaluations[kept]))  # of equal ones, whose weights are there
    for step, scores in ranked:
        folder = best if step == kept else run.root / f"{checkpointing.PREFIX}{step}"
        if step == last or checkpointing.is_whole(folder):
            break
        say(f"the weights of step {step} ({metric} {scores[metric]:.4f}) are no longer there")
    run.result["best"] = {"step": step} | scores
    say(f"best: step {step} {_shown(scores)}")
    _say_lag(run, evaluations)
    if checkpointing.is_whole(folder):
        run.restore(folder)
    if not step.isdigit() or (step == kept and data == run.evaluation_data):
        return
    if kept and not run.setup.options.do_train:
        if step != kept:
            say(f"{best} stays: it holds step {kept}, which a training chose")
        return
    write_best(run, int(step), scores[metric])


def kept_best(folder: Path) -> tuple[str, float | None, str | None]:
    """(step, value of the main score, what it was measured on) of a whole ``best``, else
    ("", None, None); older versions did not write the last.

    Raises:
        ValueError: nothing but what is said about its weights is damaged.
    """
    files = checkpointing.listed_files(folder)
    intact = {name for name, entry in files.items() if reading.is_intact(folder / name, entry)}
    if not intact or not intact | {_ABOUT_BEST} >= set(files):
        return "", None, None
    try:
        reading.verify(folder / _ABOUT_BEST)
        kept = read_json(folder / _ABOUT_BEST)
        return str(int(kept["step"])), kept["value"], kept.get("evaluation_data")
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(
            f"{folder / _ABOUT_BEST} is damaged: expected step, metric and value as they were "
            f"written; the weights beside it are intact: move {folder} away to keep them, or "
            "delete it, and run the same command again"
        ) from error


def _say_lag(run: Run, evaluations: Mapping[str, Scores]) -> None:
    """Where the average's best is behind the weights' best, of whichever evaluations, say so."""
    best = max if run.task.maximise else min
    raw, averaged = (
        best(scores[name] for scores in evaluations.values())
        for name in (run.task.metric, run.metric)
    )
    if raw > averaged if run.task.maximise else raw < averaged:
        say(
            f"the moving average ({run.task.metric} {averaged:.4f}) is behind the weights "
            f"themselves ({raw:.4f}) and the best was chosen by it: a longer run, a smaller decay "
            "or --model-ema-warmup lets it catch up"
        )


def write_best(run: Run, step: int, value: float) -> None:
    """Write the model and its main score into the folder ``best``, on the first process."""

    def fill(folder: Path) -> None:
        run.fill(folder)
        content = {"step": step, "metric": run.metric, "value": value}
        content["evaluation_data"] = run.evaluation_data
        run_folder.write_json(folder / _ABOUT_BEST, content)

    distributed.on_first_process(
        lambda: checkpointing.write_folder(run.root / run_folder.BEST, fill)
    )


def _predict(run: Run) -> dict[str, str]:
    """Predict every test split that is there with the weights in the model (the best ones)."""
    written = {}
    for name, split in run.task.test.items():
        found = _outputs(run, name, split)
        files = run.task.prediction_files(name)
        written[name] = files[0]

        def write(name: str = name, found: Predictions = found, files: tuple = files) -> None:
            run_record.note(run.root, files)
            run.task.write_predictions(run.root, name, found)

        distributed.on_first_process(write)
        say(f"predictions of {name}: {run.root / written[name]}")
    return written


def _outputs(run: Run, name: str, split: Split) -> Predictions:
    """What the best model says about a split, from its evaluation where that was of the split."""
    kept, best = run.outputs, run.result.get("best", {})
    if kept is not None and kept.step == best.get("step") and name in kept.found:
        return kept.found[name]
    with contextlib.nullcontext() if run.ema is None else run.ema.in_place():
        return predict(run.model, split, autocast=run.autocast, report=say)


def _shown(scores: Mapping[str, float]) -> str:
    return " ".join(f"{name} {value:.4f}" for name, value in scores.items())
