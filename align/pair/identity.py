"""Facts about a model and its surroundings that go into a dump: modules, commit, spec, machine."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from align.frameworks import code_lines
from align.match.name_table import Table
from align.record.files.dump_meta import Module
from align.record.provenance import commit
from sot_paddle.runtime import environment_stamp

NORM_FILES = ("normalization", "batchnorm", "instancenorm")
"""Modules of torch.nn.modules with the norms that Paddle's own kernels hold in float32."""
_LONGEST = 80  # characters of a setting


def module_of(name: str, module: Any) -> Module:
    """The record of one module: class, code, plain attributes."""
    kinds = (bool, int, float, str)
    settings = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, kinds) and len(str(value)) < _LONGEST
    }
    return Module(name, type(module).__name__, code_lines.code_of({name: module}, name), settings)


def has_stock_partner(module: Any) -> bool:
    """Whether Paddle's own layer of this kind holds its epsilon in float32."""
    return any(
        kind.__module__.startswith("torch.nn.modules.")
        and kind.__module__.rpartition(".")[2] in NORM_FILES
        and "GroupNorm" not in kind.__name__
        for kind in type(module).__mro__
    )


def environment(spec: Path | None) -> dict[str, Any]:
    """Packages, machine and the commits of the suite and of the spec, where they are known."""
    found = environment_stamp()
    folders = {"suite": Path(__file__).parents[1]}
    if spec is not None:
        folders["spec"] = spec.resolve().parent
    found["commit"] = {title: text for title, at in folders.items() if (text := commit(at))}
    return found


def told_spec(spec: Path | None) -> dict[str, str]:
    """Name and SHA-256 of a spec file."""
    if spec is None:
        return {}
    return {"file": spec.name, "sha256": hashlib.sha256(spec.read_bytes()).hexdigest()}


def told_table(table: Table) -> dict[str, Any] | None:
    """The rows of a table as they are written in a table file, None when there are none."""
    sections = ("rows", "modules", "ignore_torch", "ignore_paddle")
    held: Mapping[str, Any] = {name: dict(getattr(table, name)) for name in sections}
    if not any(held.values()):
        return None
    return {"map" if name == "rows" else name: rows for name, rows in held.items()}
