"""Step ``metric`` of ImageNet-A: the 200 columns out of 1000 and their scores."""

from __future__ import annotations

import numpy as np
import torch

from align.cases.context import Context
from align.cases.kinds.image_case_kinds import ImageNetACase
from align.cases.planted_controls import judge
from align.judge.bounds import TOLERANCES
from align.judge.comparator import compare_mappings
from align.record.arrays import Arrays
from align.record.results import Comparison, StepResult
from sot_paddle.data import imagenet_a
from sot_torch_ref.train.image_scores import image_scores
from sot_torch_ref.train.imagenet_a import imagenet_a_scores


def run(case: ImageNetACase, dtype: None, context: Context) -> StepResult:
    """Compare the chosen columns, top-1, top-5 and loss."""
    from sot_paddle.train import image_scores as product  # loads scikit-learn: for this step alone

    rng = np.random.default_rng(31)
    logits = rng.normal(size=(case.samples, imagenet_a.IMAGENET_CLASSES))
    chosen = imagenet_a_scores(torch.from_numpy(logits))
    ranked = chosen.argsort(dim=1, descending=True).numpy()
    rows = np.arange(case.samples)
    labels = ranked[rows, rows % 8]  # every place from the first to the eighth
    reference = _named(chosen.numpy(), image_scores(chosen, torch.from_numpy(labels)))

    def ours(columns: np.ndarray) -> Arrays:
        return _named(columns, product.score(columns, labels))

    def compare(arrays: Arrays) -> list[Comparison]:
        return compare_mappings(arrays, reference, TOLERANCES["metric", None])

    columns = imagenet_a.gather_scores(logits)
    faults = {
        "the next class's column": ours(imagenet_a.gather_scores(np.roll(logits, -1, axis=1))),
        "the first 200 columns": ours(logits[:, :200]),
        "the folders in reverse": ours(columns[:, ::-1].copy()),
    }
    controls = [judge(name, compare(arrays), "our scores") for name, arrays in faults.items()]
    return StepResult(
        case.name,
        "metric",
        None,
        compare(ours(columns)),
        controls,
        framework_free=True,
        note=f"{case.samples} images; ours: NumPy, reference: PyTorch",
    )


def _named(columns: np.ndarray, scores: dict[str, float]) -> Arrays:
    return {"columns": columns, **{name: np.array(value) for name, value in scores.items()}}
