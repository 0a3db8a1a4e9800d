"""Run a fixed list of checks on several versions of Paddle and print a table for docs/setup.md.

Each version gets a virtual environment of its own, which has every other package from this Python.
It is removed afterwards. The table goes to stdout, what each check printed to --logs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from sot_paddle.cli import CommandParser, command
from sot_paddle.convert import find_checkpoint
from sot_paddle.data.corpus import FOLDER

VERSIONS = ("3.3.1", "3.2.2", "3.1.1", "3.0.0", "2.6.2")
ALIGN, PYTEST = "-m align --jobs 0 --case ", "-m pytest -q -W default "
GLUE = "tools/train_glue.py --task_name CoLA --do_train --do_lower_case --head mgcrp --max_steps 5"
CHECKS = {
    "comparison": PYTEST + "tests/align/test_right_pairs.py -k wrong",
    "heads": ALIGN + "head_mgcrp_sum_fc --case head_gcp_concat",
    "vision models": ALIGN + "training_sot --case swin_sot",
    "text models": ALIGN + "bert_mgcrp",
    "conversion": PYTEST + "tests/sot_paddle/convert/test_convert.py",
    "image training": "tools/train_image.py --config configs/digits/sot_digits.yaml --epochs 1 "
    "--warmup-epochs 0 --cooldown-epochs 0 --output {folder}/images",
    "text training": GLUE + f" --data_dir {FOLDER} --cache_dir {{folder}}/cache "
    f"--model_name_or_path {find_checkpoint()} --output_dir {{folder}}/text",
    "resume": PYTEST + "tests/sot_paddle/train/test_trainer.py -k plain_head",
    "native operators": PYTEST + "tests/sot_paddle/ops/test_operators.py",
}


def environment(folder: Path, version: str) -> Path:
    """Make a virtual environment with a version of Paddle; its Python."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--no-deps"]
    pip += [f"paddlepaddle=={version}", "astor", "decorator"]  # the latter two before 3.1
    subprocess.run(pip, check=True)  # noqa: S603 (the pip of that environment)
    packages = sysconfig.get_path("purelib", vars={"base": str(folder)})
    Path(packages, "others.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return python


def cell(python: Path, check: str, folder: Path, log: Path) -> str:
    """Run a check; what the table says of it."""
    words = [str(python), "-W", "ignore", *CHECKS[check].format(folder=folder).split()]
    settings = {**os.environ, "OMP_NUM_THREADS": "1", "SOT_PADDLE_CACHE": str(folder / "built")}
    start = time.monotonic()
    with log.open("w", encoding="utf-8") as file:
        done = subprocess.run(  # noqa: S603 (this project's commands)
            words, stdout=file, stderr=subprocess.STDOUT, cwd=ROOT, env=settings, check=False
        )
    seconds = f"{time.monotonic() - start:.0f} s"
    return f"passes, {seconds}" if done.returncode == 0 else f"**status {done.returncode}**"


@command("check_versions: error")
def main(arguments: list[str]) -> None:
    """Print the table."""
    parser = CommandParser(prog="check_versions", description=__doc__)
    parser.add_argument("--versions", nargs="+", default=VERSIONS, help="of Paddle")
    parser.add_argument("--checks", nargs="+", default=list(CHECKS), choices=list(CHECKS))
    parser.add_argument("--logs", default="version_logs", help="folder (1.5 GB while it runs)")
    options = parser.parse_args(arguments)
    print(f"| {time.strftime('%Y-%m-%d')}, Paddle | {' | '.join(options.checks)} |")
    print("|---" * (len(options.checks) + 1) + "|", flush=True)
    for version in options.versions:
        folder = Path(options.logs, version).resolve()
        folder.mkdir(parents=True)
        python = environment(folder / "environment", version)
        cells = [cell(python, c, folder, folder / f"{c}.log") for c in options.checks]
        print(f"| {version} | {' | '.join(cells)} |", flush=True)
        shutil.rmtree(folder / "environment")


if __name__ == "__main__":
    sys.exit(main())
