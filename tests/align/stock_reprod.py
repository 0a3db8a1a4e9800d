"""The stock reprod_log package on the files of a check; no tests here."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path

with warnings.catch_warnings():  # 2026-11-21, reprod_log 1.0.1 imports paddle
    warnings.simplefilter("ignore")
    from reprod_log import ReprodDiffHelper


def stock_log(folder: Path, check: str, log: Path) -> str:
    """Return what the package says of a check; it adds handlers to the root logger for good."""
    handlers, level = list(logging.root.handlers), logging.root.level
    helper = ReprodDiffHelper()
    sides = [helper.load_info(str(folder / f"{check}_{side}.npy")) for side in ("torch", "paddle")]
    helper.compare_info(*sides)
    try:
        helper.report(path=str(log), diff_threshold=1e-5)
    finally:
        for handler in set(logging.root.handlers) - set(handlers):
            handler.close()
        logging.root.handlers[:] = handlers
        logging.root.setLevel(level)
    return log.read_text()
