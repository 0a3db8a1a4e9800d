"""Texts to rows of token ids, by the ``tokenizers`` library; what the families have in common.

The result is that of transformers' slow tokenizers as the text release calls them, with these
notes:

* A special token written in a text, as ``[SEP]``, becomes that special token (as transformers
  does, slow and fast).
* Truncation is ``longest_first``: tokens are dropped from the end of the longer sentence, one at
  a time. QUIRK: transformers' two implementations disagree on ties. The slow one (the original)
  drops from the second sentence on a tie, so the first keeps one token more when the room is
  odd; the fast one gives that token to the sentence that was longer, the second when they were
  equal. ``tie_break`` chooses; the default is the original's.

Shape legend: B texts, S tokens of a row after padding.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sot_paddle.data.batches import TokenFeatures, pad_rows

if TYPE_CHECKING:
    import numpy as np
    from tokenizers import Tokenizer

HEAD, TAIL, HALVES = -2, -1, 0
"""Which tokens of a single text are kept, see :func:`kept_tokens`."""
_SHORTEST = 8  # room for the special tokens and a little text


def kept_tokens(ids: list[int], room: int, trunc_medium: int) -> list[int]:
    """What is kept of a single text that may be too long.

    Args:
        ids: its tokens, special ones not counted.
        room: tokens M that fit.
        trunc_medium: ``HEAD`` the first M, ``TAIL`` the last M, ``HALVES`` the first and the last
            ``M // 2`` (QUIRK: one fewer than fit where M is odd), k above 0 the first k and the
            last M - k; k is below M.

    Source: specs.md D.2.
    """
    if len(ids) <= room:
        return ids
    if trunc_medium == HEAD:
        return ids[:room]
    if trunc_medium == TAIL:
        return ids[len(ids) - room :]
    half = room // 2
    first, last = (half, half) if trunc_medium == HALVES else (trunc_medium, room - trunc_medium)
    return ids[:first] + ids[len(ids) - last :]


def truncated_lengths(first: int, second: int, room: int, tie_break: str) -> tuple[int, int]:
    """How many tokens of each sentence ``longest_first`` truncation keeps, ``room`` at most.

    ``tie_break`` is ``"slow"`` (the original) or ``"fast"``, see the module's page.

    Source: specs.md B.2.
    """
    if first + second <= room:
        return first, second
    half = room // 2
    spare = room - half  # half, or one more
    if min(first, second) > half:
        first_gets_spare = tie_break == "slow" or first > second
        return (spare, half) if first_gets_spare else (half, spare)
    if first > second:
        return room - second, second
    return first, room - first


@dataclass(frozen=True)
class RowForm:
    """The special tokens of a row, by id."""

    begin: tuple[int, ...] = ()
    between: tuple[int, ...] = ()
    end: tuple[int, ...] = ()
    typed: bool = False  # whether the second sentence has token type 1; else all types are 0

    def special(self, sentences: int) -> int:
        """Special tokens of a row."""
        return len(self.begin + self.end) + len(self.between) * (sentences - 1)


@dataclass
class SubwordTokenizer:
    """Texts to rows of token ids; the families of tokenizers.py make it.

    Raises:
        ValueError: rows that are too short.

    Source: specs.md B.1 and B.2.
    """

    backend: Tokenizer
    form: RowForm
    pad_id: int
    mask_id: int  # of what stands for a word that is left out
    do_lower_case: bool
    word_lead: str = ""  # what stands before a word inside a text and changes the word's tokens
    max_length: int = 128  # tokens of a row at most, special ones included; at least 8
    tie_break: str = "slow"  # see `truncated_lengths`
    trunc_medium: int = HEAD  # see `kept_tokens`
    vocab_size: int = field(init=False)  # largest token id + 1
    fingerprint: str = ""  # hash of the vocabulary and of every option

    def __post_init__(self) -> None:
        if self.max_length < _SHORTEST:
            raise ValueError(f"max_length: expected at least {_SHORTEST}, got {self.max_length}")
        self.vocab_size = max(self.backend.get_vocab().values()) + 1
        options = f"{self.max_length} {self.tie_break}"
        self.fingerprint = self.fingerprint or _hash(f"{options} {self.backend.to_str()}")

    def truncating(self, trunc_medium: int) -> SubwordTokenizer:
        """Return a tokenizer that keeps other tokens of a single text, see :func:`kept_tokens`.

        Raises:
            ValueError: no such rule, or more tokens at the front than fit.
        """
        room = self.max_length - self.form.special(1)
        if not HEAD <= trunc_medium < room:
            raise ValueError(
                f"trunc_medium: expected {HEAD} (head), {TAIL} (tail), {HALVES} (halves) or the "
                f"number of first tokens below {room}, what {self.max_length} tokens leave, got "
                f"{trunc_medium}"
            )
        fingerprint = _hash(f"{self.fingerprint} {trunc_medium}")
        return replace(self, trunc_medium=trunc_medium, fingerprint=fingerprint)

    def tokenize(self, text_a: Sequence[str], text_b: Sequence[str] | None = None) -> TokenFeatures:
        """Token ids of B sentences or pairs, truncated to ``max_length``."""
        first = self.ids(text_a)
        second = [None] * len(first) if text_b is None else self.ids(text_b)
        rows = [self._assemble(*pair, self.max_length) for pair in zip(first, second, strict=True)]
        return TokenFeatures.from_rows([row for row, _ in rows], [start for _, start in rows])

    def encode_batch(
        self, text_a: Sequence[str], text_b: Sequence[str] | None = None, *, pad: str = "max_length"
    ) -> dict[str, np.ndarray]:
        """Tokenize and pad, to ``"max_length"`` or to the ``"longest"``, see `pad_rows`."""
        return self.padded(self.tokenize(text_a, text_b), pad)

    def padded(self, rows: TokenFeatures, pad: str) -> dict[str, np.ndarray]:
        """All of the rows as one batch of the tokenizer's length, see `pad_rows`."""
        places, length = range(len(rows)), self.max_length
        return pad_rows(rows, places, pad=pad, max_length=length, pad_id=self.pad_id)

    def pieces(self, texts: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """For each text its ids, and for each id its first character and the one after its last."""
        encoded = self.backend.encode_batch(list(texts), add_special_tokens=False)
        return [(encoding.ids, encoding.offsets) for encoding in encoded]

    def pair(self, first: list[int], second: list[int]) -> tuple[list[int], int]:
        """The row of a pair of token ids with its special tokens, and where its type becomes 1."""
        return self._assemble(first, second, len(first) + len(second) + self.form.special(2))

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of texts, without special tokens."""
        encoded = self.backend.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encoded]

    def _assemble(
        self, first: list[int], second: list[int] | None, limit: int
    ) -> tuple[list[int], int]:
        """The row with its special tokens, and where its token type becomes 1."""
        form = self.form
        if second is None:
            kept = kept_tokens(first, limit - form.special(1), self.trunc_medium)
            row = [*form.begin, *kept, *form.end]
            return row, len(row)
        kept_first, kept_second = truncated_lengths(
            len(first), len(second), limit - form.special(2), self.tie_break
        )
        row = [*form.begin, *first[:kept_first], *form.between]
        whole = [*row, *second[:kept_second], *form.end]
        return whole, len(row) if form.typed else len(whole)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
