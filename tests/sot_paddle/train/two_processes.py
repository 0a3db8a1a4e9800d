"""Trainings in the two processes of one launch, one after the other.

``python -m paddle.distributed.launch ... two_processes.py FOLDER``: FOLDER/runs.json holds pairs of
a kind of training and its flags. A kind "interrupted" is a pre-training that dies in step 3. What
a process holds of the optimizer's state is noted in FOLDER/NAME-RANK for the output folder NAME.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from sot_paddle import distributed  # noqa: E402
from sot_paddle.command_line import parse  # noqa: E402
from sot_paddle.tasks.glue_options import COMMAND as GLUE  # noqa: E402
from sot_paddle.tasks.pretraining_options import COMMAND as PRETRAINING  # noqa: E402
from sot_paddle.train import (  # noqa: E402
    exact_state,
    image_command,
    pretraining_command,
    text_command,
)
from sot_paddle.train.image_flags import TRAINING  # noqa: E402
from sot_paddle.train.trainer import ExactTrainer  # noqa: E402

RUNS = {
    "text": (text_command.run_config, GLUE),
    "images": (image_command.run_config, TRAINING),
    "pretraining": (pretraining_command.run_config, PRETRAINING),
    "interrupted": (pretraining_command.run_config, PRETRAINING),
}
after_step = ExactTrainer.after_step


def main(root: Path) -> None:
    """Train."""
    for kind, flags in json.loads((root / "runs.json").read_text("utf-8")):

        def noted(trainer: ExactTrainer, kind: str = kind) -> None:
            after_step(trainer)
            inner = getattr(trainer, "innermost", trainer.optimizer)
            names = exact_state.optimizer_arrays(inner, trainer.model)
            note = root / f"{trainer.run.root.name}-{distributed.rank()}"
            note.write_text("\n".join(sorted(names)), "utf-8")
            if kind == "interrupted" and trainer.state.global_step == 3:
                raise MemoryError

        ExactTrainer.after_step = noted
        run_config, command = RUNS[kind]
        try:
            run_config(parse(command, flags))
        except MemoryError:
            assert kind == "interrupted"
    distributed.leave(0)


main(Path(sys.argv[1]))
