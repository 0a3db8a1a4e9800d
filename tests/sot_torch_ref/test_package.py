"""The package imports beside timm and transformers and changes nothing else."""

import subprocess
import sys

import sot_torch_ref


def run_python(code: str) -> str:
    """Run code in a fresh interpreter in which a warning is an error; return its output."""
    command = [sys.executable, "-W", "error", "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_import_makes_timm_and_transformers_importable() -> None:
    code = (
        "import sot_torch_ref, timm, transformers, torchvision\n"
        "from transformers import BertModel\n"
        "import torch\n"
        "print(hasattr(torch.ops.torchvision, 'nms'), hasattr(torch.ops.torchvision, 'qnms'))"
    )
    assert run_python(code).split()[0] == "True"


def test_import_is_light_and_leaves_global_state_alone() -> None:
    code = (
        "import sys, torch\n"
        "before = (torch.get_default_dtype(), torch.get_num_threads(), torch.is_grad_enabled(),\n"
        "          torch.initial_seed())\n"
        "import sot_torch_ref\n"
        "after = (torch.get_default_dtype(), torch.get_num_threads(), torch.is_grad_enabled(),\n"
        "         torch.initial_seed())\n"
        "print(before == after, [name for name in ('paddle', 'paddlenlp', 'sot_paddle', 'align',\n"
        "      'transformers', 'timm', 'torchvision') if name in sys.modules])"
    )
    assert run_python(code) == "True []"


def test_public_names() -> None:
    assert sorted(sot_torch_ref.__all__) == ["create_model", "list_models"]
