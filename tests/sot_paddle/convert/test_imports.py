"""The conversion of weights stands below training, and needs no framework and no suite."""

from __future__ import annotations

import ast

from tests.test_architecture import CONVERSION, imported, tree


def test_weights_are_converted_without_models_and_without_a_framework() -> None:
    """Training reads checkpoints with it; only the state of a training stands above training."""
    above = {"heads", "backbones", "registry", "tasks", "train", "search", "deploy"}
    paddle_side = "sot_paddle/convert/state/paddle_optimizer.py"
    wrong = [name for name in CONVERSION if name != paddle_side and "paddle" in imported(name)]
    for name in CONVERSION:
        if name.startswith("sot_paddle/convert/state/"):
            continue
        for node in ast.walk(tree(name)):
            if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "sot_paddle":
                targets = {f"{node.module}.{alias.name}" for alias in node.names}
                if {*node.module.split(".")[1:2]} & above:
                    wrong += [f"{name}: {target}" for target in targets]
    assert wrong == []
