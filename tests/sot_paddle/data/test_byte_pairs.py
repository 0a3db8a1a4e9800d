"""Byte-pair encodings: files and refusals; rows: tests/parity/test_tokens.py."""

from __future__ import annotations

import json

import pytest

from sot_paddle.data.errors import DataError
from sot_paddle.data.real_sentences import REAL_SENTENCES
from sot_paddle.data.tokenizers import FAMILIES, ByteBpeTokenizer, WordBpeTokenizer
from tests.parity.vocabularies import train_vocabulary


def test_the_fingerprint_depends_on_the_options(tmp_path):
    for family in ("byte_bpe", "word_bpe"):
        folder = tmp_path / family
        folder.mkdir()
        train_vocabulary(folder, family, REAL_SENTENCES)
        build = FAMILIES[family].build
        assert build(folder).fingerprint == build(folder).fingerprint
        assert build(folder).fingerprint != build(folder, max_length=64).fingerprint


def test_files_of_a_family():
    family = FAMILIES["byte_bpe"]
    assert family.files[:2] == ("vocab.json", "merges.txt")
    assert not family.whole(["vocab.json"])
    assert family.whole(["vocab.json", "merges.txt"])
    assert family.whole(["tokenizer.json"])
    assert family.said == "vocab.json and merges.txt or tokenizer.json"
    with pytest.raises(DataError, match="in the checkpoint's vocabulary, which holds other"):
        family.from_files({"other": b""})


SPECIAL_IDS = {t: i for i, t in enumerate(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])}


@pytest.mark.parametrize("kind", [ByteBpeTokenizer, WordBpeTokenizer])
@pytest.mark.parametrize(
    ("files", "match"),
    [
        ({}, "or tokenizer.json, in .*, which holds nothing"),
        ({"vocab.json": '{"a": 0}', "merges.txt": ""}, "expected special tokens, missing .*<unk>"),
        (
            {"vocab.json": json.dumps(SPECIAL_IDS | {"a": "x"}), "merges.txt": ""},
            "merges.txt: the tokenizers library refuses it",
        ),
        (
            {"vocab.json": json.dumps(SPECIAL_IDS | {"a": 5}), "merges.txt": "#\na b\n"},
            "merges.txt: the tokenizers library refuses it.*`b` out of vocabulary",
        ),
        (
            {"vocab.json": json.dumps(SPECIAL_IDS), "merges.txt": b"x\n\xff\xfe"},
            "merges.txt, line 2: expected UTF-8 text",
        ),
        ({"vocab.json": "[", "merges.txt": ""}, "vocab.json: not JSON"),
        ({"vocab.json": "[]", "merges.txt": ""}, "expected a JSON object, got a list"),
        ({"tokenizer.json": '{"model": {"type": "WordPiece"}}'}, "expected a BPE model, found Wo"),
        (
            {
                "tokenizer.json": json.dumps(
                    {"model": {"type": "BPE", "vocab": SPECIAL_IDS, "merges": [5]}}
                )
            },
            "tokenizer.json: the tokenizers library refuses it: 'int' object",
        ),
    ],
)
def test_refusals(kind, files, match, tmp_path):
    for name, content in files.items():
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=match) as refused:
        kind(tmp_path)
    assert "\n" not in str(refused.value)
    with pytest.raises(DataError, match="no tokenizer at .*expected a folder"):
        kind(tmp_path / "nothing")
