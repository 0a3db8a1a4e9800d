"""Image runs in the processes of one launch, one after the other.

``python -m paddle.distributed.launch ... image_runs.py RUNS``; RUNS is JSON: command lines.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from sot_paddle import distributed  # noqa: E402
from sot_paddle.command_line import parse  # noqa: E402
from sot_paddle.train.image_command import run_config  # noqa: E402
from sot_paddle.train.image_flags import TRAINING  # noqa: E402

for flags in json.loads(sys.argv[1]):
    run_config(parse(TRAINING, flags))
distributed.leave(0)
