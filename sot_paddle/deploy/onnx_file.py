"""ONNX: from a saved graph through paddle2onnx, and run by onnxruntime without Paddle.

paddle2onnx aborts its process where it has no translation, so this file is run in one of its own:
``python -P onnx_file.py JSON PARAMETERS DESTINATION``. It imports nothing of the project.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

ONNX = "model.onnx"
OUTPUT = "logits"
OPSET = 17
"""The first with LayerNormalization as one operator."""
_AXES = ("batch", "tokens")
"""Names of the open axes."""


def translate(graph: Path, parameters: Path, destination: Path) -> None:
    """Translate a saved graph to ONNX.

    Args:
        graph: ``model.json``; ``parameters``: ``model.pdiparams``.
        destination: file for the ONNX model: the inputs under their names, one output ``logits``,
            open axes ``batch`` and ``tokens``.

    Raises:
        ValueError: paddle2onnx has no translation; says what it lacks.
    """
    import onnx

    command = [sys.executable, "-P", "-W", "ignore", __file__]
    done = subprocess.run(  # noqa: S603 (the interpreter that runs this)
        [*command, str(graph), str(parameters), str(destination)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode or not destination.is_file():
        lines = (done.stdout + done.stderr).splitlines() or ["it ended silently"]
        reasons = [line for line in lines if "annot" in line or "upport" in line]
        words = "; ".join(reasons[:3] or lines[-1:])  # the operator first, then the file
        raise ValueError(f"paddle2onnx cannot translate this model: {words}")
    model = onnx.load(str(destination))
    _tidy(model)
    onnx.checker.check_model(model)
    onnx.save(model, str(destination))


def _tidy(model: Any) -> None:
    """Drop nodes of a model that nothing takes, constants mostly; name output and open axes."""
    graph = model.graph
    (output,) = graph.output
    taken = {output.name}
    for index in reversed(range(len(graph.node))):  # a node stands after those that it takes from
        if taken.isdisjoint(graph.node[index].output):
            del graph.node[index]
        else:
            taken.update(graph.node[index].input)
    old = output.name
    for node in graph.node:
        node.output[:] = [OUTPUT if name == old else name for name in node.output]
        node.input[:] = [OUTPUT if name == old else name for name in node.input]
    output.name = OUTPUT
    for item in (*graph.input, output):
        axes = [a for a in item.type.tensor_type.shape.dim if not a.HasField("dim_value")]
        for axis, name in zip(axes, _AXES, strict=False):
            axis.dim_param = name


def load_onnx(folder: Path) -> Callable[[Mapping[str, np.ndarray]], np.ndarray]:
    """Load an export's ``model.onnx`` for the CPU; ``OMP_NUM_THREADS`` limits its threads.

    Returns:
        Runs it: arrays by input name to logits (B, K) float32.

    Raises:
        ModuleNotFoundError: onnxruntime is not installed.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS", "0").partition(",")[0])
    options.log_severity_level = 3  # errors
    session = onnxruntime.InferenceSession(str(folder / ONNX), options, ["CPUExecutionProvider"])
    names = [item.name for item in session.get_inputs()]

    def run(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        (logits,) = session.run([OUTPUT], {name: arrays[name] for name in names})
        return logits

    return run


def main(graph: str, parameters: str, destination: str) -> None:
    """Translate a graph; ends without the destination, or not at all, when that fails.

    Not given a file's name, paddle2onnx optimises nothing; else it would run pip to install what
    its optimiser needs.
    """
    import paddle2onnx

    content = paddle2onnx.export(
        graph, parameters, opset_version=OPSET, auto_upgrade_opset=True, enable_optimize=False
    )
    Path(destination).write_bytes(content)


if __name__ == "__main__":
    main(*sys.argv[1:])
