"""The library is made once, whole, by one process, and what hinders it is one line."""

from __future__ import annotations

import fcntl
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from sot_paddle import home_folder, runtime
from sot_paddle.ops import build

COMPILES = """#!/bin/sh
echo "$@" >> "$0.calls"
while [ $# -gt 0 ]; do [ "$1" = -o ] && target=$2; shift; done
echo machine code > "$target"
"""
FAILS = """#!/bin/sh
echo called >> "$0.calls"
echo "unit.cc:1: fatal error: no such header" >&2
exit 1
"""
FULL = """#!/bin/sh
echo "$TMPDIR" >> "$0.calls"
for word in "$@"; do [ "$word" = -fsyntax-only ] && exit 0; done
echo "unit.cc:1: fatal error: cannot write: no space left" >&2
exit 1
"""
WAITS = """#!/bin/sh
echo called >> "$0.calls"
while [ $# -gt 0 ]; do [ "$1" = -o ] && target=$2; shift; done
echo half of it > "$target"
exec sleep 30
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


def calls(path: Path) -> int:
    log = path.with_name(f"{path.name}.calls")
    return len(log.read_text().splitlines()) if log.exists() else 0


def test_a_library_is_compiled_once_also_by_several_at_a_time(compiler, tmp_path) -> None:
    path, made = compiler(COMPILES), []
    folder = tmp_path / "cache" / "native"
    threads = [threading.Thread(target=lambda: made.append(build.build(folder))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls(path) == 2  # one compiles, one links
    assert made == [build.build(folder)] * 3
    assert made[0].read_bytes().startswith(b"machine code")
    assert {entry.name for entry in folder.iterdir()} == {"lock", made[0].name}


@pytest.mark.parametrize("damage", [lambda content: content[:-7], lambda content: b"x" + content])
def test_a_damaged_library_is_compiled_again(compiler, tmp_path, damage) -> None:
    path = compiler(COMPILES)
    made = build.build(tmp_path / "native")
    whole = made.read_bytes()
    made.write_bytes(damage(whole))
    assert build.build(tmp_path / "native") == made
    assert made.read_bytes() == whole
    assert calls(path) == 4


def test_what_the_library_depends_on_is_in_its_name(compiler, tmp_path, monkeypatch) -> None:
    path = compiler(COMPILES)
    names = [build.library_path(tmp_path, str(path))]
    monkeypatch.setattr(build, "FLAGS", [*build.FLAGS, "-g"])
    names.append(build.library_path(tmp_path, str(path)))
    monkeypatch.setattr(build, "processor", lambda: ("AnotherVendor", frozenset({"avx2"})))
    names.append(build.library_path(tmp_path, str(path)))
    monkeypatch.setattr(build.paddle.version, "full_version", "0.0.0")
    names.append(build.library_path(tmp_path, str(path)))
    path.write_text(COMPILES + "# another version\n")
    names.append(build.library_path(tmp_path, str(path)))
    source = tmp_path / "another.cc"
    source.write_text("int x;")
    monkeypatch.setattr(build, "SOURCES", [*build.SOURCES, source])
    names.append(build.library_path(tmp_path, str(path)))
    assert len(set(names)) == len(names)


def test_the_order_of_the_flags_of_a_processor_does_not_matter(compiler, tmp_path, monkeypatch):
    path = str(compiler(COMPILES))
    flags = [f"flag{i}" for i in range(50)]
    names = set()
    for order in (flags, flags[::-1]):
        monkeypatch.setattr(build, "processor", lambda order=order: ("V", frozenset(order)))
        names.add(build.library_path(tmp_path, path))
    assert len(names) == 1


def test_a_compiler_that_was_ended_is_asked_again(compiler, tmp_path) -> None:
    """As by a time limit that ends all processes of a run."""
    compiler("#!/bin/sh\nkill -TERM $$\n")
    with pytest.raises(build.NotBuilt, match="was ended by signal 15"):
        build.build(tmp_path / "native")
    compiler(COMPILES)
    assert build.build(tmp_path / "native").is_file()


def test_a_compiler_that_failed_is_not_asked_again(compiler, tmp_path) -> None:
    path = compiler(FAILS)
    for words in ("failed, see", "failed before, see .*remove that file"):
        with pytest.raises(build.NotBuilt, match=words) as caught:
            build.build(tmp_path / "native")
        assert "\n" not in str(caught.value)
    assert calls(path) == 2  # the sources alone, without a file to write, do not pass either
    (said,) = (tmp_path / "native").glob("*.failed")
    assert "no such header" in said.read_text()


def test_a_compiler_that_had_no_room_is_asked_again(compiler, tmp_path) -> None:
    """What it says of a full disk or of memory says nothing of the sources."""
    path = compiler(FULL)
    with pytest.raises(build.NotBuilt, match="failed: .*no space left"):
        build.build(tmp_path / "native")
    assert [entry.name for entry in (tmp_path / "native").iterdir()] == ["lock"]
    (scratch,) = set((tmp_path / f"{path.name}.calls").read_text().split())
    assert Path(scratch).parent == tmp_path / "native"  # not where others' files fill the disk
    compiler(COMPILES)
    assert build.build(tmp_path / "native").is_file()


def test_waiting_for_another_process_has_an_end(compiler, tmp_path, monkeypatch) -> None:
    compiler(COMPILES)
    monkeypatch.setattr(build, "PATIENCE", 0.2)
    (tmp_path / "native").mkdir()
    with open(tmp_path / "native" / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(build.NotBuilt, match="another process has been at work in .*native"):
            build.build(tmp_path / "native")


def test_a_pipe_in_the_place_of_the_lock_is_not_waited_for(compiler, tmp_path) -> None:
    compiler(COMPILES)
    (tmp_path / "native").mkdir()
    os.mkfifo(tmp_path / "native" / "lock")
    assert build.build(tmp_path / "native").is_file()


@pytest.mark.parametrize("kind", ["pipe", "device", "link", "open to all", "of somebody else"])
def test_what_others_may_have_put_in_the_library_s_place_is_not_loaded(
    kind: str, compiler, tmp_path, monkeypatch
) -> None:
    compiler(COMPILES)
    made = build.build(tmp_path / "native")
    whole = made.read_bytes()
    if kind == "open to all":
        made.chmod(0o666)
    elif kind == "of somebody else" and os.geteuid() == 0:
        os.chown(made, 54321, 54321)
    elif kind == "of somebody else":
        monkeypatch.setattr(home_folder.os, "geteuid", lambda: 54321)
        with pytest.raises(build.NotBuilt, match="others own it"):
            build.build(tmp_path / "native")
        return
    else:
        made.unlink()
        if kind == "pipe":
            os.mkfifo(made)
        else:
            (tmp_path / "planted").write_bytes(whole)
            made.symlink_to("/dev/zero" if kind == "device" else tmp_path / "planted")
    assert build.build(tmp_path / "native") == made
    assert home_folder.is_trusted(made)
    assert made.read_bytes() == whole


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


def test_a_library_is_nobody_else_s_whatever_the_umask(compiler, tmp_path) -> None:
    compiler(COMPILES)
    before = os.umask(0)
    try:
        made = build.build(tmp_path / "native")
    finally:
        os.umask(before)
    assert home_folder.is_trusted(made)
    assert home_folder.is_trusted(made.parent)


def test_what_a_killed_build_left_is_gone_after_the_next(compiler, tmp_path) -> None:
    path = compiler(WAITS)
    child = os.fork()
    if child == 0:
        os.setsid()
        build.build(tmp_path / "native")
        os._exit(0)
    end = time.monotonic() + 20
    while not list((tmp_path / "native").rglob("unit.o")) and time.monotonic() < end:
        time.sleep(0.01)
    assert calls(path) == 1
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    compiler(COMPILES)
    made = build.build(tmp_path / "native")
    assert {entry.name for entry in made.parent.iterdir()} == {"lock", made.name}


def test_without_a_compiler_there_is_no_library(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(build.NotBuilt, match="no C\\+\\+ compiler"):
        build.build(tmp_path / "native")


def test_a_folder_that_cannot_be_written_hinders_it(compiler, tmp_path) -> None:
    compiler(COMPILES)
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(build.NotBuilt, match="cannot write in .*file"):
        build.build(tmp_path / "file" / "native")


def test_a_library_that_cannot_be_loaded_is_not_used(compiler, tmp_path, monkeypatch) -> None:
    compiler(COMPILES)  # what it writes is no library
    monkeypatch.delenv(build.SWITCH, raising=False)
    monkeypatch.setenv("SOT_PADDLE_CACHE", str(tmp_path))
    reason = build._load()
    assert reason
    assert "\n" not in reason


def test_the_switch_leaves_the_operators_of_the_framework(monkeypatch, caplog) -> None:
    monkeypatch.setenv(build.SWITCH, "0")
    with caplog.at_level("INFO", logger=build.logger.name):
        assert build._load() == "SOT_PADDLE_NATIVE=0"
    assert caplog.messages == ["native operators are not used: SOT_PADDLE_NATIVE=0"]


def test_the_stamp_says_whether_they_are_used(monkeypatch) -> None:
    build.why_not()
    assert runtime.environment_stamp()["native_operators"] == build.state()
    assert build.state() == ("used" if not build.why_not() else f"not used: {build.why_not()}")
