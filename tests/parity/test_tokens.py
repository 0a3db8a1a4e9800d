"""Compare encoded texts with transformers' slow tokenizers, and padded rows with PyTorch's own.

Ours are the tokenizers library and NumPy; no framework computes.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from sot_paddle.data.batches import TokenFeatures, pad_rows
from sot_paddle.data.corpus import REAL_SENTENCES
from sot_paddle.data.splits import TokenSplit
from sot_paddle.data.subword import SubwordTokenizer, truncated_lengths
from sot_paddle.data.tokenizers import FAMILIES, word_piece_tokenizer
from sot_torch_ref.padding import pad_batch
from tests.parity.sides import assert_same
from tests.parity.vocabularies import (
    AWKWARD,
    as_tokenizer_json,
    bert_tokenizer,
    reference_tokenizer,
    train_vocabulary,
)

NAMES = ("input_ids", "token_type_ids", "attention_mask")


def from_vocabulary(source: Path, folder: Path, options: dict[str, Any]) -> SubwordTokenizer:
    """Build our tokenizer on the vocabulary as it is."""
    return word_piece_tokenizer(source, do_lower_case=options["do_lower_case"])


def from_settings(source: Path, folder: Path, options: dict[str, Any]) -> SubwordTokenizer:
    """Build our tokenizer on a copy of ``tokenizer.json`` that holds the options."""
    content = json.loads((source / "tokenizer.json").read_text(encoding="utf-8"))
    stored = {"lowercase": options["do_lower_case"], "strip_accents": options["strip_accents"]}
    content["normalizer"] |= {**stored, "handle_chinese_chars": False}
    other = Tokenizer.from_str(json.dumps(content))
    other.enable_truncation(7)
    other.enable_padding(length=9)
    (folder / "tokenizer.json").write_text(other.to_str(), encoding="utf-8")
    return word_piece_tokenizer(folder)


def without_settings(source: Path, folder: Path, options: dict[str, Any]) -> SubwordTokenizer:
    """Build our tokenizer on a ``tokenizer.json`` without a word on letter case and accents."""
    content = json.loads((source / "tokenizer.json").read_text(encoding="utf-8"))
    content |= {"normalizer": None}
    (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    return word_piece_tokenizer(folder)


def from_file(source: Path, folder: Path, options: dict[str, Any]) -> SubwordTokenizer:
    """Build our tokenizer on a ``vocab.txt`` with the line ends of Windows; the case unasked."""
    text = (source / "vocab.txt").read_text(encoding="utf-8")
    (folder / "vocab.txt").write_text(text, encoding="utf-8", newline="\r\n")
    return word_piece_tokenizer(folder / "vocab.txt")


def from_folder(source: Path, folder: Path, options: dict[str, Any]) -> SubwordTokenizer:
    """Build our tokenizer on a folder that has both options beside the vocabulary."""
    shutil.copy(source / "vocab.txt", folder)
    (folder / "tokenizer_config.json").write_text(json.dumps(options), encoding="utf-8")
    return word_piece_tokenizer(folder)


SENTENCES = [
    # tokenizer of ours, padded length, in pairs, lower case, accents stripped, padding
    (from_vocabulary, 64, False, True, None, "max_length"),
    (from_vocabulary, 9, False, True, None, "max_length"),
    (from_vocabulary, 24, True, True, None, "max_length"),
    (from_vocabulary, 64, False, False, None, "longest"),
    (from_folder, 64, False, True, False, "max_length"),
    (from_file, 64, True, True, None, "max_length"),
    (from_folder, 64, True, False, True, "max_length"),
    (without_settings, 64, False, True, None, "max_length"),
    (from_settings, 24, False, False, True, "max_length"),
]


@pytest.mark.parametrize(
    ("build", "max_length", "pairs", "lower_case", "strip_accents", "pad"), SENTENCES
)
def test_sentences_in_word_pieces(
    build: Callable[..., SubwordTokenizer],
    max_length: int,
    pairs: bool,
    lower_case: bool,
    strip_accents: bool | None,
    pad: str,
    real_checkpoint: Path,
    tmp_path: Path,
) -> None:
    options = {"do_lower_case": lower_case, "strip_accents": strip_accents}
    first = list(REAL_SENTENCES)
    second = first[1:] + first[:1] if pairs else None
    tokenizer = build(real_checkpoint, tmp_path, options)
    tokenizer.max_length = max_length
    encoded = tokenizer.encode_batch(first, second, pad=pad)
    paddle_values = {name: encoded[name] for name in NAMES}
    paddle_values |= {
        "vocabulary": tokenizer.vocab_size,
        "lower case": bool(tokenizer.do_lower_case),
    }
    reference = bert_tokenizer(
        real_checkpoint, tokenize_chinese_chars=build is not from_settings, **options
    )
    cut = {"truncation": "longest_first", "max_length": max_length}
    rows = [
        reference(text, second[index] if second else None, **cut)
        for index, text in enumerate(first)
    ]
    longest = max(len(row["input_ids"]) for row in rows)
    width = longest if pad == "longest" else max_length
    padded = [reference.pad(row, padding="max_length", max_length=width) for row in rows]
    torch_values: dict[str, Any] = {name: [row[name] for row in padded] for name in NAMES}
    torch_values |= {
        "vocabulary": max(reference.get_vocab().values()) + 1,
        "lower case": reference.do_lower_case,
    }
    assert_same(paddle_values, torch_values)


SUBWORDS = [
    # family, in pairs, read from one tokenizer.json, lower case
    ("byte_bpe", False, False, False),
    ("byte_bpe", True, True, False),
    ("byte_bpe", False, False, True),
    ("word_bpe", False, False, False),
    ("word_bpe", True, True, False),
    ("sentencepiece", False, False, True),
    ("sentencepiece", True, False, False),
]


@pytest.mark.parametrize(("family", "pairs", "stored", "lower_case"), SUBWORDS)
def test_sentences_in_subwords(
    family: str, pairs: bool, stored: bool, lower_case: bool, tmp_path: Path
) -> None:
    """Of awkward texts too; a reference that cannot lower-case is given lower case."""
    max_length, given_lower = 24, lower_case and family != "sentencepiece"
    first = [*REAL_SENTENCES, *(() if given_lower else AWKWARD)]
    second = first[1:] + first[:1] if pairs else None
    folder = train_vocabulary(tmp_path, family, REAL_SENTENCES)
    reference = reference_tokenizer(folder, family, lower_case=lower_case)
    source, known = as_tokenizer_json(folder) if stored else folder, FAMILIES[family]
    files = {
        name: (source / name).read_bytes() for name in known.files if (source / name).is_file()
    }
    tokenizer = known.from_files(files, do_lower_case=lower_case, max_length=max_length)
    unasked = known.from_files(files, max_length=max_length)
    texts = [text.lower() for text in first] if given_lower else first
    assert_same(
        tokenizer.encode_batch(first, second),
        padded_by_torch(reference, texts, second, max_length),
    )
    alone = tokenizer.encode_batch(["a"], pad="longest")["input_ids"]
    assert alone.tolist() == [reference("a")["input_ids"]]
    for name, value in (("pad_id", reference.pad_token_id), ("mask_id", reference.mask_token_id)):
        assert value is None or getattr(tokenizer, name) == value
    needed = sorted(reference.vocab_files_names.values())
    assert [known.whole(needed), known.whole(needed[1:])] == [True, False]
    only_lower = family == "word_bpe"
    assert bool(tokenizer.do_lower_case) == (lower_case or only_lower)
    assert bool(unasked.do_lower_case) == (only_lower or family == "sentencepiece")


def padded_by_torch(
    tokenizer: Any, first: Sequence[str], second: Sequence[str] | None, max_length: int
) -> dict[str, np.ndarray]:
    """Encode rows and pad them on the right, with 0 where the vocabulary has no padding."""
    cut = {"truncation": "longest_first", "max_length": max_length}
    rows = [tokenizer(text, second and second[at], **cut) for at, text in enumerate(first)]
    second_lengths = [sum(row.get("token_type_ids", ())) for row in rows]
    ids = [row["input_ids"] for row in rows]
    batch = pad_batch(ids, second_lengths, tokenizer.pad_token_id or 0, max_length)
    return {name: tensor.numpy() for name, tensor in batch.items()}


LENGTHS = [(one, two, room) for one in range(11) for two in range(11) for room in range(5, 10)]


def test_kept_tokens_of_two_sentences(real_checkpoint: Path) -> None:
    """For every length up to ten and every room, by transformers and by the tokenizers library."""
    slow, fast = bert_tokenizer(real_checkpoint), Tokenizer(models.WordLevel({"a": 0}))
    fast.pre_tokenizer = pre_tokenizers.Whitespace()
    for one, two, room in LENGTHS:
        rows = slow.truncate_sequences(
            [0] * one,
            [0] * two,
            num_tokens_to_remove=one + two - room,
            truncation_strategy="longest_first",
        )
        fast.enable_truncation(room, strategy="longest_first")
        types = fast.encode("a " * one, "a " * two).type_ids
        expected = {
            "slow": [len(rows[0]), len(rows[1])],
            "fast": [types.count(0), types.count(1)],
        }
        for ties, lengths in expected.items():
            kept = np.minimum(truncated_lengths(one, two, room, ties), (one, two))
            assert kept.tolist() == lengths, (one, two, room, ties)


ROW_LENGTHS = (5, 1, 9, 3, 7, 2)
SECOND_LENGTHS = (2, 0, 4, 3, 0, 1)  # of the second sentence; a whole row of them too
BATCHES = ((0, 1, 2), (5, 3), (4, 4, 1, 0))  # any order; a row may come twice
PADDED = [("max_length", 7, "float32"), ("longest", 3, "int64"), ("longest", 0, None)]


@pytest.mark.parametrize(("pad", "pad_id", "dtype"), PADDED)
def test_padded_rows(pad: str, pad_id: int, dtype: str | None) -> None:
    """Of rows gathered by position, with labels of a dtype or without, by both ways to a batch."""
    rng = np.random.default_rng(9)
    rows = [rng.integers(0, 30, length).tolist() for length in ROW_LENGTHS]
    boundaries = [len(row) - second for row, second in zip(rows, SECOND_LENGTHS, strict=True)]
    features = TokenFeatures.from_rows(rows, boundaries)
    labels = None if dtype is None else rng.uniform(0, 5, len(rows)).astype(dtype)
    if labels is not None:
        features = features.with_targets(range(len(rows)), labels.tolist(), labels.dtype.type)
    padding = {"pad": pad, "max_length": 11, "pad_id": pad_id}
    for batch in BATCHES:
        ids = [rows[position] for position in batch]
        second_lengths = [SECOND_LENGTHS[position] for position in batch]
        padded = pad_batch(ids, second_lengths, pad_id, 11 if pad == "max_length" else None)
        torch_values = {name: tensor.numpy() for name, tensor in padded.items()}
        if labels is not None:
            torch_values["labels"] = labels[list(batch)]
        assert_same(pad_rows(features, batch, **padding), torch_values)
        assert_same(TokenSplit(features, 2, **padding).make_batch(batch), torch_values)
    assert same_fingerprints(rows, features, padding) == [True, False, False]


def same_fingerprints(
    rows: Sequence[Sequence[int]], features: TokenFeatures, padding: dict[str, Any]
) -> list[bool]:
    """Say whether a copy, another token, and the same bytes of another type hash alike."""
    fingerprints = []
    for change, dtype in ((0, "int32"), (1, "int32"), (0, "uint32")):
        packed = np.concatenate([*rows[:-1], [*rows[-1][:-1], rows[-1][-1] + change]])
        other = dataclasses.replace(features, input_ids=packed.astype(dtype))
        fingerprints.append(TokenSplit(other, 2, **padding).fingerprint)
    expected = TokenSplit(features, 2, **padding).fingerprint
    return [fingerprint == expected for fingerprint in fingerprints]
