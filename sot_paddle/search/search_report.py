"""What a search found: a table (Markdown, CSV), two plots, and the best options as a config."""

from __future__ import annotations

import json
import shlex
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import optuna
import yaml
from optuna.trial import FrozenTrial

from sot_paddle.atomic import write_atomically
from sot_paddle.search.space import SearchSpace
from sot_paddle.search.trainings import markdown_table

TABLE, CSV, BEST = "trials.md", "trials.csv", "best.yaml"
REASON = "reason"
"""User attribute of a failed trial: why it failed."""


def write_tables(study: optuna.Study, space: SearchSpace, folder: Path) -> None:
    """Write the trials as CSV, in the order of drawing, and as Markdown, best first."""
    frame = study.trials_dataframe(attrs=("number", "state", "value", "params", "user_attrs"))
    frame = frame.rename(columns={"number": "trial", "value": space.metric})
    frame.columns = [name.removeprefix("params_").removeprefix("user_attrs_") for name in frame]
    write_atomically(folder / CSV, frame.to_csv(index=False).encode())
    ranked = frame.sort_values(
        ["state", space.metric], ascending=[True, space.direction == "minimize"]
    )  # COMPLETE, FAIL, PRUNED
    ranked = ranked.astype(object).where(ranked.notna(), None)
    head = f"# {len(frame)} trials of {space.command}: {space.direction} {space.metric}\n\n"
    table = markdown_table(list(ranked), ranked.values.tolist())
    write_atomically(folder / TABLE, (head + table).encode())


def write_plots(study: optuna.Study, folder: Path) -> None:
    """Draw the scores by trial (trials.png) and by each drawn option (options.png)."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from optuna.visualization import matplotlib as plots

    drawings = {"trials": plots.plot_optimization_history, "options": plots.plot_slice}
    for name, draw in drawings.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # optuna calls its Matplotlib plots experimental
            draw(study)
            pyplot.savefig(folder / f"{name}.png")
        pyplot.close()


def write_best(
    best: FrozenTrial, options: Mapping[str, Any], space: SearchSpace, folder: Path
) -> None:
    """Write the options of the best trial as a file for the training command's ``--config``.

    All options of its training are given; of images those of the model have a key of their own.
    """
    best_options = {name: options[name] for name in best.params if name in options}
    of_model = [name for name in best.params if name not in options]
    if of_model:
        best_options["model_options"] = {name: options["model_options"][name] for name in of_model}
    sets = [word for name in best.params for word in ("--set", f"{name}={best.params[name]}")]
    text = f"# trial {best.number} of the search, {space.metric} {best.value:.6g}\n"
    text += f"# beside another --config: {shlex.join(sets)}\n"
    text += yaml.safe_dump(json.loads(json.dumps(best_options)), sort_keys=False)
    write_atomically(folder / BEST, text.encode())
