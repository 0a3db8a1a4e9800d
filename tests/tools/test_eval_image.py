import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "eval_image.py"


def _run(*flags: object) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, str(TOOL), *map(str, flags)],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


@pytest.mark.slow
def test_a_pytorch_checkpoint_is_converted_on_the_fly(tmp_path):
    """The averaged weights of a training checkpoint are taken, --no-ema takes the raw ones."""
    torch = pytest.importorskip("torch")
    from sot_torch_ref.registry import create_model

    sizes = {"img_size": 16, "embed_dim": 12, "depth": 1, "num_heads": 3, "token_type": "patch"}
    sizes |= {"patch_size": 8, "wr_dim": 4, "head_num_heads": 2}
    states = []
    for favourite in (3, 7):
        model = create_model("sot_tiny", 10, **sizes)
        state = model.state_dict()
        for name in state:
            if name.startswith("head.") and name.endswith("_fc.bias"):
                state[name] = torch.from_numpy(100.0 * np.eye(10, dtype="float32")[favourite])
        states.append(state)
    path = tmp_path / "checkpoint.pth.tar"
    torch.save({"state_dict": states[0], "state_dict_ema": states[1]}, path)
    options = [text for name, value in sizes.items() for text in ("--set", f"{name}={value}")]
    options = [*options[2:], "--img-size", 16]
    for more, favourite in ((), 7), (("--no-ema",), 3):
        done = _run("digits", "SoT_Tiny", "--eval_checkpoint", path, *options, *more, "--cpu")
        assert done.returncode == 0, done.stderr[-3000:]
        rows = [line.split() for line in done.stdout.splitlines() if line[:1].isdigit()]
        assert {row[0]: row[2] for row in rows}[str(favourite)] == "100.00"
        assert {row[3] for row in rows if row[0] != str(favourite)} == {str(favourite)}


def test_a_refusal_is_one_line(tmp_path):
    done = _run(tmp_path, "SoT_Tiny", "--weights", tmp_path / "none.pth")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"eval_image: --weights {tmp_path / 'none.pth'}: there is no such file or folder"
    ]


def test_the_tool_is_thin():
    assert len(TOOL.read_text(encoding="utf-8").splitlines()) <= 80
