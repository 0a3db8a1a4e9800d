"""The families of tokenizers by name: which class, and which files of a checkpoint it reads."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from sot_paddle.data.byte_pairs import ByteBpeTokenizer, WordBpeTokenizer
from sot_paddle.data.errors import DataError
from sot_paddle.data.sentence_pieces import MODEL_FILES, SentencePieceTokenizer
from sot_paddle.data.subword import SubwordTokenizer
from sot_paddle.data.tokenization import WordPieceTokenizer

_SETTINGS = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
_PAIRS = ("vocab.json", "merges.txt")


@dataclass(frozen=True)
class TokenizerFamily:
    """A family of tokenizers.

    Attributes:
        build: folder, ``do_lower_case`` and ``max_length`` to a tokenizer.
        needed: sets of files, of which one must be there.
    """

    build: Callable[..., SubwordTokenizer]
    needed: tuple[tuple[str, ...], ...]

    @property
    def files(self) -> tuple[str, ...]:
        """Every file of a checkpoint that belongs to its tokenizer."""
        needed = (name for names in self.needed for name in names)
        return tuple(dict.fromkeys((*needed, *_SETTINGS)))

    def whole(self, present: Collection[str]) -> bool:
        """Whether the files that are there make a tokenizer."""
        return any(set(names) <= set(present) for names in self.needed)

    @property
    def said(self) -> str:
        """The files that are needed, for a message."""
        return " or ".join(" and ".join(names) for names in self.needed)

    def from_files(self, files: Mapping[str, bytes], **options: object) -> SubwordTokenizer:
        """Build a tokenizer from the content of its files by name, and ``build``'s options.

        Raises:
            DataError: a broken vocabulary, or an impossible option.
        """
        with tempfile.TemporaryDirectory(prefix="sot_paddle_vocabulary_") as folder:
            for name, content in files.items():
                (Path(folder) / name).write_bytes(content)
            try:
                return self.build(folder, **options)
            except ValueError as error:
                raise DataError(str(error).replace(folder, "the checkpoint's vocabulary")) from None


FAMILIES: Mapping[str, TokenizerFamily] = {
    "wordpiece": TokenizerFamily(WordPieceTokenizer, (("vocab.txt",), _SETTINGS[:1])),
    "byte_bpe": TokenizerFamily(ByteBpeTokenizer, (_PAIRS, _SETTINGS[:1])),
    "word_bpe": TokenizerFamily(WordBpeTokenizer, (_PAIRS, _SETTINGS[:1])),
    "sentencepiece": TokenizerFamily(
        SentencePieceTokenizer, tuple((name,) for name in MODEL_FILES)
    ),
}
"""What a backbone's record calls it -> the family."""
