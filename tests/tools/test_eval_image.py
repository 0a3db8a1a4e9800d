import json

import numpy as np
import pytest

from sot_paddle.data.image_dataset import load_digits
from tests.tools import tool_runs


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
    path, scores = tmp_path / "checkpoint.pth.tar", {}
    torch.save({"state_dict": states[0], "state_dict_ema": states[1]}, path)
    options = [text for name, value in sizes.items() for text in ("--set", f"{name}={value}")]
    options = [*options[2:], "--img-size", 16]
    for more, favourite in ((), 7), (("--no-ema",), 3):
        out = tmp_path / f"{favourite}.json"
        flags = ("--eval_checkpoint", path, *options, *more, "--cpu", "--output", out)
        assert not tool_runs.load("eval_image").main([*map(str, ("digits", "SoT_Tiny", *flags))])
        scores[favourite] = json.loads(out.read_text(encoding="utf-8"))["scores"]["top1"]
    labels = load_digits(16)[1].labels
    shares = {digit: 100 * np.mean(np.asarray(labels) == digit) for digit in (7, 3)}
    assert scores == pytest.approx(shares)
