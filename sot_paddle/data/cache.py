"""Tokenized splits kept on disk, keyed by everything they depend on.

The key is a hash of the data files' bytes, the task's description, the vocabulary and every
option of the tokenizer, the version of the ``tokenizers`` library and the source text of the
modules that compute the features: a changed input has another key, so an entry can be missing
but not stale. Entries are ``.npz`` files without pickles, written atomically, with a checksum
at the end; a damaged one is rebuilt with a message. Nothing is ever written in the data folder.
"""

from __future__ import annotations

import hashlib
import io
import logging
import os
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import numpy as np

from sot_paddle.atomic import write_atomically
from sot_paddle.data.errors import DataError
from sot_paddle.data.glue import Example, read_split, split_paths
from sot_paddle.data.glue_tasks import Task, get_task, resolve_split
from sot_paddle.data.subword import SubwordTokenizer
from sot_paddle.data.token_features import TokenFeatures
from sot_paddle.home_folder import default_cache_dir
from sot_paddle.reading import read_bytes

logger = logging.getLogger(__name__)

CODE = ("glue.py", "glue_tasks.py", "tsv.py", "tokenization.py", "vocabulary.py")
CODE += ("subword.py", "byte_pairs.py", "token_features.py", "cache.py")
_STAMP_SIZE = 64


def tokenize_split(
    data_dir: str | Path, task: str | Task, split: str, tokenizer: SubwordTokenizer
) -> TokenFeatures:
    """Read one split and tokenize it, without a cache.

    Args:
        data_dir: the task's folder.
        task: name or :class:`Task`.
        split: as for :func:`~sot_paddle.data.glue.read_split`.
        tokenizer: decides vocabulary, letter case and length.

    Returns:
        One row per example, in the file's order; labels int64 classes or float32 scores, None
        when the file's are withheld.

    Raises:
        DataError: the files cannot be used.
    """
    task = get_task(task)
    return tokenize_examples(read_split(data_dir, task, split), task, tokenizer)


def tokenize_examples(
    examples: Sequence[Example], task: Task, tokenizer: SubwordTokenizer
) -> TokenFeatures:
    """Tokenize examples of a task, see :func:`tokenize_split`."""
    pairs = None if len(task.text) == 1 else [example.text_b or "" for example in examples]
    features = tokenizer.tokenize([example.text_a for example in examples], pairs)
    labels = [example.label for example in examples]
    return features.with_targets(
        [example.index for example in examples],
        None if labels[0] is None else labels,
        np.float32 if task.is_regression else np.int64,
    )


def cached_split(
    data_dir: str | Path,
    task: str | Task,
    split: str,
    tokenizer: SubwordTokenizer,
    cache_dir: str | Path | None = None,
) -> TokenFeatures:
    """Like :func:`tokenize_split`, but taken from the cache when the same was computed before.

    Args:
        data_dir, task, split, tokenizer: as there; the folder is only ever read.
        cache_dir: where entries live, made when missing; None: :func:`default_cache_dir`. One
            that cannot be written, or lies in ``data_dir``, is not used, with one logged line.

    Raises:
        DataError: the data files cannot be used.
    """
    task = get_task(task)
    name = resolve_split(task, split)
    folder = Path(cache_dir) if cache_dir is not None else default_cache_dir()
    if folder.resolve().is_relative_to(Path(data_dir).resolve()):
        logger.warning("no cache: %s lies in the data folder, which is never written", folder)
        return tokenize_split(data_dir, task, name, tokenizer)
    key = cache_key(data_dir, task, name, tokenizer)
    path = folder / f"{task.name}-{name}-{key[:32]}.npz"
    found = _read(path, key)
    if found is not None:
        return found
    features = tokenize_split(data_dir, task, name, tokenizer)
    if cache_key(data_dir, task, name, tokenizer) != key:
        raise DataError(f"the files of {task.title} {name} in {data_dir} changed while being read")
    _write(path, key, features)
    return features


def cache_key(
    data_dir: str | Path, task: str | Task, split: str, tokenizer: SubwordTokenizer
) -> str:
    """SHA-256 over everything that the features of a split depend on, as 64 hex digits."""
    task = get_task(task)
    name = resolve_split(task, split)
    parts = [repr((task, name, dict(task.splits))).encode(), tokenizer.fingerprint.encode()]
    parts.append(metadata.version("tokenizers").encode())
    parts += [Path(__file__).with_name(module).read_bytes() for module in CODE]
    for path in split_paths(data_dir, task, name):
        parts += [os.fsencode(path.name), read_bytes(path)]
    digest = hashlib.sha256()
    for part in parts:  # hash of hashes: a byte cannot move from one part to the next unseen
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()


def _stamp(key: str, payload: bytes) -> bytes:
    """64 bytes at the end of an entry: what it was made from, and that it is whole."""
    return hashlib.sha256(key.encode() + payload).hexdigest().encode()


def _read(path: Path, key: str) -> TokenFeatures | None:
    """The entry at ``path``; None when there is none or it is damaged (said in one line)."""
    if not os.path.lexists(path):
        return None
    try:
        content = read_bytes(path)
    except ValueError as error:
        logger.warning("cache entry: %s", error)
        return None
    payload = content[:-_STAMP_SIZE]
    if content[-_STAMP_SIZE:] != _stamp(key, payload):  # before anything is parsed
        logger.warning("cache entry %s is damaged (wrong checksum); it is rebuilt", path)
        return None
    with np.load(io.BytesIO(payload), allow_pickle=False) as stored:
        return TokenFeatures(**{name: stored[name] for name in stored.files})


def _write(path: Path, key: str, features: TokenFeatures) -> None:
    stream = io.BytesIO()
    np.savez(stream, **features.arrays())
    payload = stream.getvalue()
    try:
        write_atomically(path, payload + _stamp(key, payload))
    except OSError as error:
        reason = error.strerror or error
        logger.warning("no cache: cannot write in %s (%s); going on without", path.parent, reason)
