"""The user's table of names, and what happens to a tensor between the frameworks.

The table has exact rows, templates and module prefixes, from a dict or a file. Keys are PyTorch
names. ``{}`` matches an index, ``*`` any text, both may repeat and are filled in from left to
right. A key that names a module renames everything below it. Values are a Paddle name, a list of
names (equal parts along PyTorch's first axis), ``name[i/n]`` (part i of n of a Paddle tensor), None
(left out), {"to": value, "transform": "copy"}, or (name, function) with a function of PyTorch's
array that returns Paddle's and only puts its numbers in another order (a reshape, a transpose).

Without a transform in the table the types of both owners decide, never rank. Classes are recognised
by their qualified names, so that no framework is imported here.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from align.record.arrays import Entry
from sot_paddle import reading
from sot_paddle.convert.engine.conversion_plan import ConversionPlan
from sot_paddle.convert.engine.transforms import (
    COPY,
    HEAD_FACTOR,
    POINTWISE_CONV,
    TRANSPOSE,
    Transform,
)

OPEN = "?"
DRAFT = "draft"
"""What a user passes as `weights` for the first candidates of the draft of a table."""
_SECTIONS = ("map", "modules", "ignore_torch", "ignore_paddle")
_PIECE = re.compile(r"(.+)\[(\d+)/(\d+)\]")


@dataclass(frozen=True)
class Target:
    """Where a PyTorch tensor goes.

    Args:
        part: (i, n): piece i of n of the PyTorch tensor goes there.
        piece: (i, n): the whole PyTorch tensor is piece i of n there.
        transform: key of `TRANSFORMS` or the user's function when the table says so, else "".
    """

    name: str
    part: tuple[int, int] | None = None
    piece: tuple[int, int] | None = None
    transform: str | Callable[[np.ndarray], np.ndarray] = ""


@dataclass
class Table:
    """A parsed table.

    Args:
        rows: PyTorch template -> value, see the module's docstring.
        origin: where it came from, for messages.
        is_built_in: one of `known_names`: rows that match nothing are no mistakes.
        drafted: what has no partner goes to its first candidate.
    """

    rows: Mapping[str, Any] = field(default_factory=dict)
    modules: Mapping[str, str | None] = field(default_factory=dict)
    ignore_torch: Mapping[str, str] = field(default_factory=dict)
    ignore_paddle: Mapping[str, str] = field(default_factory=dict)
    origin: str = "weights"
    is_built_in: bool = False
    drafted: bool = False
    used: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, sections: Mapping[str, Any], origin: str, *, is_built_in: bool = False) -> Table:
        """The table of its sections by name, those that are missing empty."""
        parts = (dict(sections.get(key) or {}) for key in _SECTIONS)
        return cls(*parts, origin=origin, is_built_in=is_built_in)

    def targets(self, name: str) -> list[Target] | None:
        """Where the table sends a tensor; [] for nowhere, None when no row speaks of it."""
        row = self._find(self.rows, name)
        if row is None:
            row = self._find(self.modules, name)
            if row is None or row[1] is None:
                return None  # a module that is not compared still has its weights
        key, value = row
        self.used.add(key)
        return [] if value is None else _targets(value, self.origin, key)

    def module(self, name: str) -> tuple[bool, str | None]:
        """Whether a row speaks of a module, and the Paddle module it names."""
        row = self._find(self.modules, name, below=False)
        row = row or self._find({**self.rows, **self.modules}, name)
        if row is None:
            return False, None
        key, value = row
        self.used.add(key)
        return True, value if isinstance(value, str) else None

    def ignored(self, name: str, side: str) -> str | None:
        """The reason to leave a tensor out, None when it is not left out."""
        rows = self.ignore_torch if side == "torch" else self.ignore_paddle
        row = self._find(rows, name)
        if row is None:
            return None
        key, _ = row  # nothing is filled into a reason
        self.used.add(key)
        return str(rows[key])

    def is_empty(self) -> bool:
        """Whether it says nothing at all."""
        return not (self.rows or self.modules or self.ignore_torch or self.ignore_paddle)

    def unused(self) -> list[str]:
        """Keys that matched nothing: spelling mistakes."""
        if self.is_built_in:
            return []
        keys = [*self.rows, *self.modules, *self.ignore_torch, *self.ignore_paddle]
        return [key for key in dict.fromkeys(keys) if key not in self.used]

    @staticmethod
    def _find(rows: Mapping[str, Any], name: str, *, below: bool = True) -> tuple[str, Any] | None:
        """Key and value of the row for a name, with what the name says filled in.

        The row of that name comes first, then templates, then the longest key of a module that the
        name is below.
        """
        if name in rows:
            return name, rows[name]
        for key, value in rows.items():
            match = _pattern(key).fullmatch(name) if set(key) & set("{*") else None
            if match:
                return key, _fill(value, match.groups())
        prefixes = sorted((k for k in rows if not k.endswith("*")), key=len, reverse=True)
        for key in prefixes if below else ():
            match = _pattern(key, below=True).fullmatch(name)
            if match and isinstance(rows[key], str):
                *groups, rest = match.groups()
                return key, _fill(rows[key], groups) + rest
        return None


@functools.cache
def _pattern(template: str, below: bool = False) -> re.Pattern[str]:
    """The pattern of the names that a key stands for, or of the names below those."""
    text = re.escape(template).replace(r"\{\}", r"(\d+)").replace(r"\*", "(.*)")
    return re.compile(text + r"(\..+)" * below)


def _fill(value: Any, groups: Sequence[str]) -> Any:
    if isinstance(value, str):
        left = list(groups)
        return re.sub(r"\{\}|\*", lambda _: left.pop(0) if left else "", value)
    if isinstance(value, list):
        return [_fill(item, groups) for item in value]
    if isinstance(value, tuple):
        return tuple(_fill(item, groups) for item in value)
    if isinstance(value, Mapping):
        return {**value, "to": _fill(value.get("to"), groups)}
    return value


def _targets(value: Any, origin: str, key: str) -> list[Target]:
    transform: Any = ""
    if isinstance(value, tuple) and len(value) == 2 and callable(value[1]):
        value, transform = value
    elif isinstance(value, Mapping):
        transform, value = str(value.get("transform", "")), value.get("to")
        if transform and transform not in TRANSFORMS:
            raise ValueError(
                f"{origin}: transform {transform!r} of {key!r}: expected one of "
                f"{', '.join(TRANSFORMS)}"
            )
    names = value if isinstance(value, list) else [value]
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ValueError(f"{origin}: the row {key!r} has {value!r}: expected Paddle names")
    if any(name.startswith(OPEN) for name in names):
        raise ValueError(
            f"{origin}: the row {key!r} is still marked {OPEN!r}: write the Paddle name, or null "
            "to leave the tensor out"
        )
    targets = []
    for i, name in enumerate(names):
        match = _PIECE.fullmatch(name)
        piece = (int(match[2]), int(match[3])) if match else None
        part = (i, len(names)) if len(names) > 1 else None
        targets.append(Target(match[1] if match else name, part, piece, transform))
    return targets


def read_table(weights: Any) -> Table:
    """A table from None, "draft", a dict, a conversion plan, or a path of a JSON or YAML file.

    Raises:
        ValueError: the file cannot be read, or its content is not a table.
    """
    if weights is None or weights == DRAFT:
        return Table(drafted=weights == DRAFT)
    origin = "weights"
    if isinstance(weights, (str, Path)):
        origin, path = str(weights), Path(weights)
        is_yaml = path.suffix in (".yaml", ".yml")
        weights = reading.read_yaml(path) if is_yaml else reading.read_json(path, object)
    if isinstance(weights, ConversionPlan):
        origin, weights = f"the plan of {weights.layout}", weights.names()
    if not isinstance(weights, Mapping):
        raise ValueError(
            f"{origin}: got {type(weights).__name__}, expected a dict of names or a table file"
        )
    if not _has_sections(weights):
        return Table(rows=dict(weights), origin=origin)
    unknown = [key for key in weights if key not in (*_SECTIONS, "how")]
    if unknown:
        raise ValueError(f"{origin}: unknown section {unknown[0]!r}; known: {', '.join(_SECTIONS)}")
    parts = {key: weights.get(key) or {} for key in _SECTIONS}
    wrong = [key for key, part in parts.items() if not isinstance(part, Mapping)]
    if wrong:
        raise ValueError(f"{origin}: the section {wrong[0]!r} is not a mapping of names")
    table = Table.of(parts, origin)
    for key, value in table.modules.items():
        if not isinstance(value, str | None):
            wanted = "the name of a Paddle module, or null to leave it out"
            raise ValueError(f"{origin}: the module {key!r} has {value!r}: expected {wanted}")
    still_open = [key for key, value in table.rows.items() if is_open(value)]
    if still_open:
        raise ValueError(
            f"{origin}: {len(still_open)} rows are still marked {OPEN!r} (the first: "
            f"{still_open[0]!r}): write the Paddle name, or null to leave the tensor out"
        )
    return table


def is_open(value: Any) -> bool:
    """Whether a row still waits for the user."""
    text = value.get("to") if isinstance(value, Mapping) else value
    return isinstance(text, str) and text.startswith(OPEN)


def _has_sections(weights: Mapping[str, Any]) -> bool:
    """Whether it is a table in sections, and not one of rows alone."""
    parts = (weights.get(key) for key in _SECTIONS)
    return "map" in weights or any(isinstance(p, Mapping) and "to" not in p for p in parts)


LINEAR_TO_CONV = Transform(
    "transpose+unsqueeze",
    lambda a: a[:, :, None, None],  # (out, in) -> (out, in, 1, 1)
    lambda a: a[:, :, 0, 0],
    lambda s: (*s, 1, 1),
    lambda s: s[:2],
)
"""A linear layer of PyTorch's as a 1x1 convolution of Paddle's; POINTWISE_CONV is the reverse."""
TRANSFORMS: Mapping[str, Transform] = {
    "copy": COPY,
    "transpose": TRANSPOSE,
    "squeeze+transpose": POINTWISE_CONV,
    "unsqueeze": LINEAR_TO_CONV,
    "head_factor": HEAD_FACTOR,
}
"""Names that a table may use, and what they do."""

COUNTER = "num_batches_tracked"
COUNTER_REASON = "Paddle's batch norm keeps no counter; only momentum=None would use it"
LEAF_NAMES = {
    ("norm", "running_mean"): "_mean",
    ("norm", "running_var"): "_variance",
    ("norm", "weight"): "scale",  # instance norm
    ("prelu", "weight"): "_weight",
    **{("attention", f"{part}_proj_weight"): f"{part}_proj.weight" for part in "qkv"},
}
"""Leaf names of the frameworks' own layers that differ: (kind, PyTorch) -> Paddle."""

_MATRICES = (
    *("weight", "in_proj_weight", "weight_v", "weight_orig"),
    *("q_proj_weight", "k_proj_weight", "v_proj_weight"),
)
"""Of a linear layer, what is transposed; weight_v and weight_orig are those of a weight norm and
of a spectral norm, whose own weight_v has one axis."""

_RECURRENT = ("LSTM", "GRU", "RNN", "SimpleRNN", "LSTMCell", "GRUCell", "SimpleRNNCell")
_KINDS = {
    **dict.fromkeys(("Linear", "NonDynamicallyQuantizableLinear"), "linear"),
    **dict.fromkeys(_RECURRENT, "recurrent"),
    "MultiheadAttention": "attention",
    "PReLU": "prelu",
    "Bilinear": "bilinear",
}
_FAMILY = dict.fromkeys(("linear_in_out", "linear_out_in", "conv", "attention"), "linear")
_NORMS = ("BatchNorm", "LayerNorm", "GroupNorm", "InstanceNorm", "RMSNorm", "LocalResponseNorm")


def kind(entry: Entry) -> str:
    """The family of a tensor's owner: linear, linear_in_out, conv, embedding, norm, ..., custom.

    ``linear`` means that the framework's own fully connected layer owns the tensor, in its usual
    layout; ``linear_in_out`` is a PyTorch layer that stores (in, out), ``linear_out_in`` a Paddle
    layer that stores (out, in).
    """
    for name in entry.types:
        module, _, title = name.rpartition(".")
        if title == "Linear" and module.startswith("paddle.compat"):
            return "linear_out_in"
        if title.endswith("ParallelLinear"):
            return "linear"
        if not module.startswith(("torch.", "paddle.", "transformers.")):
            continue
        if title == "Conv1D" and module.startswith("transformers."):
            return "linear_in_out"
        if title in _KINDS:
            return _KINDS[title]
        if title.startswith(("Conv", "LazyConv")):
            return "conv"
        if "Embedding" in title:
            return "embedding"
        if any(norm in title for norm in _NORMS):
            return "norm"
    return "custom"


def is_of_one_kind(source: Entry, target: Entry) -> bool:
    """Whether two tensors can be the same of layers of one kind, whatever their shapes are."""
    if {source.leaf, target.leaf} == {"weight", "bias"}:
        return False
    kinds = kind(source), kind(target)
    if "custom" not in kinds and _FAMILY.get(kinds[0], kinds[0]) != _FAMILY.get(kinds[1], kinds[1]):
        return False
    return source.buffer == target.buffer or kinds[1] == "norm"


def transform_between(source: Entry, destination: Entry) -> Transform | None:
    """How the PyTorch tensor becomes the Paddle tensor; None when the types do not say.

    Returns:
        Transform, or None for a matrix of a linear layer on one side against a custom layer on the
        other: which way round the custom layer multiplies is not written anywhere.
    """
    paddle_kind, torch_kind = kind(destination), kind(source)
    is_matrix = source.leaf in _MATRICES and torch_kind in ("linear", "attention")
    is_matrix &= len(source.shape) == 2
    if paddle_kind == "linear" and destination.leaf in _MATRICES and len(destination.shape) == 2:
        if is_matrix:
            return TRANSPOSE
        if torch_kind == "linear_in_out":
            return COPY
        return POINTWISE_CONV if torch_kind == "conv" and len(source.shape) == 4 else None
    if is_matrix:
        if paddle_kind == "conv" and len(destination.shape) == 4:
            return LINEAR_TO_CONV
        return COPY if paddle_kind == "linear_out_in" else None
    if torch_kind == "linear_in_out" and source.leaf == "weight":
        return TRANSPOSE if paddle_kind == "linear_out_in" else None
    a, b = source.shape, destination.shape
    is_flat_norm = torch_kind == paddle_kind == "norm" and b == (math.prod(a),)  # of several axes
    without_ones, paddle_without_ones = ([n for n in shape if n != 1] for shape in (a, b))
    if a == b or (without_ones != paddle_without_ones and not is_flat_norm):
        return COPY
    return Transform(  # the same numbers in the same order
        "reshape", lambda x: x.reshape(b), lambda x: x.reshape(a), lambda _: b, lambda _: a
    )


def rearranging(function: Callable[[np.ndarray], np.ndarray], source: Entry) -> Transform:
    """The transform that moves numbers as a user's function moves 0, 1, 2, ... in their places.

    Gradients and the optimizer's state are then moved in the same way.

    Raises:
        ValueError: the function does anything else, or raises.
    """
    shape, size = source.shape, math.prod(source.shape)
    try:
        moved = np.asarray(function(np.arange(size).reshape(shape)))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        text = f"{source.name}: its function raised {type(error).__name__} on a NumPy array of "
        raise ValueError(f"{text}shape {shape}: {error}") from error
    if not np.array_equal(np.sort(moved, axis=None), np.arange(size)):
        raise ValueError(
            f"{source.name}: its function may put the numbers of the weight in another order only, "
            "so that gradients and the optimizer's state follow; it changes, drops or repeats some"
        )
    places = moved.astype(np.intp)
    return Transform(
        "its function",
        lambda x: x.reshape(-1)[places],
        lambda x: x.reshape(-1)[np.argsort(places, axis=None)].reshape(shape),
        lambda _: places.shape,
        lambda _: shape,
    )


def part_axis(source: Entry) -> int:
    """Axis of a packed PyTorch tensor along which its parts lie: that of the outputs."""
    return -1 if kind(source) == "linear_in_out" else 0


def piece_axis(transform: Transform) -> int:
    """Axis of the Paddle tensor along which pieces of the PyTorch tensor's first axis lie."""
    return -1 if transform in (TRANSPOSE, POINTWISE_CONV) else 0


def shape_after(transform: Transform, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The Paddle shape, None when the transform does not apply to a tensor of this rank."""
    ranks = {"transpose": 2, "squeeze+transpose": 4, "transpose+unsqueeze": 2}
    if len(shape) != ranks.get(transform.name, len(shape)):
        return None
    return tuple(int(n) for n in transform.forward_shape(shape))


def apply(transform: Transform, array: np.ndarray) -> np.ndarray:
    """The Paddle array, in C order (a scalar keeps its shape)."""
    return np.array(transform.forward(array), order="C")
