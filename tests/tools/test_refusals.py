"""What a tool refuses: one line, status 2, nothing written; and help needs no framework."""

import subprocess
import sys

import pytest

from sot_paddle.ops import build
from tests.tools import tool_runs

NOT_HERE = "--model_name_or_path bert-base-not-here"
NO_MODEL = "HERE holds no trained model: give the folder"
ROWS = [
    ("eval_image", "HERE SoT_Tiny --weights HERE/none.pth", "--weights HERE/none.pth: there is no"),
    ("export", "HERE HERE/out", NO_MODEL),
    ("extract_hidden_states", "--task_name RTE --model_name_or_path HERE --output_dir HERE")
    + ("RTE needs --data_dir",),
    ("predict", "HERE - --cpu", NO_MODEL),
    ("prepare_pretraining", "--input HERE/none --output_dir HERE/o", "tokenizer_name is required"),
    ("pretrain", "--do_train --data_dir HERE --model_name_or_path HERE --output_dir HERE/out")
    + ("HERE: no weights; expected one of",),
    ("train_adapter", "--task_name RTE --states HERE --output_dir HERE/out --do_train")
    + ("HERE/rte_labels.h5 is not there: make it",),
    (
        *(
            "train_glue",
            "--task_name RTE --data_dir HERE --output_dir HERE/o --do_train " + NOT_HERE,
        ),
        "model 'bert-base-not-here' is not on this machine (looked for it as a path",
    ),
    ("train_image", "HERE --model SoT_Tinny --output HERE/o")
    + ("unknown image model 'SoT_Tinny'; did you mean",),
    ("train_squad", "--model_name_or_path HERE --output_dir HERE/out --do_train")
    + ("HERE: no weights; expected one of",),
    ("train_squad", "--model_name_or_path HERE --data_dir HERE --output_dir HERE/out --do_train")
    + ("--data_dir is of GLUE",),
    ("train_text", "--task_name TREC --data_dir HERE --model_name_or_path HERE --output_dir HERE/o")
    + ("HERE: no weights; expected one of",),
    ("train_tokenizer", "--input HERE/none --output_dir HERE/o", "HERE/none is missing: give text"),
    ("visualize", "HERE a.png --out HERE/out", "HERE holds no trained model, nor probes of layers"),
]


@pytest.mark.parametrize(("tool", "flags", "said"), ROWS, ids=[row[0] for row in ROWS])
def test_a_refusal_is_one_line(tmp_path, capsys, tool, flags, said):
    given = flags.replace("HERE", str(tmp_path)).split()
    line = tool_runs.refused_here(capsys, tool, *given)
    assert line.startswith(f"{tool}: {said}".replace("HERE", str(tmp_path)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("tool", "flags"),
    [
        ("train_image", "digits --model SoT_Tiny --output HERE/o"),
        ("train_squad", "--model_name_or_path HERE --output_dir HERE/o --do_train"),
    ],
)
def test_a_training_of_each_kind_hears_the_precision_of_products(
    tmp_path, monkeypatch, capsys, tool, flags
):
    monkeypatch.setattr(build, "why_not", lambda: "no compiler")
    given = flags.replace("HERE", str(tmp_path)).split()
    line = tool_runs.refused_here(capsys, tool, *given, "--cpu_precision", "bf16")
    assert "cpu_precision bf16" in line
    assert list(tmp_path.iterdir()) == []


HELP = """
import contextlib, importlib, os, sys
for name in sys.argv[1:]:
    main = importlib.import_module(f"tools.{name}").main
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        with contextlib.suppress(SystemExit):
            main(["--help"])
    print(name, *sorted({"paddle", "torch", "transformers"} & set(sys.modules)))
"""


def test_help_loads_no_framework() -> None:
    names = sorted({row[0] for row in ROWS})
    printed = subprocess.check_output(
        [sys.executable, "-W", "ignore", "-c", HELP, *names], cwd=tool_runs.ROOT, text=True
    )
    assert printed.split("\n") == [*names, ""]
