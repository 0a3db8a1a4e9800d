"""The command: what it lists, writes, says and returns."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from align import cli
from align.port import port_run
from align.port.row import Batch, PortRow, Recipe
from sot_paddle.convert.installed import PACKAGE
from tests.align.small_pairs import steps_due
from tests.align.tiny_bert import OPTIONS

ROOT = Path(__file__).resolve().parents[2]
PLAIN = {**OPTIONS, "pooling": "pooler"}
TINY = (
    PortRow("tiny", options=OPTIONS, dtypes=("float64",), recipe=Recipe(steps=6, warmup_steps=2)),
    PortRow("tiny_plain", "bert_base", PLAIN, train=False),
    PortRow(
        "tiny_sentences",
        options={**OPTIONS, "vocab_size": 100},
        batch=Batch(length=8, sentences=True),
        train=False,
        forward_only=True,
        dtypes=("float64",),
    ),
    PortRow("big", options=OPTIONS, quick=False),
)
SENTENCES = "Hello, café!\n\nTWO Words here\na third, rather longer sentence of words\n"
CHECKS = tuple(
    f"{check}_align" for check in ("forward", "metric", "loss", "backward", "lr", "train")
)
FOUND = {"about", "findings", "guilty", "notes"}


def write_vocabulary(folder):
    letters = [chr(c) for c in (*range(97, 123), *range(65, 91))]
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, ",", "!", "hello"]
    words += [f"##{letter}" for letter in letters]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    (folder / "mine.txt").write_text(SENTENCES, encoding="utf-8")


@pytest.fixture
def tiny_table(monkeypatch):
    monkeypatch.setattr(port_run, "ROWS", TINY)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """One run of all steps on tiny cases, with every output: (status, folder)."""
    folder = tmp_path_factory.mktemp("run")
    write_vocabulary(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(port_run, "ROWS", TINY)
        flags = ["--jobs", "0", "--quick", "--out", str(folder / "out")]
        flags += ["--json", str(folder / "out.json")]
        flags += ["--checkpoint", str(folder), "--sentences", str(folder / "mine.txt")]
        return cli.main(flags), folder


def refused(capsys, *flags):
    """Run and expect exit status 2, nothing on stdout, one line on stderr; returns the line."""
    status = cli.main(["--jobs", "0", *(str(flag) for flag in flags)])
    out, messages = capsys.readouterr()
    assert status == 2
    assert out == ""
    lines = messages.splitlines()
    assert len(lines) == 1, messages
    assert lines[0].startswith("align: error: ")
    return lines[0]


def test_lists_and_help_need_no_framework_and_quick_leaves_out_the_big_cases():
    """Nor does importing what judges or converts."""
    code = (
        "import sys, align.judge.comparator\n"
        "import sot_paddle.convert\nfrom align.cli import main\n"
        "status = main(['--list', '--quick'])\n"
        "for name in ([], ['spec'], ['dump'], ['compare']):\n"
        "    try: main([*name, '-h'])\n    except SystemExit: pass\n"
        "names = ('paddle', 'paddlenlp', 'torch', 'transformers')\n"
        "loaded = [name for name in names if name in sys.modules]\n"
        "print('loaded', loaded, status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "loaded [] 0"
    assert done.stderr == ""
    rows = done.stdout.partition("usage: ")[0].splitlines()
    assert [row.split()[0] for row in rows] == [row.name for row in port_run.ROWS if row.quick]
    assert any(not row.quick for row in port_run.ROWS)
    assert any("float64, float32" in row for row in rows)


def test_the_json_has_the_promised_form(finished):
    assert finished[0] == 0
    report = json.loads((finished[1] / "out.json").read_text(encoding="utf-8"))
    assert set(report) == {"verdict", "environment", "results", *FOUND}
    assert report["verdict"] == "pass"
    assert {"packages", "tuning", "python", "torch_threads"} <= set(report["environment"])
    promised = {"case", "step", "dtype", "passed", "worst", "position", "tolerance", "controls"}
    promised |= {"comparisons", "why", "seconds", "problems", "note", "first_divergence"}
    for result in report["results"]:
        assert promised <= set(result)
        assert result["passed"] is True
        assert isinstance(result["worst"], float | int)
        assert result["worst"] <= result["tolerance"]
        assert set(result["position"]) == {"name", "index"}
        assert result["controls"]
        for control in result["controls"]:
            assert set(control) == {"name", "caught", "detail", "located", "hidden"}
            assert control["caught"] is True
        if not result["framework_free"]:
            sides = {side: stamp["framework"] for side, stamp in result["stamps"].items()}
            assert sides == {"ours": "paddle", "reference": "torch"}
    trained = ("loss", "schedule_steps", "optimizer", "steps")
    assert [(r["case"], r["step"], r["dtype"]) for r in report["results"]] == [
        *(("tiny", *due) for due in steps_due(*trained, dtypes=("float64",))),
        *(("tiny_plain", *due) for due in steps_due("loss")),
        ("tiny_sentences", "forward", "float64"),
    ]


def test_the_folder_holds_the_page_the_json_and_the_classic_files(finished):
    out = finished[1] / "out"
    assert {path.name for path in out.iterdir()} == {"report.html", "report.json", "reprod_log"}
    assert (out / "report.json").read_bytes() == (finished[1] / "out.json").read_bytes()
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "tiny_plain" in page
    assert "<table" in page
    assert "src=" not in page
    assert "<link" not in page
    expected = {
        f"{check}{kind}" for check in CHECKS for kind in ("_torch.npy", "_paddle.npy", ".log")
    }
    assert {path.name for path in (out / "reprod_log").iterdir()} == expected


@pytest.mark.parametrize("check", CHECKS)
def test_a_classic_file_holds_the_arrays_of_its_side(finished, check):
    folder = finished[1] / "out" / "reprod_log"
    sides = [
        np.load(folder / f"{check}_{side}.npy", allow_pickle=True).item()
        for side in ("torch", "paddle")
    ]
    assert list(sides[0]) == list(sides[1])
    for name, value in sides[0].items():
        np.testing.assert_allclose(sides[1][name], value, rtol=1e-5, atol=1e-8)
    log = (folder / f"{check}.log").read_text(encoding="utf-8")
    assert all(f"{name}:" in log for name in sides[0])
    assert log.splitlines()[-1].endswith("diff check passed")


def test_the_users_sentences_are_what_the_row_of_sentences_compares(finished):
    file = finished[1] / "out" / "reprod_log" / "forward_align_torch.npy"
    arrays = np.load(file, allow_pickle=True).item()
    (logits,) = [array for name, array in arrays.items() if name.startswith("tiny_sentences/")]
    assert len(logits) == len(SENTENCES.splitlines())


def test_the_console_shows_one_line_for_each_result(tiny_table, capsys):
    assert cli.main(["--jobs", "0", "--case", "tiny_plain", "--dtype", "float32"]) == 0
    out, progress = capsys.readouterr()
    steps = [step for step, _ in steps_due("loss", dtypes=["float32"])]
    assert out.startswith(f"alignment: PASS  {len(steps)}/{len(steps)} results")
    assert [line.split()[:3] for line in out.splitlines()[3:]] == [
        ["PASS", "tiny_plain", step] for step in steps
    ]
    assert [line.split()[:2] for line in progress.splitlines()] == [["PASS", "tiny_plain"]]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            "--case tiny --case nothing_like*",
            "no case matches 'nothing_like*'; see python -m align --l",
        ),
        ("--case tiny --dtype float32", "none of these cases runs in float32"),
        ("--jobs -1 --case tiny", "--jobs -1: expected a number of processes, 0 for this one"),
        ("--quick --case big*", "--quick leaves out every case that matches big"),
    ],
)
def test_what_chooses_nothing_is_refused(tiny_table, capsys, flags, message):
    assert message in refused(capsys, *flags.split())


def test_a_missing_checkpoint_is_refused(tiny_table, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, PACKAGE, None)  # the package is blocked
    line = refused(capsys, "--case", "tiny_sentences")
    assert "the real checkpoint is not installed; run `make setup`" in line


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read"),
        (b"caf\xe9\n", "line 1: expected UTF-8 text"),
        (b"\n  \n", "holds no sentence; expected one a line"),
    ],
    ids=["missing", "not UTF-8", "empty"],
)
def test_unreadable_sentences_are_refused(content, message, capsys, tmp_path):
    path = tmp_path / "mine.txt"
    if content is not None:
        path.write_bytes(content)
    line = refused(capsys, "--case", "checkpoint_sentences", "--sentences", path)
    assert message in line
    assert str(path) in line


@pytest.mark.parametrize(("flag", "target"), [("--out", "file"), ("--json", "file/deeper/b.json")])
def test_an_impossible_destination_is_refused_before_the_work(
    tiny_table, flag, target, monkeypatch, capsys, tmp_path
):
    monkeypatch.setattr(port_run, "run", lambda *rest: pytest.fail("it began to work"))
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    line = refused(capsys, "--case", "tiny", flag, tmp_path / target)
    assert f"cannot write to {tmp_path / target}" in line
    assert (tmp_path / "file").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("subcommand", [[], ["spec"], ["dump"], ["compare"]])
def test_the_help_states_the_exit_statuses_on_one_screen(capsys, monkeypatch, subcommand):
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as stop:
        cli.main([*subcommand, "--help"])
    assert stop.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("exit status: 0") for line in lines)
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 100
