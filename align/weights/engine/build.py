"""Make a plan from names and shapes alone, and prove it a bijection.

Every source tensor is used once or ignored with a reason, every destination is filled once, and
shapes agree with one another through the symbols of the table. Whatever breaks that is refused by
name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from align.weights.engine.conversion_plan import ConversionPlan, PlanEntry, listed
from align.weights.engine.layout import HeadTable, Layout, Row
from align.weights.engine.naming import (
    Slot,
    check_depth,
    choose_embed,
    choose_head,
    find_depths,
    find_prefix,
    pattern,
    slots,
    spell,
)
from align.weights.engine.registry import LAYOUTS, find_table, recognise, reference_table
from align.weights.engine.sizes import solve_sizes
from align.weights.engine.transforms import KINDS

__all__ = ["LAYOUTS", "build_plan", "plan_with"]


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
        layout: key of `LAYOUTS`.
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
    return plan_with(
        find_table(layout, model),
        layout,
        model,
        {name: tuple(shape) for name, shape in shapes.items()},
        reverse=reverse,
        config=config or {},
        prefix=prefix,
        encoder_only=encoder_only,
    )


def plan_with(
    table: Layout,
    layout: str,
    model: str,
    shapes: Mapping[str, tuple[int, ...]],
    *,
    reverse: bool,
    config: Mapping[str, object],
    prefix: str | None,
    encoder_only: bool,
) -> ConversionPlan:
    """:func:`build_plan` for a table that need not be registered."""
    head = choose_head(table, model, shapes, reverse=reverse)
    rows = table.heads.get(head)
    reference = reference_table(table.family)
    known = reference.embeds if reverse else table.embeds
    embed = choose_embed(table, model, shapes, known, reverse=reverse)
    if not reverse:
        prefix = find_prefix(table, shapes)
    elif prefix is None:
        prefix = _usual_prefix(table, rows, shapes)
    depths = _depths(table, shapes, config, prefix, reverse=reverse)
    expected = slots(table, rows, table.embeds.get(embed, ()), depths, prefix)
    reasons = _reasons(table, head, embed, reverse=reverse, encoder_only=encoder_only)
    if not reverse:
        reasons = {**_of_other_heads(table, shapes, config, prefix), **reasons}
    ignored = _ignored(table, reasons, shapes, prefix)
    pairs, problems = _match(expected, shapes, ignored, reverse=reverse)
    if problems:
        raise ValueError(problems + _hint(problems, shapes, layout, reverse=reverse))
    if sum(depths) == 0:
        raise ValueError("the file holds no encoder layer")
    try:
        sizes = solve_sizes(
            [(source, slot.row, shapes[source]) for source, slot in pairs],
            _known_sizes(table, rows, config),
            reverse=reverse,
        )
    except ValueError as error:
        raise ValueError(f"{error}{_direction(shapes, layout, reverse=reverse)}") from error
    filled = {slot.paddle for _, slot in pairs}
    return ConversionPlan(
        layout=layout,
        model=model,
        head=head,
        reverse=reverse,
        depth=sum(depths),
        prefix=prefix,
        entries=tuple(_entry(source, slot, shapes[source], reverse) for source, slot in pairs),
        ignored=ignored,
        absent=(
            *_absent_rows(table.embeds, reference.embeds, embed, reverse=reverse),
            *_absent(expected, filled, reference.heads[head], rows, reverse=reverse),
        ),
        counters=tuple(n for n, beside in table.counters.items() if reverse and beside in filled),
        sizes=sizes,
        depths=depths,
        embed=embed,
    )


def _depths(
    table: Layout,
    shapes: Mapping[str, tuple[int, ...]],
    config: Mapping[str, object],
    prefix: str,
    *,
    reverse: bool,
) -> tuple[int, ...]:
    depth = config.get(table.depth_key)
    if not isinstance(depth, int):
        return find_depths(table, prefix, shapes, reverse=reverse)
    check_depth(depth, shapes)
    return (depth,)


def _usual_prefix(table: Layout, rows: HeadTable | None, shapes: Iterable[str]) -> str:
    present = set(shapes)
    outside = [
        row.destination
        for row in (rows.rows if rows else ())
        if not row.source.startswith(table.optional_prefix)
    ]
    return table.optional_prefix if present.intersection(outside) else ""


def _reasons(
    table: Layout, head: str, embed: str, *, reverse: bool, encoder_only: bool
) -> dict[str, str]:
    """Template -> reason, for everything that this conversion leaves out."""
    lacks_head = head not in table.heads
    lacks_embed = bool(embed) and embed not in table.embeds
    if reverse:
        reason = "the layout holds the encoder only"
        parts = (("head.*", lacks_head), ("embed.*", lacks_embed))
        return {part: reason for part, lacks in parts if lacks and encoder_only}
    return {
        **table.ignored,
        **(table.headless if lacks_head else {}),
        **(table.embedless if lacks_embed else {}),
    }


def _of_other_heads(
    table: Layout, shapes: Iterable[str], config: Mapping[str, object], prefix: str
) -> dict[str, str]:
    """Template -> reason, for the head of another task whose names may be those of a known one."""
    stated = config.get("architectures")
    for name in stated if isinstance(stated, list) else ():
        if name in table.foreign:
            return dict(table.foreign[name])
    present = set(shapes)
    return {
        template: reason
        for template, (companion, reason) in table.companions.items()
        if spell(companion, table, prefix) not in present
    }


def _ignored(
    table: Layout, reasons: Mapping[str, str], shapes: Iterable[str], prefix: str
) -> dict[str, str]:
    spelt = [(pattern(spell(name, table, prefix)), reason) for name, reason in reasons.items()]
    found = {}
    for name in shapes:
        for regex, reason in spelt:
            if regex.fullmatch(name):
                found[name] = reason
                break
    return found


def _absent_rows(
    own: Mapping[str, object],
    reference: Mapping[str, Sequence[Row]],
    embed: str,
    *,
    reverse: bool,
) -> tuple[str, ...]:
    """Tensors of a token embedding that the layout does not know: they stay as initialised."""
    if reverse or not embed or embed in own:
        return ()
    return tuple(row.destination for row in reference[embed] if not row.optional)


def _absent(
    expected: Sequence[Slot],
    filled: Collection[str],
    reference: HeadTable,
    rows: HeadTable | None,
    *,
    reverse: bool,
) -> tuple[str, ...]:
    """Head tensors that stay as initialised; a layout without the head lacks all of them."""
    if rows is None and not reverse:
        return tuple(row.destination for row in reference.rows if not row.optional)
    return tuple(
        slot.names[0] if reverse else slot.paddle
        for slot in expected
        if not slot.required and not slot.row.optional and slot.paddle not in filled
    )


def _match(
    expected: Sequence[Slot],
    shapes: Mapping[str, tuple[int, ...]],
    ignored: Mapping[str, str],
    *,
    reverse: bool,
) -> tuple[list[tuple[str, Slot]], str]:
    """Pair source names with slots; the second value names what does not fit."""
    pairs, doubled, missing = [], [], []
    for slot in expected:
        names = (slot.paddle,) if reverse else slot.names
        found = [name for name in names if name in shapes and name not in ignored]
        if len(found) > 1:
            doubled.append(f"{slot.paddle} (from {' and '.join(found)})")
        elif found:
            pairs.append((found[0], slot))
        elif slot.required:
            missing.append(slot.paddle if reverse else slot.names[0])
    missing += _lonely(expected, pairs, reverse=reverse)
    used = {source for source, _ in pairs}
    used.update(name for slot in expected for name in slot.names if not reverse)
    unmapped = [name for name in shapes if name not in used and name not in ignored]
    problems = [
        f"{what}: {listed(names)}"
        for what, names in (
            ("unmapped", unmapped),
            ("missing", missing),
            ("doubly mapped", doubled),
        )
        if names
    ]
    return pairs, "; ".join(problems)


def _lonely(
    expected: Sequence[Slot], pairs: Sequence[tuple[str, Slot]], *, reverse: bool
) -> list[str]:
    """Optional tensors that are missing although others of the same option are there."""
    filled = {slot.paddle for _, slot in pairs}
    options = {slot.row.together for _, slot in pairs} - {""}
    return [
        slot.paddle if reverse else slot.names[0]
        for slot in expected
        if slot.row.together in options and slot.paddle not in filled
    ]


def _hint(problems: str, shapes: Mapping[str, Sequence[int]], layout: str, *, reverse: bool) -> str:
    kind, side = recognise(shapes, first=layout)
    if (
        side == "paddle"
        and reverse
        and problems.startswith(("unmapped: head.", "unmapped: embed."))
    ):
        what = "head" if problems.startswith("unmapped: head.") else "token embedding"
        return f" (the layout does not hold this {what}: --encoder-only leaves it out)"
    if side == "torch" and not reverse and kind != layout:
        return f" (these are names of --layout {kind})"
    return _direction(shapes, layout, reverse=reverse)


def _direction(shapes: Mapping[str, Sequence[int]], layout: str, *, reverse: bool) -> str:
    kind, side = recognise(shapes, first=layout)
    if side == "paddle" and not reverse:
        return " (these are Paddle names: add --reverse)"
    if side == "torch" and reverse:
        return f" (these are PyTorch names of layout {kind}: drop --reverse)"
    return ""


def _known_sizes(
    table: Layout, rows: HeadTable | None, config: Mapping[str, object]
) -> dict[str, int]:
    keys = {**table.config, **(rows.config if rows else {})}
    return {s: config[key] for key, s in keys.items() if isinstance(config.get(key), int)}


def _entry(source: str, slot: Slot, shape: tuple[int, ...], reverse: bool) -> PlanEntry:
    kind, part = slot.row.kind, slot.row.part
    transform, count = KINDS[kind], part[1] if part else 1
    if reverse:
        piece = transform.reverse_shape(shape)
        made = (piece[0] * count, *piece[1:]) if part else piece
        return PlanEntry(source, slot.names[0], transform.name, shape, made, kind, part)
    piece = (shape[0] // count, *shape[1:]) if part else shape
    made = transform.forward_shape(piece)
    return PlanEntry(source, slot.paddle, transform.name, shape, made, kind, part)
