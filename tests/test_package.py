"""An installed wheel works outside of the checkout; its metadata name no Paddle and no torch."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
NEEDED = ("align", "configs", "sot_paddle", "sot_torch_ref", "tools")
FILES = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "NOTICE")
LOOK = """
import json, sys
from pathlib import Path
import align, sot_paddle, sot_torch_ref
from sot_paddle.config import CONFIGS, load_yaml
from sot_paddle.data.corpus import FOLDER
print(json.dumps({
    "homes": [str(Path(package.__file__).parent) for package in (align, sot_paddle, sot_torch_ref)],
    "typed": [Path(package.__file__).with_name("py.typed").is_file()
              for package in (align, sot_paddle, sot_torch_ref)],
    "corpus": sorted(path.name for path in FOLDER.iterdir()),
    "configs": len(list(CONFIGS.rglob("*.yaml"))),
    "digits": load_yaml("configs/digits/sot_digits.yaml")["data_dir"],
    "native": sorted(path.name for path in Path(sot_paddle.__file__).parent.glob("ops/*.[ch]*")),
}))
"""


def started(*command: object, cwd: Path, path: Path) -> subprocess.CompletedProcess[str]:
    """Run a command that finds the installed package and nothing of the checkout."""
    return subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env={"PYTHONPATH": str(path), "PATH": "/usr/bin:/bin", "HOME": str(cwd)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """A folder into which the wheel is installed, without what it needs."""
    root = tmp_path_factory.mktemp("package")
    for name in NEEDED:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, root / "source" / name, ignore=ignored)
    for name in FILES:
        shutil.copy(ROOT / name, root / "source" / name)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--no-input")
    flags = ("--no-deps", "--no-build-isolation", "--target", root / "site", root / "source")
    done = subprocess.run(
        list(map(str, (*pip, "install", *flags))), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return root / "site"


@pytest.mark.long
def test_the_installed_package_holds_its_data(site, tmp_path):
    done = started(sys.executable, "-W", "ignore", "-c", LOOK, cwd=tmp_path, path=site)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["homes"] == [str(site / name) for name in ("align", "sot_paddle", "sot_torch_ref")]
    assert found["typed"] == [True] * 3
    assert {"train.tsv", "dev.tsv", "test.tsv"} <= set(found["corpus"])
    assert found["configs"] == len(list((ROOT / "configs").rglob("*.yaml")))
    assert found["digits"] == "digits"
    native = (ROOT / "sot_paddle" / "ops").glob("*.[ch]*")
    assert found["native"] == sorted(path.name for path in native)
    (metadata,) = site.glob("sot_paddle-*.dist-info/METADATA")
    requires = re.findall(r"^Requires-Dist: (.*)$", metadata.read_text("utf-8"), re.MULTILINE)
    unasked = [line for line in requires if "extra ==" not in line]
    assert unasked == PROJECT["project"]["dependencies"]


def test_a_framework_of_the_user_stays_as_it_is():
    """No Paddle, no torch and no exact version is required; the wheel's metadata say the same."""
    needed = PROJECT["project"]["dependencies"]
    assert not [line for line in needed if re.match("paddle|torch", line) or "==" in line]


@pytest.mark.long
def test_every_console_command_starts_outside_of_the_checkout(site, tmp_path):
    scripts = PROJECT["project"]["scripts"]
    assert {"sot-train-glue", "sot-train-image", "sot-convert", "sot-export"} < set(scripts)
    assert {"sot-predict", "sot-align"} < set(scripts)
    targets = "; ".join(
        f"import {target.split(':')[0]} as m; m.main" for target in scripts.values()
    )
    done = started(sys.executable, "-W", "ignore", "-c", targets, cwd=tmp_path, path=site)
    assert done.returncode == 0, done.stderr[-2000:]
    for name in ("sot-predict", "sot-train-glue"):
        done = started(sys.executable, site / "bin" / name, "--help", cwd=tmp_path, path=site)
        assert done.returncode == 0, (name, done.stderr[-2000:])
        assert done.stdout.startswith("usage: "), name
    assert {path.name for path in (site / "bin").iterdir()} == set(scripts)


def test_a_console_command_is_the_function_of_its_script():
    for target in PROJECT["project"]["scripts"].values():
        module, _, function = target.partition(":")
        package, _, name = module.rpartition(".")
        assert function == "main"
        file = {"sot_paddle_tools": ROOT / "tools", "align": ROOT / "align"}[package] / f"{name}.py"
        assert re.search(r"^(def main\(|main = )", file.read_text(encoding="utf-8"), re.M), target
