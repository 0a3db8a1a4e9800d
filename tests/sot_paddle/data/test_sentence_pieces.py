"""SentencePiece models: special tokens, files, refusals; rows: tests/parity/test_tokens.py."""

from __future__ import annotations

import pytest

from sot_paddle.data.errors import DataError
from sot_paddle.data.sentence_pieces import SentencePieceTokenizer
from sot_paddle.data.tokenizers import FAMILIES
from tests.parity.vocabularies import train_vocabulary

TEXTS = ["the cat sees a dog", "a dog sees 1,000 cats, and 20, too", "an old tree", "red birds"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return train_vocabulary(tmp_path_factory.mktemp("pieces"), "sentencepiece", TEXTS * 5)


def test_special_tokens_follow_the_pieces(folder):
    tokenizer = SentencePieceTokenizer(folder)
    first = tokenizer.vocab_size - 4
    assert tokenizer.form.begin == (first,)
    assert tokenizer.form.end == tokenizer.form.between == (first + 1,)
    assert (tokenizer.pad_id, tokenizer.mask_id) == (first + 2, first + 3)
    rows = tokenizer.encode_batch(["a cat"], ["a dog"], max_length=16)
    ids, types = rows["input_ids"][0], rows["token_type_ids"][0]
    ends = [place for place, index in enumerate(ids) if index == first + 1]
    assert ids[0] == first
    assert types[: ends[0] + 1].sum() == 0
    assert types[ends[0] + 1 : ends[1] + 1].all()
    assert (ids[ends[1] + 1 :] == tokenizer.pad_id).all()


def test_the_names_of_the_file(folder, tmp_path):
    content = (folder / "spm.model").read_bytes()
    (tmp_path / "spiece.model").write_bytes(content)
    same = SentencePieceTokenizer(tmp_path).fingerprint
    assert same == SentencePieceTokenizer(folder).fingerprint
    family = FAMILIES["sentencepiece"]
    assert family.whole(["spm.model"])
    assert family.whole(["spiece.model"])
    assert not family.whole(["vocab.txt"])
    assert family.from_files({"spm.model": content}).fingerprint == same


def test_refusals(folder, tmp_path):
    with pytest.raises(DataError, match="no tokenizer at .*: expected a folder"):
        SentencePieceTokenizer(tmp_path / "none")
    with pytest.raises(DataError, match="no SentencePiece model in .*: expected spiece.model or"):
        SentencePieceTokenizer(tmp_path)
    for content in (b"", b"no model", (folder / "spm.model").read_bytes()[:5000]):
        (tmp_path / "spm.model").write_bytes(content)
        with pytest.raises(DataError, match=r"spm\.model: .*damaged"):
            SentencePieceTokenizer(tmp_path)
    with pytest.raises(DataError, match="max_length: expected at least 8"):
        SentencePieceTokenizer(folder, max_length=3)
    with pytest.raises(DataError, match="does not tell where a token lies"):
        SentencePieceTokenizer(folder).pieces(["a"])
