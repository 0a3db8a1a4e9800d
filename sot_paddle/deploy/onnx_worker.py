"""A process of its own that translates a saved graph: paddle2onnx aborts where it cannot.

Started by `sot_paddle.deploy.onnx_file`: ``python -P onnx_worker.py JSON PARAMETERS DESTINATION``.
Imports nothing of the project.
"""

from __future__ import annotations

import sys
from pathlib import Path

import paddle2onnx

OPSET = 17
"""The first with LayerNormalization as one operator."""


def main(graph: str, parameters: str, destination: str) -> None:
    """Translate a graph; ends without the destination, or not at all, when that fails.

    Not given a file's name, paddle2onnx optimises nothing; else it would run pip to install what
    its optimiser needs.
    """
    content = paddle2onnx.export(
        graph, parameters, opset_version=OPSET, auto_upgrade_opset=True, enable_optimize=False
    )
    Path(destination).write_bytes(content)


if __name__ == "__main__":
    main(*sys.argv[1:])
