import json
import sys

from sot_paddle.train import gpu_check
from sot_paddle.train.command_line import parse
from sot_paddle.train.gpu_check import Check, run_check


def test_the_small_run_is_a_valid_one(tmp_path):
    flags = gpu_check.prepare(tmp_path)
    config = parse([*flags, "--output_dir", str(tmp_path / "o")])
    assert config.task_name == "CoLA"
    vocabulary = (tmp_path / "vocab.txt").read_text(encoding="utf-8").splitlines()
    sizes = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert sizes["vocab_size"] == len(vocabulary) == len(set(vocabulary))
    for check in gpu_check.checks(tmp_path, flags, gpus=4):
        for command in check.commands:
            if "--output_dir" in command and "paddle.distributed.launch" not in command:
                parse(command[2:])


def test_verdicts(tmp_path):
    said = []
    good = (sys.executable, "-c", "import os; assert os.environ['NVIDIA_TF32_OVERRIDE'] == '0'")
    bad = (sys.executable, "-c", "import sys; sys.exit('first\\nlast')")
    assert run_check(Check("a", (good,)), said.append)
    assert not run_check(Check("b", (good, bad)), said.append)
    assert not run_check(Check("c", (good,), lambda: "x differ"), said.append)
    assert said == ["ok   a", "FAIL b: exit 1: first | last", "FAIL c: x differ"]


def test_differing_runs_are_found(tmp_path):
    for run, text in (("whole", "a"), ("resumed", "b")):
        folder = tmp_path / run / "last"
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_text(text, encoding="utf-8")
        (folder / "optimizer.safetensors").write_text("same", encoding="utf-8")
    assert gpu_check._compare(tmp_path, "whole") == "model.safetensors differ"
    assert gpu_check._compare(tmp_path, "resumed") == ""
