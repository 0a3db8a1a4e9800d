"""SentencePiece models, read by the sentencepiece library as transformers' ALBERT tokenizer does.

The tokenizers library is not used here: its form of such a model strips other marks than ALBERT
does, and takes a decomposed Hangul syllable for unknown.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path

from sot_paddle.data.errors import DataError
from sot_paddle.data.subword import Pipeline, RowForm, SubwordTokenizer
from sot_paddle.data.tokenizers import SENTENCE_PIECES
from sot_paddle.reading import read_bytes

_SPECIAL = ("[CLS]", "[SEP]", "<pad>", "[MASK]")
_SPACE = "\u2581"


class SentencePieceTokenizer(SubwordTokenizer):
    """Rows ``[CLS] a [SEP]`` or ``[CLS] a [SEP] b [SEP]`` of a SentencePiece model.

    Special tokens that the model lacks are appended in the order [CLS], [SEP], <pad>, [MASK]: ids
    30000 to 30003 of a model of 30000 pieces. Accents are stripped (NFKD, then no combining
    characters), quotes of two letters become one, white space becomes single spaces.

    ``source`` holds ``spiece.model`` or ``spm.model``; ``do_lower_case`` None means True.

    Source: specs.md E.3, transformers' AlbertTokenizer.
    """

    def _read(self, source: Path, do_lower_case: bool | None) -> Pipeline:
        lower = True if do_lower_case is None else do_lower_case
        backend = _Pieces(_find(source), lower=lower)
        first, separator, pad, mask = (backend.ids[token] for token in _SPECIAL)
        form = RowForm((first,), (separator,), (separator,), typed=True)
        return Pipeline(backend, form, pad, mask, lower)

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of texts, without special tokens."""
        return [self._backend.encode(text) for text in texts]

    def pieces(self, texts: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Refuses: where a piece lies in its text is not known.

        Raises:
            DataError: always.
        """
        raise DataError(
            "a SentencePiece model does not tell where a token lies in its text, which answers in "
            "a text need: use a model with another tokenizer"
        )


def _find(folder: Path) -> Path:
    if not folder.is_dir():
        raise DataError(f"no tokenizer at {folder}: expected a folder")
    for name in SENTENCE_PIECES:
        if (folder / name).is_file():
            return folder / name
    raise DataError(f"no SentencePiece model in {folder}: expected {' or '.join(SENTENCE_PIECES)}")


class _Pieces:
    """A model, with the calls of the tokenizers library that a `SubwordTokenizer` makes.

    Args:
        lower: lower-case the text.

    Attributes:
        ids: token -> id.
    """

    def __init__(self, path: Path, *, lower: bool) -> None:
        import sentencepiece

        self._content, self._lower = read_bytes(path), lower
        try:
            self._model = sentencepiece.SentencePieceProcessor(model_proto=self._content)
        except RuntimeError:
            raise DataError(f"{path}: no SentencePiece model, or a damaged one") from None
        size = self._model.get_piece_size()
        if not size:
            raise DataError(f"{path}: a SentencePiece model without pieces, or a damaged one")
        self.ids = {self._model.id_to_piece(index): index for index in range(size)}
        for token in _SPECIAL:
            self.ids.setdefault(token, len(self.ids))
        self._tokens = {index: token for token, index in self.ids.items()}
        unknown = self._model.id_to_piece(self._model.unk_id())
        special = "|".join(re.escape(token) for token in (unknown, *_SPECIAL))
        self._special = re.compile(f"({special})")

    def get_vocab(self) -> dict[str, int]:
        return self.ids

    def to_str(self) -> str:
        """What the tokenizer is made of, for a fingerprint."""
        return f"{self._lower} {self._content.hex()}"

    def id_to_token(self, index: int) -> str:
        return self._tokens[index]

    def encode(self, text: str) -> list[int]:
        parts = self._special.split(text)  # text, token, text, ...
        ids: list[int] = []
        for place, part in enumerate(parts):
            if place % 2:
                ids.append(self.ids[part])
                continue
            ids += [self.ids[piece] for piece in self._pieces(part)]
        return ids

    def _pieces(self, text: str) -> list[str]:
        """The pieces of a text; a digit's comma is a piece of its own.

        REF: the library's pieces such as ``1,`` are cut, and what stands before the comma is
        encoded again.
        """
        found: list[str] = []
        for piece in self._model.encode(_clean(text, self._lower), out_type=str):
            if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit():
                again = self._model.encode(piece[:-1].replace(_SPACE, ""), out_type=str)
                if piece[0] != _SPACE and again[0][0] == _SPACE:
                    again = again[1:] if len(again[0]) == 1 else [again[0][1:], *again[1:]]
                found += [*again, ","]
            else:
                found.append(piece)
        unknown = self._tokens[self._model.unk_id()]
        return [piece if piece in self.ids else unknown for piece in found]


def _clean(text: str, lower: bool) -> str:
    """A text as ALBERT hands it to its model."""
    if lower:
        text = "".join(letter.lower() for letter in text)  # by letter: a final sigma stays one
    text = " ".join(text.split()).replace("``", '"').replace("''", '"')
    text = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    return text.lower() if lower else text
