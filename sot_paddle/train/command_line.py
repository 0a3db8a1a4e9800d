"""The command line of GLUE training: flags, ``--config FILE`` and ``--set NAME=VALUE``."""

from __future__ import annotations

import argparse
import dataclasses
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from sot_paddle.config import build_record, load_yaml, near_names
from sot_paddle.registry import list_models
from sot_paddle.tasks.glue_options import TrainConfig
from sot_paddle.train.flags import OneLineParser, typed_value

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
    hints = typing.get_type_hints(TrainConfig)
    parser = OneLineParser(
        prog="train_glue.py",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--config", metavar="FILE", help="YAML file of options (configs/glue)")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        dest="assigned",
        help="an option by its name, over the file's value; may be repeated",
    )
    for item in dataclasses.fields(TrainConfig):
        shown = f"{item.metadata['help']} [{item.default}]".replace("%", "%%")
        options: dict[str, Any] = {"default": argparse.SUPPRESS, "help": shown}
        if hints[item.name] is bool:
            parser.add_argument(f"--{item.name}", action="store_true", **options)
        else:
            parser.add_argument(f"--{item.name}", metavar="VALUE", **options)
    given = vars(parser.parse_args(list(arguments)))
    path = given.pop("config")
    values = load_yaml(path) if path else {}
    assigned = given.pop("assigned")
    flags = {name: typed_value(name, text, hints[name]) for name, text in given.items()}
    pairs = dict(_pair(text, hints) for text in assigned)
    twice = sorted(set(flags) & set(pairs))
    if twice:
        raise ValueError(f"{twice[0]} is given twice: by --{twice[0]} and by --set")
    return build_record(TrainConfig, {**values, **flags, **pairs})


def _pair(text: str, hints: Mapping[str, Any]) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator:
        raise ValueError(f"--set needs NAME=VALUE, got {text!r}")
    if name not in hints:
        raise ValueError(f"--set: unknown option {name!r}; {near_names(name, hints)}")
    return name, typed_value(name, value, hints[name])
