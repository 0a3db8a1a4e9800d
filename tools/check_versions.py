"""Run a list of checks on versions of Paddle, Python, NumPy and torch; a table for docs/setup.md.

A row of Paddle's has every other package from here. A row of Python's is an environment of its own
with the oldest or the newest torch, and no paddlenlp: text models and training are not run there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import time
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from sot_paddle.cli import CommandParser, command
from sot_paddle.convert import find_checkpoint
from sot_paddle.data.corpus import FOLDER

PADDLES = ("3.3.1", "3.2.2", "3.1.1", "3.0.0", "2.6.2")
PYTHONS = {
    "3.10": ["torch==2.1.0", "numpy<2", "transformers==4.44.2"],
    "3.13": ["torch==2.14.1", "numpy>=2"],
}
"""Version of Python -> what is asked for beside Paddle and the reference's packages."""
ALIGN, PYTEST = "-m align --jobs 0 --case ", "-m pytest -q -W default "
IMAGES = "tools/train_image.py --config configs/digits/sot_digits.yaml --output {folder}/images "
GLUE = f"tools/train_glue.py --task_name CoLA --data_dir {FOLDER} --output_dir {{folder}}/text "
GLUE += f"--model_name_or_path {find_checkpoint()} --cache_dir {{folder}}/cache "
CHECKS = {
    "comparison": PYTEST + "tests/align/test_right_pairs.py -k wrong",
    "heads": ALIGN + "head_mgcrp_sum_fc --case head_gcp_concat",
    "vision models": ALIGN + "training_sot --case swin_sot",
    "text models": ALIGN + "bert_mgcrp",
    "conversion": PYTEST + "tests/sot_paddle/convert/test_convert.py",
    "image training": IMAGES + "--epochs 1 --warmup-epochs 0 --cooldown-epochs 0",
    "text training": GLUE + "--do_train --do_lower_case --head mgcrp --max_steps 5",
    "resume": PYTEST + "tests/sot_paddle/train/test_continuing.py -k plain_head",
    "native operators": PYTEST + "tests/sot_paddle/ops/test_operators.py",
}


TESTS = "tests/sot_paddle/"
WITHOUT_TEXT = {
    "comparison": CHECKS["comparison"],
    "heads": f"{PYTEST}{TESTS}heads/test_pooling.py",
    "vision models": f"{PYTEST}{TESTS}backbones/test_images.py",
    "conversion": CHECKS["conversion"],
}
"""What needs no paddlenlp."""


def environment(folder: Path, version: str) -> Path:
    """Make the virtual environment of a row; its Python."""
    if version in PYTHONS:
        python = shutil.which(f"python{version}")
        if python is None:
            raise ValueError(f"python{version} is not on PATH; choose other rows with --versions")
        subprocess.run([python, "-m", "venv", folder], check=True)  # noqa: S603 (found on PATH)
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        extras = project["optional-dependencies"]
        packages = [*project["dependencies"], *extras["align"], *extras["reference"], "pytest"]
        packages = [name for name in packages if not name.startswith(project["name"])]
        packages += [f"paddlepaddle=={PADDLES[0]}", *PYTHONS[version]]
        pip = [str(folder / "bin" / "pip"), "install", "--quiet", *packages]
        subprocess.run(pip, check=True)  # noqa: S603 (the pip of that environment)
        return folder / "bin" / "python"
    venv.create(folder, with_pip=True)
    packages = [f"paddlepaddle=={version}", "astor", "decorator"]  # the latter two: until 3.1
    packages += ["paddlenlp==2.8.1"] if version < "3" else []
    pip = [str(folder / "bin" / "pip"), "install", "--quiet", "--no-deps", *packages]
    subprocess.run(pip, check=True)  # noqa: S603 (the pip of that environment)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    (site / "others.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return folder / "bin" / "python"


def cell(python: Path, check: str, words: str, folder: Path) -> str:
    """Run a check; what the table says of it."""
    arguments = [python, "-W", "ignore", *words.format(folder=folder).split()]
    settings = {**os.environ, "OMP_NUM_THREADS": "1", "SOT_PADDLE_CACHE": str(folder / "built")}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    done = subprocess.run(arguments, cwd=ROOT, env=settings, check=False, **pipes)  # noqa: S603 (ours)
    (folder / f"{check}.log").write_text(done.stdout, encoding="utf-8")
    result = f"**fails** ({done.returncode})" if done.returncode else "passes"
    return "refused" if f", this is {folder.name}" in done.stdout else result


@command("check_versions: error")
def main(arguments: list[str]) -> None:
    """Print the table."""
    parser = CommandParser(prog="check_versions", description=__doc__)
    rows = (*PADDLES, *PYTHONS)
    parser.add_argument(
        "--versions", nargs="+", default=rows, choices=rows, help="rows: %(choices)s"
    )
    parser.add_argument("--logs", default="version_logs", help="folder (1 GB while it runs)")
    options = parser.parse_args(arguments)
    head = f"| {time.strftime('%Y-%m-%d')} | {' | '.join(CHECKS)} |"
    print(head, "|---" * (len(CHECKS) + 1) + "|", sep="\n", flush=True)
    for version in options.versions:
        folder = Path(options.logs, version).resolve()
        python = environment(folder / "environment", version)
        checks, name = CHECKS, f"Paddle {version}"
        if version in PYTHONS:
            checks, name = WITHOUT_TEXT, ", ".join([f"Python {version}", *PYTHONS[version]])
        cells = [
            cell(python, check, checks[check], folder) if check in checks else ""
            for check in CHECKS
        ]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
        shutil.rmtree(folder / "environment")


if __name__ == "__main__":
    sys.exit(main())
