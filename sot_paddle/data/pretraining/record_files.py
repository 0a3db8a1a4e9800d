"""JSON records of instances, as BERT4Doc's Paddle port reads them, to a prepared folder.

A file is one list of objects of any size, or an object a line; it is read object by object. Their
order stays, as there.
"""

from __future__ import annotations

import codecs
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sot_paddle.data.errors import DataError
from sot_paddle.data.pretraining.instance_files import FORM, ORDER, ROWS, packed
from sot_paddle.data.pretraining.instances import Instance
from sot_paddle.data.pretraining.journal import Journal
from sot_paddle.data.pretraining.prepared import finish
from sot_paddle.data.pretraining.text_lines import identity_of
from sot_paddle.reading import open_file, parse_json, shown

_STAGE = "records"
_CHUNK = 1 << 16
_LONGEST = 1 << 20  # bytes of a record
_TOKENS = ("input_ids", "input_mask", "segment_ids")
_WORDS = ("masked_lm_positions", "masked_lm_ids")
_NEXT, _WEIGHTS = "next_sentence_labels", "masked_lm_weights"
_HIGHEST = 2**31 - 1


def prepare_records(
    files: Sequence[Path],
    folder: Path,
    *,
    vocab_size: int,
    fingerprint: str = "",
    report: Callable[[str], None] = print,
) -> None:
    """Take instances over; a second call goes on with what a first one began.

    Args:
        files: with input_ids, input_mask, segment_ids (S numbers each), masked_lm_positions,
            masked_lm_ids (P each) and next_sentence_labels in every record; S and P are those of
            the first one. Without masked_lm_weights a place with position 0 ([CLS]) is not used.
        folder: of this preparation alone.
        vocab_size: token ids are below it.
        fingerprint: of the tokenizer.
        report: is told what was done.

    Raises:
        DataError: a record that cannot be used, or a folder of another preparation.

    Source: specs.md D.1.
    """
    facts = {"tokenizer": fingerprint, "vocab_size": vocab_size}
    identity = {"files": identity_of(files), "form": _STAGE, **facts}
    with contextlib.closing(Journal(folder, identity)) as journal:
        sizes = _take(journal, files, vocab_size)
        count = journal.values["count"]
        finish(journal, (ROWS, ORDER), {"form": FORM, "rows": count, **facts, **sizes})
        report(f"{count:,} instances in {folder}")


def _take(journal: Journal, files: Sequence[Path], vocab_size: int) -> Mapping[str, int]:
    """Write every record; returns the sizes of them all."""
    values = journal.values or {"file": 0, "offset": 0, "record": 0, "count": 0, "sizes": {}}
    sizes, count = values["sizes"], values["count"]
    rows, order = journal.file(ROWS), journal.file(ORDER)
    offset, number = values["offset"], values["record"]
    for at in range(values["file"], len(files)):
        for text, number, offset in _records(files[at], offset, number):  # noqa: B020, PLW2901
            where = f"{shown(files[at])}, record {number}"
            record = _checked(text, where)
            found = {"max_seq_length": len(record[_TOKENS[0]])}
            found["max_predictions"] = len(record[_WORDS[0]])
            sizes = sizes or found
            if found != sizes:
                raise DataError(f"{where}: expected {_said(sizes)}, got {_said(found)}")
            rows.write(packed(_instance(record, vocab_size, where), *sizes.values()).tobytes())
            order.write(np.int64(count).tobytes())
            count += 1
            if journal.due():
                place = {"file": at, "offset": offset, "record": number}
                journal.save(_STAGE, **place, count=count, sizes=sizes)
        offset = number = 0
    if not count:
        raise DataError(f"{', '.join(map(shown, files))}: no record")
    end = {"file": len(files), "offset": 0, "record": 0}
    journal.save(_STAGE, **end, count=count, sizes=sizes)
    return sizes


def _said(sizes: Mapping[str, int]) -> str:
    return f"{sizes['max_seq_length']} tokens and {sizes['max_predictions']} predictions"


def _records(path: Path, offset: int, number: int) -> Iterator[tuple[bytes, int, int]]:
    """The text of each record, its number from 1, and the place after it."""
    with open_file(path) as stream:
        begin = stream.read(_CHUNK)
        mark = len(codecs.BOM_UTF8) * begin.startswith(codecs.BOM_UTF8)
        listed = begin[mark:].lstrip()[:1] == b"["
        offset = stream.seek(max(offset, mark))
        rest = b""
        while chunk := stream.read(_CHUNK):
            rest += chunk
            while (end := rest.find(b"}") + 1) > 0:
                before, brace, text = rest[:end].partition(b"{")
                first = b"[" if listed and not number else b"," if listed else b""
                number, offset, rest = number + 1, offset + end, rest[end:]
                if not brace or before.strip() != first:
                    raise DataError(f"{shown(path)}, record {number}: expected a JSON object")
                yield brace + text, number, offset
            if len(rest) > _LONGEST:
                raise DataError(
                    f"{shown(path)}, record {number + 1}: longer than {_LONGEST:,} bytes"
                )
    if rest.strip() != (b"]" if listed and number else b"[]" if listed else b""):
        raise DataError(f"{shown(path)}: cut off after record {number}")


def _checked(text: bytes, where: str) -> dict[str, Any]:
    """A record whose values are lists of whole numbers, of two lengths."""
    record = parse_json(text, where)
    if isinstance(record.get(_NEXT), int):
        record[_NEXT] = [record[_NEXT]]
    weights = [_WEIGHTS] if _WEIGHTS in record else []
    for names in (_TOKENS, (*_WORDS, *weights), (_NEXT,)):
        for name in names:
            values = record.get(name)
            whole = isinstance(values, list) and values and all(map(_is_whole, values))
            if not whole or len(values) != len(record[names[0]]):
                raise DataError(
                    f"{where}: {name} must be a list of whole numbers from 0, as long as {names[0]}"
                )
    return record


def _is_whole(value: Any) -> bool:
    return (type(value) is int or (type(value) is float and value.is_integer())) and (
        0 <= value <= _HIGHEST
    )


def _instance(record: Mapping[str, Any], vocab_size: int, where: str) -> Instance:
    ids, mask, types = (np.array(record[name], np.int64) for name in _TOKENS)
    positions, words = (np.array(record[name], np.int64) for name in _WORDS)
    weights = np.array(record.get(_WEIGHTS, positions > 0), np.int64)
    length, count = int(mask.sum()), int(weights.sum())
    boundary = length - int(types.sum())
    places, slots = np.arange(len(ids)), np.arange(len(words))
    expected = {
        "input_mask must be ones, then zeros": mask == (places < length),
        "segment_ids must be zeros, ones, and zeros where input_mask is zero": types
        == ((places >= boundary) & (places < length)),
        "both stretches must have a token": np.array(0 < boundary < length),
        f"token ids must be below {vocab_size}": np.append(ids, words) < vocab_size,
        "masked_lm_weights must be ones, then zeros": weights == (slots < count),
        "masked_lm_positions must be inside of the tokens": positions < length,
        "next_sentence_labels must be 0 or 1": np.array(record[_NEXT][0] < 2),
    }
    for said, right in expected.items():
        if not right.all():
            raise DataError(f"{where}: {said}")
    return Instance(
        ids[:length].tolist(),
        boundary,
        bool(record[_NEXT][0]),
        positions[:count].tolist(),
        words[:count].tolist(),
    )
