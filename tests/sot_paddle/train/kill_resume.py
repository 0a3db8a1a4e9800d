"""Kill a tiny GLUE run again and again; killing.py says how. Run it directly."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import killing  # noqa: E402
import tiny_run  # noqa: E402

from sot_paddle.train.text_command import run_command  # noqa: E402

OPTIONS = (
    *("--num_train_epochs", "4", "--save_steps", "2", "--gradient_accumulation_steps", "2"),
    *("--logging_steps", "3", "--keep_states", "2", "--save_total_limit", "3"),
)
COMPARED = (
    *("last/model.safetensors", "last/optimizer.safetensors", "best/model.safetensors"),
    *("last/state.json", "RTE.tsv"),
)


def prepare(root: Path) -> killing.Scenario:
    """A tiny BERT on 26 sentence pairs."""
    data = tiny_run.write_glue(root / "glue", train=26)
    model = tiny_run.write_model(root / "model")

    def train(out: Path) -> int:
        return run_command(tiny_run.command(data, model, out, *OPTIONS))

    return killing.Scenario(train, COMPARED)


if __name__ == "__main__":
    sys.exit(killing.run(prepare, __doc__))
