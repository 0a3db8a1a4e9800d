"""The command line of GLUE training."""

from __future__ import annotations

from collections.abc import Sequence

from sot_paddle.registry import list_models
from sot_paddle.tasks.glue_options import TrainConfig
from sot_paddle.train.record_flags import parse_record

DESCRIPTION = """\
Fine-tune a language model with the second-order head (or its own, --head plain) on a GLUE task or
on your own TSV files. The flags are those of the original's run_glue.py; the same command continues
a run that was interrupted, bit for bit."""
_CONFIG = f"configs/glue/rte_{list_models('text')[0]}_mgcrp.yaml"
EXAMPLES = f"""\
examples:
  python tools/train_glue.py --task_name RTE --data_dir GLUE/RTE --model_name_or_path CHECKPOINT \\
      --do_lower_case --do_train --do_eval --max_seq_length 128 --output_dir OUT
  python tools/train_glue.py --config {_CONFIG} \\
      --set learning_rate=3e-5 --model_name_or_path CHECKPOINT --data_dir GLUE/RTE --output_dir OUT
  python tools/train_glue.py --task_name own --data_dir MY_TSV --model_name_or_path OUT/best \\
      --do_predict --output_dir PREDICTIONS

exit status: 0 done; 2 refused or failed, with one line on stderr that says why; 130 interrupted.
"""


def parse(arguments: Sequence[str]) -> TrainConfig:
    """Read flags, ``--config FILE`` and ``--set NAME=VALUE`` into one record.

    A flag or ``--set`` overrides the file. Giving an option by flag and by ``--set`` is refused.

    Args:
        arguments: the command line without the program's name.

    Returns:
        The record.

    Raises:
        ValueError: unknown option, wrong type or value, missing required option.
        SystemExit: a flag that argparse refuses (status 2), or ``--help``.
    """
    return parse_record(
        TrainConfig,
        arguments,
        program="train_glue.py",
        description=DESCRIPTION,
        examples=EXAMPLES,
        configs="configs/glue",
    )
