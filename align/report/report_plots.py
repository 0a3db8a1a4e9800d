"""The plots of the HTML report, drawn as inline SVG.

Drawn here because the page needs few shapes, many times: an SVG takes its colours from the style
sheet (light and dark), stays sharp on a phone, weighs a few kB and costs no time. Coordinates live
in a box 480 units wide.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from align.record.results import Comparison

WIDTH = 480
ROWS = 28  # more comparisons than this become a scatter over the execution order
LABEL, RIGHT, ROW = 188, 466, 17
POINTS = 160  # points kept of a longer curve
FLOOR = 1e-20  # smallest distance drawn; smaller counts as equal
LEFT, BOX = 62, (150, 10)  # of a curve: left edge; bottom and top
STYLE = """
.plots { display:grid; grid-template-columns:repeat(auto-fit, minmax(min(100%, 420px), 1fr));
  gap:8px 28px; }
figure { margin:14px 0 4px; min-width:0; }
figcaption { font-size:13px; color:var(--soft); margin:0 0 4px; }
figcaption b { color:var(--ink); font-weight:600; } figcaption span { white-space:nowrap; }
svg { display:block; width:100%; height:auto; max-width:560px; }
svg text { font:11px system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif;
  fill:var(--soft); font-variant-numeric:tabular-nums; }
svg .name { fill:var(--ink); }
svg .grid { stroke:var(--line); stroke-width:1; fill:none; }
svg .bound { stroke:var(--soft); stroke-width:1.5; fill:none; }
svg .dot { fill:var(--ours); }
svg .dots { stroke:var(--ours); stroke-width:5; stroke-linecap:round; }
svg .stem { stroke:var(--ours); stroke-width:1.5; opacity:.35; }
svg .peers { stroke:var(--ref); stroke-width:4; stroke-linecap:round; fill:none; }
svg .bad { fill:var(--fail); } svg path.bad { stroke:var(--fail); stroke-width:2; fill:none; }
svg .ours { stroke:var(--ours); stroke-width:2; fill:none; }
svg .ref { stroke:var(--ref); stroke-width:2; fill:none; stroke-dasharray:5 4; }
svg .delta { stroke:var(--ink); stroke-width:1.2; fill:none; }
.key { display:inline-block; width:9px; height:9px; border-radius:50%; background:var(--ours);
  margin:0 4px 0 10px; } .key.r { background:var(--ref); }
.key.b { width:2px; height:12px; border-radius:0; background:var(--soft); vertical-align:-2px; }
.key.x { background:var(--fail); } .key.l { height:2px; width:16px; border-radius:0;
  vertical-align:4px; } .key.d { height:0; width:16px; border-radius:0; background:none;
  border-top:2px dashed var(--ref); vertical-align:4px; }
@media (max-width:640px) { svg text { font-size:13.5px; } }
"""


def figure(title: str, keys: Sequence[tuple[str, str]], plot: str) -> str:
    """A plot with its title and legend.

    Args:
        title: plain text.
        keys: mark and text of each entry of the legend; the marks are the classes `.key`.
        plot: an <svg> element.
    """
    legend = "".join(f'<span><i class="key {k}"></i>{escape(text)}</span> ' for k, text in keys)
    return f"<figure><figcaption><b>{escape(title)}</b> {legend}</figcaption>{plot}</figure>"


def differences(comparisons: Sequence[Comparison]) -> str:
    """Difference per tap or parameter on a logarithmic axis, with bound and PyTorch's own distance.

    Args:
        comparisons: in execution order, at least one.

    Returns:
        An <svg> element: one row per name up to 28 names, else a scatter over the execution order.
    """
    drawn = [c for c in comparisons if math.isfinite(c.worst)]
    values = [v for c in drawn for v in (c.worst, c.bound, c.peer or 0.0) if v > FLOOR]
    low = math.floor(math.log10(min(values, default=1e-16))) - 1
    high = math.ceil(math.log10(max(values, default=1.0)) + 0.05)
    high = max(high, low + 3)
    draw = _rows if len(comparisons) <= ROWS else _scatter
    return draw(comparisons, low, high)


def curves(sides: Mapping[str, Sequence[float]], decades: bool = False) -> str:
    """The curves of both sides over the steps, and below them the size of their difference.

    Args:
        sides: name of a side -> its values by step; the first is drawn solid, the second dashed.
        decades: draw on a logarithmic axis and without the difference, as the drift of a run and
            its noise band; no value may be negative.

    Returns:
        An <svg> element, "" when there is nothing finite (with decades: and positive) to draw.
    """
    least = FLOOR if decades else -math.inf
    drawn = [v for values in sides.values() for v in values if math.isfinite(v) and v > least]
    if not drawn:
        return ""
    steps = max(len(values) for values in sides.values())
    low, high = min(drawn), max(drawn)
    if decades:
        low, high = _whole_decades(low, high)
        ticks = [(decade, f"1e{decade}") for decade in _decades(low, high, 5)]
    else:
        pad = 0.06 * (high - low) or 0.5 * abs(high) or 1.0
        low, high = low - pad, high + pad
        ticks = [(tick, f"{tick:.4g}") for tick in _ticks(low, high)]
    parts = [_grid(ticks, low, high, BOX)]
    for kind, values in zip(("ours", "ref"), sides.values(), strict=False):
        heights = [_log(v, low) if decades else v for v in values]
        points = [_scale(v, low, high, *BOX) for v in heights]
        parts.append(f'<path class="{kind}" d="{_line(points, steps)}"/>')
    gap, height = ("", 172) if decades else _gap(list(sides.values()), steps)
    for step in sorted({0, (steps - 1) // 2, steps - 1}):
        x = _x(step, steps)
        anchor = "start" if step == 0 and steps > 1 else "end" if step == steps - 1 else "middle"
        text = f"step {step + 1}"
        parts.append(f'<text x="{x:.1f}" y="{height - 4}" text-anchor="{anchor}">{text}</text>')
    axis = "curves on a logarithmic axis" if decades else "curves and their difference"
    return _svg(height, "".join(parts) + gap, axis)


def _rows(comparisons: Sequence[Comparison], low: int, high: int) -> str:
    """One row per name: stem and dot for ours, small dot for the peer, tick for the bound."""
    bottom = 6 + ROW * len(comparisons)
    parts = []
    for decade in _decades(low, high, 5):
        x = _scale(decade, low, high, LABEL + 12, RIGHT)
        parts.append(f'<path class="grid" d="M{x:.1f} 4V{bottom}"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 15}" text-anchor="middle">1e{decade}</text>')
    for row, c in enumerate(comparisons):
        y = 6 + ROW * row + ROW / 2
        text = f"<title>{escape(_tip(c))}</title>{escape(_short(c.name))}"
        parts.append(f'<text class="name" x="{LABEL}" y="{y + 4}" text-anchor="end">{text}</text>')
        parts.append(_mark(c, low, high, y))
    return _svg(bottom + 22, "".join(parts), "difference per tensor with its bound")


def _mark(c: Comparison, low: int, high: int, y: float) -> str:
    """The marks of one row."""

    def at(value: float) -> float:
        return _scale(_log(value, low), low, high, LABEL + 12, RIGHT)

    bound = at(c.bound) if c.bound > 0 else LABEL + 12
    parts = [f'<path class="bound" d="M{bound:.1f} {y - 6}v12"/>']
    if not math.isfinite(c.worst):
        return parts[0] + f'<path class="bad" d="M{RIGHT - 8} {y - 4}l8 8m0 -8l-8 8"/>'
    x = at(c.worst)
    bad = "" if c.passed else " bad"
    parts.append(f'<path class="stem{bad}" d="M{LABEL + 12} {y}H{x:.1f}"/>')
    if c.peer is not None:
        parts.append(f'<path class="peers" d="M{at(c.peer):.1f} {y}h0"/>')
    parts.append(f'<circle class="dot{bad}" cx="{x:.1f}" cy="{y}" r="3.6"/>')
    return "".join(parts)


def _scatter(comparisons: Sequence[Comparison], low: int, high: int) -> str:
    """All names over the execution order, few bytes each; failures are single marks with a name."""
    left, top, bottom, count = 50, 10, 200, len(comparisons)

    def at(value: float) -> float:
        return _scale(_log(value, low), low, high, bottom, top)

    ticks = ((decade, f"1e{decade}") for decade in _decades(low, high, 6))
    parts = [_grid(ticks, low, high, (bottom, top), left)]
    dots, peers, bounds, bad = [], [], [], []
    for i, c in enumerate(comparisons):
        x = left + 8 + (RIGHT - left - 16) * i / (count - 1)
        bounds.append(f"M{x - 2:.1f} {at(c.bound):.1f}h4")
        if c.peer is not None:
            peers.append(f"M{x:.1f} {at(c.peer):.1f}h0")
        if c.passed:
            dots.append(f"M{x:.1f} {at(c.worst):.1f}h0")
        else:
            y = at(c.worst) if math.isfinite(c.worst) else top
            tip = f"<title>{escape(_tip(c))}</title>"
            if not bad:
                anchor, shift = ("end", -8) if x > WIDTH / 2 else ("start", 8)
                text = f'x="{x + shift:.1f}" y="{y + 4:.1f}" text-anchor="{anchor}"'
                parts.append(f'<text class="name" {text}>{escape(_short(c.name))}</text>')
            bad.append(f'<circle class="bad" cx="{x:.1f}" cy="{y:.1f}" r="4">{tip}</circle>')
    for kind, shapes in (("bound", bounds), ("peers", peers), ("dots", dots)):
        parts.append(f'<path class="{kind}" d="{"".join(shapes)}"/>')
    label = f'<text x="{RIGHT}" y="{bottom + 18}" text-anchor="end">'
    label += f"{count} tensors in execution order</text>"
    return _svg(bottom + 24, "".join([*parts, *bad, label]), "difference per tensor with its bound")


def _gap(sides: Sequence[Sequence[float]], steps: int) -> tuple[str, int]:
    """|first - second| on a logarithmic axis below the curves, and the height of the whole."""
    if len(sides) != 2 or len(sides[0]) != len(sides[1]):
        return "", 172
    gaps = [abs(a - b) for a, b in zip(*sides, strict=True)]
    positive = [g for g in gaps if math.isfinite(g) and g > FLOOR]
    if not positive:
        finite = "" if all(map(math.isfinite, gaps)) else " in which both are finite"
        text = f"the two curves are equal in every step{finite}"
        return f'<text x="62" y="172">{text}</text>', 196
    low, high = _whole_decades(min(positive), max(positive))
    box = 236, 186
    points = [_scale(_log(g, low), low, high, *box) for g in gaps]
    ticks = [(decade, f"1e{decade}") for decade in (low, high)]
    parts = ['<text x="62" y="174">|difference|</text>', _grid(ticks, low, high, box)]
    parts.append(f'<path class="delta" d="{_line(points, steps)}"/>')
    return "".join(parts), 258


def _grid(
    ticks: Iterable[tuple[float, str]],
    low: float,
    high: float,
    box: tuple[float, float],
    left: float = LEFT,
) -> str:
    """Horizontal lines at values of the axis low..high, with their texts."""
    parts = []
    for value, text in ticks:
        y = _scale(value, low, high, *box)
        parts.append(f'<path class="grid" d="M{left} {y:.1f}H{RIGHT}"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
    return "".join(parts)


def _line(heights: Sequence[float], steps: int) -> str:
    """A path through the points, thinned to POINTS; a gap where a value is not finite."""
    stride = max(1, math.ceil(len(heights) / POINTS))
    kept = sorted({*range(0, len(heights), stride), len(heights) - 1} - {-1})
    path, pen = [], "M"
    for i in kept:
        if math.isfinite(heights[i]):
            path.append(f"{pen}{_x(i, steps):.1f} {heights[i]:.1f}")
            pen = "L"
        else:
            pen = "M"
    return "".join(path) + ("h0" if len(path) == 1 else "")


def _x(step: int, steps: int) -> float:
    return _scale(step, 0, max(steps - 1, 1), 62, RIGHT)


def _log(value: float, low: float) -> float:
    """log10, with everything at or below the axis on its left end."""
    if math.isnan(value):
        return value
    return max(low, math.log10(value)) if value > FLOOR else low


def _scale(value: float, low: float, high: float, start: float, end: float) -> float:
    return start + (value - low) / (high - low) * (end - start)


def _whole_decades(least: float, most: float) -> tuple[int, int]:
    low = math.floor(math.log10(least))
    return low, max(math.ceil(math.log10(most)), low + 1)


def _decades(low: int, high: int, most: int) -> range:
    return range(low, high + 1, max(1, math.ceil((high - low) / most)))


def _ticks(low: float, high: float) -> list[float]:
    """Three to five round numbers inside [low, high]."""
    step = 10.0 ** math.floor(math.log10((high - low) / 2))
    step *= next((m for m in (5, 2) if (high - low) / (step * m) >= 3), 1)
    first = math.ceil(low / step)
    return [i * step for i in range(first, math.floor(high / step) + 1)]


def _short(name: str) -> str:
    """At most 26 characters, the end kept: it tells tensors apart."""
    return name if len(name) <= 26 else f"…{name[-25:]}"


def _tip(c: Comparison) -> str:
    return f"{c.name}: {c.worst:.2e} of at most {c.bound:.2e}"


def _svg(height: int, content: str, label: str) -> str:
    box = f'viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{label}"'
    return f"<svg {box}>{content}</svg>"
