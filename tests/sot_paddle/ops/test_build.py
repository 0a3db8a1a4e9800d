"""The library is made once, whole, and what hinders it is one line."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sot_paddle.ops import build

COMPILES = """#!/bin/sh
echo "$@" >> "$0.calls"
while [ $# -gt 0 ]; do [ "$1" = -o ] && target=$2; shift; done
echo machine code > "$target"
"""
FAILS = """#!/bin/sh
echo "unit.cc:1: fatal error: no such header" >&2
exit 1
"""


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch):
    """Puts a script in the compiler's place; its calls are counted."""

    def put(script: str) -> Path:
        path = tmp_path / "compiler"
        path.write_text(script)
        path.chmod(0o755)
        monkeypatch.setenv("CXX", str(path))
        return path

    return put


def test_a_library_is_whole_when_several_compile_and_is_compiled_once(compiler, tmp_path) -> None:
    path, made = compiler(COMPILES), []
    folder = tmp_path / "cache" / "native"
    workers = [threading.Thread(target=lambda: made.append(build.build(folder))) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    path.with_name("compiler.calls").unlink()
    assert made == [build.build(folder)] * 3
    assert not path.with_name("compiler.calls").exists()
    assert list(folder.iterdir()) == made[:1]
    assert made[0].read_text() == "machine code\n"
    assert not made[0].stat().st_mode & 0o022


def test_what_the_library_depends_on_is_in_its_name(compiler, tmp_path, monkeypatch) -> None:
    path = compiler(COMPILES)

    def name() -> Path:
        return build.library_path(tmp_path, str(path))

    names = [name()]
    monkeypatch.setattr(build, "FLAGS", [*build.FLAGS, "-g"])
    names.append(name())
    flags = [f"flag{i}" for i in range(50)]
    for order in (flags, flags[::-1]):  # the same processor
        monkeypatch.setattr(build, "processor", lambda order=order: ("V", frozenset(order)))
        names.append(name())
    assert names.pop() == names[-1]
    monkeypatch.setattr(build.paddle.version, "full_version", "0.0.0")
    names.append(name())
    path.write_text(COMPILES + "# another version\n")
    names.append(name())
    source = tmp_path / "another.cc"
    source.write_text("int x;")
    monkeypatch.setattr(build, "SOURCES", [*build.SOURCES, source])
    names.append(name())
    assert len(set(names)) == len(names)


def test_a_compiler_that_fails_leaves_nothing_and_is_asked_again(compiler, tmp_path) -> None:
    compiler(FAILS)
    with pytest.raises(build.NotBuilt, match="compiler failed: .*no such header") as caught:
        build.build(tmp_path / "native")
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "native").glob("operators-*"))
    compiler(COMPILES)
    assert build.build(tmp_path / "native").is_file()


def test_without_a_compiler_or_a_folder_there_is_no_library(
    compiler, tmp_path, monkeypatch
) -> None:
    compiler(COMPILES)
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(
        build.NotBuilt, match="cannot write in .*SOT_PADDLE_CACHE to another folder"
    ):
        build.build(tmp_path / "file" / "native")
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(build.NotBuilt, match=r"no C\+\+ compiler"):
        build.build(tmp_path / "native")


@pytest.mark.parametrize("kind", ["open to all", "link"])
def test_a_folder_that_others_may_write_is_not_used(kind: str, compiler, tmp_path) -> None:
    compiler(COMPILES)
    folder = build.build(tmp_path / "native").parent
    if kind == "link":
        folder = tmp_path / "link"
        folder.symlink_to("native")
    else:
        folder.chmod(0o777)
    with pytest.raises(build.NotBuilt, match="others own it or may write it.*SOT_PADDLE_CACHE"):
        build.build(folder)


def test_a_library_that_cannot_be_loaded_is_not_used(
    compiler, tmp_path, monkeypatch, caplog
) -> None:
    compiler(COMPILES)  # what it writes is no library
    monkeypatch.setenv("SOT_PADDLE_CACHE", str(tmp_path))
    with caplog.at_level("INFO", logger=build.logger.name):
        reason = build._load()
    assert reason
    assert "\n" not in reason
    assert caplog.messages[-1] == f"native operators are not used: {reason}"


PAGE_FAULTS = """
import resource
from sot_paddle.ops import build
assert build.why_not() == ""
for turn in range(4):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [b"x" * (30 << 20) for _ in range(3)]
    blocks.clear()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.native
def test_freed_memory_stays_in_the_process_unless_tuning_is_off() -> None:
    """Page faults of the fourth time that 90 MiB are taken and given back."""
    faults = {}
    for tuned in ("1", "0"):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", PAGE_FAULTS],
            env={**os.environ, "SOT_PADDLE_TUNE": tuned},
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        )
        faults[tuned] = int(done.stdout)
    assert faults["1"] < faults["0"] / 4
