"""The command that draws what each layer alone knows, from runs that trained probes."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from sot_paddle.atomic import write_atomically
from sot_paddle.command_line import OneLineParser
from sot_paddle.explain.layer_map import layer_figure, layer_scores, layer_table

DESCRIPTION = """\
Heat map over layers: what a probe of each layer scores, a column for each run. Prints a table and
writes a PNG."""
EXAMPLES = """\
examples:
  python tools/train_adapter.py --model probes --task_name RTE ... --output_dir output/probes/rte
  python tools/layer_map.py output/probes/rte output/probes/mrpc --out output/probes/layers.png
  python tools/layer_map.py output/probes/squad --metric exact --metric HasAns_f1 --out squad.png
"""


def run_command(arguments: Sequence[str]) -> int:
    """Run ``tools/layer_map.py``; returns its exit status."""
    return _parser().run(arguments, _run)


def _run(options: argparse.Namespace) -> None:
    columns: dict[str, list[float]] = {}
    for run in options.runs:
        for name, scores in layer_scores(run, options.metric).items():
            columns[name if name not in columns else f"{name} {run}"] = scores
    picture = layer_figure(columns)
    print(layer_table(columns))
    print(write_atomically(options.out, picture))


def _parser() -> OneLineParser:
    parser = OneLineParser("layer_map.py", DESCRIPTION, EXAMPLES)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folders of runs of --model probes")
    parser.add_argument("--out", required=True, metavar="FILE", help="the PNG")
    parser.add_argument(
        "--metric",
        action="append",
        default=[],
        metavar="NAME",
        help="score to draw [each run's main metric]; may be repeated",
    )
    return parser
