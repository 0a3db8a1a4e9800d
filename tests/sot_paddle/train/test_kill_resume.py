import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_killed_runs_end_bit_identical():
    """Ten kills at least, some inside a save (about twenty seconds on two cores)."""
    program = Path(__file__).with_name("kill_resume.py")
    done = subprocess.run(
        [sys.executable, str(program), "--kills", "14", "--seed", "3"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    assert "every run bit-identical" in last
    kills, inside = int(last.split()[0]), int(last.split("(")[1].split()[0])
    assert kills >= 10
    assert 1 <= inside < kills
