"""Token ids: options on a small vocabulary, then transformers' two tokenizers on awkward text.

Truncation and settings of a folder: tests/parity/test_tokens.py, test_documents.py.
"""

from __future__ import annotations

import numpy as np
import pytest
from transformers import BertTokenizer, BertTokenizerFast

import sot_torch_ref  # noqa: F401  (makes transformers importable beside a CPU build of torch)
from sot_paddle.data.errors import DataError
from sot_paddle.data.real_sentences import REAL_SENTENCES
from sot_paddle.data.subword import TAIL
from sot_paddle.data.tokenizers import WordPieceTokenizer

PAD, UNK, CLS, SEP, MASK, A, B, C, CAT, BIG_CAT, S, E_ACUTE, E = range(13)
NOT_NFC = "e\u0301"  # a combining accent that has a composed form
UNASSIGNED = "\u0378 a"
PAIRS = (
    ("The cat sat on the mat.", "A cat was sitting on a mat."),
    ("The meeting was moved to Friday.", "The meeting was cancelled."),
    ("", "An empty first sentence."),
    ("An empty second sentence.", ""),
    ("", ""),
    ("Short.", "and very long " * 100),
    ("and very long " * 100, "Short."),
    ("tie " * 100, "tie " * 100),
    ("one more " * 50 + "word", "one more " * 50),
    ("A [SEP] B", "C [SEP] D"),
    ("北京", "It is the capital of China."),
    ("Is this a question?", '"Yes," she said.'),
)
"""Sentence pairs, those that need truncation on either side included."""


def ids(tokenizer: WordPieceTokenizer, *texts: str) -> list[int]:
    """Token ids of one sentence or pair."""
    return tokenizer.tokenize(*([text] for text in texts)).row(0).tolist()


def test_lower_casing_is_applied_and_switched_off_whatever_the_vocabulary(vocab_file):
    lower = WordPieceTokenizer(vocab_file, do_lower_case=True)
    kept = WordPieceTokenizer(vocab_file, do_lower_case=False)
    accents = WordPieceTokenizer(vocab_file, do_lower_case=True, strip_accents=False)
    assert ids(lower, "Cat É") == [CLS, CAT, E, SEP]
    assert ids(kept, "Cat É é") == [CLS, BIG_CAT, UNK, E_ACUTE, SEP]
    assert ids(accents, "Cat É") == [CLS, CAT, E_ACUTE, SEP]
    assert WordPieceTokenizer(vocab_file).do_lower_case is True  # without any setting
    assert len({lower.fingerprint, kept.fingerprint, accents.fingerprint}) == 3


def test_special_tokens_written_in_a_text_are_special(vocab_file):
    tokenizer = WordPieceTokenizer(vocab_file)
    assert ids(tokenizer, "a[SEP]b [MASK] [sep]") == [CLS, A, SEP, B, MASK, UNK, UNK, UNK, SEP]


def test_a_tokenizer_that_keeps_other_tokens(vocab_file):
    head = WordPieceTokenizer(vocab_file, max_length=8)
    tail = head.truncating(TAIL)
    text, short = "a " * 6 + "b", ["a b"]
    ids = head.tokenize(["a", "b"]).input_ids[[1, 4]]
    assert list(head.tokenize([text]).row(0)[1:-1]) == [ids[0]] * 6
    assert list(tail.tokenize([text]).row(0)[1:-1]) == [ids[0]] * 5 + [ids[1]]
    assert len({head.fingerprint, tail.fingerprint, head.truncating(2).fingerprint}) == 3
    pair = head.tokenize([text], short).input_ids  # pairs are cut as before
    np.testing.assert_array_equal(tail.tokenize([text], short).input_ids, pair)
    for wrong in (-3, 6):
        with pytest.raises(DataError, match=r"first tokens below 6, what 8 tokens leave, got"):
            head.truncating(wrong)


def test_the_fingerprint_depends_on_every_option_and_not_on_the_process(vocab_file):
    base = WordPieceTokenizer(vocab_file).fingerprint
    assert WordPieceTokenizer(vocab_file).fingerprint == base
    assert WordPieceTokenizer(vocab_file, max_length=64).fingerprint != base
    assert WordPieceTokenizer(vocab_file, tie_break="fast").fingerprint != base
    vocab_file.write_text(vocab_file.read_text().replace("\nx\n", "\nz\n"))
    assert WordPieceTokenizer(vocab_file).fingerprint != base


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("", b"", r"tokenizer.json or vocab.txt in .*, which holds nothing"),
        ("vocab.txt", b"[PAD]\n[UNK]\n[CLS]\na\n", r"special tokens, missing \[SEP\], \[MASK\]"),
        ("vocab.txt", b"\xff\xfe", "vocab.txt, line 1: expected UTF-8 text"),
        ("tokenizer.json", b'{"model": {"type": "BPE"}}', "expected a WordPiece model, found BPE"),
        (
            "tokenizer.json",
            b'{"model": {"type": "WordPiece"}}',
            "the tokenizers library refuses it",
        ),
        ("tokenizer.json", b"{", "tokenizer.json: not JSON"),
    ],
)
def test_refusals(vocab_file, tmp_path, name, content, match):
    (tmp_path / "model").mkdir()
    if name:
        (tmp_path / "model" / name).write_bytes(content)
    with pytest.raises(ValueError, match=match):
        WordPieceTokenizer(tmp_path / "model")
    with pytest.raises(DataError, match="max_length: expected at least 8, got 7"):
        WordPieceTokenizer(vocab_file, max_length=7)
    with pytest.raises(DataError, match="no tokenizer at .*expected a folder or a vocab.txt file"):
        WordPieceTokenizer(tmp_path / "none")


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("tie_break", ["slow", "fast"])
def test_equal_to_transformers_on_awkward_text(real_checkpoint, lower, tie_break, capfd):
    vocabulary = real_checkpoint / "vocab.txt"
    kind = {"slow": BertTokenizer, "fast": BertTokenizerFast}[tie_break]
    theirs = kind(str(vocabulary), do_lower_case=lower)
    options = {"padding": "max_length", "truncation": "longest_first", "max_length": 128}
    ours = WordPieceTokenizer(vocabulary, do_lower_case=lower, tie_break=tie_break)
    first, second = zip(*PAIRS, strict=True)
    for texts in ((list(REAL_SENTENCES),), (list(first), list(second))):
        expected = theirs(*texts, return_tensors="np", **options)
        batch = ours.encode_batch(*texts)
        for name, array in batch.items():
            np.testing.assert_array_equal(array, expected[name], err_msg=name)
    capfd.readouterr()  # transformers talks about overflowing tokens


def test_the_two_tie_breaks_differ_where_documented(real_checkpoint):
    slow = WordPieceTokenizer(real_checkpoint, max_length=128)
    fast = WordPieceTokenizer(real_checkpoint, max_length=128, tie_break="fast")
    text = ["tie " * 100]
    assert slow.encode_batch(text, text)["token_type_ids"].sum() == 63  # 62 and [SEP]
    assert fast.encode_batch(text, text)["token_type_ids"].sum() == 64


def test_where_ours_follows_the_fast_tokenizer_and_the_slow_one_differs(vocab_file):
    path = str(vocab_file)
    for text, lower in ((NOT_NFC, False), (UNASSIGNED, True)):
        ours = ids(WordPieceTokenizer(path, do_lower_case=lower), text)
        assert ours == BertTokenizerFast(path, do_lower_case=lower)(text)["input_ids"]
        assert ours != BertTokenizer(path, do_lower_case=lower)(text)["input_ids"]
