"""Step ``data`` of text: encoded sentences, and where two of them are cut."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers

from align.cases.both_sides import BothSides, Setting
from align.cases.subword_files import (
    AWKWARD,
    as_tokenizer_json,
    reference_tokenizer,
    train_vocabulary,
)
from align.record.arrays import Arrays
from sot_paddle.data.subword import TIE_BREAKS, truncated_lengths
from sot_paddle.data.tokenization import WordPieceTokenizer
from sot_paddle.data.tokenizer_families import FAMILIES
from sot_torch_ref.padding import pad_batch

Cut = Callable[[int, int, int], tuple[int, int]]
"""Tokens of two sentences, and the room for them -> how many of each are kept."""
_KEYS = ("input_ids", "token_type_ids", "attention_mask")


def sentences(
    setting: Setting,
    *,
    max_length: int,
    pairs: bool = False,
    lower_case: bool = True,
    strip_accents: bool | None = None,
    pad: str = "max_length",
    source: str = "",
) -> BothSides:
    """Token ids, masks and types of the embedded (or the user's) sentences, row by row.

    Args:
        setting: the user's sentences and vocabulary.
        max_length: padded length.
        pairs: sentences in pairs, truncated longest first.
        lower_case: lower-case and strip accents before splitting.
        strip_accents: strip accents or keep them, None for what ``lower_case`` says.
        pad: ``max_length`` or ``longest``.
        source: what our tokenizer is given, a key of `_SOURCES`; "" is the vocabulary as it is.
    """
    context = setting.context
    options = {"do_lower_case": lower_case, "strip_accents": strip_accents}
    first = list(context.texts)
    second = first[1:] + first[:1] if pairs else None
    tokenizer = _SOURCES[source](setting, options) if source else context.tokenizer(**options)

    def encoded(by: Any, one: list[str], other: list[str] | None) -> Arrays:
        made = by.encode_batch(one, other, pad=pad, max_length=max_length)
        told = {"vocabulary": by.vocab_size, "lower case": bool(by.do_lower_case)}
        return {key: made[key] for key in _KEYS} | {n: np.asarray(v) for n, v in told.items()}

    ours = encoded(tokenizer, first, second)
    ids, mask = ours["input_ids"], ours["attention_mask"]
    other_case = context.tokenizer(do_lower_case=not lower_case)
    changed = {
        "the other letter case": encoded(other_case, first, second),
        "rows in another order": encoded(tokenizer, first[::-1], second and second[::-1]),
    }
    faults = {
        **changed,
        "one id shifted": ours | {"input_ids": ids + (np.arange(ids.size) == 1).reshape(ids.shape)},
        "padding not masked": ours | {"attention_mask": np.ones_like(mask)},
        "types inverted": ours | {"token_type_ids": 1 - ours["token_type_ids"]},
    }
    by_reference = context.reference_tokenizer(**options, tokenize_chinese_chars=source != "stored")
    pairs_of_texts = [(text, second[index] if second else None) for index, text in enumerate(first)]
    cut = {"truncation": "longest_first", "max_length": max_length}
    rows = [by_reference(*both, **cut) for both in pairs_of_texts]
    longest = max(len(row["input_ids"]) for row in rows)
    width = longest if pad == "longest" else max_length
    rows = [by_reference.pad(row, padding="max_length", max_length=width) for row in rows]
    largest = max(by_reference.get_vocab().values())
    return BothSides(
        ours,
        {
            **{key: np.asarray([row[key] for row in rows], dtype="int64") for key in _KEYS},
            "vocabulary": np.asarray(largest + 1),
            "lower case": np.asarray(by_reference.do_lower_case),
        },
        # a single lower-case sentence reads the same in another order or letter case: no fault
        {
            name: arrays
            for name, arrays in faults.items()
            if not all(np.array_equal(arrays[key], ours[key]) for key in _KEYS)
        },
        "the encoded rows",
        framework_free=True,
        note=f"{len(first)} rows; ours: tokenizers (Rust), reference: transformers' BertTokenizer",
    )


def _as_stored(setting: Setting, options: dict[str, bool | None]) -> WordPieceTokenizer:
    """Our tokenizer on a copy of ``tokenizer.json`` that holds the options."""
    source, folder = setting.context.vocabulary / "tokenizer.json", setting.folder()
    content = json.loads(source.read_text(encoding="utf-8"))
    stored = {"lowercase": options["do_lower_case"], "strip_accents": options["strip_accents"]}
    content["normalizer"] |= {**stored, "handle_chinese_chars": False}
    other = Tokenizer.from_str(json.dumps(content))
    other.enable_truncation(7)
    other.enable_padding(length=9)
    content = json.loads(other.to_str())
    (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    return WordPieceTokenizer(folder)


def _bare(setting: Setting, options: dict[str, bool | None]) -> WordPieceTokenizer:
    """Our tokenizer on a copy of ``tokenizer.json`` without a word on letter case and accents."""
    source, folder = setting.context.vocabulary / "tokenizer.json", setting.folder()
    content = json.loads(source.read_text(encoding="utf-8")) | {"normalizer": None}
    (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    return WordPieceTokenizer(folder)


def _of_file(setting: Setting, options: dict[str, bool | None]) -> WordPieceTokenizer:
    """Our tokenizer on a copy of ``vocab.txt`` with the line ends of Windows; the case unasked."""
    text = (setting.context.vocabulary / "vocab.txt").read_text(encoding="utf-8")
    copy = setting.folder() / "vocab.txt"
    copy.write_text(text, encoding="utf-8", newline="\r\n")
    return WordPieceTokenizer(copy, strip_accents=options["strip_accents"])


def _of_folder(setting: Setting, options: dict[str, bool | None]) -> WordPieceTokenizer:
    """Our tokenizer on a folder: it reads both options beside the vocabulary."""
    folder = setting.folder()
    shutil.copy(setting.context.vocabulary / "vocab.txt", folder)
    (folder / "tokenizer_config.json").write_text(json.dumps(options), encoding="utf-8")
    return WordPieceTokenizer(folder)


_SOURCES = {"bare": _bare, "file": _of_file, "folder": _of_folder, "stored": _as_stored}


def truncation(setting: Setting) -> BothSides:
    """How many tokens of each of two sentences are kept, for every length up to ten and every room.

    Reference: what transformers' own truncation and the tokenizers library leave of as many tokens.
    """
    lengths = [(one, two, room) for one in range(11) for two in range(11) for room in range(5, 10)]
    cut = {"slow": _cut_by_transformers(setting), "fast": _cut_by_tokenizers()}
    reference = {kind: np.array([by(*given) for given in lengths]) for kind, by in cut.items()}
    ours = {
        kind: np.array(
            [
                np.minimum(truncated_lengths(one, two, room, kind), (one, two))
                for one, two, room in lengths
            ]
        )
        for kind in TIE_BREAKS
    }
    faults = {
        "ties broken the other way": dict(zip(ours, reversed(ours.values()), strict=True)),
        "sentences exchanged": {kind: kept[:, ::-1] for kind, kept in ours.items()},
        "cut where nothing has to be": {kind: np.minimum(kept, 4) for kind, kept in ours.items()},
    }
    note = f"{len(lengths)} pairs; reference: transformers (slow), tokenizers (fast)"
    return BothSides(ours, reference, faults, "the kept tokens", framework_free=True, note=note)


def _cut_by_transformers(setting: Setting) -> Cut:
    tokenizer = setting.context.reference_tokenizer()

    def kept(one: int, two: int, room: int) -> tuple[int, int]:
        rows = tokenizer.truncate_sequences(
            [0] * one,
            [0] * two,
            num_tokens_to_remove=one + two - room,
            truncation_strategy="longest_first",
        )
        return len(rows[0]), len(rows[1])

    return kept


def _cut_by_tokenizers() -> Cut:
    tokenizer = Tokenizer(models.WordLevel({"a": 0}))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()

    def kept(one: int, two: int, room: int) -> tuple[int, int]:
        tokenizer.enable_truncation(room, strategy="longest_first")
        types = tokenizer.encode("a " * one, "a " * two).type_ids
        return types.count(0), types.count(1)

    return kept


def subwords(
    setting: Setting,
    *,
    family: str,
    max_length: int = 24,
    pairs: bool = False,
    stored: bool = False,
    lower_case: bool = False,
) -> BothSides:
    """Token ids, masks and types of sentences and of awkward text, row by row.

    Args:
        setting: the user's sentences.
        family: key of ``sot_paddle.data.tokenizer_families.FAMILIES``.
        max_length: padded length.
        pairs: texts in pairs, truncated longest first.
        stored: our tokenizer reads ``tokenizer.json``.
        lower_case: our tokenizer lower-cases; a reference that cannot is given lower case.
    """
    given_lower = lower_case and family != "sentencepiece"
    first = [*setting.context.texts, *(() if given_lower else AWKWARD)]
    second = first[1:] + first[:1] if pairs else None
    folder = train_vocabulary(setting.folder(), family, setting.context.texts)
    reference = reference_tokenizer(folder, family, lower_case=lower_case)
    known = FAMILIES[family]
    source = as_tokenizer_json(folder) if stored else folder
    files = {
        name: (source / name).read_bytes() for name in known.files if (source / name).is_file()
    }
    tokenizer = known.from_files(files, do_lower_case=lower_case, max_length=max_length)
    unasked = known.from_files(files, max_length=max_length)
    needed = sorted(reference.vocab_files_names.values())
    short = tokenizer.encode_batch(["a"], pad="longest")["input_ids"]
    ours = {
        **tokenizer.encode_batch(first, second),
        "a row alone": short,
        "files that are enough": np.asarray([known.whole(needed), known.whole(needed[1:])]),
        "lower case": np.array([bool(t.do_lower_case) for t in (tokenizer, unasked)]),
    }
    special = {"pad_id": reference.pad_token_id, "mask_id": reference.mask_token_id}
    special = {name: value for name, value in special.items() if value is not None}
    ours |= {name: np.asarray(getattr(tokenizer, name)) for name in special}
    ids, mask = ours["input_ids"], ours["attention_mask"]
    texts = [text.lower() for text in first] if given_lower else first
    only_lower, lower_unasked = family == "word_bpe", family == "sentencepiece"
    return BothSides(
        ours,
        {
            **_unpadded_rows(reference, texts, second, max_length),
            "a row alone": np.asarray([reference("a")["input_ids"]]),
            "files that are enough": np.asarray([True, False]),
            "lower case": np.array([lower_case or only_lower, only_lower or lower_unasked]),
            **{name: np.asarray(value) for name, value in special.items()},
        },
        {
            "rows in another order": lambda: (
                ours | tokenizer.encode_batch(first[::-1], second and second[::-1])
            ),
            "one id shifted": ours
            | {"input_ids": ids + (np.arange(ids.size) == 1).reshape(ids.shape)},
            "padding not masked": ours | {"attention_mask": np.ones_like(mask)},
            "the second sentence of another type": ours | {"token_type_ids": mask},
        },
        "the encoded rows",
        framework_free=True,
        note=f"{len(first)} rows; ours: tokenizers (Rust), reference: transformers' slow tokenizer",
    )


def _unpadded_rows(
    tokenizer: Any, first: Sequence[str], second: Sequence[str] | None, max_length: int
) -> Arrays:
    """Rows padded on the right, with 0 where the vocabulary has no padding."""
    cut = {"truncation": "longest_first", "max_length": max_length}
    rows = [tokenizer(one, second and second[at], **cut) for at, one in enumerate(first)]
    seconds = [sum(row.get("token_type_ids", ())) for row in rows]
    ids = [row["input_ids"] for row in rows]
    padded = pad_batch(ids, seconds, tokenizer.pad_token_id or 0, max_length)
    return {name: tensor.numpy() for name, tensor in padded.items()}
