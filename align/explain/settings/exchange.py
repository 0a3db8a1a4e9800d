"""Settings that differ: what is said of them, and the fewest that have to be exchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from numbers import Real
from typing import Any

from align.explain.experiment import Edit, Subject, explain


def number(value: Any) -> str:
    """As people write it."""
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(number, value)) + "]"
    return f"{value:.6g}" if isinstance(value, Real) and not isinstance(value, bool) else str(value)


def sentence(values: Sequence[tuple[str, Any, Any]]) -> str:
    """Options that differ, in words.

    Args:
        values: (name, Paddle's, PyTorch's).
    """
    names, ours, theirs = zip(*values, strict=True)
    if len(names) == 1 and True in (ours[0] is True, theirs[0] is True):
        return f"{names[0]}: only {'Paddle' if ours[0] else 'PyTorch'} has it"
    turned = sorted(map(str, ours)) == sorted(map(str, theirs)) and len(names) > 1
    title = " and ".join(names) + (" exchanged" if turned else "")
    return f"{title}: {both(' and '.join(map(number, ours)), ' and '.join(map(number, theirs)))}"


def both(a: Any, b: Any) -> str:
    """Two values side by side."""
    return f"Paddle {number(a)}, PyTorch {number(b)}"


def fewest(
    subject: Subject,
    edits: Iterable[Edit[Subject]],
    passes: Callable[[Subject], bool],
    budget: int,
) -> list[Edit[Subject]]:
    """The fewest edits after which the judge passes: one, or all without those it does not need.

    Args:
        subject: what the judge fails.
        edits: with sentences that differ.
        passes: the judge.
        budget: trials of single edits; as many again are needed to find a smallest set.

    Returns:
        Edits, none when the judge fails after all of them together.
    """
    edits = list(edits)
    single = explain(subject, edits, passes, budget)
    if single is not None:
        return [edit for edit in edits if edit.says == single.cause][:1]
    kept = edits[:budget]
    if len(kept) < 2 or explain(subject, [_together(kept)], passes, 1) is None:
        return []
    for edit in edits[:budget]:
        rest = [one for one in kept if one is not edit]
        if len(rest) > 1 and explain(subject, [_together(rest)], passes, 1) is not None:
            kept = rest
    return kept


def _together(edits: Sequence[Edit[Subject]]) -> Edit[Subject]:
    def apply(subject: Subject) -> Subject | None:
        for edit in edits:
            subject = None if subject is None else edit.apply(subject)
        return subject

    return Edit("; ".join(edit.says for edit in edits), apply)
