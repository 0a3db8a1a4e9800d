"""Byte-pair encodings: of bytes (RoBERTa's), and of the letters of lower-cased words (GPT's)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sot_paddle.data.errors import DataError
from sot_paddle.data.subword import Pipeline, RowForm, SubwordTokenizer
from sot_paddle.data.vocabulary import LibraryRefusals, refuse_folder, require_tokens
from sot_paddle.reading import field_of, read_json, read_text

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_UNKNOWN, _MASK = "<unk>", "<mask>"
_SPECIAL = ("<s>", "<pad>", "</s>", _UNKNOWN, _MASK)
_END_OF_WORD = "</w>"


class ByteBpeTokenizer(SubwordTokenizer):
    """Rows ``<s> a </s>`` or ``<s> a </s></s> b </s>``, every token type 0.

    A text is cut into words with the space before them, and those into pieces of their UTF-8 bytes.

    ``source`` holds ``vocab.json`` and ``merges.txt``, or ``tokenizer.json``; ``do_lower_case``
    None and False leave the text as it is.

    Source: transformers' RobertaTokenizer.
    """

    def _read(self, source: Path, do_lower_case: bool | None) -> Pipeline:
        from tokenizers import AddedToken, normalizers, pre_tokenizers

        backend = _backend(source, _SPECIAL, end_of_word="")
        if do_lower_case:
            backend.normalizer = normalizers.Lowercase()
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        # the mask takes the space before it, so that it stands for a word
        backend.add_special_tokens([*_SPECIAL[:-1], AddedToken(_MASK, lstrip=True)])
        first, pad, last, _, mask = map(backend.token_to_id, _SPECIAL)
        form = RowForm((first,), (last, last), (last,))
        return Pipeline(backend, form, pad, mask, bool(do_lower_case), word_lead=" ")


class WordBpeTokenizer(SubwordTokenizer):
    """Rows ``a`` or ``a b`` without special tokens, every token type 0.

    The text is cleaned, lower-cased and cut into words as for WordPiece, accents stripped; the
    last letter of a word carries ``</w>``. The vocabulary has no padding: ``<unk>`` stands there,
    which the attention mask hides.

    ``source`` holds ``vocab.json`` and ``merges.txt``, or ``tokenizer.json``; ``do_lower_case`` is
    accepted as the other families do.

    Source: transformers' OpenAIGPTTokenizer without spaCy and ftfy.
    """

    def _read(self, source: Path, do_lower_case: bool | None) -> Pipeline:
        from tokenizers import normalizers, pre_tokenizers

        backend = _backend(source, (_UNKNOWN,), end_of_word=_END_OF_WORD)
        backend.normalizer = normalizers.BertNormalizer(lowercase=True)
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        backend.add_special_tokens([_UNKNOWN])
        unknown = backend.token_to_id(_UNKNOWN)
        return Pipeline(backend, RowForm(), unknown, unknown, do_lower_case=True)


def _backend(source: Path, special: tuple[str, ...], *, end_of_word: str) -> Tokenizer:
    """A tokenizer of the vocabulary and merges of a folder, without a pipeline."""
    from tokenizers import Tokenizer, models

    if not source.is_dir():
        raise DataError(f"no tokenizer at {source}: expected a folder")
    paired = (source / "vocab.json").is_file() and (source / "merges.txt").is_file()
    if not paired and not (source / "tokenizer.json").is_file():
        refuse_folder(source, "vocab.json and merges.txt, or tokenizer.json,")
    path = source / ("merges.txt" if paired else "tokenizer.json")
    if paired:
        vocabulary = read_json(source / "vocab.json")
        lines = read_text(path).split("\n")[1:]  # the first one is a version or empty
        merges = [line.removesuffix("\r") for line in lines if line]
    else:
        model = field_of(read_json(path), "model", dict, str(path))
        if model.get("type") != "BPE":
            raise DataError(f"{path}: expected a BPE model, found {model.get('type')}")
        vocabulary = field_of(model, "vocab", dict, str(path))
        merges = field_of(model, "merges", list, str(path))
    require_tokens(path, vocabulary, special)
    with LibraryRefusals(path):
        pairs = [tuple(merge.split(" ") if isinstance(merge, str) else merge) for merge in merges]
        return Tokenizer(
            models.BPE(vocabulary, pairs, unk_token=_UNKNOWN, end_of_word_suffix=end_of_word)
        )
