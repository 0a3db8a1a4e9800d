"""Byte-pair encodings: vocabularies by hand, then transformers' two tokenizers on awkward text."""

from __future__ import annotations

import json

import pytest
from transformers import (
    OpenAIGPTTokenizerFast,
    RobertaTokenizerFast,
    logging,
)

import sot_torch_ref  # noqa: F401  (makes transformers importable beside a CPU build of torch)
from align.cases.subword_files import AWKWARD, reference_tokenizer, train_vocabulary
from sot_paddle.data.byte_pairs import ByteBpeTokenizer, WordBpeTokenizer
from sot_paddle.data.errors import DataError
from sot_paddle.data.real_sentences import REAL_SENTENCES
from sot_paddle.data.tokenizer_families import FAMILIES

FAST = {"byte_bpe": RobertaTokenizerFast, "word_bpe": OpenAIGPTTokenizerFast}
PAIRS = (
    ("The cat sat on the mat.", "A cat was sitting on a mat."),
    ("", "An empty first sentence."),
    ("An empty second sentence.", ""),
    ("", ""),
    ("Short.", "and very long " * 100),
    ("and very long " * 100, "Short."),
    ("tie " * 100, "tie " * 100),
)


def write(folder, vocabulary, merges):
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]), encoding="utf-8")
    return folder


@pytest.fixture
def byte_folder(tmp_path):
    tokens = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "a", "b", "\u0120", "\u0120a", "ab"]
    return write(tmp_path, {t: i for i, t in enumerate(tokens)}, ["\u0120 a", "a b"])


@pytest.fixture
def word_folder(tmp_path):
    tokens = ["<unk>", "a", "b", "a</w>", "b</w>", "ab</w>", "a</w>b"]
    return write(tmp_path, {t: i for i, t in enumerate(tokens)}, ["a b</w>"])


def ids(tokenizer, *texts):
    return tokenizer.tokenize(*([text] for text in texts)).row(0).tolist()


def test_rows_of_bytes_by_hand(byte_folder):
    tokenizer = ByteBpeTokenizer(byte_folder, max_length=12)
    assert ids(tokenizer, "ab a") == [0, 9, 8, 2]
    assert ids(tokenizer, "a", "ab") == [0, 5, 2, 2, 9, 2]
    assert ids(tokenizer, "") == [0, 2]
    assert ids(tokenizer, "", "") == [0, 2, 2, 2]
    assert ids(tokenizer, "aB") == [0, 5, 3, 2]  # a byte that is not in the vocabulary
    assert ids(ByteBpeTokenizer(byte_folder, do_lower_case=True), "aB") == [0, 9, 2]
    assert ids(tokenizer, "a <mask>a") == [0, 5, 4, 5, 2]
    batch = tokenizer.encode_batch(["a", "ab a"], ["b", "a"], pad="longest")
    assert batch["token_type_ids"].sum() == 0
    assert batch["input_ids"].tolist() == [[0, 5, 2, 2, 6, 2, 1], [0, 9, 8, 2, 2, 5, 2]]
    assert (tokenizer.pad_id, tokenizer.mask_id, tokenizer.vocab_size) == (1, 4, 10)


def test_rows_of_words_by_hand(word_folder):
    tokenizer = WordBpeTokenizer(word_folder, max_length=8)
    assert ids(tokenizer, "AB a b") == [5, 3, 4]
    assert ids(tokenizer, "a", "b a") == [3, 4, 3]
    assert ids(tokenizer, "aab c") == [1, 5, 0]
    assert ids(tokenizer, "a " * 20) == [3] * 8
    batch = tokenizer.encode_batch(["", "a"])
    assert batch["attention_mask"].sum(axis=1).tolist() == [0, 1]
    assert tokenizer.encode_batch([""], pad="longest")["input_ids"].shape == (1, 1)
    assert tokenizer.do_lower_case is True


@pytest.mark.parametrize("family", list(FAST))
def test_transformers_two_tokenizers_agree_on_real_and_awkward_text(family, tmp_path):
    logging.set_verbosity_error()
    folder = train_vocabulary(tmp_path, family, REAL_SENTENCES)
    ours = FAMILIES[family].build(folder, max_length=40)
    fast = FAST[family](str(folder / "vocab.json"), str(folder / "merges.txt"))
    for other in (reference_tokenizer(folder, family), fast):
        for text in (*REAL_SENTENCES, *AWKWARD):
            expected = other(text, truncation="longest_first", max_length=40)["input_ids"]
            assert ids(ours, text) == expected, text
    for first, second in PAIRS:  # on a tie the slow one, see subword.py
        expected = reference_tokenizer(folder, family)(
            first, second, truncation="longest_first", max_length=40
        )
        assert ids(ours, first, second) == expected["input_ids"], (first, second)


@pytest.mark.parametrize("family", list(FAST))
def test_a_folder_of_either_form_gives_the_same_rows(family, tmp_path):
    folder = train_vocabulary(tmp_path, family, REAL_SENTENCES)
    pairs = FAMILIES[family].build(folder)
    FAST[family](str(folder / "vocab.json"), str(folder / "merges.txt")).save_pretrained(
        tmp_path / "saved"
    )
    for name in ("vocab.json", "merges.txt"):
        (tmp_path / "saved" / name).unlink()
    whole = FAMILIES[family].build(tmp_path / "saved")
    for text in (*REAL_SENTENCES, *AWKWARD):
        assert ids(whole, text) == ids(pairs, text)
    assert pairs.fingerprint == FAMILIES[family].build(folder).fingerprint
    assert pairs.fingerprint != FAMILIES[family].build(folder, max_length=64).fingerprint


def test_files_of_a_family():
    family = FAMILIES["byte_bpe"]
    assert family.files[:2] == ("vocab.json", "merges.txt")
    assert not family.whole(["vocab.json"])
    assert family.whole(["vocab.json", "merges.txt"])
    assert family.whole(["tokenizer.json"])
    assert family.said == "vocab.json and merges.txt or tokenizer.json"
    with pytest.raises(DataError, match="in the checkpoint's vocabulary, which holds other"):
        family.from_files({"other": b""})


@pytest.mark.parametrize("kind", [ByteBpeTokenizer, WordBpeTokenizer])
def test_refusals(kind, tmp_path):
    with pytest.raises(DataError, match="no tokenizer at .*expected a folder"):
        kind(tmp_path / "nothing")
    with pytest.raises(DataError, match="or tokenizer.json, in .*, which holds nothing"):
        kind(tmp_path)
    write(tmp_path, {"a": 0}, [])
    with pytest.raises(DataError, match="expected special tokens, missing .*<unk>"):
        kind(tmp_path)
    special = {t: i for i, t in enumerate(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])}
    write(tmp_path, special | {"a": "x"}, [])
    with pytest.raises(DataError, match="expected a token id for every token"):
        kind(tmp_path)
    write(tmp_path, special | {"a": 5}, ["a b"])
    with pytest.raises(DataError, match=r"merges.txt: merge 1 must be two tokens .*'a b'"):
        kind(tmp_path)
    (tmp_path / "merges.txt").write_bytes(b"x\n\xff\xfe")
    with pytest.raises(ValueError, match="merges.txt, line 2: expected UTF-8 text"):
        kind(tmp_path)
    (tmp_path / "vocab.json").write_text("[")
    with pytest.raises(ValueError, match="vocab.json: not JSON"):
        kind(tmp_path)
    (tmp_path / "vocab.json").write_text("[]")
    with pytest.raises(ValueError, match="expected a JSON object, got a list"):
        kind(tmp_path)
    (tmp_path / "vocab.json").unlink()
    (tmp_path / "tokenizer.json").write_text('{"model": {"type": "WordPiece"}}')
    with pytest.raises(DataError, match="expected a BPE model, found WordPiece"):
        kind(tmp_path)
