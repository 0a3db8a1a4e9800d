"""Options that two objects hold under the same meaning: read by name, compared, put.

An option is whatever an object holds as a number, a flag or a row of numbers: its attributes, the
keys of a dictionary, the arguments of a `functools.partial`, the variables in a function's closure.
"""

from __future__ import annotations

import functools
import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

SYNONYMS = {
    "eps": "epsilon",
    "alpha": "rho",
    "use_nesterov": "nesterov",
    "base_lrs": "learning rate",
    "base_lr": "learning rate",
    "warmup": "warm-up steps",
    "warmup_steps": "warm-up steps",
    "num_warmup_steps": "warm-up steps",
    "total_steps": "total length",
    "num_training_steps": "total length",
    "max_steps": "total length",
    "step_size": "step size",
}
"""Another name of an option -> ours; a name that is not here means the same on both sides."""
PAIRS = {"betas": ("beta1", "beta2")}
"""One option that holds several of ours."""
STATE = frozenset(
    ("last_epoch", "last_lr", "step_count", "lr", "learning_rate_map", "initial_lr", "params_name")
)
"""What an object counts or computes while it runs: no options."""
LAYER_WORDS: Mapping[str, tuple[str, Callable[[Any], Any] | None]] = {
    "epsilon": ("eps", None),
    "exclusive": ("count_include_pad", lambda value: not value),
    "ksize": ("kernel_size", None),
    "momentum": ("momentum", lambda value: 1 - value),
    "time_major": ("batch_first", lambda value: not value),
    "delta": ("beta", None),
    "threshold": ("lambd", None),
    "min": ("min_val", None),
    "max": ("max_val", None),
    "axis": ("dim", None),
    "label_lengths": ("target_lengths", None),
    "kernel_sizes": ("kernel_size", None),
    "strides": ("stride", None),
    "paddings": ("padding", None),
    "dilations": ("dilation", None),
}
"""Paddle's word of an option -> (PyTorch's word, function from PyTorch's value to Paddle's); others
have one word. Hints on right layers read it, too."""
DEPTH = 2  # functions inside an object, and inside those


@dataclass
class Option:
    """One option of one object.

    Attributes:
        value: a number, a flag, None, or a tuple of numbers.
        puts: setters of every place that holds it.
    """

    value: Any
    puts: list[Callable[[Any], None]] = field(default_factory=list)

    def put(self, value: Any) -> None:
        """Set it wherever it is held."""
        for put in self.puts:
            put(value)


def options(*holders: Any) -> dict[str, Option]:
    """The options of some objects that belong together, by their common names.

    Args:
        holders: objects, dictionaries, functions or partials; the first that holds a name says its
            value.
    """
    option_of: dict[str, Option] = {}
    for holder in holders:
        for name, value, put in _places(holder, DEPTH):
            for part, number in _parts(name, value):
                option_of.setdefault(part, Option(number)).puts.append(put)
    return option_of


def _places(holder: Any, depth: int) -> Iterator[tuple[str, Any, Callable[[Any], None]]]:
    """(name, value, setter) of everything in an object."""
    if isinstance(holder, dict):
        members = [
            (name, value, functools.partial(holder.__setitem__, name))
            for name, value in holder.items()
        ]
    elif isinstance(holder, functools.partial):
        yield from _places(holder.keywords, depth)
        holder, members = holder.func, []
    elif inspect.isfunction(holder):
        cells = zip(holder.__code__.co_freevars, holder.__closure__ or (), strict=True)
        members = [
            (n, c.cell_contents, functools.partial(setattr, c, "cell_contents")) for n, c in cells
        ]
    else:
        members = [(n, v, functools.partial(setattr, holder, n)) for n, v in vars(holder).items()]
    for name, value, put in members:
        yield str(name), value, put
        inner = value if isinstance(value, (list, tuple)) else [value]
        for item in inner if depth else ():
            if inspect.isfunction(item) or isinstance(item, functools.partial):
                yield from _places(item, depth - 1)


def _parts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Our name and value of what is an option, nothing of what is none."""
    name = SYNONYMS.get(name.strip("_"), name.strip("_"))
    if name in STATE:
        return
    if isinstance(value, Counter):
        value = sorted(value.elements())
    if name in PAIRS:
        yield from zip(PAIRS[name], value, strict=True)
    elif value is None or isinstance(value, Real):
        yield name, value
    elif isinstance(value, (list, tuple)) and value and all(isinstance(v, Real) for v in value):
        yield name, value[0] if len(set(value)) == 1 else tuple(value)


def differing(paddle_options: dict[str, Option], torch_options: dict[str, Option]) -> list[str]:
    """Names of the options that both hold with other values."""
    both = [n for n in torch_options if n in paddle_options]
    return [n for n in both if not _same(paddle_options[n].value, torch_options[n].value)]


def _same(a: Any, b: Any) -> bool:
    return a == b or (not a and not b)
