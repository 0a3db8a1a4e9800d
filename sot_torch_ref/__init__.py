"""Independent PyTorch reference of the SoT models: the oracle that the Paddle port is judged by.

The package mirrors ``sot_paddle`` file by file and attribute by attribute, is written from the
specification alone, and never imports Paddle. Importing it declares the torchvision operators that
a mixed installation lacks (see ``torchvision_ops``) and changes nothing else that is global.
"""

from sot_torch_ref.torchvision_ops import declare_missing_operators

declare_missing_operators()

from sot_torch_ref.registry import create_model, list_models  # noqa: E402

__all__ = ["create_model", "list_models"]
