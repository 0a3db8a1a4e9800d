"""The embedded default data: a small acceptability corpus in CoLA's format.

A grammar (``corpus_phenomena``, ``corpus_clauses``) makes sentences and minimal violations: word
order, agreement with attractors, argument structure, determiners, reflexives, auxiliaries,
questions and islands. Everything follows from the seed; no sentence comes twice, a sentence and
its violation are in the same split, and about two thirds are acceptable.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import NamedTuple

from sot_paddle.atomic import write_atomically
from sot_paddle.data.corpus_clauses import PHENOMENA
from sot_paddle.data.errors import DataError
from sot_paddle.data.real_sentences import REAL_PAIRS, REAL_SENTENCES

__all__ = ["REAL_PAIRS", "REAL_SENTENCES", "SIZES", "Sentence", "build_corpus", "write_corpus"]

SIZES = {"train": 3000, "dev": 500, "test": 500}
_VIOLATIONS = 0.55  # share of the acceptable sentences whose violation is taken as well
_PATIENCE = 1000  # attempts at a new sentence before the grammar counts as exhausted


class Sentence(NamedTuple):
    """One sentence of the corpus.

    Attributes:
        source: the phenomenon, CoLA's first column.
        label: 1 acceptable, 0 not.
        text: the sentence.
    """

    source: str
    label: int
    text: str


def build_corpus(
    seed: int = 20210421, sizes: dict[str, int] | None = None
) -> dict[str, list[Sentence]]:
    """Make the corpus.

    Args:
        seed: decides everything.
        sizes: sentences of each split; None takes ``SIZES``.

    Returns:
        Split name to its sentences, in a random order; all sentences are different.

    Raises:
        DataError: more sentences are asked for than the grammar has.
    """
    random = Random(f"sot-corpus {seed}")  # a string: the same on every platform
    seen: set[str] = set()
    splits: dict[str, list[Sentence]] = {}
    for split, size in (sizes or SIZES).items():
        rows: list[Sentence] = []
        names: list[str] = []
        while len(rows) < size:
            if not names:
                names = random.sample(list(PHENOMENA), len(PHENOMENA))
            pair = _new_pair(random, names.pop(), seen)
            wanted = 2 if random.random() < _VIOLATIONS else 1
            rows += pair[: min(wanted, size - len(rows))]
        random.shuffle(rows)
        splits[split] = rows
    return splits


def write_corpus(directory: str | Path, seed: int = 20210421) -> Path:
    """Write ``CoLA/train.tsv``, ``dev.tsv`` (no header) and ``test.tsv`` (``index sentence``).

    Args:
        directory: made when missing; each file is written atomically.
        seed: see :func:`build_corpus`.

    Returns:
        The task's folder, for ``read_split(folder, "cola", split)``.

    Raises:
        OSError: the folder cannot be written.
    """
    folder = Path(directory) / "CoLA"
    folder.mkdir(parents=True, exist_ok=True)
    for split, rows in build_corpus(seed).items():
        if split == "test":
            lines = ["index\tsentence"]
            lines += [f"{index}\t{row.text}" for index, row in enumerate(rows)]
        else:
            stars = ("*", "")
            lines = [f"{row.source}\t{row.label}\t{stars[row.label]}\t{row.text}" for row in rows]
        write_atomically(folder / f"{split}.tsv", ("\n".join(lines) + "\n").encode())
    return folder


def _new_pair(random: Random, name: str, seen: set[str]) -> list[Sentence]:
    """An acceptable sentence and its violation, neither made before."""
    for _ in range(_PATIENCE):
        good, bad = map(_finished, PHENOMENA[name](random))
        if good != bad and good not in seen and bad not in seen:
            seen.update((good, bad))
            return [Sentence(name, 1, good), Sentence(name, 0, bad)]
    raise DataError(f"the grammar has no further sentence of {name!r}; ask for a smaller corpus")


def _finished(text: str) -> str:
    """Capital letter and full stop."""
    return text[0].upper() + text[1:] + ("" if text.endswith("?") else ".")
