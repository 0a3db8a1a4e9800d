"""Convert a real BERT checkpoint to Paddle, prove the port, train text and images, and report."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from align.port.port_inputs import load_there_and_back
from align.port.port_run import ROWS, PortRun, run
from align.port.row import DTYPES
from align.report import reprod
from align.report.report_html import write_page
from align.report.report_text import console
from sot_paddle.cli import CommandParser, command
from sot_paddle.command_line import parse
from sot_paddle.convert import find_checkpoint
from sot_paddle.data.corpus import FOLDER
from sot_paddle.reading import read_json
from sot_paddle.runtime import ignore_import_warnings
from sot_paddle.train import commands

SHOWN = ("checkpoint_sentences", "checkpoint_mgcrp", "bert_mgcrp", "sot_densenet", "timm_deit")
DIGITS = Path(__file__).resolve().parents[1] / "configs" / "digits" / "sot_digits.yaml"


def fine_tune(checkpoint: Path, folder: Path, head: str, *, steps: int) -> str:
    """Fine-tune a checkpoint on the embedded acceptability corpus."""
    flags = [
        *("--task_name", "CoLA", "--max_seq_length", "32", "--per_gpu_train_batch_size", "16"),
        *("--learning_rate", "2e-4", "--save_steps", "1000000", "--padding", "longest"),
        *("--do_train", "--do_eval", "--do_lower_case", "--overwrite_output_dir"),
    ]
    flags += ["--head", head, "--max_steps", str(steps), "--data_dir", str(FOLDER)]
    flags += ["--model_name_or_path", str(checkpoint), "--output_dir", str(folder / head)]
    flags += ["--cache_dir", str(folder / "cache"), *["--mask_padding"] * (head == "mgcrp")]
    return f"{head:6s} {trained('train_glue', flags, folder / head, 'mcc')}"


def train_on_digits(config: Path, folder: Path, *, epochs: int) -> str:
    """Train a small SoT on scikit-learn's digits."""
    flags = ["--config", str(config), "--epochs", str(epochs), "--output", str(folder)]
    flags += ["--warmup-epochs", "1", "--cooldown-epochs", "0", "--overwrite-output-dir"]
    return f"{epochs} epochs, {trained('train_image', flags, folder, 'top1')}"


def trained(name: str, flags: list[str], out: Path, score: str) -> str:
    """Run a training command; its loss and last score."""
    run_config = commands.part(name, 1)
    run_config(parse(commands.part(name, 0), flags))
    metrics = read_json(out / "metrics.json")
    return f"loss {metrics['train']['loss']:.3f}, {score} {metrics['last'][score]:.3f}"


@command("demo: error")
def main(arguments: list[str]) -> int:
    """Run the demo; returns the exit status, that of `python -m align`."""
    parser = CommandParser(prog="demo", description=__doc__, status="")
    parser.add_argument("--out", default="demo_report", help="folder to write to")
    folder = Path(parser.parse_args(arguments).out)
    ignore_import_warnings()
    bit_equal, summary = load_there_and_back(find_checkpoint(), folder)
    print(summary, flush=True)
    report, checks = run(PortRun([row for row in ROWS if row.name in SHOWN], DTYPES), 0)
    print(console(report), flush=True)
    print("\nbrief fine-tuning on the embedded corpus: dev Matthews correlation, one seed")
    for head in ("plain", "mgcrp"):
        print(f"  {fine_tune(find_checkpoint(), folder / 'runs', head, steps=120)}", flush=True)
    print(
        f"\ndigits:\n  {train_on_digits(DIGITS, folder / 'runs' / 'digits', epochs=3)}", flush=True
    )
    reprod.write_reprod(folder / "reprod_log", checks)
    print(f"\nHTML report: {write_page(report, folder)}")
    return report.exit_code if bit_equal else 1


if __name__ == "__main__":
    sys.exit(main())
