"""What must not be compared, and files that were not left as they were written."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from align.commands import dumps
from align.record.dump_files import Dump
from sot_paddle.reading import entry_of
from tests.align.dumps.guarded_commands import main_compare, main_dump

ROOT = Path(__file__).resolve().parents[3]
FLOAT64 = ("SHAKE = True", 'SHAKE, DTYPE = True, "float64"')


def test_two_dumps_of_one_framework(torch_dump: Dump) -> None:
    with pytest.raises(ValueError, match="both made by PyTorch: comparing a framework with itself"):
        dumps.pair_up(torch_dump, Dump(torch_dump.path))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("default_rng(0)", "default_rng(9)"), r"inputs '0' differs: float64 \(3, 5, 6\)"),
        (("[0, 3, 1]", "[0, 3, 2]"), r"labels '' differs: int64 \(3,\)"),
        (('"cross_entropy"', "None"), "loss differs: 'weighted sum"),
        (("TRAIN = False", "TRAIN = True"), "train differs: True in .*, False in"),
        (
            ("return drawn", "return drawn[:1]"),
            r"batches '1.0.0' differs: nothing in .*fewer,",
        ),
        (("return drawn", "return drawn[::-1]"), "batches '0.0.0' differs: .* in the same order"),
        (("TRAIN = False", "TRAIN, SEED = False, 5"), "weights .* dump the Paddle side again"),
        (("TRAIN = False", "TRAIN, ACCUMULATE = False, 2"), "accumulate differs: 2 in"),
    ],
    ids=["input", "labels", "loss", "train", "fewer", "exchanged", "seed", "accumulate"],
)
def test_other_data_or_another_request(change, message, make, paddle_dump, request) -> None:
    changes = [change, FLOAT64]
    if change[1] == "None":
        changes += [("return np.array([0, 3, 1])", "return None"), ("return drawn", "return None")]
    found = make("torch", f"other_{request.node.callspec.id}", *changes)
    with pytest.raises(ValueError, match=message):
        dumps.pair_up(found, paddle_dump)


def test_no_precision_in_common(make, torch_dump, paddle_dump) -> None:
    narrow = ("SHAKE = True", 'SHAKE, DTYPE = True, "float32"')
    wide = make("torch", "only_wide", FLOAT64)
    own = make("paddle", "only_narrow", narrow)
    with pytest.raises(
        ValueError, match="no precision is in both dumps: .* has float64, .*float32"
    ):
        dumps.common(wide, own)
    with pytest.raises(ValueError, match="float32 is not in both dumps"):
        dumps.common(wide, paddle_dump, ["float32"])


def test_a_dump_is_never_replaced(make, torch_dump) -> None:
    before = Dump(torch_dump.path).meta.created
    with pytest.raises(ValueError, match="exists already; a dump is never replaced"):
        make("torch", "from_torch")
    assert Dump(torch_dump.path).meta.created == before


def rewritten(copy: Path, name: str, change: Callable[[dict], None]) -> None:
    """Change a JSON file and, as an attacker would, its checksum in the manifest."""

    def written(data: bytes) -> bytes:
        content = json.loads(data)
        change(content)
        return json.dumps(content).encode()

    damaged(copy, name, written, hashed=name != "manifest.json")


def damaged(copy: Path, name: str, data: Callable[[bytes], bytes], hashed: bool = False) -> None:
    """Change the bytes of a file, and its row in the manifest when ``hashed``."""
    path = copy / name
    path.write_bytes(data(path.read_bytes()))
    if hashed:
        manifest = copy / "manifest.json"
        rows = json.loads(manifest.read_text())
        rows["files"][name] = entry_of(path)
        manifest.write_text(json.dumps(rows))


TENSORS = "float64/forward.safetensors"
DAMAGE = {
    "unknown version": (
        lambda c: rewritten(c, "manifest.json", lambda m: m.update(version=9)),
        "format version 9; this program reads 'align dump', 7",
    ),
    "no manifest": (lambda c: (c / "manifest.json").unlink(), "not a dump, or one that was not"),
    "a file is missing": (lambda c: (c / TENSORS).unlink(), f"{TENSORS} is missing, or was"),
    "one bit": (
        lambda c: damaged(c, TENSORS, lambda b: b[:-1] + bytes([b[-1] ^ 1])),
        f"{TENSORS} is missing, or was damaged or changed",
    ),
    "truncated, hash forged": (
        lambda c: damaged(c, TENSORS, lambda b: b[:-8], hashed=True),
        "or truncated",
    ),
    "a path outside": (
        lambda c: rewritten(
            c, "manifest.json", lambda m: m["files"].update({"../x": m["files"]["meta.json"]})
        ),
        "has a bad row '../x'",
    ),
    "a file that is not listed": (
        lambda c: rewritten(c, "manifest.json", lambda m: m["files"].pop("numbers.json")),
        "has no numbers.json",
    ),
    "no JSON": (
        lambda c: damaged(c, "meta.json", lambda b: b[:-20], hashed=True),
        "meta.json: not JSON",
    ),
    "a key is missing": (
        lambda c: rewritten(c, "meta.json", lambda m: m.pop("inputs")),
        "missing 1 required positional argument: 'inputs'",
    ),
    "the other framework's stamp": (
        lambda c: rewritten(
            c, "float64/record.json", lambda m: m["stamp"].update(framework="torch")
        ),
        "says side 'paddle', its tensors were computed by 'torch'",
    ),
    "weights of another digest": (
        lambda c: rewritten(c, "meta.json", lambda m: m.update(weights="0" * 64)),
        "not the weights of meta.json",
    ),
    "a tensor that is not there": (
        lambda c: rewritten(c, "float64/record.json", lambda m: m["loss"].update({"": "none"})),
        "record.json: not as `align dump` wrote it: has no tensor 'none'",
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_dump_ends_in_one_line(damage, paddle_dump, tmp_path, torch_dump, capsys) -> None:
    copy = Path(shutil.copytree(paddle_dump.path, tmp_path / "copy"))
    change, message = DAMAGE[damage]
    change(copy)
    assert main_compare([str(torch_dump.path), str(copy)]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert said.startswith("align: error: ")


KILLED = """
import sys, time
from pathlib import Path
from align.record import dump_files
with dump_files.new_folder(Path(sys.argv[1])) as new:
    dump_files.write_json(new / "meta.json", {})
    print("half", flush=True)
    time.sleep(60)
"""


def test_a_killed_dump_leaves_nothing_to_compare(tmp_path: Path) -> None:
    """Killed while its files are being written: there is no folder of that name."""
    out = tmp_path / "killed"
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(out)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "half\n"
    os.kill(process.pid, signal.SIGKILL)
    process.wait(timeout=10)
    process.stdout.close()
    assert not out.exists()
    (left,) = tmp_path.iterdir()
    with pytest.raises(ValueError, match="not a dump, or one that was not finished"):
        Dump(left)


def test_errors_of_the_commands(folder, torch_dump, capsys, tmp_path) -> None:
    spec = str(folder / "from_torch_spec.py")
    side = ["--side", "torch", "--spec"]
    assert main_dump([*side, str(tmp_path / "no.py"), "--out", "x"]) == 2
    assert "no such file" in capsys.readouterr().err
    assert main_dump([*side, spec, "--out", str(tmp_path / "x"), "--weights", "y"]) == 2
    assert "--weights belongs to the other side" in capsys.readouterr().err
    wrong = ["--side", "paddle", "--spec", spec, "--out", str(tmp_path / "x")]
    assert main_dump([*wrong, "--weights", str(tmp_path)]) == 2
    assert "has no manifest.json" in capsys.readouterr().err
    assert main_compare([str(torch_dump.path), str(tmp_path / "none")]) == 2
    assert "no such folder" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("flag", ["--out", "--json", "--junit", "--reprod"])
def test_an_impossible_destination_is_refused_before_dumps_are_judged(
    flag, torch_dump, paddle_dump, capsys, tmp_path
) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.touch()
    target = str(in_the_way if flag in ("--out", "--reprod") else in_the_way / "a")
    assert main_compare([str(torch_dump.path), str(paddle_dump.path), flag, target]) == 2
    printed = capsys.readouterr()
    assert f"cannot write to {target}" in printed.err
    assert printed.out == ""


def test_a_dump_holds_no_pickle(torch_dump: Dump) -> None:
    kinds = {path.suffix for path in torch_dump.path.rglob("*") if path.is_file()}
    assert kinds == {".json", ".safetensors"}
