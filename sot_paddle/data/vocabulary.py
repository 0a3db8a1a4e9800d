"""BERT vocabularies on disk: ``tokenizer.json``, ``vocab.txt``, ``tokenizer_config.json``."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from sot_paddle.config import some
from sot_paddle.data.errors import DataError
from sot_paddle.reading import field_of, read_json, read_text

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MAX_WORD_CHARS = 100  # longer words become [UNK], as in the original


def load_backend(source: Path) -> tuple[Tokenizer, dict[str, Any]]:
    """Load a vocabulary.

    Args:
        source: a folder with ``tokenizer.json`` or ``vocab.txt``, or a vocabulary file.

    Returns:
        The library's tokenizer, and the settings stored beside the vocabulary
        (``do_lower_case``, ``strip_accents``, ``tokenize_chinese_chars``, where there are any).

    Raises:
        DataError: no vocabulary there, or one that is not BERT's kind.
    """
    if source.is_file():
        return _from_vocabulary(source), {}
    if not source.is_dir():
        raise DataError(f"no tokenizer at {source}: expected a folder or a vocab.txt file")
    settings_path = source / "tokenizer_config.json"
    settings = read_json(settings_path) if settings_path.is_file() else {}
    if (source / "tokenizer.json").is_file():
        backend, stored = _from_json(source / "tokenizer.json")
        return backend, stored | settings
    if not (source / "vocab.txt").is_file():
        refuse_folder(source, "tokenizer.json or vocab.txt")
    return _from_vocabulary(source / "vocab.txt"), settings


def _from_vocabulary(path: Path) -> Tokenizer:
    from tokenizers import Tokenizer, models

    lines = read_text(path).removesuffix("\n").split("\n")
    vocabulary = {token.removesuffix("\r"): index for index, token in enumerate(lines)}
    require_tokens(path, vocabulary, SPECIAL_TOKENS)
    unknown = SPECIAL_TOKENS[1]
    model = models.WordPiece(vocabulary, unk_token=unknown, max_input_chars_per_word=MAX_WORD_CHARS)
    return Tokenizer(model)


def _from_json(path: Path) -> tuple[Tokenizer, dict[str, Any]]:
    from tokenizers import Tokenizer

    content = read_json(path)
    kind = field_of(content, "model", dict, str(path)).get("type")
    if kind != "WordPiece":
        raise DataError(f"{path}: expected a WordPiece model, found {kind}")
    with LibraryRefusals(path):
        backend = Tokenizer.from_str(json.dumps(content))
    require_tokens(path, backend.get_vocab(with_added_tokens=True), SPECIAL_TOKENS)
    stored = content.get("normalizer") or {}
    names = {
        "do_lower_case": "lowercase",
        "strip_accents": "strip_accents",
        "tokenize_chinese_chars": "handle_chinese_chars",
    }
    return backend, {ours: stored[theirs] for ours, theirs in names.items() if theirs in stored}


class LibraryRefusals:
    """Puts the path before what the tokenizers library refuses, with a bare Exception."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type | None, error: BaseException | None, _: object) -> None:
        if kind in (Exception, TypeError):
            reason = str(error).splitlines()[0]
            raise DataError(f"{self._path}: the tokenizers library refuses it: {reason}") from error


def refuse_folder(folder: Path, wanted: str) -> NoReturn:
    """Say what a folder holds in place of a vocabulary."""
    held = some(sorted(path.name for path in folder.iterdir())) or "nothing"
    raise DataError(f"expected {wanted} in {folder}, which holds {held}")


def require_tokens(path: Path, vocabulary: Collection[str], tokens: Iterable[str]) -> None:
    """Refuse a vocabulary without one of these tokens."""
    missing = [token for token in tokens if token not in vocabulary]
    if missing:
        raise DataError(f"{path}: expected special tokens, missing {', '.join(missing)}")
