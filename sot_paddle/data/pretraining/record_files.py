"""JSON records of instances, as BERT4Doc's Paddle port reads them, to a prepared folder.

A file is one list of objects of any size, or an object a line; it is read object by object. Their
order stays, as there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sot_paddle.data.errors import DataError
from sot_paddle.data.pretraining.instance_files import FORM, ORDER, ROWS, packed, unpacked
from sot_paddle.data.pretraining.instances import Instance
from sot_paddle.data.pretraining.prepared import begin_preparation, finish

_TOKENS = ("input_ids", "input_mask", "segment_ids")
_WORDS = ("masked_lm_positions", "masked_lm_ids")
_NEXT, _WEIGHTS = "next_sentence_labels", "masked_lm_weights"
_FORMS = {
    "input_mask": "ones, then zeros",
    "segment_ids": "zeros, ones, and zeros where input_mask is zero",
    _WEIGHTS: "ones, then zeros",
    _NEXT: "0 or 1",
}
_CHUNK = 1 << 16


def prepare_records(
    files: Sequence[Path],
    folder: Path,
    *,
    vocab_size: int,
    fingerprint: str = "",
    report: Callable[[str], None] = print,
) -> None:
    """Take instances over.

    Args:
        files: with input_ids, input_mask, segment_ids (S numbers each), masked_lm_positions,
            masked_lm_ids (P each) and next_sentence_labels in every record; S and P are those of
            the first one. Without masked_lm_weights a place with position 0 ([CLS]) is not used.
        vocab_size: token ids are below it.

    Raises:
        DataError: a record that cannot be used, or a folder of another preparation.

    Source: specs.md D.1.
    """
    facts = {"tokenizer": fingerprint, "vocab_size": vocab_size}
    if not begin_preparation(folder, files, {"form": "records", **facts}):
        report(f"the instances are in {folder} already")
        return
    sizes, count = None, 0
    with open(folder / ROWS, "wb") as stream:
        for path in files:
            number = 0
            try:
                for text in _records(path):
                    number += 1
                    record = _numbers(json.loads(text))
                    sizes = sizes or (len(record["input_ids"]), len(record["masked_lm_ids"]))
                    stream.write(_row(record, *sizes, vocab_size).tobytes())
                    count += 1
            except ValueError as error:
                raise DataError(f"{path}, record {number}: {error}") from None
    if sizes is None:
        raise DataError(f"{', '.join(map(str, files))}: no record")
    np.arange(count, dtype="<i8").tofile(folder / ORDER)
    lengths = {"max_seq_length": sizes[0], "max_predictions": sizes[1]}
    finish(folder, (ROWS, ORDER), {"form": FORM, "rows": count, **facts, **lengths})
    report(f"{count:,} instances in {folder}")


def _records(path: Path) -> Iterator[str]:
    """The text of each object; objects hold no further objects."""
    with open(path, encoding="utf-8-sig") as stream:
        rest = stream.read(_CHUNK).lstrip()
        is_list, rest = rest.startswith("["), rest.removeprefix("[")
        chunk = rest
        while chunk:
            *texts, rest = rest.split("}")
            for text in texts:
                yield text.strip().removeprefix("," if is_list else "") + "}"
            chunk = stream.read(_CHUNK)
            rest += chunk
    if rest.strip() != ("]" if is_list else ""):
        raise ValueError("the file is cut off after this record")


def _numbers(record: dict[str, Any]) -> dict[str, np.ndarray]:
    """The arrays of a record, of whole numbers from 0 below 2**31."""
    arrays = {}
    for name in (*_TOKENS, *_WORDS, _NEXT, *({_WEIGHTS} & record.keys())):
        values = np.atleast_1d(np.array(record.get(name, [])))
        is_list = values.ndim == 1 and len(values) and values.dtype.kind in "iuf"
        if not is_list or ((values < 0) | (values >= 2**31) | (values % 1 != 0)).any():
            raise ValueError(f"{name} must be a list of whole numbers from 0")
        arrays[name] = values.astype(np.int64)
    return {_WEIGHTS: (arrays[_WORDS[0]] > 0).astype(np.int64), **arrays}


def _row(
    record: Mapping[str, np.ndarray], max_seq_length: int, max_predictions: int, vocab_size: int
) -> np.ndarray:
    """The stored instance of a record.

    Raises:
        ValueError: its parts do not fit together.
    """
    lengths = dict.fromkeys(_TOKENS, max_seq_length)
    lengths |= dict.fromkeys((*_WORDS, _WEIGHTS), max_predictions) | {_NEXT: 1}
    for name, length in lengths.items():
        if len(record[name]) != length:
            raise ValueError(f"{name}: expected {length} numbers, got {len(record[name])}")
    ids, mask, types = (record[name] for name in _TOKENS)
    positions, words = (record[name] for name in _WORDS)
    length, count = mask.sum(), record[_WEIGHTS].sum()
    boundary = length - types.sum()
    if not 0 < boundary < length:
        raise ValueError("segment_ids: both stretches must have a token")
    if max(ids.max(), words.max()) >= vocab_size:
        raise ValueError(f"token ids must be below {vocab_size}")
    if positions.max() >= length:
        raise ValueError("masked_lm_positions must be inside of the tokens")
    used = (values[:count].tolist() for values in (positions, words))
    instance = Instance(ids[:length].tolist(), int(boundary), bool(record[_NEXT][0]), *used)
    row = packed(instance, max_seq_length, max_predictions)
    features = unpacked(row, max_seq_length, max_predictions)
    for name, form in _FORMS.items():
        if not np.array_equal(features[name], record[name]):
            raise ValueError(f"{name} must be {form}")
    return row
