"""Byte-pair encodings: transformers' two tokenizers, either form of a folder, refusals."""

from __future__ import annotations

import json

import pytest
from transformers import OpenAIGPTTokenizerFast, RobertaTokenizerFast, logging

import sot_torch_ref  # noqa: F401  (makes transformers importable beside a CPU build of torch)
from sot_paddle.data.byte_pairs import ByteBpeTokenizer, WordBpeTokenizer
from sot_paddle.data.errors import DataError
from sot_paddle.data.real_sentences import REAL_SENTENCES
from sot_paddle.data.tokenizer_families import FAMILIES
from tests.parity.vocabularies import AWKWARD, reference_tokenizer, train_vocabulary

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


def ids(tokenizer, *texts):
    return tokenizer.tokenize(*([text] for text in texts)).row(0).tolist()


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
