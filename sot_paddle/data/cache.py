"""Tokenized splits kept on disk, keyed by everything they depend on.

The key is a hash of the data files' bytes, the task's description, the vocabulary and every
option of the tokenizer, the version of the ``tokenizers`` library and the source text of the
data package: a changed input has another key, so an entry can be missing but not stale. Entries are
``.npz`` files without pickles, written atomically; a zip file has checksums, and a damaged one is
rebuilt with a message.
"""

from __future__ import annotations

import hashlib
import io
import logging
import os
import zipfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import numpy as np

from sot_paddle.atomic import write_atomically
from sot_paddle.data.batches import TokenFeatures
from sot_paddle.data.glue import Example, read_split, split_paths
from sot_paddle.data.glue_tasks import Task, get_task, resolve_split
from sot_paddle.data.subword import SubwordTokenizer
from sot_paddle.home_folder import default_cache_dir

logger = logging.getLogger(__name__)

_DAMAGES = (OSError, EOFError, ValueError, TypeError, LookupError, RuntimeError, zipfile.BadZipFile)
"""What a damaged file of arrays raises."""


def tokenize_split(
    data_dir: str | Path, task: str | Task, split: str, tokenizer: SubwordTokenizer
) -> TokenFeatures:
    """Read one split (see :func:`~sot_paddle.data.glue.read_split`) and tokenize it.

    Returns:
        One row per example, in the file's order; labels int64 classes or float32 scores, None
        when the file's are withheld.
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
    """Tokenize a split, or take it from the cache where it was done before; see `tokenize_split`.

    Entries live in ``cache_dir``, :func:`default_cache_dir` if None. One that cannot be written is
    not used, with one logged line.
    """
    task = get_task(task)
    name = resolve_split(task, split)
    folder = Path(cache_dir) if cache_dir is not None else default_cache_dir()
    key = cache_key(data_dir, task, name, tokenizer)
    path = folder / f"{task.name}-{name}-{key[:32]}.npz"
    if path.exists():
        try:
            content = io.BytesIO(path.read_bytes())
            with np.load(content, allow_pickle=False) as stored:
                return TokenFeatures(**stored)
        except _DAMAGES as error:
            logger.warning("cache entry %s is damaged (%s); it is rebuilt", path, error)
    features = tokenize_split(data_dir, task, name, tokenizer)
    stream = io.BytesIO()
    # labels first: a damaged directory can lose its last entry, which must be one that is required
    np.savez(stream, **dict(reversed(features.arrays().items())))
    try:
        write_atomically(path, stream.getvalue())
    except OSError as error:
        logger.warning("no cache: cannot write in %s (%s); going on without", folder, error)
    return features


def cache_key(
    data_dir: str | Path, task: str | Task, split: str, tokenizer: SubwordTokenizer
) -> str:
    """SHA-256 over everything that the features of a split depend on, as 64 hex digits."""
    task = get_task(task)
    name = resolve_split(task, split)
    parts = [repr((task, name, dict(task.splits))).encode(), tokenizer.fingerprint.encode()]
    parts.append(metadata.version("tokenizers").encode())
    sources = sorted(Path(__file__).parent.glob("*.py"))
    for path in (*sources, *split_paths(data_dir, task, name)):
        parts += [os.fsencode(path.name), path.read_bytes()]
    digest = hashlib.sha256()
    for part in parts:  # hash of hashes: a byte cannot move from one part to the next unseen
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()
