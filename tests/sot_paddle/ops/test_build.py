"""The library is made once, whole, by one process, and what hinders it is one line."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from sot_paddle import runtime
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
    assert calls(path) == 1
    (said,) = (tmp_path / "native").glob("*.failed")
    assert "no such header" in said.read_text()


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
