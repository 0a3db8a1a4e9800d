"""Trainings in the two processes of one launch, one after the other.

``python -m paddle.distributed.launch ... two_processes.py FOLDER``: FOLDER/runs.json holds pairs of
a training command and its flags.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from sot_paddle import distributed  # noqa: E402
from sot_paddle.command_line import parse  # noqa: E402
from sot_paddle.train import commands  # noqa: E402

for name, flags in json.loads((Path(sys.argv[1]) / "runs.json").read_text("utf-8")):
    commands.part(name, 1)(parse(commands.part(name, 0), flags))
distributed.leave(0)
