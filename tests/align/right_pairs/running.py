"""Many drawn pairs in worker processes, each under the settings of a processor and of threads."""

from __future__ import annotations

import contextlib
import itertools
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.worker_processes import Failure, outcomes

AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def _settings() -> dict[str, dict[str, str]]:
    """Every combination of 1 or 2 threads, native operators or plain ones, AVX2 imitated or not."""
    found = {}
    for count, native, avx2 in itertools.product("12", (True, False), (False, True)):
        name = f"{count}-thread{'' if native else '-plain'}{'-avx2' if avx2 else ''}"
        variables = dict.fromkeys(_THREADS, count) | {"SOT_PADDLE_NATIVE": "1" if native else "0"}
        variables |= {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0"}
        found[name] = variables | (AVX2 if avx2 else {})
    return found


SETTINGS: Mapping[str, Mapping[str, str]] = _settings()


@dataclass(frozen=True)
class Task:
    """One pair to judge."""

    kind: str
    seed: int
    setting: str
    most: float

    def replay(self) -> str:
        """The command that runs it again."""
        return (
            f"tools/draw_pairs.py --{self.kind} 1 --seed {self.seed} --setting {self.setting} "
            f"--most {self.most:g}"
        )


def tasks(
    counts: Mapping[str, int], seed: int, setting: str | None = None, most: float = 1.0
) -> list[Task]:
    """So many pairs of each kind, from a first seed on; settings in turn, or one for all."""
    names = list(SETTINGS)
    return [
        Task(kind, number, setting or names[number % len(names)], most)
        for kind, count in counts.items()
        for number in range(seed, seed + count)
    ]


def run(wanted: Sequence[Task], processes: int) -> Iterator[dict[str, Any]]:
    """Judge pairs; yields one record each, as it is made, with what failed told on the way."""
    environments = [SETTINGS[task.setting] for task in wanted]
    found = outcomes(wanted, environments, _work, processes, limit=600.0)
    with contextlib.closing(found) as results:
        for done, (position, result) in enumerate(results, 1):
            task = wanted[position]
            if isinstance(result, Failure):
                result = {"seed": task.seed, "kind": task.kind, "said": "crash", "recipe": "",
                          "seconds": 0.0, "details": {"reason": result.why}}  # fmt: skip
            print(
                f"{done} of {len(wanted)}: {task.kind} {task.seed} {result['said']}",
                file=sys.stderr,
            )
            yield result | {"setting": task.setting, "replay": task.replay()}


def _work(task: Task) -> dict[str, Any]:
    """What a worker does: its frameworks are imported under its own environment."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tests.align.right_pairs import judging

        judges = {"right": judging.judge_right, "wrong": judging.judge_wrong,
                  "power": judging.judge_power}  # fmt: skip
        return judges[task.kind](task.seed, task.most).to_json()


def is_failure(record: Mapping[str, Any]) -> bool:
    """Whether the suite was wrong: a false alarm, a refusal, a crash, or a fault not found."""
    if record["kind"] == "right":
        return record["said"] not in ("pass", "not right")
    return record["said"] in ("pass", "crash")


def line(record: Mapping[str, Any]) -> str:
    """A failure in one line, with the command that runs it again."""
    details = record["details"]
    first = next(iter(details.get("failed", ())), None)
    figures = f"{first['dtype']} {first['name']} x {first['severity']:.3g}" if first else ""
    facts = (details.get("edit"), details.get("place"), figures, details.get("reason", "")[:160])
    told = "; ".join(filter(None, facts))
    head = f"{record['kind']} {record['seed']} [{record['setting']}] {record['said']}"
    return f"{head}: {told} | {record['recipe']} | {record['replay']}"


def summary(records: Sequence[Mapping[str, Any]]) -> str:
    """How many of each kind ended how, and the shares placed and explained."""
    lines = []
    for kind in ("right", "wrong", "power"):
        of_kind = [record for record in records if record["kind"] == kind]
        if not of_kind:
            continue
        counts = Counter(record["said"] for record in of_kind)
        told = ", ".join(f"{count} {said}" for said, count in counts.most_common())
        seconds = sum(record["seconds"] for record in of_kind) / len(of_kind)
        lines.append(f"{kind}: {len(of_kind)} drawn: {told}; {seconds:.2f} s a comparison")
        judged = [record["details"] for record in of_kind if record["said"] in ("fail", "excused")]
        if kind == "wrong" and judged:
            placed = sum(bool(details["placed"]) for details in judged)
            explained = sum(bool(details["explained"]) for details in judged)
            lines.append(f"wrong: {len(judged)} found, {placed} placed, {explained} explained")
    return "\n".join(lines)
