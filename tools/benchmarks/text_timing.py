"""The embedded corpus through the text pipeline: tokens, cache, loader, and an epoch's batches."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sot_paddle.data.cache import cached_split, tokenize_split
from sot_paddle.data.corpus import FOLDER
from sot_paddle.data.glue import read_split
from sot_paddle.data.tokenization import WordPieceTokenizer
from sot_paddle.data.vocabulary import SPECIAL_TOKENS

TASK, SPLIT, SEED = "CoLA", "train", 42
_SWITCH = "TOKENIZERS_PARALLELISM"  # read by the tokenizers library at each call


def timed_text(folder: str, batch_size: int, sampled: int) -> dict[str, Any]:
    """Tokenize the embedded sentences, with and without threads and cache, and load an epoch.

    Args:
        folder: for the vocabulary and the cache.
        batch_size: rows of a batch.
        sampled: batches to describe.

    Returns:
        ``sentences``; seconds of ``one thread``, ``all threads`` and ``cached`` under ``seconds``;
        ``loader_s`` per batch; ``batches`` of an epoch; the token counts of the rows of the first
        batch of shuffled sentences (``fixed``) and of a few batches of bucketed ones, evenly spaced
        by length (``bucketed``).
    """
    from sot_paddle.data.token_features import PadCollator
    from sot_paddle.tasks.tokens import TokenSplit

    tokenizer = WordPieceTokenizer(_vocabulary(Path(folder)), do_lower_case=True)
    cache = Path(folder) / "cache"
    ways: dict[str, Callable[[], Any]] = {
        "one thread": lambda: _with_threads(
            "false", lambda: tokenize_split(FOLDER, TASK, SPLIT, tokenizer)
        ),
        "all threads": lambda: _with_threads(
            "true", lambda: tokenize_split(FOLDER, TASK, SPLIT, tokenizer)
        ),
        "cached": lambda: cached_split(FOLDER, TASK, SPLIT, tokenizer, cache),
    }
    seconds = {}
    for name, way in ways.items():
        features = way()
        seconds[name] = min(_seconds(way) for _ in range(3))
    split = TokenSplit(features, PadCollator(pad="longest"), batch_size)
    order = split.order(batch_size, SEED)(0)
    spent = _seconds(lambda: [None for _ in split.load(order)])
    lengths = [features.lengths[batch] for batch in order]
    lengths = sorted((rows for rows in lengths if len(rows) == batch_size), key=np.max)
    places = (np.arange(sampled) + 0.5) * len(lengths) / sampled
    shuffled = np.random.default_rng(SEED).permutation(features.lengths)[:batch_size]
    return {
        "sentences": len(features),
        "seconds": seconds,
        "loader_s": spent / len(order),
        "batches": len(order),
        "fixed": shuffled.tolist(),
        "bucketed": [lengths[int(place)].tolist() for place in places],
    }


def _vocabulary(folder: Path) -> Path:
    """A vocabulary of the corpus's own words, and of letters for the rest."""
    words = {
        word.strip(".,?!'\"").lower()
        for example in read_split(FOLDER, TASK, SPLIT)
        for word in example.text_a.split()
    }
    letters = [chr(code) for code in range(33, 127)]
    pieces = [*SPECIAL_TOKENS, *letters, *(f"##{letter}" for letter in letters), *sorted(words)]
    path = folder / "vocab.txt"
    path.write_text("\n".join(dict.fromkeys(filter(None, pieces))) + "\n", encoding="utf-8")
    return path


def _with_threads(value: str, call: Callable[[], Any]) -> Any:
    before = os.environ.get(_SWITCH)
    os.environ[_SWITCH] = value
    try:
        return call()
    finally:
        os.environ.pop(_SWITCH)
        if before is not None:
            os.environ[_SWITCH] = before


def _seconds(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
