"""Where a layer stands in the user's code: the line of its forward, and the line that builds it."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from align.record.recording import ROOT


def source_of(layer: Any) -> str:
    """Class, file and line of a layer's forward, relative to the working folder where it can be."""
    kind = type(layer)
    return _place(kind.forward, f"{kind.__qualname__}.forward") or (
        f"{kind.__module__}.{kind.__qualname__}"
    )


def built_at(layers: Mapping[str, Any], name: str) -> str:
    """Where the user's code builds a layer: the line of the constructor that names it.

    Args:
        layers: every layer by name, the model itself under ROOT.
        name: of the layer.

    Returns:
        Class, file and line; "" when only the frameworks' own classes hold it.
    """
    parts = name.split(".")
    for i in range(len(parts) - 1, -1, -1):
        owner = layers.get(".".join(parts[:i]) or ROOT)
        if owner is None or type(owner).__module__.startswith("paddle."):
            continue
        kind = type(owner)
        return _place(kind.__init__, f"{kind.__qualname__}.__init__", f"self.{parts[i]} ")
    return ""


def _place(function: Any, title: str, text: str = "") -> str:
    """Title, file and line of a function, or of the first line in it that holds a text."""
    try:
        file = inspect.getsourcefile(function)
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        return ""
    if file is None:
        return ""
    path = Path(file)
    if "site-packages" in path.parts:
        shown = Path(*path.parts[path.parts.index("site-packages") + 1 :]).as_posix()
    else:
        shown = os.path.relpath(path)
        shown = path.name if shown.startswith("..") else shown
    found = (i for i, line in enumerate(lines) if text in line)
    return f"{title}, {shown}:{first + next(found, 0)}"
