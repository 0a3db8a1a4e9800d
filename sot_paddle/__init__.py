"""The SoT classification head (MGCrP with svPN) and its backbones in PaddlePaddle.

``import sot_paddle`` tunes the CPU (see :mod:`sot_paddle.runtime`) and loads nothing heavy; the
names below load Paddle when they are first used.
"""

from __future__ import annotations

import importlib

from sot_paddle.runtime import tune_cpu

__version__ = "0.1.0"

tune_cpu()

_LAZY = {
    "Classifier": "sot_paddle.published",
    "OnlyVisualTokensClassifier": "sot_paddle.published",
    "TokenEmbed": "sot_paddle.published",
    "create_model": "sot_paddle.registry",
    "from_pretrained": "sot_paddle.train.model_folder",
    "list_models": "sot_paddle.registry",
    "load_weights": "sot_paddle.weights",
    "save_weights": "sot_paddle.weights",
}

__all__ = ["__version__", *_LAZY]


def __getattr__(name: str):
    if name not in _LAZY:
        raise AttributeError(f"module 'sot_paddle' has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
