"""The command line of GLUE training."""

from __future__ import annotations

from sot_paddle.command_line import Command
from sot_paddle.registry import list_models
from sot_paddle.tasks.glue_options import TrainConfig

_CONFIG = f"configs/glue/rte_{list_models('text')[0]}_mgcrp.yaml"
TRAINING = Command(
    "train_glue.py",
    TrainConfig,
    """\
Fine-tune a language model with the second-order head (or its own, --head plain) on a GLUE task or
on your own TSV files. The flags are those of the original's run_glue.py; the same command continues
a run that was interrupted, bit for bit.""",
    f"""\
examples:
  python tools/train_glue.py --task_name RTE --data_dir GLUE/RTE --model_name_or_path CHECKPOINT \\
      --do_lower_case --do_train --do_eval --max_seq_length 128 --output_dir OUT
  python tools/train_glue.py --config {_CONFIG} \\
      --set learning_rate=3e-5 --model_name_or_path CHECKPOINT --data_dir GLUE/RTE --output_dir OUT
  python tools/train_glue.py --task_name own --data_dir MY_TSV --model_name_or_path OUT/best \\
      --do_predict --output_dir PREDICTIONS
""",
)
