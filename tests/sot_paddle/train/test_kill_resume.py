import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def test_killed_runs_end_bit_identical():
    """Of each kind of training, some killed inside a save; by hand with more kills."""
    program = Path(__file__).with_name("kill_resume.py")
    kinds = ("text=2", "images=2", "pretraining=2")
    done = subprocess.run(
        [sys.executable, str(program), *kinds, "--seed", "262"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    ends = re.findall(r"(\w+): (\d) kills \((\d) inside a save\), every run bit", done.stdout)
    assert [f"{kind}={kills}" for kind, kills, _ in ends] == [*kinds]
    inside = [int(count) for _, _, count in ends]
    assert min(inside) >= 1, done.stdout
    assert sum(inside) < sum(int(kills) for _, kills, _ in ends), done.stdout
