"""A trained folder to an export folder: graph files, tokenizer, recipe; checked, or not there."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sot_paddle.atomic import atomic_directory
from sot_paddle.deploy.checking import BOUND, Batch, Difference, batches, compare, real_rows
from sot_paddle.deploy.graph import JSON, PARAMETERS, load_graph, run_model, save_graph
from sot_paddle.deploy.onnx_file import ONNX, load_onnx, translate
from sot_paddle.deploy.preparation import preparation_of
from sot_paddle.deploy.recipe import RECIPE, is_export, recipe_json
from sot_paddle.deploy.trained import Trained
from sot_paddle.runtime import environment_stamp
from sot_paddle.train.checkpointing import close_folder

FORMATS = ("jit", "onnx")
FILES = {"jit": JSON, "onnx": ONNX}
"""Format -> the file that stands for it."""


def check_destination(out: Path, *, overwrite: bool) -> None:
    """Refuse a folder that must not be replaced.

    Raises:
        ValueError: something is there that is no export, or an export and `overwrite` is False.
    """
    if not out.exists():
        return
    if not is_export(out):
        raise ValueError(f"{out} exists and is no export: name a new folder")
    if not overwrite:
        raise ValueError(f"{out} holds an export: name a new folder, or give --overwrite")


def export(
    trained: Trained,
    out: Path,
    *,
    formats: Sequence[str] = FORMATS,
    rows: Sequence[Any] | None = None,
    report: Callable[[str], None] = print,
) -> dict[str, Difference]:
    """Write an export; it is there complete and within the bound, or not at all.

    Args:
        trained: the model.
        out: folder of the export; an existing one is replaced.
        formats: of `FORMATS`, at least one.
        rows: real inputs for the check, see `Preparation`; None for what comes with the package.
        report: is told how far each format is from the model.

    Returns:
        What the check of each format found.

    Raises:
        ValueError: a format that cannot be made, or one that is farther than the bound from the
            model; nothing is left then.
        OSError: the folder cannot be written.
    """
    recipe = trained.recipe
    prepare = preparation_of(recipe, trained.folder)
    found = batches(real_rows(recipe) if rows is None else rows, prepare)
    inputs: list[Batch] = [{name: batch[name] for name in recipe.inputs} for batch in found]
    out.parent.mkdir(parents=True, exist_ok=True)
    with atomic_directory(out) as folder:
        try:
            save_graph(trained.model, inputs[0], folder)
            if "onnx" in formats:
                files = (folder / JSON, folder / PARAMETERS, folder / ONNX)
                translate(*files, recipe.inputs)
            checks = {name: _checked(name, trained, folder, inputs) for name in formats}
        except ValueError:
            # PADDLE: on a full disk it cuts files off without a word; if it is full, this says so
            (folder / RECIPE).write_bytes(bytes(4096))
            raise
        if "jit" not in formats:
            (folder / JSON).unlink()
            (folder / PARAMETERS).unlink()
        for name, content in trained.tokenizer_files.items():
            (folder / name).write_bytes(content)
        more = {
            "source": str(trained.folder),
            "bound": BOUND,
            "checks": {name: dataclasses.asdict(check) for name, check in checks.items()},
            "environment": environment_stamp(),
        }
        (folder / RECIPE).write_text(recipe_json(recipe, more), encoding="utf-8")
        close_folder(folder)
    for name, check in checks.items():
        report(f"{out / FILES[name]}: {check}")
    return checks


def _checked(name: str, trained: Trained, folder: Path, inputs: Sequence[Batch]) -> Difference:
    """How far one format is from the model.

    Raises:
        ValueError: farther than the bound.
    """
    names = trained.recipe.inputs
    made = load_onnx(folder) if name == "onnx" else load_graph(folder, names)
    check = compare(inputs, run_model(trained.model, names), made)
    if check.size > BOUND:
        raise ValueError(f"the {name} export is not the model: {check}; nothing was written")
    return check
