"""Causes in attention: the reference's formula is found from its tensors, then one slip is sought.

Queries, keys and values are looked for among the tensors at hand (also packed in one), the heads,
the scale and the mask are tried; what makes PyTorch's tensor is the formula. Ours is explained when
the same formula with one thing changed makes it.

Legend: B samples, N queries, M keys, H heads, d width of a head, C = H d.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from align.explain import formulas
from align.explain.hints.hint_case import Case, positions
from align.pair.isolation import LOW

BUDGET = 2.0  # seconds to find PyTorch's formula, and as much for ours
SAMPLES = 3  # of the batch, the ones that differ most
MANY = 8  # tensors at hand among which queries, keys and values are sought
HIDDEN = -1e30
_NAMES = ("num_heads", "n_heads", "num_attention_heads", "heads", "nhead", "n_head")
_HUGE = 1e5


@dataclass(frozen=True)
class Formula:
    """One attention.

    Attributes:
        parts: indices of queries, keys and values among the sources.
        heads: H.
        scale: of the scores, by name: a key of `_scales`.
        mask: "" or the description of a mask.
        use: where it hides: "keep" (at zeros), "drop" (elsewhere), "low" (at low values), "zero".
        value: what is added at masked positions, or stands there.
        stands: the value replaces the scores.
        causal: later keys are masked.
        axis: of the softmax.
        split: "(heads, d)" or "(d, heads)" of the width C.
        merged: False when the heads are not put back beside each other.
    """

    parts: tuple[int, int, int]
    heads: int
    scale: str = "1/sqrt(d)"
    mask: str = ""
    use: str = "keep"
    value: float = HIDDEN
    stands: bool = False
    causal: bool = False
    axis: int = -1
    split: str = "(heads, d)"
    merged: bool = True


class _Search:
    """Sources, masks and the shape of one case."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.until = time.monotonic() + BUDGET
        self.batch, self.width = case.expected.shape[0], case.expected.shape[-1]
        self.sources = list(_sources(case))[:MANY]
        self.masks = {name: a for name, a in case.whole if a.size <= 10 * case.expected.size}

    def heads(self) -> list[int]:
        """The layer's own number first, then the divisors of the width."""
        own = [
            value
            for one in (self.case.layer, self.case.module)
            for name in _NAMES
            for value in [getattr(one, name, None)]
            if isinstance(value, int) and value > 0 and self.width % value == 0
        ]
        rest = [h for h in range(1, min(self.width, 16) + 1) if self.width % h == 0]
        return list(dict.fromkeys([*own, *rest]))

    def plain(self) -> Iterator[Formula]:
        """What a right attention may be, the usual ones first."""
        triples = list(self._triples())
        uses = [("", "keep"), *((n, u) for n in self.masks for u in _uses(self.masks[n]))]
        for scale, causal in itertools.product(("1/sqrt(d)", "1"), (False, True)):
            for heads, parts, (mask, use) in itertools.product(self.heads(), triples, uses):
                yield Formula(parts, heads, scale, mask, use, causal=causal)

    def _triples(self) -> Iterator[tuple[int, int, int]]:
        found = itertools.permutations(range(len(self.sources)), 3)
        names = [name for name, _ in self.sources]
        inner = [t for t in found if not any(names[i].startswith("input") for i in t)]
        for parts in sorted(inner, key=lambda t: (list(t) != sorted(t), t)):
            shapes = [self.sources[i][1].shape for i in parts]
            if shapes[1] == shapes[2] and shapes[0][0] == shapes[1][0]:
                yield parts

    def compute(self, formula: Formula) -> np.ndarray | None:
        """(B, N, C) of a formula, None where the shapes do not allow it."""
        query, key, value = (self._headed(i, formula) for i in formula.parts)
        depth = query.shape[-1]
        bias = self._bias(formula, query.shape[2], key.shape[2])
        if isinstance(bias, str):
            return None
        scale = _scales(depth, self.width)[formula.scale]
        with np.errstate(all="ignore"):
            scores = scale * (query @ key.swapaxes(-1, -2))
            if bias is not None:
                stands = formula.stands & (bias != 0)
                scores = np.where(stands, formula.value, scores + bias)
            made = formulas.softmax(scores, formula.axis) @ value
        if formula.merged:
            made = made.swapaxes(1, 2)  # (B, H, N, d) -> (B, N, H, d)
        return made.reshape(made.shape[0], query.shape[2], -1)

    def _headed(self, index: int, formula: Formula) -> np.ndarray:
        array = self.sources[index][1]
        batch, length, width = array.shape
        if formula.split == "(heads, d)":
            return array.reshape(batch, length, formula.heads, -1).swapaxes(1, 2)
        return array.reshape(batch, length, -1, formula.heads).transpose(0, 3, 1, 2)

    def _bias(self, formula: Formula, queries: int, keys: int) -> np.ndarray | str | None:
        bias = None
        if formula.causal:
            if queries != keys:
                return "a causal mask needs as many queries as keys"
            bias = np.triu(np.full((queries, keys), HIDDEN), 1)
        if not formula.mask:
            return bias
        mask = _spread(self.masks[formula.mask], (self.batch, formula.heads, queries, keys))
        if mask is None:
            return "a mask of another shape"
        added = np.where(_hides(mask, formula.use), formula.value, 0.0)
        return added if bias is None else bias + added

    def hidden(self, mask: str, use: str) -> str:
        """Where a mask hides, in words."""
        return _hidden(self.masks[mask], use, self.case.samples)

    def right(self) -> Formula | None:
        """The first formula that makes PyTorch's tensor, while there is time."""
        for formula in self.plain():
            if time.monotonic() > self.until:
                return None
            made = self.compute(formula)
            if made is not None and self.case.is_expected(made):
                return formula
        return None


def attention(case: Case) -> str:
    """One slip in an attention, "" when the tensor is none or nothing explains it."""
    if case.expected.ndim != 3:
        return ""
    case = case.of_samples(SAMPLES)
    search = _Search(case)
    right = search.right()
    if right is None:
        return ""
    near: dict[str, float] = {}
    for make in (_other_scale, _other_mask, _other_axis, _other_order, _other_heads):
        for wrong, text in make(search, right):
            made = search.compute(wrong) if time.monotonic() < search.until + BUDGET else None
            if made is not None and case.explains(made):
                near[text] = float(np.abs(made - case.ours).max())
    if near:
        return min(near, key=near.__getitem__)
    return _weak(search, right)


def _other_scale(search: _Search, right: Formula) -> Iterator[tuple[Formula, str]]:
    depth = search.width // right.heads
    scales = _scales(depth, search.width)
    for name, value in scales.items():
        if name != right.scale:
            yield (
                dataclasses.replace(right, scale=name),
                f"attention scale: Paddle multiplies the scores by {name} = {value:.4g}, PyTorch "
                f"by {right.scale} = {scales[right.scale]:.4g} (d = {depth})",
            )


def _other_mask(search: _Search, right: Formula) -> Iterator[tuple[Formula, str]]:
    if right.causal:
        yield (
            dataclasses.replace(right, causal=False),
            "the causal mask is missing: Paddle attends to later positions, PyTorch does not",
        )
    else:
        yield (
            dataclasses.replace(right, causal=True),
            "a causal mask in Paddle only: PyTorch attends to later positions too",
        )
    if right.mask:
        hidden = search.hidden(right.mask, right.use)
        yield (
            dataclasses.replace(right, mask=""),
            f"the attention mask is ignored: Paddle attends to the masked positions{hidden}",
        )
        other = {"keep": "drop", "drop": "keep", "low": "zero", "zero": "low"}[right.use]
        for value in (HIDDEN, -1e4):  # a row that is hidden altogether: even, or as if it were not
            yield (
                dataclasses.replace(right, use=other, value=value),
                "the attention mask is inverted: Paddle attends to the masked positions and hides "
                f"the others{hidden}",
            )
    for name in search.masks:
        for use in _uses(search.masks[name]):
            if not right.mask:
                hidden = search.hidden(name, use)
                yield (
                    dataclasses.replace(right, mask=name, use=use),
                    f"an attention mask in Paddle only: PyTorch attends to the positions{hidden}",
                )


def _weak(search: _Search, right: Formula) -> str:
    """A mask whose value does not hide: fitted from ours."""
    if not right.mask:
        return ""

    def off(value: float, stands: bool) -> float:
        made = search.compute(dataclasses.replace(right, value=value, stands=stands))
        return np.inf if made is None else float(np.abs(made - search.case.ours).max())

    for stands, word in ((False, "adds"), (True, "puts")):
        value = _minimum(lambda v, stands=stands: off(v, stands))
        if off(value, stands) <= search.case.near:
            hidden = search.hidden(right.mask, right.use)
            return (
                f"mask value: Paddle {word} {value:.4g} at the masked positions (fitted), too weak "
                f"to hide them{hidden}"
            )
    return ""


def _minimum(off: Callable[[float], float]) -> float:
    """Where a function of one number is least: a grid, then a golden section."""
    grid = [sign * step for sign in (-1, 1) for step in np.geomspace(0.1, 1e3, 25)]
    best = min(grid, key=off)
    low, high = sorted((best * 0.6, best * 1.7))
    for _ in range(60):
        a, b = low + 0.382 * (high - low), low + 0.618 * (high - low)
        low, high = (low, b) if off(a) < off(b) else (a, high)
    return (low + high) / 2


def _other_axis(search: _Search, right: Formula) -> Iterator[tuple[Formula, str]]:
    for axis in (-2, -3):
        yield (
            dataclasses.replace(right, axis=axis),
            f"softmax axis: Paddle takes axis {axis}, PyTorch axis -1 of the scores",
        )


def _other_order(search: _Search, right: Formula) -> Iterator[tuple[Formula, str]]:
    query, key, value = right.parts
    names = [search.sources[i][0] for i in right.parts]
    yield (
        dataclasses.replace(right, parts=(key, query, value)),
        "swapped operands: queries and keys are exchanged, the scores are transposed",
    )
    for parts in itertools.permutations(right.parts):
        if parts not in (right.parts, (key, query, value)):
            told = ", ".join(names[right.parts.index(i)] for i in parts)
            yield (
                dataclasses.replace(right, parts=parts),
                f"order of query, key and value: swapped; Paddle takes {told}",
            )


def _other_heads(search: _Search, right: Formula) -> Iterator[tuple[Formula, str]]:
    yield (
        dataclasses.replace(right, merged=False),
        "the heads are not put back: the transposition (B, H, N, d) to (B, N, H, d) is missing",
    )
    yield (
        dataclasses.replace(right, split="(d, heads)"),
        "order of the heads: Paddle splits the width into (d, heads), PyTorch into (heads, d)",
    )
    for heads in search.heads():
        if heads != right.heads:
            yield (
                dataclasses.replace(right, heads=heads),
                f"number of heads: Paddle computes with {heads}, PyTorch with {right.heads}",
            )


def _scales(depth: int, width: int) -> dict[str, float]:
    return {
        "1/sqrt(d)": depth**-0.5,
        "1": 1.0,
        "1/sqrt(C)": width**-0.5,
        "1/d": 1.0 / depth,
        "sqrt(d)": depth**0.5,
        "d^(-1/4)": depth**-0.25,
    }


def _sources(case: Case) -> Iterator[tuple[str, np.ndarray]]:
    """Tensors (B, N, C) at hand, and the thirds of packed ones (B, N, 3 C)."""
    batch, width = case.expected.shape[0], case.expected.shape[-1]
    for name, array in case.floats():
        if array.ndim != 3 or array.shape[0] != batch:
            continue
        if array.shape[-1] == width:
            yield name, array
        elif array.shape[-1] == 3 * width:
            for i, part in enumerate(np.split(array, 3, axis=-1)):
                yield f"third {i + 1} of {name.removeprefix('output of ')}", part


def _uses(mask: np.ndarray) -> tuple[str, ...]:
    return ("low",) if mask.dtype.kind == "f" else ("keep", "drop")


def _hides(mask: np.ndarray, use: str) -> np.ndarray:
    if use in ("low", "zero"):
        return (mask <= LOW) if use == "low" else (mask > LOW)
    return (mask == 0) if use == "keep" else (mask != 0)


def _spread(mask: np.ndarray, shape: tuple[int, int, int, int]) -> np.ndarray | None:
    """A mask as an array that broadcasts to (B, H, N, M), None when it does not."""
    batch, heads, queries, keys = shape
    if mask.shape == (batch, keys):
        return mask[:, None, None, :]
    if mask.shape == (queries, keys):
        return mask[None, None]
    if mask.shape == (batch, queries, keys):
        return mask[:, None]
    if mask.shape == (batch * heads, queries, keys):
        return mask.reshape(shape)
    fits = mask.ndim == 4 and all(m in (1, n) for m, n in zip(mask.shape, shape, strict=True))
    return mask if fits else None


def _hidden(mask: np.ndarray, use: str, samples: tuple[int, ...]) -> str:
    """Where a mask hides, for a table of samples and positions."""
    hidden = _hides(mask, use)
    flat = hidden.reshape(hidden.shape[0], -1, hidden.shape[-1]).all(axis=1)
    return f" ({positions(flat, samples)})" if flat.any() else ""


def masked_scores(case: Case) -> str:
    """Scores that one side hides and the other does not; the visible ones must agree."""
    hidden, own = case.expected <= LOW, case.ours <= LOW
    if (hidden == own).all():
        return ""
    both = ~hidden & ~own
    if both.any() and np.abs(case.ours - case.expected)[both].max() > 1e-6 * (
        np.abs(case.expected[both]).max() or 1.0
    ):
        return ""
    square = hidden.ndim > 1 and hidden.shape[-1] == hidden.shape[-2]
    if square and not own.any():
        upper = np.triu(np.ones(hidden.shape[-2:], bool), 1)
        if (hidden == upper).all():
            return "the causal mask is missing: Paddle attends to later positions"
    flags = hidden.reshape(hidden.shape[0], -1, hidden.shape[-1]).all(axis=1)
    told = f" ({positions(flags)})" if flags.any() else ""
    if (hidden == ~own).all():
        return f"the attention mask is inverted{told}"
    if not own.any():
        return f"the attention mask is ignored, or its value is too weak to hide{told}"
    if not hidden.any():
        return "an attention mask in Paddle only: PyTorch attends to every position"
    return f"the attention masks hide different positions: PyTorch{told}"


def is_masked(ours: np.ndarray, expected: np.ndarray) -> bool:
    """Whether one side holds huge values where the other does not: only a mask can be judged."""
    return bool(((np.abs(ours) > _HUGE) != (np.abs(expected) > _HUGE)).any())
