"""The command lines of image training and evaluation, in timm's spellings too.

Every option of the record is a flag with dashes or underscores. ``--config FILE`` reads YAML,
``--set NAME=VALUE`` gives an option of the record or, if there is none of that name, of the
model. A flag of the original that means nothing here is refused by name with the reason, or
accepted with a line that says why it has no effect.
"""

from __future__ import annotations

import argparse
import dataclasses
import shlex
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from sot_paddle.config import build_record, load_yaml
from sot_paddle.distributed import say
from sot_paddle.tasks.image_options import ImageEvalConfig, ImageTrainConfig
from sot_paddle.train.flags import OneLineParser, typed_value

Record = TypeVar("Record", ImageTrainConfig, ImageEvalConfig)

_SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "batch_size": ("-b", "--b"),
    "workers": ("-j",),
    "lr": ("--learning-rate",),
    "output_dir": ("--output",),
    "aa": ("--auto-augment",),
    "amp": ("--apex-amp", "--native-amp"),
    "initial_checkpoint": ("--pretrained",),
    "eval_batch_multiplier": ("-vb", "--validation-batch-size-multiplier"),
    "cpu": ("--no-cuda",),
    "weights": ("--eval-checkpoint", "--checkpoint"),
    "imagenet_a": ("--IN-A",),
}
"""Further spellings of a flag, dashes for underscores."""

_NO_EFFECT: Mapping[str, str] = {
    "--model-ema": "the moving average is always on, as in the original",
    "--model-ema-force-cpu": "the moving average is where the model is",
    "--pin-mem": "Paddle's loader decides about it",
    "--no-prefetcher": "normalisation and mixing are part of the loader",
    "--use-multi-epochs-loader": "there is one loader",
    "--channels-last": "the layout is Paddle's",
    "--num-gpu": "one process uses one GPU; start several with paddle.distributed.launch",
    "--local-rank": "processes come from paddle.distributed.launch",
}
_SWITCHES = ("--model-ema", "--model-ema-force-cpu", "--pin-mem", "--no-prefetcher")
_SWITCHES += ("--use-multi-epochs-loader", "--channels-last")
_ONE_CYCLE = "the schedule has one cycle, by epoch"
_REFUSED: Mapping[str, str] = {
    "--gp": "the pooling belongs to the head: --set pooling=gap, or another of docs/heads.md",
    "--momentum": "it is SGD's, and the optimizer is adamw (--opt-betas)",
    "--lr-noise": "the learning rate has no noise",
    "--lr-noise-pct": "the learning rate has no noise",
    "--lr-noise-std": "the learning rate has no noise",
    "--lr-cycle-mul": _ONE_CYCLE,
    "--lr-cycle-limit": _ONE_CYCLE,
    "--start-epoch": "--resume takes the epoch from the checkpoint",
    "--no-resume-opt": "a resumed run is exact; to begin anew give --initial-checkpoint",
    "--decay-epochs": "it is the step schedule's (--sched is cosine or constant)",
    "--patience-epochs": "it is the plateau schedule's (--sched is cosine or constant)",
    "--decay-rate": "it is the step schedule's (--sched is cosine or constant)",
    "--vflip": "the recipe flips horizontally only",
    "--aug-splits": "AugMix is not part of the recipe",
    "--jsd": "AugMix is not part of the recipe",
    "--resplit": "AugMix is not part of the recipe",
    "--split-bn": "AugMix is not part of the recipe",
    "--cutmix-minmax": "cutmix draws its area from --cutmix",
    "--mixup-mode": "a batch is mixed as a whole",
    "--drop-connect": "use --drop-path",
    "--drop-block": "no model here has blocks for it",
    "--bn-tf": "batch normalisation is part of the model",
    "--bn-momentum": "batch normalisation is part of the model",
    "--bn-eps": "batch normalisation is part of the model",
    "--dist-bn": "evaluation always uses the first process's running statistics",
    "--save-images": "there is no such output",
    "--tta": "evaluation is a single crop",
}
_EVALUATION = ("weights", "imagenet_a")
"""Options of the evaluation that ``main.py`` takes among those of the training."""
_ASSIGNMENTS = "assigned", "model_assigned"


def parse(record: type[Record], program: str, arguments: Sequence[str]) -> Record:
    """Read a command line into a record.

    Args:
        record: ImageTrainConfig or ImageEvalConfig.
        program: name for messages.
        arguments: the command line without the program's name.

    Returns:
        The record.

    Raises:
        ValueError: a refused flag, an unknown option, a wrong type or value.
        SystemExit: a flag that argparse refuses (status 2), or ``--help``.
    """
    hints = typing.get_type_hints(record)
    given = vars(_parser(record, hints, program).parse_args(list(arguments)))
    path = given.pop("config")
    assigned, model_assigned = (given.pop(name) for name in _ASSIGNMENTS)
    _refuse_evaluation(given)
    _answer_foreign(given)
    positional = {"data_dir": given.pop("data"), "model": given.pop("model_position")}
    values = load_yaml(path) if path else {}
    flags = {name: typed_value(name, text, hints[name]) for name, text in given.items()}
    for name, text in positional.items():
        if text is not None:
            if name in flags:
                raise ValueError(f"{name} is given twice: {text} and {flags[name]}")
            flags[name] = text
    pairs, options = _sort(assigned, hints)
    twice = sorted(set(flags) & set(pairs))
    if twice:
        raise ValueError(f"{twice[0]} is given twice: by its flag and by --set")
    options |= dict(_pair("--model-option", text) for text in model_assigned)
    known = values.get("model_options") or {}
    merged = {**values, **flags, **pairs}
    if options and isinstance(known, dict):
        merged["model_options"] = {**known, **options}
    return build_record(record, merged, where=path or "")


def literal(text: str) -> Any:
    """A model option's value: none, true, false, a number, numbers with commas, or text."""
    words = {"none": None, "null": None, "true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float, lambda text: tuple(int(part) for part in text.split(","))):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _spellings(name: str) -> list[str]:
    """A flag with dashes and with underscores, and its other names."""
    names = [f"--{name.replace('_', '-')}", *_SPELLINGS.get(name, ())]
    return _both(names)


def _both(names: Sequence[str]) -> list[str]:
    prefixed = [name for name in names if name.startswith("--")]
    underscored = ["--" + name[2:].replace("-", "_") for name in prefixed]
    return list(dict.fromkeys([*names, *underscored]))


def _parser(record: type, hints: Mapping[str, Any], program: str) -> argparse.ArgumentParser:
    parser = OneLineParser(prog=program, allow_abbrev=False)
    names = {item.name for item in dataclasses.fields(record)}
    parser.add_argument("data", nargs="?", metavar="DATA", help=_help(record, "data_dir"))
    parser.add_argument("model_position", nargs="?", metavar="MODEL", help="as --model")
    parser.add_argument("-c", "--config", help="YAML file of options")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", dest=_ASSIGNMENTS[0]
    )
    parser.add_argument(
        "--model-option",
        "--model_option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        dest=_ASSIGNMENTS[1],
    )
    for name in sorted(names - {"model_options"}, key=[f.name for f in _fields(record)].index):
        options: dict[str, Any] = {
            "dest": name,
            "default": argparse.SUPPRESS,
            "help": _help(record, name),
        }
        if hints[name] is bool:
            parser.add_argument(*_spellings(name), action="store_true", **options)
        elif "tuple" in str(hints[name]):
            parser.add_argument(*_spellings(name), nargs="+", action=_Joined, **options)
        else:
            parser.add_argument(*_spellings(name), metavar="VALUE", **options)
    _add_others(parser, evaluation=record is ImageEvalConfig)
    return parser


def _add_others(parser: argparse.ArgumentParser, *, evaluation: bool) -> None:
    """Take the flags that are answered instead of being obeyed."""
    for flag in (*_NO_EFFECT, *_REFUSED):
        parser.add_argument(
            *_both([flag]),
            nargs=0 if flag in _SWITCHES else "?" if flag in _NO_EFFECT else "*",
            action=_Foreign,
            dest="foreign",
            default=argparse.SUPPRESS,
            help=argparse.SUPPRESS,
        )
    for name in () if evaluation else _EVALUATION:
        parser.add_argument(
            *_spellings(name),
            nargs=0 if name == "imagenet_a" else "?",
            action=_Evaluation,
            dest="evaluation",
            default=argparse.SUPPRESS,
            help=argparse.SUPPRESS,
        )


class _Joined(argparse.Action):
    """Several words of a flag as one text with commas."""

    def __call__(self, parser, namespace, values, option_string=None) -> None:
        setattr(namespace, self.dest, ",".join(values))


class _Foreign(argparse.Action):
    """Notes a flag of the original that is no option here."""

    def __call__(self, parser, namespace, values, option_string=None) -> None:
        noted = [*getattr(namespace, "foreign", []), option_string]
        namespace.foreign = noted


class _Evaluation(argparse.Action):
    """Notes a flag of the evaluation in a training's command line, with its value."""

    def __call__(self, parser, namespace, values, option_string=None) -> None:
        words = [option_string, *([values] if isinstance(values, str) else [])]
        namespace.evaluation = [*getattr(namespace, "evaluation", []), words]


def _refuse_evaluation(given: Mapping[str, Any]) -> None:
    """The original's one program trains or evaluates; here there are two."""
    flags = given.get("evaluation")
    if not flags:
        return
    model = given.get("model_position") or given.get("model")
    words = ["tools/eval_image.py", given["data"] or "DATA", *([model] if model else [])]
    command = shlex.join([*words, *(word for flag in flags for word in flag)])
    raise ValueError(
        f"{flags[0][0]} is not taken: evaluation is tools/eval_image.py; run python {command}"
    )


def _answer_foreign(given: dict[str, Any]) -> None:
    for flag in given.pop("foreign", []):
        name = "--" + flag[2:].replace("_", "-")
        if name in _REFUSED:
            raise ValueError(f"{flag} is not taken: {_REFUSED[name]}")
        say(f"{flag} has no effect: {_NO_EFFECT[name]}")


def _fields(record: type) -> tuple[dataclasses.Field, ...]:
    return dataclasses.fields(record)


def _help(record: type, name: str) -> str:
    found = next(item for item in _fields(record) if item.name == name)
    default = "" if found.default is dataclasses.MISSING else f" [{found.default}]"
    return f"{found.metadata['help']}{default}".replace("%", "%%")


def _sort(
    assigned: Sequence[str], hints: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What ``--set`` gives: options of the record, and options of the model."""
    pairs: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for text in assigned:
        name, value = _pair("--set", text, raw=True)
        if name in hints and name != "model_options":
            pairs[name] = typed_value(name, value, hints[name])
        else:
            options[name] = literal(value)
    return pairs, options


def _pair(flag: str, text: str, *, raw: bool = False) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise ValueError(f"{flag} needs NAME=VALUE, got {text!r}")
    return name, value if raw else literal(value)
