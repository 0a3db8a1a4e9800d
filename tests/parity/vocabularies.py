"""Small vocabularies of subwords on disk, and transformers' slow tokenizers that read files.

No vocabulary of a released checkpoint lies on the machine, so one is trained on the same sentences,
by the library's own trainer, which is given the same words in the same order every time.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

AWKWARD = (
    *("", " ", "  two  spaces ", "tab\tnew\nline\r\n", "x" * 300, "don't we'll I'M they'd've"),
    *(
        "emoji \U0001f600\U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea",
        "1.5 % 1/2",
    ),
    *("e\u0301 and a\u0308 combine", "\u5317\u4eac \u662f\u9996\u90fd", "\ud55c\uad6d\uc5b4"),
    *(
        "bell \x07 escape \x1b nothing \x00 no width \u200b\u200d \ufffd",
        "\u0130 \u03a3\u0391\u03a3 \u2122",
    ),
    *("1, 2, 3, 20, 1,", "x1, 2x2, x3,", "(x ), 1 ), y [MASK] \u03c3\u0391\u03a3"),
    *("1,000, or 20, \u00bd \u2167 \ufb01", "``quoted'' \u0661, [MASK] [SEP] x"),
    *(
        "a<mask>b <s> </s> <unk> <pad>",
        "a <mask> b",
        "na\u00efve caf\u00e9 \u2014 \u201cquoted\u201d \u2026",
    ),
)
"""Texts that tokenizers like to disagree on."""

_UNKNOWN = "<unk>"
_SUFFIX = "</w>"
_PIECES = "spm.model"
_COUNTED = (
    *("1, 2, 3, 1, 20, 1, 2,", "x1, x2, x1, x3, x1, x2,", "20, 20, 20, 20, 20,"),
    *("),", "),", "),", "\u03c3\u03b1\u03c2"),
) * 20
"""So often that digits and their comma, or a bracket and a comma, become one piece."""
_TRAINED = {"byte_bpe": 600, "word_bpe": 500, "sentencepiece": 300}
"""Family -> size of its vocabulary."""


def train_vocabulary(folder: Path, family: str, texts: Sequence[str]) -> Path:
    """Write the files of a small vocabulary into a folder; merges have the line ends of Windows."""
    if family == "sentencepiece":
        return _train_sentence_pieces(folder, texts)
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    options: dict[str, Any] = {"vocab_size": _TRAINED[family], "show_progress": False}
    if family == "byte_bpe":
        made = Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        options["special_tokens"] = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
        options["initial_alphabet"] = pre_tokenizers.ByteLevel.alphabet()
    else:
        made = Tokenizer(models.BPE(unk_token=_UNKNOWN, end_of_word_suffix=_SUFFIX))
        made.normalizer = normalizers.BertNormalizer(lowercase=True)
        made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        options |= {
            "special_tokens": [_UNKNOWN, *_last_letters(made, texts)],
            "end_of_word_suffix": _SUFFIX,
        }
    made.train_from_iterator(list(texts), trainers.BpeTrainer(**options))
    made.model.save(str(folder))
    merges = folder / "merges.txt"
    merges.write_bytes(merges.read_bytes().replace(b"\n", b"\r\n"))
    return folder


def _last_letters(tokenizer: Any, texts: Sequence[str]) -> list[str]:
    """The letters that end a word, with the suffix, in an order.

    The trainer numbers those that it does not know as it meets them, in the order of a hash table,
    which is another in every process; of equally frequent pairs the number decides.
    """
    normal = (tokenizer.normalizer.normalize_str(text) for text in texts)
    words = (word for text in normal for word in tokenizer.pre_tokenizer.pre_tokenize_str(text))
    return sorted({f"{word[-1]}{_SUFFIX}" for word, _ in words})


def _train_sentence_pieces(folder: Path, texts: Sequence[str]) -> Path:
    import sentencepiece

    with (folder / _PIECES).open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([*texts, *_COUNTED]),
            model_writer=file,
            vocab_size=_TRAINED["sentencepiece"],
            hard_vocab_limit=False,
            minloglevel=2,
        )
    return folder


def reference_tokenizer(folder: Path, family: str, *, lower_case: bool = False) -> Any:
    """transformers' slow tokenizer on the same files, written in Python.

    Args:
        folder: as `train_vocabulary` filled it.
        family: of the tokenizer.
        lower_case: lower-case the text, where the family has a choice.
    """
    import sot_torch_ref  # noqa: F401  isort: skip (transformers beside a CPU torch)
    from transformers import AlbertTokenizer, OpenAIGPTTokenizer, RobertaTokenizer, logging
    from transformers.models.openai.tokenization_openai import BasicTokenizer

    logging.set_verbosity_error()  # it says for every pair that no overflow is returned
    if family == "sentencepiece":
        return AlbertTokenizer(str(folder / _PIECES), do_lower_case=lower_case)
    files = (str(folder / "vocab.json"), str(folder / "merges.txt"))
    if family == "byte_bpe":
        return RobertaTokenizer(*files)
    reference = OpenAIGPTTokenizer(*files)
    reference.nlp, reference.fix_text = BasicTokenizer(do_lower_case=True), None  # also with spaCy
    return reference


def as_tokenizer_json(folder: Path) -> Path:
    """The same vocabulary as one ``tokenizer.json``, in a folder inside the folder.

    Beside it lies one of the two files that are read only where both are.
    """
    lines = (folder / "merges.txt").read_text(encoding="utf-8").split("\n")[1:]
    pairs = [line for line in lines if line]
    vocabulary = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    alone = "vocab.json" if "<mask>" in vocabulary else "merges.txt"
    model = {
        "type": "BPE",
        "vocab": vocabulary,
        # one as text, one as newer versions of the library write them
        "merges": pairs if alone == "vocab.json" else [pair.split(" ") for pair in pairs],
    }
    whole = folder / "whole"
    whole.mkdir()
    (whole / alone).write_bytes((folder / alone).read_bytes())
    (whole / "tokenizer.json").write_text(json.dumps({"model": model}), encoding="utf-8")
    return whole


@functools.cache
def bert_tokenizer(folder: Path, **options: Any) -> Any:
    """Return transformers' slow tokenizer of word pieces on the ``vocab.txt`` of a folder."""
    import sot_torch_ref  # noqa: F401  isort: skip (transformers beside a CPU torch)
    from transformers import BertTokenizer, logging

    logging.set_verbosity_error()  # it says for every pair that no overflow is returned
    return BertTokenizer(str(folder / "vocab.txt"), **options)
