"""Where the project opens files for reading: `sot_paddle.reading`, and the few that are listed."""

from __future__ import annotations

import ast
import re

import pytest

from tests.test_architecture import FILES, in_folders

OWN_FILES = {
    "sot_paddle/reading.py": "the boundary itself",
    "sot_paddle/data/image_folder.py": "images, which Pillow decodes",
    "sot_paddle/runtime.py": "what the system says of the machine",
    "sot_paddle/distributed.py": "the same, of a process",
    "sot_paddle/data/cache.py": "source text of the project",
    "sot_paddle/search/training_process.py": "the log that a process of ours is writing",
    "align/port/round_trip.py": "what it has just written",
    "align/verdict_process.py": "the verdict that a process of ours wrote",
    "align/processes.py": "logs of processes of ours",
    "tools/mutation/": "source text of the project, the answer of a process of ours",
    "align/record/files/storage.py": "the temporary file that it is writing",
    "tools/benchmarks/": "what the system says of the machine and of its processes",
    "sot_paddle/ops/": "source text of the project, and what was built of it",
    "sot_paddle/peers.py": "what the system says of a process",
    "tools/soak.py": "the same",
    "sot_paddle/atomic.py": "a descriptor to make what was written last",
    "sot_paddle/guard.py": "/dev/null",
    "sot_paddle/deploy/predict_command.py": "the same",
    "sot_paddle/data/stored/state_files.py": "HDF5, after the boundary has looked at the file",
    "sot_paddle/data/pretraining/stored_numbers.py": "the numbers that it has written and shuffles",
    "sot_paddle/train/folder_lock.py": "a lock that it writes",
}
"""Where a file is read without `sot_paddle.reading`, and what it is."""
READERS = ("read_text", "read_bytes", "memmap", "fromfile", "loadtxt", "genfromtxt", "File")
ELSEWHERE = ("reading", "webbrowser", "search")
"""Whose ``open`` and ``read_text`` are no files, or the boundary's."""


def test_what_comes_from_outside_is_read_at_the_boundary() -> None:
    wrong = []
    words = re.compile(rf"\b({'|'.join(READERS)}|open)\(")
    for name in in_folders("sot_paddle", "align", "tools"):
        text = FILES[name].read_text(encoding="utf-8")
        if name.startswith(tuple(OWN_FILES)) or not words.search(text):
            continue
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Call):
                continue
            if _reads(node):
                wrong.append(f"{name}:{node.lineno}")
    assert wrong == []
    unused = [name for name in OWN_FILES if not any(file.startswith(name) for file in FILES)]
    assert unused == []


def _reads(node: ast.Call) -> bool:
    """Whether a call opens a file for reading: `open` in any spelling, `os.open`, `h5py.File`."""
    owner = getattr(getattr(node.func, "value", None), "id", "")
    called = getattr(node.func, "attr", getattr(node.func, "id", ""))
    method = isinstance(node.func, ast.Attribute)
    if owner in ELSEWHERE:
        return False
    if called == "open" and owner == "Image":  # of bytes that the boundary has read
        return "BytesIO" not in ast.unparse(node.args[0])
    if called == "open":
        mode = node.args[0 if method and owner not in ("os", "io") else 1 :][:1]
        modes = [a.value for a in mode if isinstance(a, ast.Constant)]
        modes += [word.value.value for word in node.keywords if word.arg == "mode"]
        return not any(set(str(text)) & set("wax") for text in modes)
    return method and called in READERS


@pytest.mark.parametrize(
    ("code", "reads"),
    [
        ("open(path)", True),
        ("open(path, 'rb')", True),
        ("open(path, mode='r')", True),
        ("open(path, 'wb')", False),
        ("io.open(path, 'a')", False),
        ("os.open(path, os.O_RDONLY)", True),
        ("path.open()", True),
        ("path.open('rb')", True),
        ("path.open('xb')", False),
        ("path.read_text(encoding='utf-8')", True),
        ("reading.read_text(path)", False),
        ("read_text(path)", False),
        ("Path(a).read_bytes()", True),
        ("np.memmap(path, mode='r')", True),
        ("np.fromfile(path)", True),
        ("h5py.File(path, 'r')", True),
        ("Image.open(path)", True),
        ("Image.open(io.BytesIO(content))", False),
    ],
)
def test_what_counts_as_reading(code, reads) -> None:
    assert _reads(ast.parse(code).body[0].value) is reads
