"""Weights that the user converted: text, convolutions and statistics, packed projections."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from align.frameworks import on_paddle
from tests.certificate.ports import port_converting
from tests.certificate.scene import Scene
from tests.certificate.scenes import scene_encoder as encoders
from tests.certificate.scenes.scene_text import distilbert
from tests.certificate.scenes.scene_vision import resnet


def _converted(make: Callable[[int], Scene], seed: int, convert: Callable[[dict], Any]) -> Scene:
    """The scene with one PyTorch model, as after training, and a Paddle layer filled from it."""
    scene = make(seed)
    torch.manual_seed(seed)
    model = scene.torch_module().float()
    rng = np.random.default_rng((seed, 14))
    with torch.no_grad():
        for key, tensor in model.state_dict().items():
            if tensor.dim() == 1 and tensor.is_floating_point():
                low = 0.5 if key.endswith("running_var") else -0.2
                tensor += torch.from_numpy(rng.uniform(low, low + 0.4, tensor.shape[0])).float()

    def layer() -> Any:
        arrays = {key: tensor.numpy() for key, tensor in model.state_dict().items()}
        with on_paddle.default_dtype("float32"):
            return port_converting.fill(scene.paddle_layer(), convert(arrays))

    return dataclasses.replace(
        scene,
        torch_module=lambda: copy.deepcopy(model),
        paddle_layer=layer,
        converted=True,
    )


def converted_text(seed: int) -> Scene:
    """DistilBERT's weights in the port of the docs."""
    return _converted(distilbert, seed, port_converting.distilbert)


def converted_vision(seed: int) -> Scene:
    """ResNet-D's weights and running statistics in its port."""
    return _converted(resnet, seed, port_converting.resnet)


def converted_encoder(seed: int) -> Scene:
    """Packed projections in Paddle's separate ones."""
    return _converted(encoders.encoder, seed, port_converting.encoder)
