"""The layouts by name, the table a model needs, and what a file seems to be."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from itertools import chain

from sot_paddle.convert.engine.known_models import MODELS, TEXT_FAMILIES, known_traits
from sot_paddle.convert.engine.layout import Layout, Row
from sot_paddle.convert.engine.naming import TableFile, find_prefix, pattern
from sot_paddle.convert.tables import (
    bert_family,
    conv_bert_original,
    gpt_hf,
    plain_vision,
    sot_official,
    sot_torch_ref,
)

_MOST_WRAPPINGS = 8  # parts before a name that are looked at

TABLES: Mapping[str, tuple[Layout, ...]] = {
    "bert_hf": (bert_family.BERT,),
    "roberta_hf": (bert_family.ROBERTA_HF,),
    "spanbert_original": (bert_family.SPANBERT,),
    "gpt_hf": (gpt_hf.LAYOUT,),
    "conv_bert_original": (conv_bert_original.LAYOUT,),
    "sot_nlp_official": (sot_official.TEXT,),
    "sot_torch_ref": sot_torch_ref.LAYOUTS,
    "sot_official": (sot_official.IMAGES,),
    "deit_timm": (plain_vision.DEIT_TIMM,),
    "deit_official": (plain_vision.DEIT_OFFICIAL,),
    "swin_timm": (plain_vision.SWIN_TIMM,),
    "swin_microsoft": (plain_vision.SWIN_MICROSOFT,),
    "bert4doc": (bert_family.BERT4DOC,),
    "bert4doc_layers": (bert_family.BERT4DOC_LAYERS,),
}
"""Layout name -> its tables, one for each family of backbones."""


def find_table(layout: str, model: str) -> Layout:
    """The table for a model.

    Args:
        layout: key of `TABLES`.
        model: registry name.

    Raises:
        ValueError: unknown layout or model, or a layout that is not for this model.
    """
    if layout not in TABLES:
        raise ValueError(f"unknown layout {layout!r}; expected one of {', '.join(TABLES)}")
    known_traits(model)
    table = next((table for table in TABLES[layout] if fits(table, model)), None)
    if table is not None:
        return table
    models = [name for name in MODELS if any(fits(table, name) for table in TABLES[layout])]
    raise ValueError(
        f"layout {layout!r} is for {', '.join(models)}, not for {model!r}; its layouts are"
        f" {', '.join(layouts_of(model))}"
    )


def layouts_of(model: str) -> list[str]:
    """The layouts that a model may come in, the usual one first."""
    return [name for name, tables in TABLES.items() if any(fits(t, model) for t in tables)]


def fits(table: Layout, model: str) -> bool:
    """Whether a table is for a model."""
    same = table.family == known_traits(model).family
    return same and (not table.models or model.startswith(table.models))


def reference_table(family: str) -> Layout:
    """The table that knows every head and token embedding of a family."""
    return next(table for table in TABLES["sot_torch_ref"] if table.family == family)


def recognise(shapes: Mapping[str, Sequence[int]], first: str = "") -> tuple[str, str]:
    """Guess what a file is from its names, and from shapes where both sides have the same names.

    Args:
        shapes: tensor name -> shape.
        first: layout to try before the others.

    Returns:
        (layout, ``"torch"`` or ``"paddle"``); ("", "") when no table knows every name or nothing
        tells the sides apart. Of two layouts with the same names the first is returned.
    """
    for name in sorted(TABLES, key=lambda name: name != first):
        for table in TABLES[name]:
            side = _side(table, shapes)
            if side:
                return name, side
    return "", ""


def table_of(shapes: Mapping[str, Sequence[int]]) -> Layout | None:
    """The first table that has every name of a file on one of its sides, None for no table."""
    return next((table for table in chain(*TABLES.values()) if _side(table, shapes)), None)


def find_wrapping(names: Collection[str]) -> str:
    """What wrapping a model put before all names, such as ``model.`` or ``module._orig_mod.``.

    Args:
        names: of tensors.

    Returns:
        Of the beginnings that all names share (whole parts) the shortest without which some table
        knows most of the names; "" where it knows as many with it.
    """
    parts = os.path.commonprefix(list(names)).split(".")[:-1][:_MOST_WRAPPINGS]
    starts = ["".join(f"{part}." for part in parts[:count]) for count in range(len(parts) + 1)]
    return max(starts, key=lambda start: _known([name.removeprefix(start) for name in names]))


def _known(names: Collection[str]) -> int:
    """How many of the names the table knows that knows most, whatever their indices are."""
    shown, most = [_INDEX.sub("#", name) for name in names], 0
    for table in chain(*TABLES.values()):
        for side in _templates(table, names):
            templates = {_INDEX.sub("#", template) for template, _ in side}
            starts = tuple(name[:-1] for name in templates if name.endswith("*"))
            most = max(most, sum(n in templates or n.startswith(starts) for n in shown))
    return most


_INDEX = re.compile(r"[0-9]+|{}")


def _templates(table: Layout, names: Collection[str]) -> tuple[list, list]:
    """(template, lowest index) of every name of Paddle's side and of PyTorch's, as spelt here."""
    file = TableFile(table, {}, prefix=find_prefix(table, names))
    rows = table.rows
    torch = [(n, row.start - row.shift) for row in rows for n in (row.source, *row.aliases)]
    torch += [(name, 0) for name in (*table.left_out, *table.headless, *table.embedless)]
    paddle = [(row.destination, row.start) for row in rows]
    return paddle, [(file.spell(name), low) for name, low in torch]


def _side(table: Layout, shapes: Mapping[str, Sequence[int]]) -> str:
    is_paddle, is_torch = (_all_match(templates, shapes) for templates in _templates(table, shapes))
    if is_paddle and is_torch and table.family not in TEXT_FAMILIES:  # those have their own names
        return _orientation(table.rows, shapes)
    return "paddle" if is_paddle else "torch" if is_torch else ""


def _all_match(templates: Sequence[tuple[str, int]], names: Collection[str]) -> bool:
    patterns = [pattern(template, lowest) for template, lowest in dict.fromkeys(templates)]
    return bool(names) and all(any(p.fullmatch(name) for p in patterns) for name in names)


def _orientation(rows: Sequence[Row], shapes: Mapping[str, Sequence[int]]) -> str:
    """Which side wrote the weights of linear layers with a fixed ratio of out to in, as qkv."""
    votes = set()
    for row in rows:
        if row.kind != "linear" or not row.shape[0].endswith(f"*{row.shape[1]}"):
            continue
        ratio, regex = int(row.shape[0].partition("*")[0]), pattern(row.destination)
        for name, shape in shapes.items():
            if regex.fullmatch(name) and len(shape) == 2:
                is_torch, is_paddle = (shape[i] == ratio * shape[1 - i] for i in (0, 1))
                votes.add("torch" if is_torch else "paddle" if is_paddle else "")
    return votes.pop() if len(votes) == 1 else ""
