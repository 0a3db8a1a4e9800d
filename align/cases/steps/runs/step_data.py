"""Step ``data``: token ids, masks and types, the tokenizers library against transformers."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np

from align.cases.context import Context
from align.cases.kinds.case_kinds import DataCase
from align.cases.planted_controls import judge
from align.judge.bounds import TOLERANCES
from align.judge.comparator import compare_mappings
from align.record.arrays import Arrays
from align.record.results import Comparison, StepResult
from sot_paddle.data.tokenization import WordPieceTokenizer

_KEYS = ("input_ids", "token_type_ids", "attention_mask")


def _reference(
    case: DataCase, context: Context, first: list[str], second: list[str] | None
) -> Arrays:
    tokenizer = context.reference_tokenizer(
        do_lower_case=case.lower_case, strip_accents=case.strip_accents
    )
    rows = [
        tokenizer(
            text,
            second[index] if second else None,
            padding="max_length",
            truncation="longest_first",
            max_length=case.max_length,
        )
        for index, text in enumerate(first)
    ]
    return {key: np.asarray([row[key] for row in rows], dtype="int64") for key in _KEYS}


def _as_stored(context: Context, options: dict[str, bool | None]) -> WordPieceTokenizer:
    """Our tokenizer on a copy of ``tokenizer.json`` that holds the options."""
    content = json.loads((context.vocabulary / "tokenizer.json").read_text(encoding="utf-8"))
    stored = {"lowercase": options["do_lower_case"], "strip_accents": options["strip_accents"]}
    content["normalizer"] |= stored
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
        return WordPieceTokenizer(folder)


def run(case: DataCase, dtype: None, context: Context) -> StepResult:
    """Compare the encoded sentences row by row."""
    sentences = list(context.texts)
    first, second = sentences, None
    if case.pairs:
        second = sentences[1:] + sentences[:1]
    options = {"do_lower_case": case.lower_case, "strip_accents": case.strip_accents}
    tokenizer = (
        _as_stored(context, options)
        if case.stored
        else context.tokenizer(file=case.file, **options)
    )
    encoded = tokenizer.encode_batch(first, second, max_length=case.max_length)
    ours = {key: encoded[key] for key in _KEYS}
    reference = _reference(case, context, first, second)

    def compare(arrays: Arrays) -> list[Comparison]:
        return compare_mappings(arrays, reference, TOLERANCES["data", None])

    other_case = context.tokenizer(do_lower_case=not case.lower_case)
    swapped = tokenizer.encode_batch(
        first[::-1], second and second[::-1], max_length=case.max_length
    )
    ids, mask = ours["input_ids"], ours["attention_mask"]
    faults = {
        "the other letter case": other_case.encode_batch(first, second, max_length=case.max_length),
        "rows in another order": swapped,
        "one id shifted": {
            **ours,
            "input_ids": ids + (np.arange(ids.size) == 1).reshape(ids.shape),
        },
        "padding not masked": {**ours, "attention_mask": np.ones_like(mask)},
        "types inverted": {**ours, "token_type_ids": 1 - ours["token_type_ids"]},
    }
    controls = [
        judge(name, compare({key: arrays[key] for key in _KEYS}), "the encoded rows")
        for name, arrays in faults.items()
        # a single lower-case sentence reads the same in another order or letter case: no fault
        if not all(np.array_equal(arrays[key], ours[key]) for key in _KEYS)
    ]
    return StepResult(
        case.name,
        "data",
        None,
        compare(ours),
        controls,
        framework_free=True,
        note=f"{len(first)} rows; ours: tokenizers (Rust), reference: transformers' BertTokenizer",
    )
