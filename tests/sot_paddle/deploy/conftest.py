"""Tiny models for exports, and the process that translates them to ONNX."""

from __future__ import annotations

import types
from pathlib import Path

import pytest

from sot_paddle.deploy.exporting import export
from sot_paddle.deploy.trained import open_trained
from tests.sot_paddle.explain import tiny_models


@pytest.fixture(scope="session")
def tiny() -> types.ModuleType:
    """What makes tiny models."""
    return tiny_models


@pytest.fixture(scope="session")
def exports(tmp_path_factory) -> dict[str, tuple[Path, Path]]:
    """Name -> (trained folder, its export in both formats); not to be changed."""
    root = tmp_path_factory.mktemp("exports")
    options = dict(tiny_models.RUN)
    longest = {**options, "padding": "longest"}
    labels = ("entailment", "not_entailment")
    trained = {
        "cola": tiny_models.write_text_model(root / "cola", options=options),
        "rte": tiny_models.write_text_model(
            root / "rte", task="RTE", labels=labels, options=longest, mask_padding=True
        ),
        "stsb": tiny_models.write_text_model(
            root / "stsb", task="STS-B", labels=(), options=options
        ),
        "swin": tiny_models.write_image_model(root / "swin", "swin_tiny", window_size=3),
    }
    made = {}
    for name, folder in trained.items():
        out = root / f"{name}_export"
        export(open_trained(folder, ema=False), out, report=str)
        made[name] = (folder, out)
    return made
