"""What a step of the port consists of, operator by operator (`paddle.profiler`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

REST = "rest (Python, the profiler itself)"
_LEAST = 0.001
"""Share below which an operator is counted among the rest."""


def profiled(step: Callable[[], None], repeats: int) -> list[dict[str, Any]]:
    """Operators of a step and their own time, that of what they call taken off.

    What a layer does outside of Paddle's operators, its native ones above all, is the layer's own
    time. Seconds are means on the clock: what else the machine does adds to every operator in
    proportion to its time, so that the shares hold on a busy machine, the seconds do not.

    Args:
        step: called once more, before what counts.
        repeats: steps.

    Returns:
        For each operator ``operator``, ``calls``, ``seconds`` and ``share``, longest first, the
        rest at the end.
    """
    from paddle import profiler

    step()
    found = profiler.Profiler(
        targets=[profiler.ProfilerTarget.CPU], on_trace_ready=lambda ended: None
    )
    found.start()
    for _ in range(repeats):
        step()
        found.step()
    found.stop()
    (root,) = found.profiler_result.get_data().values()
    steps = []
    for node in root.children_node[:repeats]:
        steps.append({REST: [0]})
        _add_own_times(node, steps[-1], (REST, 0))
    return shares_of(steps)


def _add_own_times(node: Any, calls: dict[str, list[int]], owner: tuple[str, int]) -> None:
    """Add nanoseconds to calls: an operator's and a layer's to a new one, others' to the owner."""
    kind, name = str(node.type).rpartition(".")[2], node.name
    if kind in ("Operator", "Forward"):
        name = name.removeprefix("Global_").removeprefix("CustomOpGradNode: ")
        name = f"layer {name}" if kind == "Forward" else name.removesuffix(" dygraph")
        owner = name, len(calls.setdefault(name, []))
        calls[name].append(0)
    inner = sum(child.end_ns - child.start_ns for child in node.children_node)
    calls[owner[0]][owner[1]] += node.end_ns - node.start_ns - inner
    for child in node.children_node:
        _add_own_times(child, calls, owner)


def shares_of(steps: Sequence[Mapping[str, Sequence[int]]]) -> list[dict[str, Any]]:
    """The table of several steps.

    Args:
        steps: of each the operators' names to the nanoseconds of their calls.

    Returns:
        See :func:`profiled`.
    """
    names = {name: None for calls in steps for name in calls if name != REST}
    spent = {name: sum(sum(calls.get(name, ())) for calls in steps) for name in names}
    whole = sum(sum(map(sum, calls.values())) for calls in steps)
    large = sorted((n for n in names if spent[n] >= _LEAST * whole), key=spent.get, reverse=True)
    rows = [(name, max(len(calls.get(name, ())) for calls in steps), spent[name]) for name in large]
    rows.append((REST, None, whole - sum(map(spent.get, large))))
    return [
        {"operator": name, "calls": calls, "seconds": its / len(steps) / 1e9, "share": its / whole}
        for name, calls, its in rows
    ]


def profile_table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lines: milliseconds, calls and share of each operator."""
    return [
        f"{row['operator']:36s} {row['calls'] or '':>5} {1e3 * row['seconds']:9.1f} ms "
        f"{row['share']:6.1%}"
        for row in rows
    ]
