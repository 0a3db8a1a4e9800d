"""Each command runs where the other framework, and for `compare` any framework, is missing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
HEAVY = ("paddlenlp", "transformers", "timm", "torchvision", "tokenizers", "matplotlib")
BESIDE = ("scipy", "sklearn", "reprod_log", "pandas", "yaml")
MISSING = {
    "torch": ("paddle", "PIL", *HEAVY),
    "paddle": ("torch", *HEAVY),
    "compare": ("torch", "paddle", "PIL", *HEAVY, *BESIDE),
}
BLOCKED = """
import importlib.machinery, sys, warnings
warnings.simplefilter("ignore")
missing = set(sys.argv.pop(1).split(","))
find_spec = importlib.machinery.PathFinder.find_spec

def find_installed(name, path=None, target=None):
    return None if name.partition(".")[0] in missing else find_spec(name, path, target)

importlib.machinery.PathFinder.find_spec = find_installed
from align.cli import main
status = main(sys.argv[1:])
assert not missing & {name.partition(".")[0] for name in sys.modules}, "loaded all the same"
sys.exit(status)
"""


def start(environment: str, *arguments: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", BLOCKED, ",".join(MISSING[environment]), *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def test_two_environments_agree(tmp_path: Path, folder: Path, torch_dump) -> None:
    """Both sides are dumped by processes that have one framework each."""
    spec = str(folder / "from_torch_spec.py")
    made = [
        ("torch", "--out", str(tmp_path / "t")),
        ("paddle", "--out", str(tmp_path / "p"), "--weights", str(torch_dump.path)),
    ]
    both = [start(side, "dump", "--side", side, "--spec", spec, *rest) for side, *rest in made]
    ended = [finish(process) for process in both]
    for (status, out, err), (side, *_) in zip(ended, made, strict=True):
        assert status == 0, err
        assert out.startswith({"torch": "PyTorch", "paddle": "Paddle"}[side])
    json_file, xml = tmp_path / "result.json", tmp_path / "result.xml"
    arguments = ("--out", str(tmp_path / "report"), "--json", str(json_file), "--junit", str(xml))
    status, out, err = finish(
        start("compare", "compare", str(tmp_path / "t"), str(tmp_path / "p"), *arguments)
    )
    assert status == 0, out + err
    assert out.startswith("PASS: ")
    found = json.loads(json_file.read_text())
    assert found["verdict"] == "pass"
    assert {"PyTorch", "Paddle", "compared on"} == set(found["environment"])
    assert xml.read_bytes().startswith(b"<?xml")
    page = (tmp_path / "report" / "report.html").read_text()
    assert "Pass" in page
