"""Training losses of runs with several seeds as one picture: mean and deviation at each log line.

``python docs/examples/loss_curves.py PICTURE NAME=FOLDER [NAME=FOLDER ...]``; FOLDER is the output
folder of a training with ``--seeds``.
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from visualdl import LogReader


def losses(run: Path) -> dict[int, float]:
    """Optimizer step -> mean loss since the line before, of one seed's run."""
    found = {}
    for file in sorted((run / "runs").glob("vdlrecords.*.log")):
        for record in LogReader(file_path=str(file)).get_data("scalar", "train/loss"):
            found[record.id] = record.value
    return found


def main(picture: str, *named: str) -> None:
    """Draw the picture and print the last line of every run."""
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.subplots()
    for entry in named:
        name, _, folder = entry.partition("=")
        runs = [losses(run) for run in sorted(Path(folder).glob("seed-*"))]
        steps = sorted(set.intersection(*(set(run) for run in runs)))
        values = np.array([[run[step] for step in steps] for run in runs])
        mean, deviation = values.mean(0), values.std(0, ddof=1)
        axes.plot(steps, mean, label=f"{name}, {len(runs)} seeds", linewidth=1.2)
        axes.fill_between(steps, mean - deviation, mean + deviation, alpha=0.25)
        print(f"{name}: step {steps[-1]}, {mean[-1]:.3f} +- {deviation[-1]:.3f}")
    axes.set(xlabel="optimizer step", ylabel="loss of the masked words")
    axes.legend()
    figure.savefig(picture, dpi=100)


if __name__ == "__main__":
    main(*sys.argv[1:])
