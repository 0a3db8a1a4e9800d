"""A shuffle outside of memory that gets SIGKILL again and again ends with the same bytes."""

from __future__ import annotations

import itertools
import random
import signal
import subprocess
import sys
from pathlib import Path

from sot_paddle.data.pretraining.journal import Journal
from sot_paddle.data.pretraining.pair_files import prepare_pairs

ROOT = Path(__file__).resolve().parents[4]
OPTIONS = {"vocab_size": 500, "budget": 800, "report": lambda line: None}
NAMES = ("pairs.txt", "starts.bin", "manifest.json")

SHUFFLE = """
import itertools, os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from sot_paddle.data.pretraining import pair_files
from sot_paddle.data.pretraining.journal import Journal
record, left = Journal.save, [int(sys.argv[4])]

def save(self, stage, **values):
    left[0] -= 1
    if left[0] == 0:  # what was written since the last record is lost
        os.kill(os.getpid(), signal.SIGKILL)
    record(self, stage, **values)

asked = itertools.count(1)
Journal.save, Journal.due = save, lambda self: next(asked) % 16 == 0  # not by the clock
files, folder = [Path(sys.argv[2])], Path(sys.argv[3])
pair_files.prepare_pairs(files, None, folder, vocab_size=500, budget=800, report=print)
"""


def test_a_shuffle_that_is_killed_ends_with_the_same_bytes(tmp_path, monkeypatch) -> None:
    rng = random.Random(4)
    lines = [
        " ".join(str(rng.randrange(500)) for _ in range(rng.randint(3, 9))) for _ in range(120)
    ]
    text = tmp_path / "ids.txt"
    text.write_text("\n".join(lines) + "\n", "utf-8")
    stages: list[str] = []
    record = Journal.save

    def save(self: Journal, stage: str, **values) -> None:
        stages.append(stage)
        record(self, stage, **values)

    asked = itertools.count(1)
    with monkeypatch.context() as patched:
        patched.setattr(Journal, "save", save)
        patched.setattr(Journal, "due", lambda journal: next(asked) % 16 == 0)
        prepare_pairs([text], None, tmp_path / "whole", **OPTIONS)
    assert stages.count("deal") > 3
    assert stages.count("join") > 10  # as many buckets
    out = tmp_path / "out"

    def run(save: int) -> int:
        command = [sys.executable, "-c", SHUFFLE, str(ROOT), str(text), str(out), str(save)]
        return subprocess.run(command, capture_output=True, check=False, timeout=120).returncode

    reached = 0
    for stage in ("deal", "join"):  # in the middle of each
        first = stages.index(stage)
        at = first + stages.count(stage) // 2
        assert run(at - reached + 1) == -signal.SIGKILL
        assert not (out / "manifest.json").exists()
        reached = at
    assert run(-1) == 0
    for name in NAMES:
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
