import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_killed_image_runs_end_bit_identical():
    """A few kills, moving average included; more by hand: kill_resume_image.py --kills 40."""
    program = Path(__file__).with_name("kill_resume_image.py")
    done = subprocess.run(
        [sys.executable, str(program), "--kills", "3", "--seed", "5"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    assert "every run bit-identical" in last
    kills, inside = int(last.split()[0]), int(last.split("(")[1].split()[0])
    assert kills >= 3
    assert inside >= 1
