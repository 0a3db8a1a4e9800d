"""One row of the tables of edits: what may stand in the place of a call of some functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from align.explain.calls.call_values import Around
from align.explain.calls.layer_words import single
from align.frameworks.watched_calls import WatchedCall


@dataclass(frozen=True)
class CallRow:
    """Edits of the calls of some functions.

    Attributes:
        functions: names, apart by blanks.
        says: the sentence; {name} is the function, {value} the value (of a pair its first), {own}
            what Paddle has.
        answer: the call with a value.
        values: what to try.
        own: what Paddle has.
    """

    functions: str
    says: str
    answer: Callable[[WatchedCall, Any], Any]
    values: Callable[[WatchedCall, Around], Iterable[Any]] = lambda call, around: (None,)
    own: Callable[[WatchedCall], Any] = lambda call: None

    def sentence(self, call: WatchedCall, value: Any) -> str:
        """What is true when the judge passes."""
        shown = value[0] if isinstance(value, tuple) and isinstance(value[0], str) else value
        return self.says.format(name=call.name, value=shown, own=self.own(call))


def option(
    functions: str,
    argument: str,
    candidates: Callable[[WatchedCall, Around], Iterable[Any]] | tuple,
    says: str = "{argument} of {{name}}: Paddle has {{own!r}}, with {{value!r}} it agrees",
) -> CallRow:
    """A row that gives one argument other values; its sentence has {argument}, and {{own}} then."""

    def others(call: WatchedCall, around: Around) -> list[Any]:
        given = candidates(call, around) if callable(candidates) else candidates
        own = single(call.argument(argument))
        return [one for one in given if type(one) is not type(own) or one != own]

    return CallRow(
        functions,
        says.format(argument=argument),
        lambda call, value: call.with_argument(argument, value),
        others,
        lambda call: call.argument(argument),
    )
