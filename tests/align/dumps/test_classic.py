"""The classic checks in reprod_log's format: the stock package reads them, nothing here does."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from align.commands import dumps
from align.report import reprod
from tests.align.dumps.guarded_commands import main_compare
from tests.align.stock_reprod import stock_log

CHECKS = {"forward_align", "loss_align", "lr_align", "backward_align", "train_align"}


def held_in(folder: Path, name: str) -> dict[str, np.ndarray]:
    """Return the arrays of a file of ours, a moment old."""
    return np.load(folder / f"{name}.npy", allow_pickle=True).item()


def test_both_sides_and_the_log(torch_dump, paddle_dump, tmp_path, capsys) -> None:
    logs = tmp_path / "both"
    both = [str(torch_dump.path), str(paddle_dump.path)]
    assert main_compare([*both, "--dtype", "float64", "--reprod", str(logs)]) == 0
    assert f"reprod_log: {3 * len(CHECKS)} files in" in capsys.readouterr().out
    for check in sorted(CHECKS):
        assert "diff check passed" in stock_log(logs, check, tmp_path / f"{check}.txt")
        assert "diff check passed" in (logs / f"{check}.log").read_text()
    held = held_in(logs, "backward_align_torch")
    assert held["float64/gradient q.weight"].shape == (6, 6)  # Paddle's names and layout
    assert "float64/norm of all gradients" in held


def test_a_wrong_port_fails_there_too(make, torch_dump, tmp_path) -> None:
    wrong = make("paddle", "classic_wrong", ("EPSILON = 1e-5", "EPSILON = 1e-3"), other=torch_dump)
    found = dumps.pair_up(torch_dump, wrong)
    results = dumps.judge(found, ["float64"]).report.results
    reprod.write_both(found, ["float64"], results, tmp_path)
    for check in ("forward_align", "backward_align"):
        assert "diff check failed" in stock_log(tmp_path, check, tmp_path / f"{check}.txt")
        assert "diff check failed" in (tmp_path / f"{check}.log").read_text()
    rates = held_in(tmp_path, "lr_align_paddle")
    assert np.array_equal(rates["float64/learning_rates"], [1e-3, 1e-3])
