"""Compile the native operators once for each processor, and load them.

The library lies in the cache folder under a name made of the sources, the compiler and its options,
Paddle's version and the processor: what another machine or another version made is never loaded.
It is renamed to that name when it is whole; of several processes each makes its own, and the last
one's stays. Loading it runs it: a folder that others own or may write is not used. Where it cannot
be made (no compiler, a folder that cannot be written), the framework's own operators compute, and
one line says so.

``make setup`` compiles in the background with ``python -m sot_paddle.ops.build``.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import stat
import subprocess
import tempfile
import threading
from pathlib import Path

import paddle
from paddle.utils.cpp_extension import load_op_meta_info_and_register_op

from sot_paddle.ops import native
from sot_paddle.ops.processor import processor
from sot_paddle.versions import OPERATORS_SINCE, number_of

logger = logging.getLogger(__name__)

FLAGS = ["-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math"]
FLAGS += ["-fopenmp", "-fPIC", "-w", "-DPADDLE_WITH_CUSTOM_KERNEL"]
if "avx512f" in processor()[1]:
    FLAGS.append("-mprefer-vector-width=512")
SOURCES = sorted(Path(__file__).parent.glob("*.cc")) + sorted(Path(__file__).parent.glob("*.h"))
_loading = threading.Lock()
_reason: str | None = None


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


def library_path(folder: Path, compiler_path: str) -> Path:
    """Where the library of these sources, this compiler, this Paddle and this processor lies."""
    status = os.stat(compiler_path)
    vendor, flags = processor()
    parts = [status.st_size, status.st_mtime_ns, vendor, *sorted(flags)]
    parts += [paddle.version.full_version, paddle.version.commit]
    folder_of_sources = str(SOURCES[0].parent)  # copies of the same sources share a library
    for command in commands(compiler_path, Path("unit.cc"), Path("unit.so")):
        parts.append([word.replace(folder_of_sources, "") for word in command])
    digest = hashlib.sha256(repr(parts).encode())
    for source in SOURCES:
        digest.update(hashlib.sha256(source.name.encode() + source.read_bytes()).digest())
    return folder / f"operators-{digest.hexdigest()[:32]}.so"


def commands(compiler_path: str, source: Path, target: Path) -> list[list[str]]:
    """Compile, then link: Paddle's headers and libraries, and the OpenMP threads of its kernels.

    PADDLE: `paddle.utils.cpp_extension.load` does it through a second Python and a generated
    setup.py, which takes ten seconds more, and links the compiler's OpenMP as well: two pools of
    threads on the same processors.
    """
    headers, root = paddle.sysconfig.get_include(), Path(paddle.__file__).parent
    include = [f"-I{folder}" for folder in (headers, f"{headers}/third_party", SOURCES[0].parent)]
    libraries = [f"-L{root / 'base'}", "-l:libpaddle.so", f"-L{root / 'libs'}", "-l:libiomp5.so"]
    libraries += ["-l:libmklml_intel.so", "-l:libdnnl.so.3", f"-Wl,-rpath,{root / 'libs'}"]
    part = target.with_suffix(".o")
    linked = ["-shared", "-Wl,-z,now,--no-as-needed"]  # a missing symbol is an error when loaded
    return [
        [compiler_path, *FLAGS, *include, "-c", str(source), "-o", str(part)],
        [compiler_path, *linked, str(part), "-o", str(target), *libraries],
    ]


def build(folder: Path) -> Path:
    """The library in ``folder``, compiled when it is not there.

    Raises:
        NotBuilt: no compiler, it failed, or the folder cannot be written, or others may write it.
    """
    compiler_path = compiler()
    path = library_path(folder, compiler_path)
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        if not _is_trusted(folder):
            raise NotBuilt(
                f"{folder} is a link, or others own it or may write it, and what lies there is run "
                "as a program: make it yours alone (chmod go-w), or set SOT_PADDLE_CACHE to "
                "another folder"
            )
        if not path.exists():
            _compile(compiler_path, path)
    except OSError as error:
        raise NotBuilt(
            f"cannot write in {folder}: {error}; set SOT_PADDLE_CACHE to another folder"
        ) from error
    return path


def default_cache_dir() -> Path:
    """``$SOT_PADDLE_CACHE``, else ``$XDG_CACHE_HOME/sot_paddle``, else ``~/.cache/sot_paddle``."""
    if chosen := os.environ.get("SOT_PADDLE_CACHE"):
        return Path(chosen)
    around = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(around, "sot_paddle")


def _is_trusted(folder: Path) -> bool:
    """Whether none but this user and the administrator own a folder or may write it; no link."""
    status = folder.lstat()
    is_ours = status.st_uid in (os.geteuid(), 0) and not stat.S_ISLNK(status.st_mode)
    return is_ours and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _compile(compiler_path: str, path: Path) -> None:
    # a script of the user's waits for it
    logger.warning("compiling the native operators, once on this machine (some seconds)")
    names = [source.name for source in SOURCES if source.suffix == ".cc"]
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        unit, library = Path(folder, "unit.cc"), Path(folder, "unit.so")
        unit.write_text("".join(f'#include "{name}"\n' for name in names), encoding="utf-8")
        for command in commands(compiler_path, unit, library):
            done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
            if done.returncode:
                errors = [line for line in done.stderr.splitlines() if "error" in line]
                reason = errors[0].strip() if errors else f"exit status {done.returncode}"
                raise NotBuilt(f"{compiler_path} failed: {reason}")
        library.chmod(0o644)
        os.replace(library, path)


def why_not() -> str:
    """Load the operators, once in a process; what hinders it, "" where they compute."""
    global _reason
    if not native.enabled:
        return "SOT_PADDLE_NATIVE=0 or ops.native(False)"
    with _loading:
        if _reason is None:
            _reason = _load()
    return _reason


def _load() -> str:
    if number_of(paddle.__version__) < number_of(OPERATORS_SINCE):
        return f"they need Paddle {OPERATORS_SINCE}, this is {paddle.__version__}"
    try:
        load_op_meta_info_and_register_op(str(build(default_cache_dir() / "native")))
    except NotBuilt as error:
        reason = str(error)
    except (RuntimeError, OSError) as error:  # the loader's, in Paddle's words
        reason = str(error).strip().splitlines()[-1]
    else:
        return ""
    logger.info("native operators are not used: %s", reason)
    return reason


def state() -> str:
    """Whether this process computes natively, for the environment stamp."""
    if native.enabled and _reason is None:
        return "not asked for"
    reason = why_not()
    return f"not used: {reason}" if reason else "used"


if __name__ == "__main__":
    reason = why_not()
    print(f"native operators: {'not used: ' + reason if reason else 'ready'}")
