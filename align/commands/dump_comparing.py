"""``python -m align dump`` and ``python -m align compare``: both sides on different machines.

Two dumps in, the verdict out: no framework is needed or loaded.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from align.commands.spec import in_one_line, read_spec
from align.commands.steps import Outcome, left_out, take_once, take_precision
from align.match.paired_names import table_of
from align.pair.dumped_pair import DumpPair, Names
from align.record.dump_files import SIDES, Dump, same_request
from align.record.run_report import Report, described, origin
from align.report.report import check_writable, write_asked
from align.report.reprod import write_both
from align.stages import dumping
from align.stages.dumping import DumpRequest
from sot_paddle.config import some
from sot_paddle.runtime import environment_stamp


def run_dump(options: argparse.Namespace) -> int:
    """Run ``dump`` with its options; return the exit status."""
    wrong = {"torch": "weights", "paddle": "against"}[options.side]
    if getattr(options, wrong):
        raise ValueError(f"--{wrong} belongs to the other side, see --help")
    spec, out = Path(options.spec), Path(options.out)
    plan = read_spec(spec)
    dtype = tuple(dict.fromkeys(options.dtype)) or plan.dtype
    plan = dataclasses.replace(plan, dtype=dtype)
    folder = options.weights or options.against
    other = None if folder is None else Dump(folder)
    with in_one_line(spec):
        written = dumping.dump(DumpRequest(options.side, plan, spec, other), out)
    meta, files = written.meta, written.files
    size = sum(row["size"] for row in files.values()) / 2**20
    ran = f" {meta.framework['version']} on {meta.framework['device']}" if meta.framework else ""
    print(
        f"{meta.title}{ran}: {meta.name}, {', '.join(meta.dtypes)}, {len(meta.entries)} tensors, "
        f"{len(meta.modules)} modules, {meta.steps} training steps"
    )
    print(f"{written.path}: {len(files)} files, {size:.1f} MiB, weights {meta.weights[:12]}")
    for note in meta.notes:
        print(f"note: {note}")
    return 0


def run_compare(options: argparse.Namespace) -> int:
    """Run ``compare`` with its options; return the exit status."""
    first, second = Dump(options.first), Dump(options.second)
    dtypes = common(first, second, options.dtype)
    check_writable([options.out, options.reprod], [options.json, options.junit])
    names = pair_up(first, second)
    outcome = judge(names, dtypes)
    print(outcome)
    if options.reprod:
        written = write_both(names, dtypes, Path(options.reprod))
        print(f"reprod_log: {len(written)} files in {options.reprod}")
    write_asked(outcome.report, options.out, options.json, options.junit)
    return outcome.exit_code


def pair_up(first: Dump, second: Dump) -> Names:
    """Pair the names of two dumps that belong together, by the table that they were made with.

    Raises:
        ValueError: the dumps do not belong together; says why.
    """
    torch, paddle = _sides(first, second)
    same_request(torch.meta, paddle.meta, (str(torch.path), str(paddle.path)))
    _check_weights(torch, paddle)
    return Names(torch, paddle, table_of(torch.meta, paddle.meta))


def judge(names: Names, dtypes: Sequence[str]) -> Outcome:
    """Judge Paddle's dump by PyTorch's."""
    outcome = Outcome(Report(_environment(names.torch, names.paddle)))
    outcome.report.about = _about(names.torch, names.paddle)
    outcome.leave_out(names.modules.torch_only, names.modules.paddle_only)
    outcome.notes.extend(_notes(names))
    alone = "float64" not in dtypes
    take_once(DumpPair(names, dtypes[0], alone), outcome)
    for dtype in dtypes:
        take_precision(DumpPair(names, dtype, alone), outcome)
    outcome.notes[:] = dict.fromkeys(outcome.notes)
    return outcome


def _sides(first: Dump, second: Dump) -> tuple[Dump, Dump]:
    by_side = {dump.meta.side: dump for dump in (first, second)}
    if len(by_side) != len(SIDES):
        raise ValueError(
            f"{first.path} and {second.path} were both made by {first.meta.title}: comparing a "
            "framework with itself proves nothing; dump the other side"
        )
    return by_side["torch"], by_side["paddle"]


def common(first: Dump, second: Dump, wanted: Sequence[str] = ()) -> list[str]:
    """Precisions that both dumps have, or those asked for.

    Raises:
        ValueError: there is none, or one that was asked for is missing.
    """
    torch, paddle = _sides(first, second)
    both = [dtype for dtype in torch.meta.dtypes if dtype in paddle.meta.dtypes]
    precisions = f"{torch.path} has {', '.join(torch.meta.dtypes)}, {paddle.path} has "
    precisions += ", ".join(paddle.meta.dtypes)
    if not both:
        raise ValueError(f"no precision is in both dumps: {precisions}")
    missing = [dtype for dtype in wanted if dtype not in both]
    if missing:
        raise ValueError(f"{missing[0]} is not in both dumps: {precisions}")
    return [dtype for dtype in both if not wanted or dtype in wanted]


def _check_weights(torch: Dump, paddle: Dump) -> None:
    """The Paddle side must have run on PyTorch's weights."""
    source = paddle.meta.weights_from
    if source != torch.meta.weights:
        ran_on = f"the weights {source[:12]}" if source else "weights of its own"
        raise ValueError(
            f"{paddle.path} was run on {ran_on}, {torch.path} holds "
            f"{torch.meta.weights[:12]}: dump the Paddle side again with --weights {torch.path}"
        )


def _environment(torch: Dump, paddle: Dump) -> dict[str, Any]:
    """Both dumps, and where they were compared."""
    environment: dict[str, Any] = {}
    for dump in (torch, paddle):
        meta = dump.meta
        environment[meta.title] = {
            **meta.framework,
            "created": meta.created,
            "seed": meta.seed,
            "spec": f"{meta.spec.get('file', 'none')} {meta.spec.get('sha256', '')[:12]}",
            **meta.environment,
        }
    environment["compared on"] = environment_stamp()
    return environment


def _about(torch: Dump, paddle: Dump) -> dict[str, Any]:
    """The pair, both models and the seed as the dumps tell them; date and command of this run."""
    about: dict[str, Any] = {"pair": torch.meta.name}
    for dump in (paddle, torch):
        for module in dump.meta.modules[:1]:
            about[dump.meta.side] = described(module.kind, module.source, dump.meta.entries)
    return {**about, "seed": torch.meta.seed, **origin()}


def _notes(names: Names) -> list[str]:
    torch, paddle = names.torch, names.paddle
    notes = [f"{torch.meta.title}: {note}" for note in torch.meta.notes]
    notes += [f"{paddle.meta.title}: {note}" for note in paddle.meta.notes]
    if names.note:
        notes.append(names.note)
    notes += left_out(names.weights.ignored)
    if torch.meta.moved:
        notes.append(
            f"{len(torch.meta.moved)} constant vectors (fresh biases, scales, running statistics) "
            "were moved off their value on both sides; SHAKE = False leaves them"
        )
    if torch.meta.spec.get("sha256") != paddle.meta.spec.get("sha256"):
        notes.append("the two spec files are not the same; inputs and request are")
    extra = sorted(set(torch.meta.dtypes) ^ set(paddle.meta.dtypes))
    if extra:
        notes.append(f"in one dump only, not compared: {', '.join(extra)}")
    wrong = names.wrong_norms()
    if wrong:
        notes.append(
            f"{some(wrong)}: these norms of PyTorch and their partners hold epsilon in different "
            f"precision; dump PyTorch again with --against {paddle.path} to rule that out"
        )
    return notes
