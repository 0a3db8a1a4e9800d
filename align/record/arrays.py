"""What both sides hand over: NumPy arrays, nested and named as a model returns and holds them.

A recording of a full-size model weighs gigabytes, and a comparison looks at one tensor at a time.
So a run hands over mappings and lists that look like dicts and lists of arrays and read each array
on access: from memory, from a temporary file (`Store`), or from the live model.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
import re
import tempfile
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]


Leaf = tuple[str, Any]
"""Path inside the structure ("" for the structure itself, "0", "hidden", "1.key") and value."""


def leaves(value: Any, is_leaf: Callable[[Any], bool], path: str = "") -> list[Leaf]:
    """Every leaf with its path, depth first in the order of the structure.

    Args:
        value: any nesting of tuples, lists, mappings and dataclasses; other objects are skipped.
        is_leaf: which objects to collect.
        path: of the value itself.
    """
    if is_leaf(value):
        return [(path, value)]
    inside: list[Leaf] = []
    for key, item in _items(value):
        inside += leaves(item, is_leaf, f"{path}.{key}" if path else str(key))
    return inside


def is_container(value: Any) -> bool:
    """Whether the leaves of a value are looked for inside it."""
    record = dataclasses.is_dataclass(value) and not isinstance(value, type)
    return record or isinstance(value, (Mapping, tuple, list))


def _items(value: Any) -> list[tuple[Any, Any]]:
    """Keys and values of a container, nothing for any other object."""
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, (tuple, list)):
        return list(enumerate(value))
    if is_container(value):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    return []


def replace(
    value: Any, is_leaf: Callable[[Any], bool], change: Callable[[str, Any], Any], path: str = ""
) -> Any:
    """Return a structure like ``value`` with every leaf passed through ``change(path, leaf)``."""
    if is_leaf(value):
        return change(path, value)
    items = _items(value)
    if not items:
        return value
    changed = {
        key: replace(item, is_leaf, change, f"{path}.{key}" if path else str(key))
        for key, item in items
    }
    if all(changed[key] is item for key, item in items):
        return value
    if isinstance(value, Mapping):
        copied = copy.copy(value)
        for key, item in changed.items():
            copied[key] = item
        return copied
    if isinstance(value, tuple):
        parts = list(changed.values())
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, list):
        return type(value)(changed.values())
    return dataclasses.replace(value, **changed)


def pick(value: Any, path: str) -> Any:
    """The part of a nested structure under a dotted path ("logits", "1.0"), "" for all of it.

    A number counts the items of any container; the first item of a single tensor is the tensor.

    Raises:
        ValueError: there is no such part; says what there is.
    """
    for key in filter(None, path.split(".")):
        items = {str(name): item for name, item in _items(value)}
        by_place = dict(enumerate(items.values() if items else [value]))
        if key in items:
            value = items[key]
        elif key.isdigit() and int(key) in by_place:
            value = by_place[int(key)]
        elif hasattr(value, key):
            value = getattr(value, key)
        else:
            names = ", ".join(items) or f"one {type(value).__name__}"
            raise ValueError(f"outputs: no {key!r} in what the model returns: {names}")
    return value


def pair_paths(
    reference: Collection[str],
    ours: Collection[str],
    read: tuple[Callable[[str], np.ndarray], Callable[[str], np.ndarray]] | None = None,
) -> tuple[list[tuple[str, str, str]], list[str], list[str]]:
    """Pair the tensors of two outputs.

    By path, when both have the same ones. Else those of one name on both sides, and the others by
    position; where one side has more of these (all states beside the last one), the nearest of one
    shape.

    Args:
        reference: paths of the reference's output.
        ours: paths of ours.
        read: gives either side's array under a path; None: by position, whatever is left over.

    Returns:
        (label, reference's path, ours) for each pair, then the paths left over on each side. The
        label is "" when there is one tensor on both sides.
    """
    equal = set(reference) == set(ours)
    same = {path for path in reference if path in ours and (equal or not _is_place(path))}
    our_rest = [path for path in ours if path not in same]
    rest = [path for path in reference if path not in same]
    if read is not None and len(rest) != len(our_rest):
        partners = _nearest([(p, read[0](p)) for p in rest], [(p, read[1](p)) for p in our_rest])
    else:
        partners = dict(zip(rest, our_rest, strict=False))
    partners |= {path: path for path in same}
    is_single = len(reference) == len(ours) == 1
    pairs = [("" if is_single else p, p, partners[p]) for p in reference if p in partners]
    taken = set(partners.values())
    left = [path for path in reference if path not in partners]
    return pairs, left, [path for path in our_rest if path not in taken]


def _nearest(reference: list[Leaf], ours: list[Leaf]) -> dict[str, str]:
    """Path of the reference -> ours, the least distance of two arrays of one shape first.

    What has a name is a partner of a place only where no other place is left for it.
    """
    both = itertools.product(reference, ours)
    alike = [(p, q, b, a) for (p, b), (q, a) in both if a.shape == b.shape]
    partners: dict[str, str] = {}

    def order(candidate: tuple[str, str, np.ndarray, np.ndarray]) -> tuple[bool, float, str, str]:
        with np.errstate(over="ignore"):  # masks by the largest number there is
            distance = np.nan_to_num(abs(candidate[3] - 1.0 * candidate[2]), nan=np.inf).sum()
        return _is_place(candidate[0]) != _is_place(candidate[1]), float(distance), *candidate[:2]

    for path, our_path, *_ in sorted(alike, key=order):
        if path not in partners and our_path not in partners.values():
            partners[path] = our_path
    return partners


def _is_place(path: str) -> bool:
    """Whether a path only counts: "", "1", "1.0"."""
    return not path.strip(".0123456789")


def is_array(value: Any) -> bool:
    """NumPy arrays, and NumPy's own scalars."""
    return isinstance(value, (np.ndarray, np.generic))


def cast(value: Any, dtype: str, pair_dtype: str) -> Any:
    """Floating arrays of a structure rounded to the pair's precision and held in another one.

    They are copied where that changes something.
    """

    def one(_: str, array: Any) -> np.ndarray:
        array = np.asarray(array)
        if array.dtype.kind != "f":
            return array
        return array.astype(pair_dtype, copy=False).astype(dtype, copy=False)

    return replace(value, is_array, one)


def moved_vectors(state: Mapping[str, np.ndarray], entries: Sequence[Entry], seed: int) -> Arrays:
    """Constant vectors moved off their value, so that a forgotten or swapped one shows.

    A fresh bias is 0 and a fresh scale 1 in both models, whatever the port does with it. A single
    number (the gate of a branch) counts as fresh where it is one of these.
    """
    parameters = {entry.name for entry in entries if not entry.buffer}
    rng = np.random.default_rng(seed)
    moved: Arrays = {}
    for name, value in state.items():
        constant = value.size > 0 and value.dtype.kind == "f" and value.min() == value.max()
        if value.size == 1 and value.item() not in (0, 1):
            continue
        if constant and name.endswith("running_var"):
            moved[name] = rng.uniform(0.5, 1.5, value.shape).astype(value.dtype)
        elif constant and (name in parameters or name.endswith("running_mean")):
            moved[name] = (value + 0.1 * rng.normal(size=value.shape)).astype(value.dtype)
    return moved


_PARAMETRIZED = re.compile(r"\bparametrizations\.(\w+)\.(original[01]?|0\._[uv])$")
_HOOKED = {"original0": "g", "original1": "v", "original": "orig", "0._u": "u", "0._v": "v"}
"""Ends of names of torch.nn.utils.parametrizations -> of weight_norm and spectral_norm as hooks,
which Paddle's are."""


@dataclass(frozen=True)
class Entry:
    """One name in a state dict.

    Args:
        name: full dotted name.
        shape: of the tensor.
        dtype: "float32", "int64", ...
        owner: dotted name of the module that holds it, "" for the model itself.
        types: qualified class names of the owner, the class first, then its bases.
        trainable: an optimizer would move it.
        buffer: not a parameter (running statistics, tables).
        identity: equal for names of one and the same tensor (tied parameters).
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    owner: str
    types: tuple[str, ...]
    trainable: bool
    buffer: bool
    identity: int

    @property
    def leaf(self) -> str:
        """The last component of the name; what PyTorch parametrizes as its hooks name it."""
        match = _PARAMETRIZED.search(self.name)
        return f"{match[1]}_{_HOOKED[match[2]]}" if match else self.name.rpartition(".")[2]

    def renamed(self, name: str) -> str:
        """Another owner's name for this tensor with `leaf` for its end; any other name as it is.

        "b.parametrizations.weight.original0" becomes "b.weight_g".
        """
        end = self.name.removeprefix(f"{self.owner}.")
        return name.removesuffix(end) + self.leaf if name.endswith(end) else name


def canonical(entries: Sequence[Entry]) -> dict[str, str]:
    """Every name -> the first name of its tensor."""
    first: dict[int, str] = {}
    return {entry.name: first.setdefault(entry.identity, entry.name) for entry in entries}


def qualified_types(owner: object) -> tuple[str, ...]:
    """Qualified names of an object's class and its bases, most derived first."""
    return tuple(f"{kind.__module__}.{kind.__qualname__}" for kind in type(owner).__mro__)


def once(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors of a state dict, each under the first of its names."""
    first: dict[int, str] = {}
    for name, tensor in tensors.items():
        first.setdefault(id(tensor), name)
    return {name: tensors[name] for name in first.values()}


_SAMPLE = 1024  # numbers of a tensor that are kept


@functools.lru_cache(maxsize=4096)
def sampled(size: int) -> np.ndarray:
    """Which numbers of a tensor are kept: all of a small one, the same drawn ones of a large."""
    if size <= _SAMPLE:
        return np.arange(size)
    return np.random.default_rng(size).integers(0, size, _SAMPLE)


MEMORY = 16 * 2**20
"""Bytes that a store keeps in memory; what comes after them goes to the file."""

Reader = Callable[[], np.ndarray]


class Lazy(Mapping[str, np.ndarray]):
    """Arrays by name, each read on access."""

    def __init__(self, readers: Mapping[str, Reader] | None = None) -> None:
        self._readers = dict(readers or {})

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray], names: Mapping[str, str]) -> Lazy:
        """Arrays of another mapping under new names: new -> old."""
        return cls({new: functools.partial(arrays.__getitem__, old) for new, old in names.items()})

    def __getitem__(self, name: str) -> np.ndarray:
        return self._readers[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)

    def __contains__(self, name: object) -> bool:
        return name in self._readers

    def hold(self, name: str, reader: Reader) -> None:
        """Add an array, or replace it."""
        self._readers[name] = reader


class Store:
    """Keeps arrays: the first MEMORY bytes in memory, further ones in a file without a name.

    The file lies in the folder for temporary files (TMPDIR) and is gone with the last reader.
    """

    def __init__(self) -> None:
        self._room = MEMORY
        self._file: Any = None
        self._end = 0

    def put(self, array: np.ndarray) -> Reader:
        """Take an array over, a view as a copy; the caller must not write into it any more.

        Raises:
            ValueError: there is no room for the file.
        """
        if array.nbytes <= self._room:
            self._room -= array.nbytes
            kept = array if array.flags.owndata else array.copy()
            return lambda: kept
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the store)
            weakref.finalize(self, self._file.close)
        start = self._end
        try:
            self._file.seek(start)
            self._file.write(_bytes(np.ascontiguousarray(array)))
            self._file.flush()
        except OSError as error:
            raise ValueError(
                f"no room for {(start + array.nbytes) / 2**30:.1f} GiB of tensors in "
                f"{tempfile.gettempdir()} ({error.strerror}): point TMPDIR to a larger disk"
            ) from error
        self._end += array.nbytes
        return functools.partial(self._read, start, array.dtype, array.shape)

    def keep(self, arrays: Mapping[str, np.ndarray]) -> Lazy:
        """Take over every array of a mapping."""
        return Lazy({name: self.put(arrays[name]) for name in arrays})

    def _read(self, start: int, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        array = np.empty(shape, dtype)
        self._file.seek(start)
        self._file.readinto(memoryview(_bytes(array)))
        return array


def _bytes(array: np.ndarray) -> np.ndarray:
    """The memory of a contiguous array, of a dtype that NumPy itself does not know as well."""
    return array.reshape(-1).view(np.uint8)
