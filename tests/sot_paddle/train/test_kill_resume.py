import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("program", "asked", "least", "seed"),
    [
        ("kill_resume.py", 14, 10, 3),
        ("kill_resume_image.py", 3, 3, 5),
        ("kill_resume_pretraining.py", 3, 3, 5),
    ],
)
def test_killed_runs_end_bit_identical(program, asked, least, seed):
    """Kills of each kind, some inside a save; by hand: PROGRAM --kills 40."""
    done = subprocess.run(
        [
            *(sys.executable, str(Path(__file__).with_name(program))),
            *("--kills", str(asked), "--seed", str(seed)),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    assert "every run bit-identical" in last
    kills, inside = int(last.split()[0]), int(last.split("(")[1].split()[0])
    assert kills >= least
    assert 1 <= inside <= kills - (least > 3)
