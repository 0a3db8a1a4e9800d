"""Dropout on, with the same masks on both sides: uniform numbers drawn once, keyed by place.

Every dropout asks here for uniform numbers u and applies its own p and its own mode to them: an
element is kept where u >= p. A number depends on the seed, the training step, the layer (in the
names of the Paddle side), the call of that layer, the dropout inside that call and the position,
and on nothing else: neither the order in which layers run nor the precision moves it. So a wrong p,
a dropout that is missing, stands elsewhere or drops along other axes shows up as a difference.

The layer is the innermost one that runs and has a partner; a dropout in a layer without a partner
belongs to the layer around it. No framework here.
"""

from __future__ import annotations

import contextlib
import random
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from align.record.recording import ROOT, Call

GRID = 2**16
"""u lies in the middle of one of so many cells: every float32 sum with it is on the right side."""
MASK, UNIFORM = "mask", "uniform"
ALONE = "(Paddle only)"
Key = tuple[str, int]
"""Call of a paired layer ("drop", "drop#2") and number of the dropout in it, from 1."""


@dataclass(frozen=True)
class Draw:
    """One request for uniform numbers.

    Attributes:
        place: the paired call it belongs to.
        number: of the dropout inside that call.
        kind: MASK (zeros and ones with a known p) or UNIFORM (the model turns u into a mask).
        shape: of the mask.
        p: probability to drop, None where the model does not say.
        mode: "" for the usual one (kept elements / (1 - p)), or the framework's name of another.
        inside: the innermost layer that ran, by its own framework's name.
    """

    place: str
    number: int
    kind: str
    shape: tuple[int, ...]
    p: float | None = None
    mode: str = ""
    inside: str = ""

    @property
    def key(self) -> Key:
        """Where it belongs."""
        return self.place, self.number

    @property
    def size(self) -> int:
        """Number of elements of the mask."""
        return int(np.prod(self.shape, dtype=np.int64))


class Masks:
    """The numbers that both sides share, and what each side asked for.

    Args:
        to_paddle: paired PyTorch modules and Paddle layers.
        seed: of all numbers.

    Attributes:
        seed: as given.
        log: side -> every request of its last run.
        partners: Paddle's requests -> PyTorch's whose numbers they take, None without any;
            a request that is not in it takes the numbers of its own place.
        turned: Paddle's requests whose axes are PyTorch's in another order, with that order.
        flipped: Paddle's requests of UNIFORM numbers that count from the other end.
    """

    def __init__(self, to_paddle: Mapping[str, str], seed: int) -> None:
        own = {name: name for name in to_paddle.values()}
        self._names = {"PyTorch": dict(to_paddle), "Paddle": own}
        self.seed = seed
        self.log: dict[str, dict[Key, Draw]] = {"PyTorch": {}, "Paddle": {}}
        self.partners: dict[Key, Key | None] = {}
        self.turned: dict[Key, tuple[int, ...]] = {}
        self.flipped: set[Key] = set()

    def session(self, side: str, step: int) -> Session:
        """A fresh run of one side ("PyTorch" or "Paddle"); its log starts empty."""
        self.log[side] = {}
        return Session(self, side, self._names[side], step)

    def numbers(self, key: Key, size: int, step: int) -> np.ndarray:
        """(size,) float64 numbers above 0 and below 1."""
        place, number = key
        seed = (self.seed, step, zlib.crc32(place.encode()), number)
        cells = np.random.default_rng(seed).integers(0, GRID, size)
        return (cells + 0.5) / GRID


class Session:
    """One run of one side: follows the layers that run and answers its dropouts."""

    def __init__(self, masks: Masks, side: str, names: Mapping[str, str], step: int) -> None:
        self._masks, self._side, self._names, self._step = masks, side, names, step
        self._stack: list[tuple[str, str]] = []  # (own name, key of the paired call or "")
        self._calls: dict[str, int] = {}
        self._draws: dict[str, int] = {}

    def watch(self, side: Any, model: Any) -> contextlib.ExitStack:
        """Follow every layer of a model by hooks, until what is returned is closed.

        Args:
            side: `on_torch` or `on_paddle`.
            model: the model that is going to run.
        """
        hooks = contextlib.ExitStack()
        for name, layer in side.modules(model).items():
            hooks.enter_context(side.hook(layer, self._entering(name), self._leave))
        return hooks

    def _entering(self, name: str) -> Callable[..., None]:
        def enter(*_: Any) -> None:
            paired = self._names.get(name, "")
            key = ""
            if paired:
                self._calls[paired] = self._calls.get(paired, 0) + 1
                key = Call(paired, self._calls[paired]).key
            self._stack.append((name, key))

        return enter

    def _leave(self, *_: Any) -> None:
        self._stack.pop()

    @property
    def here(self) -> str:
        """The innermost layer that runs, by its own name."""
        return self._stack[-1][0] if self._stack else ROOT

    def uniform(
        self, shape: tuple[int, ...], kind: str = UNIFORM, p: float | None = None, mode: str = ""
    ) -> np.ndarray:
        """The numbers for the next dropout of the layer that runs.

        Args:
            shape: of the mask.
            kind: MASK or UNIFORM.
            p: probability to drop, where it is known.
            mode: see `Draw`.

        Returns:
            float64 of the given shape, above 0 and below 1.
        """
        place = next((key for _, key in reversed(self._stack) if key), ROOT)
        self._draws[place] = self._draws.get(place, 0) + 1
        shape = tuple(int(n) for n in shape)
        draw = Draw(place, self._draws[place], kind, shape, p, mode, self.here)
        self._masks.log[self._side][draw.key] = draw
        ours = self._side == "Paddle"
        source = self._masks.partners.get(draw.key, draw.key) if ours else draw.key
        source = (ALONE, draw.number) if source is None else source
        numbers = self._masks.numbers(source, draw.size, self._step)
        if not ours:
            return numbers.reshape(shape)
        if draw.key in self._masks.flipped:
            numbers = 1.0 - numbers
        if draw.key in self._masks.turned:
            axes = self._masks.turned[draw.key]
            partner = [shape[axes.index(axis)] for axis in range(len(axes))]
            numbers = numbers.reshape(partner).transpose(axes)
        return numbers.reshape(shape)

    def kept(self, shape: tuple[int, ...], p: float, mode: str = "") -> np.ndarray:
        """Ones where an element is kept (u >= p), zeros elsewhere; float64."""
        return (self.uniform(shape, MASK, p, mode) >= p).astype(np.float64)

    @contextlib.contextmanager
    def seeded(self) -> Iterator[None]:
        """Python's and NumPy's own generators start alike on both sides, and are put back."""
        kept = random.getstate(), np.random.get_state()
        random.seed(self._masks.seed + self._step)
        np.random.seed((self._masks.seed + self._step) % 2**32)
        try:
            yield
        finally:
            random.setstate(kept[0])
            np.random.set_state(kept[1])

    def refuse(self, side: str, what: str) -> ValueError:
        """The error for a draw by chance that cannot be exchanged."""
        return ValueError(
            f"dropout='exchange': {side} draws by chance with {what} in {self.here}, which cannot "
            "be exchanged (expected dropout, bernoulli or uniform numbers): use dropout='off', or "
            "draw with one of those"
        )
