"""Convert the installed real BERT checkpoint to Paddle and prove the port on it.

Prints one table and writes demo_report/report.html. Exit status as `python -m align`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import sot_paddle
from align import report as writer
from align import reprod, runner
from align.cases import CASES, DTYPES
from align.checkpoint import find_checkpoint
from align.context import Context
from align.conversion import round_trip
from align.results import STEPS
from sot_paddle.runtime import quiet_imports

SHOWN = (
    "data_single",
    "checkpoint_sentences",
    "checkpoint_mgcrp",
    "bert_mgcrp",
    "lr_linear_warmup",
    "metric_cola",
    "loss_classification",
)
SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")


def show_conversion(checkpoint: Path, folder: Path) -> bool:
    """Convert there and back, load into a model; true when every bit came back."""
    began = time.perf_counter()
    converted, tensors, differing = round_trip(
        checkpoint, folder, layout="bert_hf", model="bert_base"
    )
    config = json.loads((converted / "config.json").read_text(encoding="utf-8"))
    model = sot_paddle.create_model("bert_base", **{size: config[size] for size in SIZES})
    absent = sot_paddle.load_weights(model, converted)
    print(
        f"a real BERT checkpoint ({config['num_hidden_layers']} layers x {config['hidden_size']}) "
        f"to Paddle and back: {tensors} tensors, {differing} differ in any bit; loaded into "
        f"bert_base, whose {', '.join(absent)} it does not hold "
        f"({time.perf_counter() - began:.1f} s)"
    )
    return not differing


def main() -> int:
    """Run the demo; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="demo_report", help="folder to write to")
    quiet_imports()
    folder = Path(parser.parse_args().out)
    try:
        checkpoint = find_checkpoint()
        bit_equal = show_conversion(checkpoint, folder)
        cases = [case for case in CASES if case.name in SHOWN]
        context = Context()
        report = runner.run(runner.jobs(cases, STEPS, DTYPES), context)
        writer.write_json(report, folder / "report.json")
        reprod.write_reprod(folder / "reprod_log", context.classic)
        page = writer.write_html(report, folder / "report.html")
    except (ValueError, OSError) as error:
        print(f"demo: error: {error}", file=sys.stderr)
        return 2
    print(writer.console(report))
    print(f"HTML report: {page}")
    return report.exit_code if bit_equal else 1


if __name__ == "__main__":
    sys.exit(main())
