"""``python -m align dump`` and ``python -m align compare``: both sides on different machines."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

from align.commands import dump_comparing
from align.commands.spec import USER_ERRORS, read_spec
from align.match.name_table import read_table
from align.record.files.dump_reading import Dump
from align.report.report import check_writable, write_asked
from align.report.reprod import write_both, write_side
from align.stages import dumping


def run_dump(options: argparse.Namespace) -> int:
    """Run ``dump`` with its options; return the exit status."""
    wrong = {"torch": "weights", "paddle": "against"}[options.side]
    if getattr(options, wrong):
        raise ValueError(f"--{wrong} belongs to the other side, see --help")
    if options.names and options.reprod:
        raise ValueError("--reprod means nothing with --names, which runs nothing: leave it out")
    spec, out = Path(options.spec), Path(options.out)
    if options.reprod and Path(options.reprod).resolve().is_relative_to(out.resolve()):
        raise ValueError(f"--reprod {options.reprod}: lies in {out}, a dump holds no pickle")
    given = read_spec(spec)
    dtype = tuple(dict.fromkeys(options.dtype)) or given.dtype
    shake = given.shake and not options.no_shake
    given = dataclasses.replace(given, dtype=dtype, shake=shake)
    other = options.weights or options.against
    held = None if other is None else Dump(other)
    check_writable([options.reprod])
    try:
        kept = {"deep": not options.shallow, "names_only": options.names}
        asked = dumping.request(options.side, given, spec, other=held, **kept)
        made = dumping.dump(asked, out)
    except USER_ERRORS as error:
        if isinstance(error, ValueError | OSError):
            raise
        text = " ".join(str(error).split())[:500]
        raise ValueError(f"spec {spec}: {type(error).__name__}: {text}") from error
    print(said(made))
    if options.reprod:
        written = write_side(made, Path(options.reprod))
        print(f"reprod_log: {len(written)} files in {options.reprod}")
    return 0


def said(dump: Any) -> str:
    """What was written, for the console."""
    meta, files = dump.meta, dump.folder.files
    size = sum(row["bytes"] for row in files.values()) / 2**20
    ran = f" {meta.framework['version']} on {meta.framework['device']}" if meta.framework else ""
    lines = [
        f"{meta.title}{ran}: {meta.name}, "
        f"{', '.join(meta.dtypes)}, {len(meta.entries)} tensors, {len(meta.modules)} modules, "
        f"{meta.steps} training steps",
        f"{dump.path}: {len(files)} files, {size:.1f} MiB, weights {meta.weights[:12]}",
    ]
    return "\n".join([*lines, *(f"note: {note}" for note in meta.notes)])


def run_compare(options: argparse.Namespace) -> int:
    """Run ``compare`` with its options; return the exit status."""
    table = read_table(options.table) if options.table else None
    dumps = Dump(options.first), Dump(options.second)
    dtypes = dump_comparing.common(*dumps, options.dtype)
    check_writable([options.out, options.reprod], [options.json, options.junit])
    folder = Path(options.out) if options.out else Path()
    names = dump_comparing.pair_up(*dumps, table=table, folder=folder)
    outcome = dump_comparing.judge(names, dtypes)
    print(outcome)
    if options.reprod:
        written = write_both(names, dtypes, Path(options.reprod))
        print(f"reprod_log: {len(written)} files in {options.reprod}")
    write_asked(outcome.report, options.out, options.json, options.junit)
    return outcome.exit_code
