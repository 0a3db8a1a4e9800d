"""Make a plan from names and shapes alone, and prove it a bijection.

Every source tensor is used once or ignored with a reason, every destination is filled once, and
shapes agree with one another through the symbols of the table. Whatever breaks that is refused by
name.

Each symbol has one value; who disagrees with it is named.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from sot_paddle.config import some
from sot_paddle.convert.engine.conversion_plan import ConversionPlan, PlanEntry
from sot_paddle.convert.engine.layout import Layout, Row
from sot_paddle.convert.engine.naming import (
    Slot,
    TableFile,
    choose_embed,
    choose_head,
    find_depths,
    find_prefix,
    pattern,
    slots,
)
from sot_paddle.convert.engine.registry import find_table, recognise, reference_table
from sot_paddle.convert.engine.transforms import KINDS


def build_plan(
    layout: str,
    model: str,
    shapes: Mapping[str, Sequence[int]],
    *,
    reverse: bool = False,
    config: Mapping[str, object] | None = None,
    prefix: str | None = None,
    encoder_only: bool = False,
) -> ConversionPlan:
    """Plan a conversion from the names and shapes of its source.

    Args:
        layout: key of `registry.TABLES`.
        model: registry name.
        shapes: source name -> shape; PyTorch names, or Paddle names when reverse.
        reverse: from Paddle to PyTorch.
        config: the source's config.json, if any; its sizes are then expected.
        prefix: reverse only: what to write for the layout's optional prefix; None means with it
            exactly when a classifier is written, as transformers itself saves.
        encoder_only: reverse only: leave head tensors out that the layout cannot hold.

    Returns:
        The plan.

    Raises:
        ValueError: unknown layout or model, or one that is not for the other; tensors unmapped,
            missing, doubly mapped or of a wrong shape (named); a head or token embedding that
            the model or the layout cannot have.
    """
    table, config = find_table(layout, model), config or {}
    shapes = {name: tuple(shape) for name, shape in shapes.items()}
    file = TableFile(table, shapes, reverse, config)
    head = choose_head(file, model)
    rows = table.heads.get(head, ())
    reference = reference_table(table.family)
    embed = choose_embed(file, model, reference.embeds if reverse else table.embeds)
    if not reverse:
        prefix = find_prefix(table, shapes)
    elif prefix is None:
        prefix = _usual_prefix(table, rows, shapes)
    file = dataclasses.replace(file, prefix=prefix)
    depths = find_depths(file)
    expected = slots(file, rows, table.embeds.get(embed, ()), depths)
    ignored = _ignored(file, _reasons(file, head, embed, encoder_only=encoder_only))
    pairs, problems = _match(expected, shapes, ignored)
    if problems:
        raise ValueError(problems + _hint(file, layout, problems))
    if sum(depths) == 0:
        raise ValueError("the file holds no encoder layer")
    symbols = {**table.config, **table.head_config.get(head, {})}
    stated = {s: config[key] for key, s in symbols.items() if isinstance(config.get(key), int)}
    try:
        sizes = solve_sizes(file, pairs, stated)
    except ValueError as error:
        raise ValueError(f"{error}{_hint(file, layout, '')}") from error
    filled = {slot.paddle for _, slot in pairs}
    return ConversionPlan(
        layout=layout,
        model=model,
        head=head,
        reverse=reverse,
        depth=sum(depths),
        prefix=prefix,
        entries=tuple(_entry(source, slot, file) for source, slot in pairs),
        ignored=ignored,
        absent=(*_unknown(file, reference, head, embed), *_lacking(expected, filled)),
        counters=tuple(n for n, beside in table.counters.items() if reverse and beside in filled),
        sizes=sizes,
        depths=depths,
        embed=embed,
    )


def _usual_prefix(table: Layout, rows: Sequence[Row], shapes: Iterable[str]) -> str:
    prefix = table.optional_prefix
    outside = [row.destination for row in rows if not row.source.startswith(prefix)]
    return prefix if set(shapes).intersection(outside) else ""


def _reasons(file: TableFile, head: str, embed: str, *, encoder_only: bool) -> dict[str, str]:
    """Template -> reason, for everything that this conversion leaves out."""
    table = file.layout
    lacks_head = head not in table.heads
    lacks_embed = bool(embed) and embed not in table.embeds
    if file.reverse:
        reason = "the layout holds the encoder only"
        parts = (("head.*", lacks_head), ("embed.*", lacks_embed))
        return {part: reason for part, lacks in parts if lacks and encoder_only}
    return {
        **_of_other_heads(file),
        **table.left_out,
        **(table.headless if lacks_head else {}),
        **(table.embedless if lacks_embed else {}),
    }


def _of_other_heads(file: TableFile) -> dict[str, str]:
    """Template -> reason, for the head of another task whose names may be those of a known one."""
    stated = file.config.get("architectures")
    for name in stated if isinstance(stated, list) else ():
        if name in file.layout.foreign:
            return dict(file.layout.foreign[name])
    return {
        template: reason
        for template, (companion, reason) in file.layout.companions.items()
        if file.spell(companion) not in file.shapes
    }


def _ignored(file: TableFile, reasons: Mapping[str, str]) -> dict[str, str]:
    spelt = [(pattern(file.spell(name)), reason) for name, reason in reasons.items()]
    ignored = {}
    for name in file.shapes:
        reason = next((reason for regex, reason in spelt if regex.fullmatch(name)), None)
        if reason is not None:
            ignored[name] = reason
    return ignored


def _unknown(file: TableFile, reference: Layout, head: str, embed: str) -> list[str]:
    """Tensors of a head or a token embedding that the layout does not know: left as initialised."""
    if file.reverse:
        return []
    lacks_embed = embed and embed not in file.layout.embeds
    rows = [*reference.embeds[embed]] if lacks_embed else []
    rows += reference.heads[head] if head not in file.layout.heads else ()
    return [row.destination for row in rows if not row.together]


def _lacking(expected: Sequence[Slot], filled: Collection[str]) -> list[str]:
    """Head tensors without a source: left as initialised."""
    return [
        slot.destination
        for slot in expected
        if not slot.required and not slot.row.together and slot.paddle not in filled
    ]


def _match(
    expected: Sequence[Slot], shapes: Mapping[str, tuple[int, ...]], ignored: Mapping[str, str]
) -> tuple[list[tuple[str, Slot]], str]:
    """Pair source names with slots; the second value names what does not fit."""
    pairs, doubled, missing = [], [], []
    for slot in expected:
        present = [name for name in slot.sources if name in shapes and name not in ignored]
        if len(present) > 1:
            doubled.append(f"{slot.paddle} (from {' and '.join(present)})")
        elif present:
            pairs.append((present[0], slot))
        elif slot.required:
            missing.append(slot.sources[0])
    missing += _lonely(expected, pairs)
    used = {name for slot in expected for name in slot.sources}
    unmapped = [name for name in shapes if name not in used and name not in ignored]
    parts = (("unmapped", unmapped), ("missing", missing), ("doubly mapped", doubled))
    return pairs, "; ".join(f"{what}: {some(names)}" for what, names in parts if names)


def _lonely(expected: Sequence[Slot], pairs: Sequence[tuple[str, Slot]]) -> list[str]:
    """Optional tensors that are missing although others of the same option are there."""
    filled = {slot.paddle for _, slot in pairs}
    options = {slot.row.together for _, slot in pairs} - {""}
    return [
        slot.sources[0]
        for slot in expected
        if slot.row.together in options and slot.paddle not in filled
    ]


def _hint(file: TableFile, layout: str, problems: str) -> str:
    """What the names of a file that does not fit seem to be, for the refusal."""
    kind, side = recognise(file.shapes, first=layout)
    if side == "paddle" and not file.reverse:
        return " (these are Paddle names: add --reverse)"
    if side == "torch" and file.reverse:
        return f" (these are PyTorch names of layout {kind}: drop --reverse)"
    if side == "torch" and kind != layout:
        return f" (these are names of --layout {kind})"
    for part, what in (("head", "head"), ("embed", "token embedding")):
        if side == "paddle" and problems.startswith(f"unmapped: {part}."):
            return f" (the layout does not hold this {what}: --encoder-only leaves it out)"
    return _half_wrapped(file, problems)


def _half_wrapped(file: TableFile, problems: str) -> str:
    """Say which tensors stand outside of a wrapping, not the layout's own, of all other names."""
    counts = Counter(name.partition(".")[0] + "." for name in file.shapes)
    start = max(counts, key=counts.__getitem__, default="")
    inside = {n.removeprefix(start): s for n, s in file.shapes.items() if n.startswith(start)}
    outside = [name for name in file.shapes if not name.startswith((start, "head."))]
    is_of_layout = start in problems.partition("missing: ")[2]
    if not outside or is_of_layout or not any(recognise(inside)):
        return ""
    return f" (all names but {some(outside)} begin with {start!r}: save the others without these)"


def _entry(source: str, slot: Slot, file: TableFile) -> PlanEntry:
    transform, shape = KINDS[slot.row.kind], file.shapes[source]
    converted = (transform.reverse_shape if file.reverse else transform.forward_shape)(shape)
    return PlanEntry(source, slot.destination, transform.name, shape, converted, slot.row.kind)


def solve_sizes(
    file: TableFile, pairs: Sequence[tuple[str, Slot]], stated: Mapping[str, int]
) -> dict[str, int]:
    """Find the value of every symbol and refuse the tensors that contradict it.

    A value comes from the config if it is there; otherwise the axes vote, so that one wrong
    tensor is named rather than all the right ones.

    Args:
        file: names and shapes.
        pairs: (source name, its place in the table).
        stated: symbol -> value stated by a config.

    Returns:
        Symbol -> axis length.

    Raises:
        ValueError: wrong shapes, by name, with what was expected.
    """
    observed = []
    for name, slot in pairs:
        axes = slot.row.shape
        axes = KINDS[slot.row.kind].forward_shape(axes) if file.reverse else axes
        observed.append((name, axes, file.shapes[name]))
    votes: dict[str, Counter[int]] = {}
    for _, axes, shape in observed:
        if len(axes) == len(shape):
            for symbol, length in zip(axes, shape, strict=True):
                if symbol.isidentifier():
                    votes.setdefault(symbol, Counter())[length] += 1
    sizes = {symbol: counter.most_common(1)[0][0] for symbol, counter in votes.items()}
    sizes.update({symbol: value for symbol, value in stated.items() if symbol in sizes})
    wrong = [
        f"{name} (expected {_shown(axes, sizes)}, got {shape})"
        for name, axes, shape in observed
        if not _fits(axes, shape, sizes)
    ]
    if wrong:
        origin = "; config.json states some of the sizes" if stated else ""
        raise ValueError(f"wrong shape: {some(wrong)}{origin}")
    return sizes


def _value(symbol: str, sizes: Mapping[str, int]) -> int | None:
    """Length of an axis such as ``C``, ``1`` or ``q*k``; None while a factor is unknown."""
    factors = [int(f) if f.isdigit() else sizes.get(f) for f in symbol.split("*")]
    return None if None in factors else math.prod(factors)


def _fits(axes: Sequence[str], shape: tuple[int, ...], sizes: Mapping[str, int]) -> bool:
    if len(axes) != len(shape):
        return False
    expected = [_value(symbol, sizes) for symbol in axes]
    return all(e is None or e == length for e, length in zip(expected, shape, strict=True))


def _shown(axes: Sequence[str], sizes: Mapping[str, int]) -> str:
    lengths = [_value(symbol, sizes) for symbol in axes]
    names = [a if v is None else str(v) for a, v in zip(axes, lengths, strict=True)]
    return f"({', '.join(names)}{',' if len(names) == 1 else ''})"
