"""Step ``data`` of a data-parallel run: order, shares, padding and weights of every process."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from align.cases.context import Context
from align.cases.kinds.run_kinds import FeedingCase
from align.cases.planted_controls import judge
from align.cases.sides import fed_batches
from align.judge.bounds import TOLERANCES
from align.judge.comparator import compare_mappings
from align.record.arrays import Arrays
from align.record.results import Comparison, StepResult
from sot_paddle.data.batching import EpochOrder
from sot_paddle.data.token_features import TokenFeatures

SEED = 42


def run(case: FeedingCase, dtype: None, context: Context) -> StepResult:
    """Compare what every process gets of every batch, and that their mean is the batch's."""
    rng = np.random.default_rng(4)
    lengths = rng.integers(3, fed_batches.MAX_LENGTH, case.rows)
    rows = [rng.integers(5, 90, length).tolist() for length in lengths]
    features = TokenFeatures.from_rows(rows, [(len(row) + 1) // 2 for row in rows])
    features = features.with_targets(range(case.rows), range(case.rows), np.int64)
    order = EpochOrder(case.rows, case.batch, seed=SEED)

    def epochs(epoch: int) -> list[np.ndarray]:
        return order.at_epoch(epoch).batches()

    ours, own_stamp = fed_batches.of_the_trainer(case, features, epochs)
    reference, stamp = fed_batches.of_torch(case, rows, epochs)
    whole = fed_batches.whole_means(case, epochs)

    def compare(arrays: Arrays) -> list[Comparison]:
        pairs = compare_mappings(arrays, reference, TOLERANCES["data", None])
        own = fed_batches.means(arrays, case.processes)
        return [*pairs, *compare_mappings(own, whole, TOLERANCES["loss", "float64"])]

    comparisons = compare(ours)
    if not all(comparison.passed for comparison in comparisons):
        hint = _reproduced(case, ours, reference)
        comparisons = [c if c.passed else dataclasses.replace(c, hint=hint) for c in comparisons]
    return StepResult(
        case.name,
        "data",
        None,
        comparisons,
        [
            judge(name, compare(edit(case, ours)), "what the processes get")
            for name, edit in EDITS.items()
        ],
        note=f"{case.processes} processes, {case.rows} rows in batches of {case.batch}",
        stamps={"ours": own_stamp, "reference": stamp},
    )


def _reproduced(case: FeedingCase, ours: Arrays, reference: Arrays) -> str:
    """The edits of the reference after which it does as ours does, in words."""
    exact = TOLERANCES["data", None]
    found = [
        name
        for name, edit in EDITS.items()
        if all(c.passed for c in compare_mappings(ours, edit(case, reference), exact))
    ]
    return f"the reference does the same with: {', '.join(found)}" if found else ""


def _exchanged(case: FeedingCase, fed: Arrays) -> Arrays:
    found = {}
    for name, value in fed.items():
        place, _, rest = name.partition(" process ")
        process, _, kind = rest.partition("/")
        found[f"{place} process {case.processes - 1 - int(process)}/{kind}"] = value
    return found


def _of_kind(kind: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[..., Arrays]:
    def edit(case: FeedingCase, fed: Arrays) -> Arrays:
        return {n: change(v) if n.endswith(f"/{kind}") else v for n, v in fed.items()}

    return edit


def _one_batch_late(case: FeedingCase, fed: Arrays) -> Arrays:
    begin = f"epoch {case.start[0]} batch {case.start[1]} "
    return {name: value for name, value in fed.items() if not name.startswith(begin)}


EDITS: dict[str, Callable[[FeedingCase, Arrays], Arrays]] = {
    "shares fixed to 1": _of_kind("weight", np.ones_like),
    "the processes exchanged": _exchanged,
    "padding not masked": _of_kind("attention_mask", np.ones_like),
    "types all 0": _of_kind("token_type_ids", np.zeros_like),
    "the first batch left out": _one_batch_late,
}
"""What a sampler gets wrong: faults of ours, and explanations of a difference."""
