"""The package imports beside timm and transformers and changes nothing else."""

import subprocess
import sys

import pytest

import sot_torch_ref


@pytest.mark.long
def test_import_is_light_and_makes_timm_and_transformers_importable() -> None:
    """Global state is left alone; in a fresh interpreter in which a warning is an error."""
    code = (
        "import sys, torch\n"
        "before = (torch.get_default_dtype(), torch.get_num_threads(), torch.is_grad_enabled(),\n"
        "          torch.initial_seed())\n"
        "import sot_torch_ref\n"
        "after = (torch.get_default_dtype(), torch.get_num_threads(), torch.is_grad_enabled(),\n"
        "         torch.initial_seed())\n"
        "print(before == after, [name for name in ('paddle', 'paddlenlp', 'sot_paddle', 'align',\n"
        "      'transformers', 'timm', 'torchvision') if name in sys.modules])\n"
        "import timm, transformers, torchvision\n"
        "from transformers import BertModel\n"
        "print(hasattr(torch.ops.torchvision, 'nms'))"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, "True []\nTrue\n"), done.stderr


def test_public_names() -> None:
    assert sorted(sot_torch_ref.__all__) == ["create_model", "list_models"]
