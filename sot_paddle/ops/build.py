"""Compile the native operators once for each processor, and load them.

The library lies in the cache folder under a name made of the sources, the compiler and its options,
Paddle's version and the processor: what another machine or another version made is never loaded.
It is made in a folder beside it and renamed, by one process while others wait, and ends in a
checksum. Loading it runs it: a file or folder that others own or may write is not used. Where it
cannot be made (no compiler, a folder that cannot be written), the framework's own operators
compute: one line says so, and a compiler that refuses the sources is not asked again.

``SOT_PADDLE_NATIVE=0`` leaves the framework's operators in place. ``make setup`` compiles in the
background with ``python -m sot_paddle.ops.build``.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import paddle
from paddle.utils.cpp_extension import load_op_meta_info_and_register_op

from sot_paddle.atomic import sync
from sot_paddle.home_folder import default_cache_dir, is_trusted
from sot_paddle.reading import read_bytes
from sot_paddle.runtime import processor

logger = logging.getLogger(__name__)

SWITCH = "SOT_PADDLE_NATIVE"
FLAGS = ["-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math"]
FLAGS += ["-fopenmp", "-fPIC", "-w", "-DPADDLE_WITH_CUSTOM_KERNEL"]
if "avx512f" in processor()[1]:
    FLAGS.append("-mprefer-vector-width=512")
SOURCES = sorted(Path(__file__).parent.glob("*.cc")) + sorted(Path(__file__).parent.glob("*.h"))
PLACE = "SOT_PADDLE_CACHE"
SECONDS = 600
"""A compiler that needs longer is stopped."""
PATIENCE = 60
"""Seconds after which the wait for another process that compiles ends."""
_STAMP_SIZE = 64
_SCRATCH = ".compiling-"
_OWN_FOLDER, _OWN_FILE = 0o755, 0o644
_loading = threading.Lock()
_found: str | None = None


class NotBuilt(Exception):
    """Why there is no library, in one line."""


def compiler() -> str:
    """Path of the C++ compiler: ``$CXX``, else ``g++``, else ``clang++``.

    Raises:
        NotBuilt: none of them is there.
    """
    for name in filter(None, (os.environ.get("CXX"), "g++", "clang++")):
        if path := shutil.which(name):
            return os.path.realpath(path)
    raise NotBuilt("no C++ compiler (g++ or clang++)")


def library_path(folder: Path, compiled_by: str) -> Path:
    """Where the library of these sources, this compiler, this Paddle and this processor lies."""
    made_by = os.stat(compiled_by)
    vendor, flags = processor()
    parts = [made_by.st_size, made_by.st_mtime_ns, vendor, *sorted(flags)]
    parts += [paddle.version.full_version, paddle.version.commit]
    own = str(SOURCES[0].parent)  # copies of the same sources share a library
    for command in commands(compiled_by, Path("unit.cc"), Path("unit.so")):
        parts.append([word.replace(own, "") for word in command])
    digest = hashlib.sha256(repr(parts).encode())
    for source in SOURCES:
        digest.update(hashlib.sha256(source.name.encode() + source.read_bytes()).digest())
    return folder / f"operators-{digest.hexdigest()[:32]}.so"


def commands(compiled_by: str, source: Path, target: Path) -> list[list[str]]:
    """Compile, then link: Paddle's headers and libraries, and the OpenMP threads of its kernels.

    PADDLE: `paddle.utils.cpp_extension.load` does it through a second Python and a generated
    setup.py, which takes ten seconds more, and links the compiler's OpenMP as well: two pools of
    threads on the same processors.
    """
    headers, root = paddle.sysconfig.get_include(), Path(paddle.__file__).parent
    include = [f"-I{folder}" for folder in (headers, f"{headers}/third_party", SOURCES[0].parent)]
    libraries = [f"-L{root / 'base'}", "-l:libpaddle.so", f"-L{root / 'libs'}", "-l:libiomp5.so"]
    libraries += ["-l:libmklml_intel.so", f"-Wl,-rpath,{root / 'libs'}"]  # its matrix products
    part = target.with_suffix(".o")
    linked = ["-shared", "-Wl,-z,now,--no-as-needed"]  # a missing symbol is an error when loaded
    return [
        [compiled_by, *FLAGS, *include, "-c", str(source), "-o", str(part)],
        [compiled_by, *linked, str(part), "-o", str(target), *libraries],
    ]


def build(folder: Path) -> Path:
    """The library in ``folder``, compiled when it is not there.

    Raises:
        NotBuilt: no compiler, it failed (now or before) or was ended, another process is at it for
            too long, or the folder cannot be written, or others may write it.
    """
    compiled_by = compiler()
    path = library_path(folder, compiled_by)
    try:
        if not os.path.lexists(folder):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(_OWN_FOLDER)
        if not is_trusted(folder):
            raise NotBuilt(
                f"{folder} is a link, or others own it or may write it, and what lies there is run "
                f"as a program: make it yours alone (chmod go-w), or set {PLACE} to another folder"
            )
        if not _is_whole(path):
            with _held(folder):
                if not _is_whole(path):
                    _compile(compiled_by, path)
    except OSError as error:
        raise NotBuilt(
            f"cannot write in {folder}: {error.strerror or error}; set {PLACE} to another folder"
        ) from error
    return path


def _is_whole(path: Path) -> bool:
    """Whether a library is there as it was written, and none but this user can have written it."""
    if not os.path.lexists(path) or not is_trusted(path):
        return False
    try:
        content = read_bytes(path)
    except ValueError:  # a pipe or a folder
        return False
    return content[-_STAMP_SIZE:] == _stamp(content[:-_STAMP_SIZE])


def _stamp(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Hold the folder's lock inside of the block.

    Raises:
        NotBuilt: another process does not let go of it.
    """
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    end = time.monotonic() + PATIENCE
    try:
        while not _take(lock):
            if time.monotonic() > end:
                raise NotBuilt(f"another process has been at work in {folder} for {PATIENCE} s")
            time.sleep(0.05)
        yield
    finally:
        os.close(lock)


def _take(lock: int) -> bool:
    """Whether nobody else held the lock; this process does now."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _compile(compiled_by: str, path: Path) -> None:
    failed = path.with_suffix(".failed")
    if failed.exists():
        raise NotBuilt(f"{compiled_by} failed before, see {failed}; remove that file to try again")
    logger.info("compiling the native operators, once on this machine (some seconds)")
    for left in path.parent.glob(f"{_SCRATCH}*"):  # by a process that was killed
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=path.parent) as scratch:
        unit, made = Path(scratch, "unit.cc"), Path(scratch, "unit.so")
        names = [source.name for source in SOURCES if source.suffix == ".cc"]
        unit.write_text("".join(f'#include "{name}"\n' for name in names), encoding="utf-8")
        compiling, linking = commands(compiled_by, unit, made)
        if message := _run(compiling, scratch) or _run(linking, scratch):
            if not _run([*compiling, "-fsyntax-only"], scratch):  # no room on the disk, no memory
                lines = [line for line in message.splitlines() if "error" in line] or [message]
                raise NotBuilt(f"{compiled_by} failed: {' '.join(lines[0].split())}")
            unit.write_text(message, encoding="utf-8")
            os.replace(unit, failed)
            raise NotBuilt(f"{compiled_by} failed, see {failed}")
        content = made.read_bytes()
        made.write_bytes(content + _stamp(content))
        made.chmod(_OWN_FILE)
        sync(made)
        os.replace(made, path)


def _run(command: list[str], scratch: str) -> str:
    """What a command that failed said, "" when it worked; all its files are in one folder."""
    try:
        told = subprocess.run(  # noqa: S603 (the compiler of this machine)
            command,
            env={**os.environ, "TMPDIR": scratch},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise NotBuilt(f"{command[0]} took longer than {SECONDS} s") from error
    if told.returncode < 0:  # says nothing of the compiler: the next process asks it again
        raise NotBuilt(f"{command[0]} was ended by signal {-told.returncode}")
    return (told.stderr or f"exit status {told.returncode}") if told.returncode else ""


def why_not() -> str:
    """Load the operators, once in a process; what hinders it, "" when they are loaded."""
    global _found
    if _found is None:
        with _loading:
            _found = _load() if _found is None else _found
    return _found


def _load() -> str:
    if os.environ.get(SWITCH) == "0":
        reason = f"{SWITCH}=0"
    else:
        try:
            load_op_meta_info_and_register_op(str(build(default_cache_dir() / "native")))
            return ""
        except NotBuilt as error:
            reason = str(error)
        except (RuntimeError, OSError) as error:  # the loader's, in Paddle's words
            reason = str(error).strip().splitlines()[-1]
    logger.info("native operators are not used: %s", reason)
    return reason


def state() -> str:
    """Whether this process computes natively, for the environment stamp."""
    if _found is None:
        return "not asked for"
    return f"not used: {_found}" if _found else "used"


def main() -> int:
    """Compile and load; say what became of it in one line."""
    reason = why_not()
    print(f"native operators: {'not used: ' + reason if reason else 'ready'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
