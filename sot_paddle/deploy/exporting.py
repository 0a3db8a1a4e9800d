"""An export: a trained folder to files that run without this project's code.

Each graph is compared with the model on real inputs of several shapes; the folder is complete and
within the bound, or not there.

Shape legend: B rows of a batch, K classes, S tokens.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from sot_paddle.atomic import atomic_directory
from sot_paddle.data.corpus import REAL_SENTENCES
from sot_paddle.data.image_dataset import load_digits
from sot_paddle.data.image_transforms import EvalTransform
from sot_paddle.data.tokenizers import FAMILIES
from sot_paddle.deploy.graph import JSON, PARAMETERS, Runner, load_graph, run_model, save_graph
from sot_paddle.deploy.onnx_file import ONNX, load_onnx, translate
from sot_paddle.deploy.recipe import RECIPE, Recipe, TextRecipe, preparation_of, recipe_json
from sot_paddle.deploy.trained import Trained
from sot_paddle.reading import write_manifest
from sot_paddle.runtime import environment_stamp

BOUND = 1e-4
"""Largest difference of a logit, in units of the largest logit (or of 1, where that is larger).

Both compute in float32 and differ by rounding: by 1e-6 at most in what was measured
(docs/measurements.md). With logits up to 1 it moves a probability by at most 5e-5.
"""
ROWS = 16
"""Rows of the largest batch that is compared."""

Batch = Mapping[str, np.ndarray]


def export(trained: Trained, out: Path) -> dict[str, float]:
    """Write an export; it is there complete and within the bound, or not at all.

    Returns:
        File of each graph -> the difference of its logits, see `difference`.

    Raises:
        ValueError: something has the name, paddle2onnx lacks an operator, or a graph is farther
            than the bound from the model; nothing is left then.
    """
    if out.exists():
        raise ValueError(f"{out} exists: name a new folder, or remove it")
    recipe = trained.recipe
    batches = real_batches(recipe, trained.folder)
    model, differences = run_model(trained.model, recipe.inputs), {}
    with atomic_directory(out) as folder:
        save_graph(trained.model, batches[0], folder)
        translate(folder / JSON, folder / PARAMETERS, folder / ONNX)
        graphs = {JSON: load_graph(folder, recipe.inputs), ONNX: load_onnx(folder)}
        for name, graph in graphs.items():
            size = differences[name] = difference(batches, model, graph)
            if not size <= BOUND:  # nor where it is NaN
                raise ValueError(
                    f"{name} is not the model: it differs by {size:.1e} of the largest logit "
                    f"(bound {BOUND:g}); nothing was written"
                )
        if isinstance(recipe.preparation, TextRecipe):
            for name in FAMILIES[recipe.preparation.tokenizer].files:
                if (trained.folder / name).is_file():
                    shutil.copyfile(trained.folder / name, folder / name)
        more = {"source": str(trained.folder), "environment": environment_stamp()}
        (folder / RECIPE).write_text(recipe_json(recipe, more), encoding="utf-8")
        write_manifest(folder)
    return differences


def real_batches(recipe: Recipe, folder: Path) -> list[Batch]:
    """Digits or sentences of the package: 16 rows; one row; three rows, of texts half as long."""
    details = recipe.preparation
    if isinstance(details, EvalTransform):
        digits = load_digits(max(details.img_size, 8))[1]
        rows = [partial(digits.image, index) for index in range(ROWS)]
    else:
        sentences = [text for text in reversed(REAL_SENTENCES) if text.strip()]  # longest first
        rows = [(text,) for text in sentences[:ROWS]]
        if details.num_texts != 1:
            rows = list(zip(sentences[:ROWS], sentences[ROWS : 2 * ROWS], strict=True))
    whole = preparation_of(recipe, folder)(rows)
    whole = {name: whole[name] for name in recipe.inputs}
    first = {name: array[:1] for name, array in whole.items()}
    few = {name: array[-3:] for name, array in whole.items()}
    if isinstance(details, TextRecipe):
        few = {name: array[:, : array.shape[1] // 2] for name, array in few.items()}  # (3, S / 2)
    return [whole, first, few]


def difference(batches: Sequence[Batch], model: Runner, graph: Runner) -> float:
    """Run a model and its graph on batches; their largest difference of a logit.

    Returns:
        It, in units of the model's largest logit, or of 1 where that is larger.

    Raises:
        ValueError: the model's own logits are not finite.
    """
    expected = np.concatenate([model(batch) for batch in batches]).astype(np.float64)  # (rows, K)
    actual = np.concatenate([graph(batch) for batch in batches]).astype(np.float64)
    if not np.isfinite(expected).all():
        raise ValueError("the model's own logits on these inputs are not finite: train it first")
    return float(np.abs(expected - actual).max() / max(1.0, np.abs(expected).max()))
