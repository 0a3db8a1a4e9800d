"""The classic checks in reprod_log's format: the stock package reads them, nothing here does."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

with warnings.catch_warnings():  # 2026-11-21, reprod_log 1.0.1 imports paddle
    warnings.simplefilter("ignore")
    from reprod_log import ReprodDiffHelper

from align.commands import dump_comparing
from align.pair.pair import Names
from align.record.files.dump_reading import Dump
from align.report import reprod
from tests.align.dumps.guarded_commands import main_compare

CHECKS = {"forward_align", "loss_align", "lr_align", "backward_align", "train_align"}


@pytest.fixture(autouse=True)
def _handlers_put_back() -> Iterator[None]:
    """The stock package adds handlers to the root logger and never takes them away."""
    held, level = list(logging.root.handlers), logging.root.level
    yield
    for handler in set(logging.root.handlers) - set(held):
        handler.close()
    logging.root.handlers[:] = held
    logging.root.setLevel(level)


def stock(folder: Path, check: str, log: Path) -> str:
    """What the stock package says of a check."""
    helper = ReprodDiffHelper()
    sides = [helper.load_info(str(folder / f"{check}_{side}.npy")) for side in ("torch", "paddle")]
    helper.compare_info(*sides)
    helper.report(path=str(log), diff_threshold=1e-5)
    return log.read_text()


@pytest.fixture(scope="module")
def names(torch_dump: Dump, paddle_dump: Dump) -> Names:
    return dump_comparing.pair_up(torch_dump, paddle_dump)


def test_the_stock_helper_loads_what_each_side_writes(torch_dump, paddle_dump, tmp_path) -> None:
    for dump in (torch_dump, paddle_dump):
        written = reprod.write_side(dump, tmp_path / "apart")
        assert {path.name.rpartition("_")[0] for path in written} == CHECKS
    for check in sorted(CHECKS):
        said = stock(tmp_path / "apart", check, tmp_path / f"{check}.txt")
        assert "diff check passed" in said, said


def test_both_sides_and_the_log(names, tmp_path, capsys) -> None:
    logs = tmp_path / "both"
    dumps = [str(names.torch.path), str(names.paddle.path)]
    assert main_compare([*dumps, "--dtype", "float64", "--reprod", str(logs)]) == 0
    assert f"reprod_log: {3 * len(CHECKS)} files in" in capsys.readouterr().out
    for check in sorted(CHECKS):
        assert "diff check passed" in stock(logs, check, tmp_path / f"{check}.txt")
        assert "diff check passed" in (logs / f"{check}.log").read_text()
    held = ReprodDiffHelper().load_info(str(logs / "backward_align_torch.npy"))
    assert held["float64/gradient q.weight"].shape == (6, 6)  # Paddle's names and layout
    assert "float64/norm of all gradients" in held


def test_a_wrong_port_fails_there_too(make, torch_dump, tmp_path) -> None:
    wrong = make("paddle", "classic_wrong", ("EPSILON = 1e-5", "EPSILON = 1e-3"), other=torch_dump)
    found = dump_comparing.pair_up(torch_dump, wrong)
    reprod.write_both(found, ["float64"], tmp_path)
    for check in ("forward_align", "backward_align"):
        assert "diff check failed" in stock(tmp_path, check, tmp_path / f"{check}.txt")
        assert "diff check failed" in (tmp_path / f"{check}.log").read_text()
    rates = ReprodDiffHelper().load_info(str(tmp_path / "lr_align_paddle.npy"))
    assert np.array_equal(rates["float64/learning_rates"], [1e-3, 1e-3])
