"""Convert the installed real BERT checkpoint to Paddle, prove the port, train text and images.

Prints one table and writes demo_report/report.html. Exit status as `python -m align`.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from align.port.installed_checkpoint import load_there_and_back
from align.port.port_run import ROWS, PortRun, run
from align.port.row import DTYPES
from align.report import report as writer
from align.report import reprod
from sot_paddle.cli import CommandParser, command
from sot_paddle.convert import find_checkpoint
from sot_paddle.runtime import ignore_import_warnings
from sot_paddle.train.brief import fine_tune, train_on_digits

SHOWN = ("checkpoint_sentences", "checkpoint_mgcrp", "bert_mgcrp", "sot_densenet", "timm_deit")
TRAINING_STEPS = 120
EPOCHS = 3
DIGITS = Path(__file__).resolve().parents[1] / "configs" / "digits" / "sot_digits.yaml"


@command("demo: error")
def main(arguments: list[str]) -> int:
    """Run the demo; returns the exit status."""
    parser = CommandParser(prog="demo", description=__doc__, status="")
    parser.add_argument("--out", default="demo_report", help="folder to write to")
    folder = Path(parser.parse_args(arguments).out)
    ignore_import_warnings()
    checkpoint = find_checkpoint()
    bit_equal, summary = load_there_and_back(checkpoint, folder)
    print(summary, flush=True)
    rows = [row for row in ROWS if row.name in SHOWN]
    report, checks = run(PortRun(rows, DTYPES), 0)
    print(writer.console(report), flush=True)
    print("\nbrief fine-tuning on the embedded corpus: dev Matthews correlation, one seed")
    print("(scores of runs this short differ from processor to processor)")
    for head in ("plain", "mgcrp"):
        training = fine_tune(checkpoint, folder / "runs", head, steps=TRAINING_STEPS)
        print(f"  {training}", flush=True)
    print("\nbrief training of a small SoT on the digits of scikit-learn, from random weights")
    print(f"  {train_on_digits(DIGITS, folder / 'runs' / 'digits', epochs=EPOCHS)}", flush=True)
    writer.write_json(report, folder / "report.json")
    reprod.write_reprod(folder / "reprod_log", checks)
    print(f"\nHTML report: {writer.write_html(report, folder / 'report.html')}")
    return report.exit_code if bit_equal else 1


if __name__ == "__main__":
    sys.exit(main())
