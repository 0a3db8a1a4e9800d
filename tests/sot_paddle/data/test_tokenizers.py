"""Tokenizers: options on a small vocabulary, files, refusals.

Rows of all families, truncation, settings of a folder: tests/parity/test_tokens.py.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from tokenizers import Tokenizer, models
from transformers import BertTokenizer, BertTokenizerFast

import sot_torch_ref  # noqa: F401  (makes transformers importable beside a CPU build of torch)
from sot_paddle.data.subword import TAIL, RowForm, SubwordTokenizer
from sot_paddle.data.tokenizers import (
    FAMILIES,
    byte_bpe_tokenizer,
    sentence_piece_tokenizer,
    word_piece_tokenizer,
)
from tests.parity.vocabularies import train_vocabulary

PAD, UNK, CLS, SEP, MASK, A, B, C, CAT, BIG_CAT, S, E_ACUTE, E = range(13)
NOT_NFC = "e\u0301"  # a combining accent that has a composed form
UNASSIGNED = "\u0378 a"


def ids(tokenizer: SubwordTokenizer, *texts: str) -> list[int]:
    """Token ids of one sentence or pair."""
    return tokenizer.tokenize(*([text] for text in texts)).row(0).tolist()


def test_lower_casing_is_applied_and_switched_off_whatever_the_vocabulary(vocab_file):
    lower = word_piece_tokenizer(vocab_file, do_lower_case=True)
    kept = word_piece_tokenizer(vocab_file, do_lower_case=False)
    assert ids(lower, "Cat É") == [CLS, CAT, E, SEP]
    assert ids(kept, "Cat É é") == [CLS, BIG_CAT, UNK, E_ACUTE, SEP]
    assert word_piece_tokenizer(vocab_file).do_lower_case is True  # without any setting
    assert lower.fingerprint != kept.fingerprint


def test_special_tokens_written_in_a_text_are_special(vocab_file):
    tokenizer = word_piece_tokenizer(vocab_file)
    assert ids(tokenizer, "a[SEP]b [MASK] [sep]") == [CLS, A, SEP, B, MASK, UNK, UNK, UNK, SEP]


def test_a_tokenizer_that_keeps_other_tokens(vocab_file):
    head = word_piece_tokenizer(vocab_file, max_length=8)
    tail = head.truncating(TAIL)
    text, short = "a " * 6 + "b", ["a b"]
    ids = head.tokenize(["a", "b"]).input_ids[[1, 4]]
    assert list(head.tokenize([text]).row(0)[1:-1]) == [ids[0]] * 6
    assert list(tail.tokenize([text]).row(0)[1:-1]) == [ids[0]] * 5 + [ids[1]]
    assert len({head.fingerprint, tail.fingerprint, head.truncating(2).fingerprint}) == 3
    pair = head.tokenize([text], short).input_ids  # pairs are cut as before
    np.testing.assert_array_equal(tail.tokenize([text], short).input_ids, pair)
    for wrong in (-3, 6):
        with pytest.raises(ValueError, match=r"first tokens below 6, what 8 tokens leave, got"):
            head.truncating(wrong)


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("", b"", r"tokenizer.json or vocab.txt in .*, which holds nothing"),
        ("vocab.txt", b"[PAD]\n[UNK]\n[CLS]\na\n", r"special tokens, missing \[SEP\], \[MASK\]"),
        ("tokenizer.json", Tokenizer(models.BPE()).to_str().encode(), "WordPiece model, found BPE"),
        ("tokenizer.json", b'{"model": {}}', "tokenizer.json: the tokenizers library refuses it"),
    ],
)
def test_word_pieces_that_are_refused(vocab_file, tmp_path, name, content, match):
    (tmp_path / "model").mkdir()
    if name:
        (tmp_path / "model" / name).write_bytes(content)
    with pytest.raises(ValueError, match=match):
        word_piece_tokenizer(tmp_path / "model")
    with pytest.raises(ValueError, match="max_length: expected at least 8, got 7"):
        word_piece_tokenizer(vocab_file, max_length=7)
    with pytest.raises(ValueError, match="no tokenizer at .*expected a folder with tokenizer.json"):
        word_piece_tokenizer(tmp_path / "none")


def test_where_ours_follows_the_fast_tokenizer_and_the_slow_one_differs(vocab_file):
    path = str(vocab_file)
    for text, lower in ((NOT_NFC, False), (UNASSIGNED, True)):
        ours = ids(word_piece_tokenizer(path, do_lower_case=lower), text)
        assert ours == BertTokenizerFast(path, do_lower_case=lower)(text)["input_ids"]
        assert ours != BertTokenizer(path, do_lower_case=lower)(text)["input_ids"]


def test_files_of_a_family():
    family = FAMILIES["byte_bpe"]
    assert family.files[:2] == ("vocab.json", "merges.txt")
    assert not family.whole(["vocab.json"])
    assert family.whole(["vocab.json", "merges.txt"])
    assert family.whole(["tokenizer.json"])
    assert family.said == "vocab.json and merges.txt or tokenizer.json"
    with pytest.raises(ValueError, match="in the checkpoint's vocabulary, which holds other"):
        family.from_files({"other": b""})


SPECIAL_IDS = {t: i for i, t in enumerate(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])}


@pytest.mark.parametrize(
    ("files", "match"),
    [
        ({}, "expected tokenizer.json in .*, which holds nothing"),
        ({"vocab.json": '{"a": 0}', "merges.txt": ""}, "expected special tokens, missing .*<unk>"),
        (
            {"vocab.json": json.dumps(SPECIAL_IDS | {"a": 5}), "merges.txt": "#\na b\n"},
            "merges.txt: the tokenizers library refuses it",
        ),
        (
            {"tokenizer.json": Tokenizer(models.WordPiece()).to_str()},
            "a BPE model, found WordPiece",
        ),
    ],
)
def test_byte_pairs_that_are_refused(files, match, tmp_path):
    for name, content in files.items():
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=match) as refused:
        byte_bpe_tokenizer(tmp_path)
    assert "\n" not in str(refused.value)
    with pytest.raises(ValueError, match="no tokenizer at .*expected a folder"):
        byte_bpe_tokenizer(tmp_path / "nothing")


TEXTS = ["the cat sees a dog", "a dog sees 1,000 cats, and 20, too", "an old tree", "red birds"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return train_vocabulary(tmp_path_factory.mktemp("pieces"), "sentencepiece", TEXTS * 5)


def test_special_tokens_follow_the_pieces(folder):
    tokenizer = sentence_piece_tokenizer(folder, max_length=16)
    first = tokenizer.vocab_size - 4
    assert tokenizer.form == RowForm((first,), (first + 1,), (first + 1,), typed=True)
    assert (tokenizer.pad_id, tokenizer.mask_id) == (first + 2, first + 3)
    rows = tokenizer.encode_batch(["a cat"], ["a dog"])
    ids, types = rows["input_ids"][0], rows["token_type_ids"][0]
    middle, last = np.flatnonzero(ids == first + 1)
    assert ids[0] == first
    assert types.tolist() == [0] * (middle + 1) + [1] * (last - middle) + [0] * (15 - last)
    assert (ids[last + 1 :] == tokenizer.pad_id).all()


def test_the_names_of_the_file(folder, tmp_path):
    content = (folder / "spm.model").read_bytes()
    (tmp_path / "spiece.model").write_bytes(content)
    same = sentence_piece_tokenizer(tmp_path).fingerprint
    assert same == sentence_piece_tokenizer(folder).fingerprint
    family = FAMILIES["sentencepiece"]
    assert family.whole(["spm.model"])
    assert family.whole(["spiece.model"])
    assert not family.whole(["vocab.txt"])
    assert family.from_files({"spm.model": content}).fingerprint == same


def test_sentence_pieces_that_are_refused(folder, tmp_path):
    with pytest.raises(ValueError, match="expected spiece.model or spm.model in .*holds nothing"):
        sentence_piece_tokenizer(tmp_path)
    for content in (b"", (folder / "spm.model").read_bytes()[:5000]):
        (tmp_path / "spm.model").write_bytes(content)
        with pytest.raises(ValueError, match=r"spm\.model: .*damaged"):
            sentence_piece_tokenizer(tmp_path)
    with pytest.raises(ValueError, match="does not tell where a token lies"):
        sentence_piece_tokenizer(folder).pieces(["a"])
