"""Kill a tiny pre-training again and again; killing.py says how. Run it directly."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import killing  # noqa: E402
import tiny_pretraining  # noqa: E402

from sot_paddle.train.pretraining_command import run_command  # noqa: E402

OPTIONS = (
    *("--model_name_or_path", "bert_base", "--do_train", "--max_steps", "12", "--block_size", "16"),
    *("--per_gpu_train_batch_size", "9", "--save_steps", "2", "--logging_steps", "3"),
)
COMPARED = ("last/model.safetensors", "last/optimizer.safetensors", "last/state.json")


def prepare(root: Path) -> killing.Scenario:
    """A tiny BERT on instances of 120 sentences."""
    root.mkdir(parents=True, exist_ok=True)
    data = tiny_pretraining.write_texts(root)
    files = {
        "--config_name": data / "config.json",
        "--tokenizer_name": data / "words",
        "--data_dir": data / "instances",
    }

    def train(out: Path) -> int:
        given = [word for flag, place in files.items() for word in (flag, str(place))]
        return run_command([*OPTIONS, *given, "--output_dir", str(out)])

    return killing.Scenario(train, COMPARED)


if __name__ == "__main__":
    sys.exit(killing.run(prepare, __doc__))
