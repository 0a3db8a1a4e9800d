"""Make a plan from names and shapes alone, and prove it a bijection.

Every source tensor is used once or ignored with a reason, every destination is filled once, and
shapes agree with one another through the symbols of the table. Whatever breaks that is refused by
name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from align.weights import bert_hf, sot_nlp_official, sot_torch_ref
from align.weights.layout import HeadTable, Layout
from align.weights.naming import (
    Slot,
    choose_head,
    find_depth,
    find_prefix,
    known_heads,
    pattern,
    recognise,
    slots,
    spell,
)
from align.weights.plan import Entry, Plan, listed
from align.weights.sizes import solve_sizes
from align.weights.transforms import KINDS

LAYOUTS: Mapping[str, Layout] = {
    "bert_hf": bert_hf.LAYOUT,
    "sot_nlp_official": sot_nlp_official.LAYOUT,
    "sot_torch_ref": sot_torch_ref.LAYOUT,
}
"""Layout name -> tables."""


def build_plan(
    layout: str,
    model: str,
    shapes: Mapping[str, Sequence[int]],
    *,
    reverse: bool = False,
    config: Mapping[str, object] | None = None,
    prefix: str | None = None,
    encoder_only: bool = False,
) -> Plan:
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
        ValueError: unknown layout or model; tensors unmapped, missing, doubly mapped or of a
            wrong shape (named); a head that the model or the layout cannot have.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"unknown layout {layout!r}; expected one of {', '.join(LAYOUTS)}")
    known_heads(model)
    return plan_with(
        LAYOUTS[layout],
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
) -> Plan:
    """:func:`build_plan` for a table that need not be registered."""
    head = choose_head(table, model, shapes, reverse=reverse)
    rows = table.heads.get(head)
    if not reverse:
        prefix = find_prefix(table, shapes)
    elif prefix is None:
        prefix = _usual_prefix(table, rows, shapes)
    depth = _depth(table, shapes, config, prefix, reverse=reverse)
    expected = slots(table, rows, depth, prefix)
    ignored = _ignored(table, rows, shapes, prefix, reverse=reverse, encoder_only=encoder_only)
    pairs, problems = _match(expected, shapes, ignored, reverse=reverse)
    if problems:
        raise ValueError(problems + _hint(problems, shapes, layout, reverse=reverse))
    if depth == 0:
        raise ValueError("the file holds no encoder layer")
    sizes = solve_sizes(
        [(source, slot.row, shapes[source]) for source, slot in pairs],
        _known_sizes(table, rows, config),
        reverse=reverse,
    )
    filled = {slot.paddle for _, slot in pairs}
    return Plan(
        layout=layout,
        model=model,
        head=head,
        reverse=reverse,
        depth=depth,
        prefix=prefix,
        entries=tuple(_entry(source, slot, shapes[source], reverse) for source, slot in pairs),
        ignored=ignored,
        absent=_absent(expected, filled, head, known=rows is not None, reverse=reverse),
        counters=tuple(n for n, beside in table.counters.items() if reverse and beside in filled),
        sizes=sizes,
    )


def _depth(
    table: Layout,
    shapes: Mapping[str, tuple[int, ...]],
    config: Mapping[str, object],
    prefix: str,
    *,
    reverse: bool,
) -> int:
    depth = config.get(table.depth_key)
    if not isinstance(depth, int):
        rows = table.encoder
        templates = (
            [row.destination for row in rows]
            if reverse
            else [spell(n, table, prefix) for row in rows for n in (row.source, *row.aliases)]
        )
        depth = find_depth(templates, shapes)
    if not 0 <= depth <= len(shapes):
        raise ValueError(f"{depth} encoder layers expected, but the file has {len(shapes)} tensors")
    return depth


def _usual_prefix(table: Layout, rows: HeadTable | None, shapes: Iterable[str]) -> str:
    present = set(shapes)
    outside = [
        row.destination
        for row in (rows.rows if rows else ())
        if not row.source.startswith(table.optional_prefix)
    ]
    return table.optional_prefix if present.intersection(outside) else ""


def _ignored(
    table: Layout,
    rows: HeadTable | None,
    shapes: Iterable[str],
    prefix: str,
    *,
    reverse: bool,
    encoder_only: bool,
) -> dict[str, str]:
    if reverse:
        reasons = {"head.*": "the layout holds the encoder only"} if encoder_only else {}
        reasons = {} if rows else reasons
    else:
        reasons = {**table.ignored, **({} if rows else table.headless)}
    spelt = [(pattern(spell(name, table, prefix)), reason) for name, reason in reasons.items()]
    found = {}
    for name in shapes:
        for regex, reason in spelt:
            if regex.fullmatch(name):
                found[name] = reason
                break
    return found


def _absent(
    expected: Sequence[Slot], filled: Collection[str], head: str, *, known: bool, reverse: bool
) -> tuple[str, ...]:
    """Head tensors that stay as initialised; a layout without the head lacks all of them."""
    if not known and not reverse:
        rows = sot_torch_ref.LAYOUT.heads[head].rows
        return tuple(row.destination for row in rows if not row.optional)
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
        found = [n for n in ((slot.paddle,) if reverse else slot.names) if n in shapes]
        if len(found) > 1:
            doubled.append(f"{slot.paddle} (from {' and '.join(found)})")
        elif found:
            pairs.append((found[0], slot))
        elif slot.required:
            missing.append(slot.paddle if reverse else slot.names[0])
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


def _hint(problems: str, shapes: Iterable[str], layout: str, *, reverse: bool) -> str:
    kind = recognise(LAYOUTS, list(shapes))
    if kind == "paddle" and not reverse:
        return " (these are Paddle names: add --reverse)"
    if kind == "paddle" and problems.startswith("unmapped: head."):
        return " (the layout does not hold this head: --encoder-only leaves it out)"
    if kind and kind != "paddle" and reverse:
        return f" (these are PyTorch names of layout {kind}: drop --reverse)"
    if kind and kind not in ("paddle", layout):
        return f" (these are names of --layout {kind})"
    return ""


def _known_sizes(
    table: Layout, rows: HeadTable | None, config: Mapping[str, object]
) -> dict[str, int]:
    keys = {**table.config, **(rows.config if rows else {})}
    return {s: config[key] for key, s in keys.items() if isinstance(config.get(key), int)}


def _entry(source: str, slot: Slot, shape: tuple[int, ...], reverse: bool) -> Entry:
    kind, part = slot.row.kind, slot.row.part
    transform, count = KINDS[kind], part[1] if part else 1
    if reverse:
        piece = transform.reverse_shape(shape)
        made = (piece[0] * count, *piece[1:]) if part else piece
        return Entry(source, slot.names[0], transform.name, shape, made, kind, part)
    piece = (shape[0] // count, *shape[1:]) if part else shape
    made = transform.forward_shape(piece)
    return Entry(source, slot.paddle, transform.name, shape, made, kind, part)
