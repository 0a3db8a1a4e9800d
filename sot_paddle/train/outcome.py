"""What a run leaves behind: scores of last, best and all checkpoints, predictions, metrics.json."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sot_paddle import distributed
from sot_paddle.distributed import say
from sot_paddle.runtime import environment_stamp
from sot_paddle.tasks.task import Predictions
from sot_paddle.train import checkpointing, run_folder, run_record
from sot_paddle.train.evaluation import predict
from sot_paddle.train.model_folder import fill_model_folder
from sot_paddle.train.run import Run
from sot_paddle.weights import load_weights


def current_scores(run: Run) -> dict[str, float]:
    """Metrics of the current weights; those of further dev splits carry the split's name."""
    merged: dict[str, float] = {}
    for index, (name, split) in enumerate(run.task.dev.items()):
        found = predict(run.model, split, autocast=run.autocast, report=say)
        scores = run.task.score(name, found)
        merged |= scores if index == 0 else {f"{name}_{k}": v for k, v in scores.items()}
    return merged


def load_trained(run: Run) -> bool:
    """Without training: take the newest weights of the output folder, if there are any."""
    folders = [p for p in checkpointing.list_checkpoints(run.root) if checkpointing.is_whole(p)]
    best = run.root / run_folder.BEST
    if not folders and checkpointing.is_whole(best):
        folders = [best]
    if not folders:
        return False
    load_weights(run.model, folders[-1])
    if folders[-1] != best:
        run.result["step"] = int(folders[-1].name.removeprefix(checkpointing.PREFIX))
    say(f"weights: {folders[-1]}")
    return True


def finish(run: Run) -> None:
    """Scores of last and best, of all checkpoints when asked, predictions, metrics.json."""
    result, config = run.result, run.config
    run.stop.immediately = True  # all is saved: nothing to wait for
    evaluations: dict[str, dict[str, float]] = result.pop("evaluations", {})
    step = str(result.get("train", {}).get("steps", result.pop("step", "given")))
    if config.do_eval:
        if step not in evaluations:
            evaluations[step] = current_scores(run)
        result["last"] = {"step": step} | evaluations[step]
        if config.eval_all_checkpoints:
            _evaluate_checkpoints(run, evaluations)
        _choose_best(run, evaluations, last=step)
    predictions = _predict(run)
    content = {
        "task": run.task.title,
        "metric": run.metric,
        "seed": run.seed,
        **result,
        "evaluations": evaluations,
        "predictions": predictions,
        "options": vars(config),
        "environment": environment_stamp(),
        "finished": True,
    }
    run.result = content
    distributed.on_first_process(
        lambda: run_folder.write_entry(run.root, run_folder.METRICS, content)
    )


def _evaluate_checkpoints(run: Run, evaluations: dict[str, dict[str, float]]) -> None:
    for folder in checkpointing.list_checkpoints(run.root):
        step = folder.name.removeprefix(checkpointing.PREFIX)
        if step in evaluations or not checkpointing.is_whole(folder):
            continue
        load_weights(run.model, folder)
        evaluations[step] = current_scores(run)
        shown = " ".join(f"{name} {value:.4f}" for name, value in evaluations[step].items())
        say(f"{folder.name}: {shown}")


def _choose_best(run: Run, evaluations: Mapping[str, dict[str, float]], *, last: str) -> None:
    """Name the best evaluation and leave its weights in the model and in ``best``."""
    metric, best = run.metric, run.root / run_folder.BEST
    ranked = sorted(evaluations.items(), key=lambda item: item[1][metric], reverse=True)
    ranked.sort(key=lambda item: item[1][metric] != item[1][metric])  # NaN last
    step = ranked[0][0]
    kept = run_folder.read_json(best / "best.json") or {}
    if str(kept.get("step")) in evaluations and kept["value"] == ranked[0][1][metric]:
        step = str(kept["step"])  # of equal ones, the one whose weights are there
    run.result["best"] = {"step": step} | evaluations[step]
    shown = " ".join(f"{name} {value:.4f}" for name, value in evaluations[step].items())
    say(f"best: step {step} {shown}")
    if str(kept.get("step")) == step and checkpointing.is_whole(best):
        load_weights(run.model, best)
        return
    folder = run.root / f"{checkpointing.PREFIX}{step}"
    if checkpointing.is_whole(folder):
        load_weights(run.model, folder)
        _keep_best(run, step, evaluations[step][metric])
    elif step != last:
        say(f"the weights of step {step} are no longer there; predictions use step {last}")


def _keep_best(run: Run, step: str, value: float) -> None:
    def fill(folder: Path) -> None:
        fill_model_folder(run.model, run.source, run.task.table, folder)
        run_folder.write_json(
            folder / "best.json", {"step": int(step), "metric": run.metric, "value": value}
        )

    distributed.on_first_process(
        lambda: checkpointing.write_folder(run.root / run_folder.BEST, fill)
    )


def _predict(run: Run) -> dict[str, str]:
    """Predict every test split that is there with the weights in the model (the best ones)."""
    written = {}
    for name, split in run.task.test.items():
        found = predict(run.model, split, autocast=run.autocast, report=say)
        written[name] = run.task.prediction_file(name)

        def write(name: str = name, found: Predictions = found) -> None:
            run_record.note(run.root, [written[name]])
            run.task.write_predictions(run.root, name, found)

        distributed.on_first_process(write)
        say(f"predictions of {name}: {run.root / written[name]}")
    return written
