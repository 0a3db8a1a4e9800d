"""The tree of layers of a report, coloured by difference: nested lists of folded HTML.

A node is a part of a dotted name. Its colour is the worst comparison of everything below it, in
units of the limit: a reader follows the dark or red branch to the layer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from align.record.results import Comparison, StepResult
from align.report.html_page import chip
from align.report.report_text import number

PASSES = ("forward", "backward")
SHADES = ((1e-3, "l1"), (1e-1, "l2"), (1.0, "l3"))
"""Part of the limit used -> class of the colour; equal is l0, beyond the limit is bad."""
ROOT = "(model)"
STYLE = """
.legend { font-size:12.5px; color:var(--soft); max-width:none; }
.legend span { white-space:nowrap; margin-right:10px; }
.tree { font-size:13px; }
.tree details { border:0; border-radius:0; background:none; margin:0 0 0 18px; }
.tree > details { margin-left:0; }
.tree summary { display:block; padding:2px 0; }
.tree summary::before { display:inline-block; width:14px; }
.twig { margin-left:18px; padding:2px 0 2px 14px; }
.leaf { display:inline-block; width:11px; height:11px; border-radius:2px; margin-right:4px;
  background:var(--leaf); vertical-align:-1px; }
.leaf.none { --leaf:var(--faint); } .leaf.l0 { --leaf:#d3e6da; } .leaf.l1 { --leaf:#a9d3b8; }
.leaf.l2 { --leaf:#6fb58a; } .leaf.l3 { --leaf:#e0b04a; } .leaf.bad { --leaf:var(--fail); }
@media (max-width:640px) { .tree details, .twig { margin-left:8px; } }
"""
_NAME = re.compile(r"^(?:gradient at |input \d+ of |input of )?([\w.]+|\(model\))(?:#\d+)?(?:\[|$)")


@dataclass
class Node:
    """One part of a dotted name.

    Attributes:
        name: the whole dotted name.
        worst: pass -> its worst comparison, itself and everything below.
        children: by the next part of the name.
    """

    name: str
    worst: dict[str, Comparison] = field(default_factory=dict)
    children: dict[str, Node] = field(default_factory=dict)

    def take(self, step: str, comparison: Comparison) -> None:
        """Keep a comparison when it is the worst of its pass."""
        held = self.worst.get(step)
        if held is None or comparison.severity > held.severity:
            self.worst[step] = comparison

    @property
    def failed(self) -> bool:
        """Whether anything here or below is out of tolerance."""
        return any(not comparison.passed for comparison in self.worst.values())


def grow(results: Sequence[StepResult]) -> Node:
    """The tree of the forward and backward comparisons of some results.

    Args:
        results: of one case, in any precision.

    Returns:
        The model's node; without children when no comparison has a layer's name.
    """
    root = Node(ROOT)
    for result in results:
        if result.step not in PASSES:
            continue
        for comparison in result.comparisons:
            found = _NAME.match(comparison.name)
            if found is None:
                continue
            node = root
            node.take(result.step, comparison)
            parts = [] if found[1] == ROOT else found[1].split(".")
            for i, part in enumerate(parts):
                node = node.children.setdefault(part, Node(".".join(parts[: i + 1])))
                node.take(result.step, comparison)
    return root


def tree(results: Sequence[StepResult], layers: Mapping[str, str], wrong: Sequence[str]) -> str:
    """The tree as HTML.

    Args:
        results: of one case.
        layers: class of a layer by name, where it is known.
        wrong: names of the layers to fix.

    Returns:
        HTML, "" when there are no layers to show.
    """
    root = grow(results)
    if not root.children:
        return ""
    legend = "".join(
        f'<span><i class="leaf {shade}"></i>{text}</span> '
        for shade, text in (
            ("l0", "equal"),
            ("l1", "below 0.1 % of the limit"),
            ("l2", "below 10 %"),
            ("l3", "within the limit"),
            ("bad", "beyond it"),
        )
    )
    return (
        f'<p class="legend">{legend}<span>left: forward, right: gradients</span></p>'
        f'<div class="tree">{_node("model", root, layers, frozenset(wrong), True)}</div>'
    )


def _node(
    label: str, node: Node, layers: Mapping[str, str], wrong: frozenset[str], top: bool = False
) -> str:
    marks = "".join(_mark(node.worst.get(step), step) for step in PASSES)
    kind = layers.get(ROOT if top else node.name, "")
    text = f"{marks}<code>{escape(label)}</code>"
    text += f' <span class="soft">{escape(kind)}</span>' if kind else ""
    if node.name in wrong:
        text += f" {chip(False, 'here')}"
    if not node.children:
        return f'<div class="twig">{text}</div>'
    inside = "".join(_node(key, child, layers, wrong) for key, child in node.children.items())
    state = " open" if top or node.failed else ""
    return f"<details{state}><summary>{text}</summary>{inside}</details>"


def _mark(comparison: Comparison | None, step: str) -> str:
    if comparison is None:
        return '<i class="leaf none"></i>'
    if not comparison.passed:
        shade = "bad"
    elif comparison.worst == 0:
        shade = "l0"
    else:
        used = comparison.severity
        shade = next((name for limit, name in SHADES if used <= limit), "l3")
    said = f"{step}: {comparison.name}: {number(comparison.worst)} of {number(comparison.bound)}"
    if math.isfinite(comparison.max_abs):
        said += f" (largest difference {number(comparison.max_abs)})"
    return f'<i class="leaf {shade}" title="{escape(said)}"></i>'
