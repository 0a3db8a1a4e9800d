"""The families of tokenizers: WordPiece, byte-pair encodings and SentencePiece.

SentencePiece models are read by the sentencepiece library as transformers' ALBERT tokenizer does;
the tokenizers library's form of such a model strips other marks than ALBERT does, and takes a
decomposed Hangul syllable for unknown.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

from sot_paddle.config import some
from sot_paddle.data.subword import RowForm, SubwordTokenizer
from sot_paddle.reading import read_bytes, read_json, read_text

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MAX_WORD_CHARS = 100  # longer words become [UNK], as in the original
SENTENCE_PIECES = ("spiece.model", "spm.model")
"""Names of a SentencePiece model: transformers', and that of the published commands."""

_SETTINGS = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
_NORMALIZER = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
"""Name of a setting beside a vocabulary -> the library's in ``tokenizer.json``."""
_PAIRS = ("vocab.json", "merges.txt")
_BPE_UNKNOWN, _BPE_MASK = "<unk>", "<mask>"
_BPE_SPECIAL = ("<s>", "<pad>", "</s>", _BPE_UNKNOWN, _BPE_MASK)
_END_OF_WORD = "</w>"


@dataclass(frozen=True)
class TokenizerFamily:
    """A family of tokenizers."""

    build: Callable[..., SubwordTokenizer]  # of a folder, ``do_lower_case`` and ``max_length``
    needed: tuple[tuple[str, ...], ...]  # sets of files, of which one must be there

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
            ValueError: a broken vocabulary, or an impossible option.
        """
        with tempfile.TemporaryDirectory(prefix="sot_paddle_vocabulary_") as folder:
            for name, content in files.items():
                (Path(folder) / name).write_bytes(content)
            try:
                return self.build(folder, **options)
            except ValueError as error:
                reason = str(error).replace(folder, "the checkpoint's vocabulary")
                raise ValueError(reason) from None


def word_piece_tokenizer(
    source: str | Path, *, do_lower_case: bool | None = None, **options: Any
) -> SubwordTokenizer:
    """Texts to token ids as BERT expects them: ``[CLS] a [SEP]`` or ``[CLS] a [SEP] b [SEP]``.

    Beside the notes of subword.py: without lower-casing, combining accents stay as they are
    (transformers 2.2.1 and the fast tokenizer); today's slow tokenizer composes them first (NFC).
    Code points that no Unicode version assigns are kept (as the fast tokenizer does), the slow one
    drops them.

    Args:
        source: a folder with ``tokenizer.json`` or ``vocab.txt`` (``tokenizer_config.json`` is
            read where it is), or a vocabulary file.
        do_lower_case: really applied, also with a cased vocabulary (as the original's command
            does) and switched off with an uncased one. None takes the folder's setting, True where
            there is none.
        options: of `SubwordTokenizer`.

    Raises:
        ValueError: no vocabulary there, a broken one, or an impossible option.
    """
    from tokenizers import normalizers, pre_tokenizers

    backend, settings = _word_pieces(Path(source))
    lower = settings.get("do_lower_case") if do_lower_case is None else do_lower_case
    lower = True if lower is None else bool(lower)
    backend.normalizer = normalizers.BertNormalizer(
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
        strip_accents=settings.get("strip_accents"),
        lowercase=lower,
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.no_padding()
    backend.no_truncation()
    backend.add_special_tokens(list(SPECIAL_TOKENS))
    pad, _, first, separator, mask = map(backend.token_to_id, SPECIAL_TOKENS)
    form = RowForm((first,), (separator,), (separator,), typed=True)
    return SubwordTokenizer(backend, form, pad, mask, lower, **options)


def _word_pieces(source: Path) -> tuple[Tokenizer, dict[str, Any]]:
    """Load BERT's kind of vocabulary from a folder or a file, and the settings beside it.

    They are ``do_lower_case``, ``strip_accents``, ``tokenize_chinese_chars``, where there are any.
    """
    from tokenizers import Tokenizer, models

    path = source if source.is_file() else _first_of(source, "tokenizer.json", "vocab.txt")
    settings_path = source / _SETTINGS[1]
    settings = read_json(settings_path) if settings_path.is_file() else {}
    if path.name == "tokenizer.json":
        backend = _from_json(path, "WordPiece")
        for option, name in _NORMALIZER.items():
            if hasattr(backend.normalizer, name):
                settings.setdefault(option, getattr(backend.normalizer, name))
        return backend, settings
    lines = read_text(path).removesuffix("\n").split("\n")
    vocabulary = {token.removesuffix("\r"): index for index, token in enumerate(lines)}
    require_tokens(path, vocabulary, SPECIAL_TOKENS)
    unknown = SPECIAL_TOKENS[1]
    model = models.WordPiece(vocabulary, unk_token=unknown, max_input_chars_per_word=MAX_WORD_CHARS)
    return Tokenizer(model), settings


def byte_bpe_tokenizer(
    source: str | Path, *, do_lower_case: bool | None = None, **options: Any
) -> SubwordTokenizer:
    """Rows ``<s> a </s>`` or ``<s> a </s></s> b </s>``, every token type 0.

    A text is cut into words with the space before them, and those into pieces of their UTF-8 bytes;
    ``do_lower_case`` None leaves it as it is. Source: transformers' RobertaTokenizer.
    """
    from tokenizers import AddedToken, normalizers, pre_tokenizers

    backend = _bpe_backend(Path(source), _BPE_SPECIAL, end_of_word="")
    if do_lower_case:
        backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    # the mask takes the space before it, so that it stands for a word
    backend.add_special_tokens([*_BPE_SPECIAL[:-1], AddedToken(_BPE_MASK, lstrip=True)])
    first, pad, last, _, mask = map(backend.token_to_id, _BPE_SPECIAL)
    form, lower = RowForm((first,), (last, last), (last,)), bool(do_lower_case)
    return SubwordTokenizer(backend, form, pad, mask, lower, word_lead=" ", **options)


def word_bpe_tokenizer(
    source: str | Path, *, do_lower_case: bool | None = None, **options: Any
) -> SubwordTokenizer:
    """Rows ``a`` or ``a b`` without special tokens, every token type 0.

    The text is cleaned, lower-cased whatever the option says, and cut into words as for WordPiece,
    accents stripped; the last letter of a word carries ``</w>``. The vocabulary has no padding:
    ``<unk>`` stands there, which the attention mask hides. Source: transformers'
    OpenAIGPTTokenizer without spaCy and ftfy.
    """
    from tokenizers import normalizers, pre_tokenizers

    backend = _bpe_backend(Path(source), (_BPE_UNKNOWN,), end_of_word=_END_OF_WORD)
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.add_special_tokens([_BPE_UNKNOWN])
    unknown = backend.token_to_id(_BPE_UNKNOWN)
    return SubwordTokenizer(backend, RowForm(), unknown, unknown, do_lower_case=True, **options)


def _bpe_backend(source: Path, special: tuple[str, ...], *, end_of_word: str) -> Tokenizer:
    """A tokenizer of the vocabulary and merges of a folder, without a pipeline."""
    from tokenizers import Tokenizer, models

    paths = [source / name for name in _PAIRS]
    if all(path.is_file() for path in paths):
        path = paths[1]
        with LibraryRefusals(path):
            backend = Tokenizer(models.BPE.from_file(*map(str, paths)))
    else:
        path = _first_of(source, "tokenizer.json")
        backend = _from_json(path, "BPE")
    require_tokens(path, backend.get_vocab(), special)
    backend.model.unk_token, backend.model.end_of_word_suffix = _BPE_UNKNOWN, end_of_word
    return backend


def _from_json(path: Path, kind: str) -> Tokenizer:
    """The tokenizer of a ``tokenizer.json``, whose model has to be of that kind."""
    from tokenizers import Tokenizer

    with LibraryRefusals(path):
        backend = Tokenizer.from_file(str(path))
    if type(backend.model).__name__ != kind:
        raise ValueError(f"{path}: expected a {kind} model, found {type(backend.model).__name__}")
    return backend


class LibraryRefusals(contextlib.AbstractContextManager):
    """Puts the path before what the tokenizers library refuses, with a bare Exception."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __exit__(self, kind: type | None, error: BaseException | None, _: object) -> None:
        if kind in (Exception, TypeError):
            reason = f"the tokenizers library refuses it: {str(error).splitlines()[0]}"
            raise ValueError(f"{self._path}: {reason}") from error


def _first_of(folder: Path, *names: str) -> Path:
    """The first of these files that is in a folder; a ValueError says what it holds instead."""
    if not folder.is_dir():
        raise ValueError(f"no tokenizer at {folder}: expected a folder with {' or '.join(names)}")
    paths = [folder / name for name in names if (folder / name).is_file()]
    if not paths:
        content = some(sorted(path.name for path in folder.iterdir())) or "nothing"
        raise ValueError(f"expected {' or '.join(names)} in {folder}, which holds {content}")
    return paths[0]


def require_tokens(path: Path, vocabulary: Collection[str], tokens: Iterable[str]) -> None:
    """Refuse a vocabulary without one of these tokens."""
    missing = [token for token in tokens if token not in vocabulary]
    if missing:
        raise ValueError(f"{path}: expected special tokens, missing {', '.join(missing)}")


_SPECIAL = ("[CLS]", "[SEP]", "<pad>", "[MASK]")
_SPACE = "\u2581"


def sentence_piece_tokenizer(
    source: str | Path, *, do_lower_case: bool | None = None, **options: Any
) -> SubwordTokenizer:
    """Rows ``[CLS] a [SEP]`` or ``[CLS] a [SEP] b [SEP]`` of a SentencePiece model.

    Special tokens that the model lacks are appended in the order [CLS], [SEP], <pad>, [MASK]: ids
    30000 to 30003 of a model of 30000 pieces. Accents are stripped (NFKD, then no combining
    characters), quotes of two letters become one, white space becomes single spaces.
    ``do_lower_case`` None means True. Source: specs.md E.3, transformers' AlbertTokenizer.
    """
    lower = True if do_lower_case is None else do_lower_case
    backend = _Pieces(_first_of(Path(source), *SENTENCE_PIECES), lower=lower)
    first, separator, pad, mask = (backend.ids[token] for token in _SPECIAL)
    form = RowForm((first,), (separator,), (separator,), typed=True)
    return SubwordTokenizer(backend, form, pad, mask, lower, **options)


class _Pieces:
    """A model, with the calls of the tokenizers library that a `SubwordTokenizer` makes."""

    def __init__(self, path: Path, *, lower: bool) -> None:
        import sentencepiece

        self._content, self._lower = read_bytes(path), lower
        try:
            self._model = sentencepiece.SentencePieceProcessor(model_proto=self._content)
        except RuntimeError:
            raise ValueError(f"{path}: no SentencePiece model, or a damaged one") from None
        size = self._model.get_piece_size()
        if not size:
            raise ValueError(f"{path}: a SentencePiece model without pieces, or a damaged one")
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

    def encode_batch_fast(
        self, texts: Sequence[str], *, add_special_tokens: bool
    ) -> list[SimpleNamespace]:
        return [SimpleNamespace(ids=self._encode(text)) for text in texts]

    def encode_batch(self, texts: Sequence[str], *, add_special_tokens: bool) -> NoReturn:
        raise ValueError(
            "a SentencePiece model does not tell where a token lies in its text, which answers in "
            "a text need: use a model with another tokenizer"
        )

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = []
        for place, part in enumerate(self._special.split(text)):  # text, token, text, ...
            pieces = [part] if place % 2 else self._pieces(part)
            ids += [self.ids[piece] for piece in pieces]
        return ids

    def _pieces(self, text: str) -> list[str]:
        """The pieces of a text; a digit's comma is a piece of its own.

        REF: the library's pieces such as ``1,`` are cut, and what stands before the comma is
        encoded again.
        """
        pieces: list[str] = []
        for piece in self._model.encode(_clean(text, self._lower), out_type=str):
            if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit():
                again = self._model.encode(piece[:-1].replace(_SPACE, ""), out_type=str)
                if piece[0] != _SPACE and again[0][0] == _SPACE:
                    again = again[1:] if len(again[0]) == 1 else [again[0][1:], *again[1:]]
                pieces += [*again, ","]
            else:
                pieces.append(piece)
        unknown = self._tokens[self._model.unk_id()]
        return [piece if piece in self.ids else unknown for piece in pieces]


def _clean(text: str, lower: bool) -> str:
    """A text as ALBERT hands it to its model."""
    if lower:
        text = "".join(letter.lower() for letter in text)  # by letter: a final sigma stays one
    text = " ".join(text.split()).replace("``", '"').replace("''", '"')
    text = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    return text.lower() if lower else text


FAMILIES: Mapping[str, TokenizerFamily] = {
    "wordpiece": TokenizerFamily(word_piece_tokenizer, (("vocab.txt",), _SETTINGS[:1])),
    "byte_bpe": TokenizerFamily(byte_bpe_tokenizer, (_PAIRS, _SETTINGS[:1])),
    "word_bpe": TokenizerFamily(word_bpe_tokenizer, (_PAIRS, _SETTINGS[:1])),
    "sentencepiece": TokenizerFamily(
        sentence_piece_tokenizer, tuple((name,) for name in SENTENCE_PIECES)
    ),
}
"""What a backbone's record calls it -> the family."""
