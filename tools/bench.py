"""Time the Paddle port and the PyTorch reference on the same work in one run; print the ratios.

No time is good or bad here. Each side works in a process of its own, with its own environment and
OpenMP threads, and they take turns: a pause until the other side's waiting threads sleep, a step
that is not counted, then a counted one. The median of the turns is reported, with the fastest turn
beside it: where the two are far apart, other programs used the processors and the row says nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

Steps = dict[str, Callable[[], None]]  # mode to one step of it
MODES = ("train", "inference")
SIDES = ("paddle", "pytorch", "installed")
"""The port tuned by the project, eager PyTorch, and the port as a plain installation runs it."""

_PAUSE = 0.25  # seconds; Intel's OpenMP threads spin for 0.2 s after their last work
_CALM = 1.3  # median / fastest turn of a machine that does nothing else
_CLASSES = 2
_TUNED = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "MKL_DEBUG_CPU_TYPE",
    "FLAGS_use_stride_kernel",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TRIM_THRESHOLD_",
    "SOT_PADDLE_TUNE",
    "SOT_PADDLE_NATIVE",
)


@dataclass(frozen=True)
class Workload:
    """What one pair of rows measures, in float32.

    Attributes:
        name: unique.
        model: registry name (a training step is forward, loss, backward and AdamW), or ``head``
            for a head alone on (B, N, C) tokens (forward and backward).
        batch: B.
        length: S, or N for a head alone.
        channels: C of a head alone, else 0.
        options: overrides on both sides.
    """

    name: str
    model: str
    batch: int
    length: int
    channels: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)


_WIDE = {"num_hidden_layers": 4}
_REAL = {
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
}
_HEAD = {"pooling": "mgcrp", "head_num_heads": 6, "wr_dim": 24, "head_dropout": 0.0}
WORKLOADS: tuple[Workload, ...] = (
    Workload("bert 4 x 768, B 8, L 128", "bert_base", 8, 128, options=_WIDE),
    Workload("bert 4 x 768 + MGCrP qk, B 8, L 128", "bert_base_mgcrp", 8, 128, options=_WIDE),
    Workload("head alone 6 x 24, B 32, N 197, C 384", "head", 32, 197, 384, _HEAD),
    Workload("bert 6 x 384 + MGCrP qk, B 32, L 48", "bert_base_mgcrp", 32, 48, options=_REAL),
)
_TINY = {
    **{"hidden_size": 20, "num_hidden_layers": 1, "num_attention_heads": 4},
    **{"intermediate_size": 28, "vocab_size": 100, "q_dim": 7, "k_dim": 5},
}
TINY_WORKLOADS: tuple[Workload, ...] = (
    Workload("tiny bert", "bert_base", 3, 11, options=_TINY),
    Workload("tiny bert + MGCrP qk", "bert_base_mgcrp", 3, 11, options=_TINY),
    Workload("tiny head", "head", 3, 7, 13, {**_HEAD, "head_num_heads": 2, "wr_dim": 4}),
)


@dataclass(frozen=True)
class Row:
    """The counted turns of each side, in seconds."""

    workload: str
    mode: str
    turns: Mapping[str, Sequence[float]]

    def seconds(self, side: str) -> float:
        """Median of a side."""
        return statistics.median(self.turns[side])

    def ratio(self, side: str = "paddle") -> float:
        """Median of a side divided by PyTorch's: below 1 where it is faster."""
        return self.seconds(side) / self.seconds("pytorch")

    @property
    def disturbed(self) -> bool:
        """Whether a median is far above the fastest turn: the machine was busy."""
        return any(self.seconds(side) > _CALM * min(turns) for side, turns in self.turns.items())

    def to_json(self) -> dict[str, Any]:
        """Medians and fastest turns in seconds, ratios Paddle / PyTorch of the medians."""
        return {
            "workload": self.workload,
            "mode": self.mode,
            "median_s": {side: self.seconds(side) for side in self.turns},
            "fastest_s": {side: min(turns) for side, turns in self.turns.items()},
            "ratio": self.ratio(),
            "ratio_as_installed": self.ratio("installed"),
            "disturbed": self.disturbed,
        }


def inputs(workload: Workload) -> dict[str, np.ndarray]:
    """Random tokens (B, N, C), or ids, types and mask (B, S) with labels (B,)."""
    rng = np.random.default_rng(7)
    shape = (workload.batch, workload.length)
    if workload.model == "head":
        return {"tokens": rng.normal(size=(*shape, workload.channels)).astype("float32")}
    return {
        "input_ids": rng.integers(1, workload.options.get("vocab_size", 30522), shape),
        "token_type_ids": np.zeros(shape, "int64"),
        "attention_mask": np.ones(shape, "int64"),
        "labels": rng.integers(0, _CLASSES, workload.batch),
    }


def steps_of(workload: Workload, side: str) -> Steps:
    """A training step and a forward pass of a workload; imports no other side's framework."""
    if side == "pytorch":
        import torch as framework

        from align.cases.sides.torch_side import TorchWordsOnly as WordsOnly
        from sot_torch_ref import create_model
        from sot_torch_ref.train.losses import task_loss as loss

        tensor = framework.from_numpy
        adamw = functools.partial(framework.optim.AdamW, lr=1e-5)
    else:
        import sot_paddle  # noqa: F401 (before Paddle, whose environment it sets)
        import paddle as framework  # isort: skip

        from align.cases.sides.paddle_side import PaddleWordsOnly as WordsOnly
        from sot_paddle import create_model
        from sot_paddle.tasks.losses import classification_loss as loss

        tensor = framework.to_tensor

        def adamw(parameters: Any) -> Any:
            return framework.optimizer.AdamW(1e-5, parameters=parameters)

    batch = {name: tensor(value) for name, value in inputs(workload).items()}
    labels = batch.pop("labels", None)
    if labels is None:
        model, optimizer = WordsOnly(workload.options, workload.channels, _CLASSES), None
        if side == "pytorch":
            batch["tokens"].requires_grad_(True)
        else:
            batch["tokens"].stop_gradient = False
    else:
        model = create_model(workload.model, _CLASSES, **workload.options)
        optimizer = adamw(model.parameters())
    leaves = [*model.parameters(), *batch.values()]

    def forward() -> Any:
        return model(batch["tokens"])[0] if labels is None else model(**batch)

    def train() -> None:
        model.train()
        (forward().sum() if labels is None else loss(forward(), labels)).backward()
        if optimizer is not None:
            optimizer.step()
        for leaf in leaves:
            if side == "pytorch":
                leaf.grad = None
            else:
                leaf.clear_gradient(False)

    def inference() -> None:
        model.eval()
        with framework.no_grad():
            forward()

    return {"train": train, "inference": inference}


class Worker:
    """One side in its own process; a context manager.

    Args:
        side: one of SIDES.
        threads: ``OMP_NUM_THREADS`` of ``paddle`` and ``pytorch``; ``installed`` gets none.
    """

    def __init__(self, side: str, threads: int) -> None:
        environment = dict(os.environ)
        if side != "paddle":  # the parent may be tuned, and hands its environment down
            environment = {k: v for k, v in environment.items() if k not in _TUNED}
        if side == "installed":
            environment["SOT_PADDLE_TUNE"] = environment["SOT_PADDLE_NATIVE"] = "0"
        else:
            environment["OMP_NUM_THREADS"] = str(threads)
        self.side, self._messages = side, tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(  # noqa: S603 (this very module)
            [sys.executable, "-W", "ignore", __file__, "--serve", side],
            cwd=Path(__file__).resolve().parents[1],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._messages,
            text=True,
        )

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._messages.close()

    def ask(self, *request: str) -> Any:
        """Send (``"stamp"``) or (workload name, mode); returns the answer.

        Raises:
            ValueError: the process ended.
        """
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(request), file=self._process.stdin, flush=True)
            if answer := self._process.stdout.readline():
                return json.loads(answer)
        self._process.wait()
        self._messages.seek(0)
        last = (self._messages.read().strip().splitlines() or ["no message"])[-1]
        raise ValueError(f"the {self.side} side cannot measure {' '.join(request)}: {last}")


def measure(
    workloads: Iterable[Workload],
    threads: int,
    repeats: int,
    progress: Callable[[Row], None] = lambda row: None,
) -> tuple[list[Row], dict[str, Any]]:
    """Measure workloads on every side: the rows, and side to its description.

    Raises:
        ValueError: a side cannot run.
    """
    rows = []
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(Worker(side, threads)) for side in SIDES]
        for workload in workloads:
            for mode in MODES:
                turns: dict[str, list[float]] = {side: [] for side in SIDES}
                for _ in range(repeats):
                    for worker in workers:
                        time.sleep(_PAUSE)
                        turns[worker.side].append(worker.ask(workload.name, mode))
                rows.append(Row(workload.name, mode, turns))
                progress(rows[-1])
        return rows, {worker.side: worker.ask("stamp") for worker in workers}


def table(rows: Sequence[Row]) -> str:
    """Milliseconds of a step and ratios to PyTorch, below 1 where Paddle is faster."""
    wide = max(len(row.workload) for row in rows)
    head = f"{'workload':{wide}s}  mode       PyTorch ms  Paddle ms  ratio  (fastest turns)"
    lines = [f"{head}  as installed ms  ratio"]
    for row in rows:
        torch_ms, paddle_ms, plain_ms = (
            1e3 * row.seconds(side) for side in ("pytorch", "paddle", "installed")
        )
        fastest = min(row.turns["paddle"]) / min(row.turns["pytorch"])
        lines.append(
            f"{row.workload:{wide}s}  {row.mode:9s}  {torch_ms:10.1f}  {paddle_ms:9.1f}  "
            f"{row.ratio():5.2f}  {fastest:15.2f}  {plain_ms:15.1f}  {row.ratio('installed'):5.2f}"
            + ("  *" if row.disturbed else "")
        )
    if any(row.disturbed for row in rows):
        lines.append(
            f"* a median above {_CALM} times the fastest turn: other programs were running, "
            "do not rely on this row"
        )
    return "\n".join(lines)


def _stamp(side: str) -> dict[str, Any]:
    if side == "pytorch":
        import torch

        return {"framework": f"torch {torch.__version__}", "threads": torch.get_num_threads()}
    import paddle

    from sot_paddle.runtime import environment_stamp

    return {
        "framework": f"paddle {paddle.__version__}",
        "frameworks_loaded": [name for name in ("paddle", "torch") if name in sys.modules],
        **environment_stamp(),
    }


def _serve(side: str) -> int:
    """Answer requests, one JSON line each, until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a framework prints must not look like an answer
    known = {workload.name: workload for workload in (*WORKLOADS, *TINY_WORKLOADS)}
    name, steps = "", {}
    for line in sys.stdin:
        request = json.loads(line)
        if request == ["stamp"]:
            found: Any = _stamp(side)
        else:
            if request[0] != name:
                steps = {}  # free the old model before the new one is built
                name, steps = request[0], steps_of(known[request[0]], side)
                for step in steps.values():
                    step()  # first calls allocate and choose kernels
            step = steps[request[1]]
            step()
            began = time.perf_counter()
            step()
            found = time.perf_counter() - began
        print(json.dumps(found), file=answers, flush=True)
    return 0


def _options(arguments: list[str]) -> argparse.Namespace:
    from sot_paddle.guard import CommandParser  # not in a worker: it would tune the other side

    parser = CommandParser(prog="bench", description=__doc__)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    parser.add_argument(
        "--threads", type=int, default=cores, help="of both frameworks (default: all)"
    )
    parser.add_argument("--repeats", type=int, default=7, help="counted steps (default: 7)")
    parser.add_argument("--json", metavar="FILE", help="write the results as JSON")
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes: shows that the tool runs, not a speed"
    )
    options = parser.parse_args(arguments)
    if min(options.threads, options.repeats) < 1:
        parser.error("--threads and --repeats: expected numbers of at least 1")
    return options


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; returns the exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["--serve"]:
        return _serve(given[1])
    from sot_paddle.guard import command

    return command("bench: error")(_measure)(given)


def _measure(arguments: list[str]) -> None:
    from sot_paddle.atomic import write_atomically
    from sot_paddle.strict_json import dumps

    options = _options(arguments)
    workloads = TINY_WORKLOADS if options.quick else WORKLOADS
    if options.json and Path(options.json).is_dir():
        raise ValueError(f"cannot write to {options.json}: it is a folder")
    rows, stamps = measure(
        workloads,
        options.threads,
        options.repeats,
        lambda row: print(json.dumps(row.to_json()), file=sys.stderr, flush=True),
    )
    if options.json:
        found = {"environment": stamps, "threads": options.threads, "repeats": options.repeats}
        found["results"] = [row.to_json() for row in rows]
        write_atomically(options.json, dumps(found).encode())
    for side, stamp in stamps.items():
        print(f"{side}: {json.dumps(stamp)}")
    print(f"{options.threads} threads each, medians of {options.repeats} turns; below 1: faster")
    print(table(rows))


if __name__ == "__main__":
    sys.exit(main())
