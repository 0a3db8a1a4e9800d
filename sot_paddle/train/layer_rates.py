"""Learning rates that differ from layer to layer of a language model.

A rate is handed to the optimizer as its ratio to the run's learning rate, so that every parameter
follows the one schedule.

Shape legend: n layers, numbered from 0 in the order of computation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from paddle import nn

BLOCK_FACTORS = (1 / 2.6, 1.0, 2.6)
"""Factor of the first, the second and the last third of the layers."""


def decayed_rates(count: int, rate: float, decay: float) -> list[float]:
    """Rate of each layer: ``rate * decay ** (n - 1 - i)``, so that the last one has ``rate``.

    Source: D.4, the original.
    """
    return [rate * decay ** (count - 1 - layer) for layer in range(count)]


def block_rates(count: int, rate: float) -> list[float]:
    """Rate of each layer: ``rate`` times `BLOCK_FACTORS` of its third.

    Source: D.4, the original's single-layer script, of twelve layers.
    """
    return [rate * BLOCK_FACTORS[layer * len(BLOCK_FACTORS) // count] for layer in range(count)]


def layer_ratios(model: nn.Layer, rates: Sequence[float], base: float) -> dict[str, float]:
    """Ratio to the run's rate of every parameter of a language model with a head.

    Args:
        base: the run's rate, above 0; all outside of the layers have it: embeddings and head.

    Raises:
        ValueError: another number of rates than layers.
    """
    count = model.encoder_config.num_hidden_layers
    if len(rates) != count:
        raise ValueError(f"layer_learning_rate must be 1 or {count} numbers, got {len(rates)}")
    pattern = re.compile(model.backbone.layers)
    matches = {name: pattern.match(name) for name, _ in model.named_parameters()}
    return {name: rates[int(at[1])] / base if at else 1.0 for name, at in matches.items()}


def weight_ratios(model: nn.Layer, decay: float) -> dict[str, float]:
    """What the Paddle port does instead: ``decay ** 0.5`` for all with "weight" in the name.

    QUIRK: it is not by layer; biases keep the run's rate (D.4).
    """
    names = [name for name, _ in model.named_parameters()]
    return {name: decay**0.5 if "weight" in name else 1.0 for name in names}


def set_ratios(model: nn.Layer, ratios: Mapping[str, float]) -> None:
    """Hand the ratios to whatever optimizer is built on the model."""
    for name, parameter in model.named_parameters():
        parameter.optimize_attr["learning_rate"] = ratios.get(name, 1.0)
