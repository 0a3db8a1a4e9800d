"""Schemas of two torchvision operators, declared only where the compiled ones are missing.

A CPU build of torch beside a CUDA build of torchvision cannot load torchvision's compiled library.
``import torchvision``, and with it timm and transformers, then fails with "operator
torchvision::nms does not exist", although none of the models here needs that operator. Declaring
the schemas first lets the pure Python parts import. This is the only place that does so.
"""

import importlib.util
from pathlib import Path

import torch

OPERATORS = ("nms", "qnms")
SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_LIBRARY_SUFFIXES = (".so", ".pyd", ".dylib")

# A torch.library.Library withdraws its schemas when it is collected: these references keep them.
_LIBRARIES: list[torch.library.Library] = []


def _compiled_library_loads() -> bool:
    """True if torchvision's compiled operators can be (or already were) registered."""
    spec = importlib.util.find_spec("torchvision")
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    candidates = [path for folder in folders for path in sorted(folder.glob("_C*"))]
    for path in candidates:
        if path.suffix not in _LIBRARY_SUFFIXES:
            continue
        try:
            torch.ops.load_library(str(path))
        except OSError:  # a build for another torch or for a CUDA that is not here
            continue
        return True
    return False


def declare_missing_operators() -> tuple[str, ...]:
    """Declare the torchvision operators that no compiled library provides.

    Does nothing when torchvision is not installed, when its compiled library loads, or when the
    operators are declared already (a second call, or another package's workaround).

    Returns:
        The names declared by this call, for example ``("nms", "qnms")``; empty if none was missing.

    Source: traps page, "The pinned stack".
    """
    if importlib.util.find_spec("torchvision") is None:
        return ()
    missing = tuple(name for name in OPERATORS if not hasattr(torch.ops.torchvision, name))
    if not missing or _compiled_library_loads():
        return ()
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in missing:
        library.define(name + SIGNATURE)
    _LIBRARIES.append(library)
    return missing
