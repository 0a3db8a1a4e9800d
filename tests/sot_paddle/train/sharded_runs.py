"""Pre-train three times in the processes of one launch: whole, sharded, sharded and resumed.

``python -m paddle.distributed.launch ... sharded_runs.py FOLDER``; FOLDER is what
`tiny_pretraining.write_texts` made.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from sot_paddle import distributed  # noqa: E402
from sot_paddle.tasks.pretraining_options import PretrainConfig  # noqa: E402
from sot_paddle.train import exact_state, pretraining_command, sharding  # noqa: E402
from sot_paddle.train.trainer import ExactTrainer  # noqa: E402

STOP = 3
"""Optimizer steps after which the third run dies."""


def options(root: Path, out: str, stage: str) -> PretrainConfig:
    """Four steps in float64 with clipping that always acts."""
    return PretrainConfig(
        **{"model_name_or_path": "bert_base", "config_name": str(root / "config.json")},
        **{"tokenizer_name": str(root / "words"), "data_dir": str(root / "pairs")},
        **{"do_train": True, "max_steps": 4, "save_steps": 2, "block_size": 16, "no_cuda": True},
        **{"per_gpu_train_batch_size": 5, "learning_rate": 5e-3, "max_grad_norm": 0.05},
        **{"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "dtype": "float64"},
        **{"output_dir": str(root / out), "sharding": stage},
    )


def train(root: Path, out: str, stage: str) -> None:
    """One run, or the rest of one."""
    pretraining_command.run_config(options(root, out, stage))


def main(root: Path) -> None:
    """The three runs; says what each process holds of the optimizer's state."""
    after_step = ExactTrainer.after_step
    held: set[str] = set()

    def look(trainer: ExactTrainer) -> None:
        after_step(trainer)
        inner = sharding.innermost(trainer.optimizer)
        held.update(exact_state.optimizer_arrays(inner, trainer.model))
        if trainer.run.root.name == "resumed" and trainer.state.global_step == STOP:
            raise MemoryError

    train(root, "whole", "")
    ExactTrainer.after_step = look
    train(root, "sharded", "stage1")
    (root / f"held{distributed.rank()}").write_text("\n".join(sorted(held)), "utf-8")
    try:
        train(root, "resumed", "stage1")
    except MemoryError:
        ExactTrainer.after_step = after_step
        train(root, "resumed", "stage1")
    distributed.leave(0)


main(Path(sys.argv[1]))
