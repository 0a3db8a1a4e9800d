"""Files, datasets and classes of BERTVision's stored hidden states, as its authors have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sot_paddle.data.stored.file_layout import stored_split

Named = dict[str, dict[str, Any]]

_TASKS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "cola": ("cola", ("0", "1")),
    "sst-2": ("sst", ("0", "1")),
    "mrpc": ("msr", ("0", "1")),
    "sts-b": ("stsb", ()),
    "qqp": ("qqpairs", ("0", "1")),
    "mnli": ("mnli", ("neutral", "entailment", "contradiction")),
    "qnli": ("qnli", ("not_entailment", "entailment")),
    "rte": ("rte", ("not_entailment", "entailment")),
    "wnli": ("wnli", ("0", "1")),
}
"""GLUE task -> how its files begin, and the names of its labels in their order (C.2, C.3)."""


def given() -> Named:
    """Every split of the specification."""
    found: Named = {}
    for task, (begin, classes) in _TASKS.items():
        labels = "float32" if task == "sts-b" else "int64"
        dev = ("dev_matched", "dev_mismatched") if task == "mnli" else ("dev",)
        for split in ("train", *dev):
            start = begin if split == "train" else f"{begin}_{split}"
            found[f"{task} {split}"] = {
                "labels": (f"{start}_labels.h5", "labels", labels),
                "rows": (f"{start}_idx.h5", "idx", "int64"),
                "states": (f"{start}_bert_embeds.h5", "embeds", ""),
                "classes": classes,
            }
    for split in ("train", "dev"):
        start = f"squad_{split}"
        found[f"SQuAD {split}"] = {
            "labels": (
                *(f"{start}_start_labels.h5", "start_ids", "int64"),
                *(f"{start}_end_labels.h5", "end_ids", "int64"),
            ),
            "rows": (f"{start}_indices.h5", "indices", "int64"),
            "states": (f"{start}_embeds.h5", "embeds", ""),
            "classes": (),
        }
    return found


def arrived() -> Named:
    """What our files are called, split for split."""
    found: Named = {}
    for name in given():
        layout = stored_split(*name.split())
        *labels, rows, states = [(one.file, one.name, one.dtype) for one in layout.datasets]
        found[name] = {
            "labels": tuple(part for one in labels for part in one),
            "rows": rows,
            "states": states,
            "classes": layout.classes,
        }
    return found
