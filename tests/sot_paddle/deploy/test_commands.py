"""Both commands in this process: exit statuses, what they print and what they leave."""

from __future__ import annotations

import io
import json
import sys

import pytest

from sot_paddle.deploy import export_command, predict_command


@pytest.fixture
def run(ran):
    """Status, lines on stdout and stderr of a command."""
    return lambda command, *arguments: ran(command.run_command, *arguments)


def test_export_then_predict_a_file_and_stdin(exports, run, tmp_path, monkeypatch):
    folder, _ = exports["rte"]
    rows = [f"{n}\tthe {'old ' * n}cat\ta dog runs.\tentailment" for n in range(5)]
    data = tmp_path / "dev.tsv"
    data.write_text("\n".join(["index\tsentence1\tsentence2\tlabel", *rows]) + "\n", "utf-8")
    out = tmp_path / "deep" / "export"
    status, printed, err = run(export_command, folder, out, "--data", data)
    assert status == 0, err
    assert [line.split(":")[0] for line in printed] == [
        str(out / name) for name in ("model.json", "model.onnx")
    ]
    assert all("(bound 0.0001), same class in 9 of 9 rows" in line for line in printed)
    file = tmp_path / "found" / "rte.jsonl"
    status, printed, err = run(predict_command, out, data, "--out", file, "--batch-size", 2)
    assert (status, printed) == (0, []), err
    records = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    assert [one["index"] for one in records] == list(range(5))
    assert set(records[0]["probabilities"]) == {"entailment", "not_entailment"}
    for place, runtime in ((out, "jit"), (folder, "model")):
        status, printed, err = run(predict_command, place, data, "--runtime", runtime, "--cpu")
        assert status == 0, err
        for ours, line in zip(records, printed, strict=True):
            theirs = json.loads(line)
            assert theirs["label"] == ours["label"]
            assert theirs["probability"] == pytest.approx(ours["probability"], abs=1e-4)
    lines = "\n".join("\t".join(row.split("\t")[1:3]) for row in rows) + "\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    status, printed, err = run(predict_command, out, "--logits")
    assert status == 0, err
    assert [json.loads(line)["label"] for line in printed] == [one["label"] for one in records]
    assert all(len(json.loads(line)["logits"]) == 2 for line in printed)


def test_images_and_an_export_that_is_replaced(exports, tiny, run, tmp_path):
    folder, _ = exports["swin"]
    data, out = tiny.write_pictures(tmp_path / "data"), tmp_path / "export"
    flags = (folder, out, "--formats", "onnx", "--no-ema")
    status, printed, err = run(export_command, *flags, "--data", data)
    assert status == 0, err
    assert "inputs 6x3x16x16, 1x3x16x16, 3x3x16x16" in printed[0]
    status, printed, err = run(export_command, *flags)
    assert (status, printed) == (2, [])
    assert "holds an export: name a new folder, or give --overwrite" in err
    status, _, err = run(export_command, *flags, "--overwrite")
    assert status == 0, err
    status, printed, err = run(predict_command, out, data)
    assert status == 0, err
    first = json.loads(printed[0])
    assert first["image"] == str(data / "val" / "ant" / "ant0.png")
    assert set(first["probabilities"]) == set(tiny.CLASSES)
    assert sum(first["probabilities"].values()) == pytest.approx(1.0, abs=1e-5)


REFUSED = [
    (export_command, ("{folder}", "{new}", "--formats", "jit,onx"), "--formats takes jit and onnx"),
    (export_command, ("{folder}", "{tmp}"), "exists and is no export"),
    (export_command, ("{tmp}", "{new}"), "holds no trained model"),
    (
        export_command,
        ("{folder}", "{new}", "--data", "{tmp}/none"),
        "a file of texts, there is none",
    ),
    (export_command, ("{folder}",), "the following arguments are required: DIR"),
    (predict_command, ("{out}", "{tmp}/none"), "expected a file of texts, there is none"),
    (
        predict_command,
        ("{out}", "{bad}", "--out", "{tmp}/x"),
        "bad.tsv, line 3: expected 2 columns",
    ),
    (predict_command, ("{out}", "{bad}", "--out", "{tmp}"), "expected a file's name, got a folder"),
    (predict_command, ("{out}", "{bad}", "--batch-size", "0"), "must be at least 1, got 0"),
    (predict_command, ("{out}", "{bad}", "--runtime", "tvm"), "invalid choice: 'tvm'"),
    (predict_command, ("{tmp}", "{bad}"), "holds no trained model"),
]


@pytest.mark.parametrize(("command", "arguments", "told"), REFUSED)
def test_refusals_are_one_line_and_write_nothing(exports, run, tmp_path, command, arguments, told):
    bad = tmp_path / "bad.tsv"
    bad.write_text("sentence\tlabel\na\t0\nb\n", encoding="utf-8")
    folder, out = exports["cola"]
    names = {"folder": folder, "out": out, "new": tmp_path / "new", "bad": bad, "tmp": tmp_path}
    status, printed, err = run(command, *(text.format(**names) for text in arguments))
    assert (status, printed) == (2, [])
    assert told in err
    assert len(err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == [bad]
