"""Options of two layers that ought to be equal, by a table of synonyms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

Convert = Callable[[Any], Any]
SYNONYMS: Mapping[str, tuple[str, Convert]] = {
    "epsilon": ("eps", lambda value: value),
    "exclusive": ("count_include_pad", lambda value: not value),
    "ksize": ("kernel_size", lambda value: value),
    "momentum": ("momentum", lambda value: 1 - value),
    "time_major": ("batch_first", lambda value: not value),
    "delta": ("beta", lambda value: value),
    "threshold": ("lambd", lambda value: value),
    "min": ("min_val", lambda value: value),
    "max": ("max_val", lambda value: value),
    "axis": ("dim", lambda value: value),
    "label_lengths": ("target_lengths", lambda value: value),
    "kernel_sizes": ("kernel_size", lambda value: value),
    "strides": ("stride", lambda value: value),
    "paddings": ("padding", lambda value: value),
    "dilations": ("dilation", lambda value: value),
}
"""Paddle's word -> PyTorch's, and its value in Paddle's convention; others have one word."""
SILENT = ("inplace", "training", "name", "return_mask")
"""Options that change no number, and the mode that a whole model is in."""
UNITS = {"num_groups": " groups"}


AXES = (
    "batch_first: PyTorch's layer takes (sequence, batch, features), Paddle's always (batch, "
    "sequence, features)"
)


class Unequal(NamedTuple):
    """An option that differs: Paddle's attribute, PyTorch's value in its form, both in words."""

    attribute: str
    value: Any
    says: str


def unequal(layer: Any, module: Any) -> Iterator[Unequal]:
    """The options of a Paddle layer that PyTorch's module has with another value."""
    if layer is None or module is None:
        return
    theirs = {_plain(name): value for name, value in vars(module).items() if _is_option(value)}
    if not theirs.get("batch_first", True) and hasattr(layer, "need_weights"):  # attention
        yield Unequal("batch_first", False, AXES)
    for name, own in list(vars(layer).items()):
        word = _plain(name)
        if word in SILENT or not _is_option(own):
            continue
        if word == "stride" and own is None:  # of a pool: its windows do not overlap
            own = vars(layer).get("ksize", vars(layer).get("kernel_size"))
        other, convert = partner_of(word, theirs)
        value = theirs.get(other, own)
        if isinstance(value, str) != isinstance(own, str):
            continue
        value = value if convert is None or value is None else convert(value)
        if word == "axis" and (own or 0) * (value or 0) < 0:
            continue  # one counts from the end: a call tells whether they are one axis
        if single(own) != single(value):
            value = _like(own, value)
            a, b = (f"{_shown(one)}{UNITS.get(word, '')}" for one in (own, value))
            if a != b:  # PyTorch's norms follow the float32 of Paddle's kernels
                yield Unequal(name, value, f"{word}: Paddle's layer has {a}, PyTorch's {b}")


def partner_of(word: str, theirs: Mapping[str, Any]) -> tuple[str, Convert | None]:
    """PyTorch's word for Paddle's, and what makes Paddle's value of its value."""
    other, convert = SYNONYMS.get(word, (word, None))
    return (other, convert) if other in theirs else (word, None)


def _plain(name: str) -> str:
    return name.lstrip("_").lower()


def _is_option(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return 0 < len(value) <= 4 and all(isinstance(one, (int, float)) for one in value)
    return value is None or isinstance(value, (bool, int, float, str))


def single(value: Any) -> Any:
    """A pair of equal numbers as the number."""
    equal = isinstance(value, (list, tuple)) and value and all(one == value[0] for one in value)
    return value[0] if equal else value


def _like(own: Any, value: Any) -> Any:
    """PyTorch's value in the form in which Paddle's layer holds it."""
    if not isinstance(own, (list, tuple)):
        return value
    return type(own)(value if isinstance(value, (list, tuple)) else [value] * len(own))


def _shown(value: Any) -> str:
    value = single(value)
    return f"{value:.6g}" if isinstance(value, float) else repr(value)
