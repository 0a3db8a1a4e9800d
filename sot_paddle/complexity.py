"""What a model costs: parameters, multiply-adds by two conventions, images per second.

Multiply-adds are counted by forward hooks while the model really runs on one sample.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import paddle
from paddle import nn

from sot_paddle.backbones.layers import Attention
from sot_paddle.backbones.token_stages import NonLocalBlock
from sot_paddle.heads.pooling import (
    BranchCovariance,
    CovariancePooling,
    MultiHeadCrossCovariance,
    QKCrossCovariance,
)
from sot_paddle.heads.power_norm import MatrixSqrt
from sot_paddle.registry import PUBLISHED_COSTS

Shape = list[int]


@dataclass(frozen=True)
class Parameters:
    """Numbers of values in a model.

    Attributes:
        trainable: in parameters that the optimizer moves.
        total: in all parameters, frozen ones included.
        buffers: in persistent buffers: fixed position tables and running statistics.
    """

    trainable: int
    total: int
    buffers: int


@dataclass(frozen=True)
class MultiplyAdds:
    """Multiply-adds of one sample.

    Attributes:
        layers: of convolutions and linear layers only, the convention of the published figures.
        products: of the other matrix products: attention, covariances, matrix roots. The
            matrix-vector products of svPN, normalisations and activations are not counted.
    """

    layers: int
    products: int

    @property
    def total(self) -> int:
        """Both together."""
        return self.layers + self.products


@dataclass(frozen=True)
class Cost:
    """One row of the table of a family.

    Attributes:
        name: of the model.
        parameters: counted.
        multiply_adds: of one image.
        images_per_second: None where it was not measured.
    """

    name: str
    parameters: Parameters
    multiply_adds: MultiplyAdds
    images_per_second: float | None = None

    @classmethod
    def of(cls, model: nn.Layer, *, throughput_batch: int | None = None) -> Cost:
        """Measure a vision model; its throughput with batches of ``throughput_batch`` images."""
        speed = throughput_batch and images_per_second(model, batch_size=throughput_batch)
        return cls(model.name, count_parameters(model), count_multiply_adds(model), speed)


def format_table(rows: Sequence[Cost]) -> str:
    """The rows beside the published figures, as aligned text."""
    heads = ["model", "trainable", "published M", "GMACs conv+linear", "GMACs +matmul"]
    heads += ["published GFLOPs", "images/s"]
    lines = [heads]
    for row in rows:
        millions, billions = PUBLISHED_COSTS.get(row.name, ("-", "-"))
        speed = "-" if row.images_per_second is None else f"{row.images_per_second:.1f}"
        counted = row.multiply_adds
        lines.append(
            [
                row.name,
                f"{row.parameters.trainable:,}",
                str(millions),
                f"{counted.layers / 1e9:.3f}",
                f"{counted.total / 1e9:.3f}",
                str(billions),
                speed,
            ]
        )
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


def count_parameters(model: nn.Layer) -> Parameters:
    """Count the values of a model's parameters and persistent buffers."""
    parameters = {id(p): p for p in model.parameters()}.values()
    total = sum(p.size for p in parameters)
    stored = sum(tensor.size for tensor in model.state_dict().values())
    trainable = sum(p.size for p in parameters if not p.stop_gradient)
    return Parameters(int(trainable), int(total), int(stored - total))


def _convolution(layer: nn.Layer, given: Shape, made: Shape) -> int:
    per_output = int(np.prod(layer.weight.shape[1:]))  # channels of a group x kernel
    return int(np.prod(made)) * per_output


def _linear(layer: nn.Layer, given: Shape, made: Shape) -> int:
    return int(np.prod(given[:-1])) * layer.weight.shape[0] * layer.weight.shape[1]


def _attention(layer: nn.Layer, given: Shape, made: Shape) -> int:
    batch, length, dim = given
    return 2 * batch * length * length * dim  # q k^T and weights v


def _nonlocal(layer: NonLocalBlock, given: Shape, made: Shape) -> int:
    batch, _, height, width = given
    return 2 * batch * (height * width) ** 2 * layer.inner_dim


def _multi_head(layer: MultiHeadCrossCovariance, given: Shape, made: Shape) -> int:
    return given[0] * given[1] * layer.num_heads * layer.wr_dim**2


def _single_head(layer: QKCrossCovariance, given: Shape, made: Shape) -> int:
    return given[0] * given[1] * layer.output_dim


def _auto(layer: CovariancePooling, given: Shape, made: Shape) -> int:
    return given[0] * given[1] * layer.dr.weight.shape[1] ** 2


def _one_branch(layer: BranchCovariance, given: Shape, made: Shape) -> int:
    return given[0] * given[1] * layer.proj.weight.shape[1] ** 2


def _matrix_sqrt(layer: MatrixSqrt, given: Shape, made: Shape) -> int:
    # one product for the first iteration, three for each in between, two for the last
    products = 1 + 3 * max(layer.num_iter - 2, 0) + 2 * (layer.num_iter > 1)
    return products * given[0] * given[1] ** 3


_Counter = Callable[[nn.Layer, Shape, Shape], int]
_LAYERS: Mapping[type[nn.Layer], _Counter] = {nn.Conv2D: _convolution, nn.Linear: _linear}
_PRODUCTS: Mapping[type[nn.Layer], _Counter] = {
    Attention: _attention,
    nn.MultiHeadAttention: _attention,
    NonLocalBlock: _nonlocal,
    MultiHeadCrossCovariance: _multi_head,
    QKCrossCovariance: _single_head,
    CovariancePooling: _auto,
    BranchCovariance: _one_branch,
    MatrixSqrt: _matrix_sqrt,
}


def count_multiply_adds(model: nn.Layer, *inputs: paddle.Tensor) -> MultiplyAdds:
    """Count the multiply-adds of one forward pass, in eval mode and without gradients.

    Args:
        model: any; its mode is restored.
        inputs: what its forward takes. None means one image of a vision model's size.

    Returns:
        Multiply-adds of the whole batch.
    """
    inputs = inputs or (_images(model, 1),)
    totals = {"layers": 0, "products": 0}
    handles = []

    def watch(layer: nn.Layer, group: str, count: _Counter) -> None:
        def hook(layer: nn.Layer, given: tuple, made: paddle.Tensor) -> None:
            out = made[0] if isinstance(made, tuple | list) else made
            totals[group] += count(layer, given[0].shape, out.shape)

        handles.append(layer.register_forward_post_hook(hook))

    for layer in model.sublayers(include_self=True):
        for group, table in (("layers", _LAYERS), ("products", _PRODUCTS)):
            count = next((count for kind, count in table.items() if isinstance(layer, kind)), None)
            if count is not None:
                watch(layer, group, count)
    try:
        _run(model, inputs, repeats=1)
    finally:
        for handle in handles:
            handle.remove()
    return MultiplyAdds(**totals)


def images_per_second(
    model: nn.Layer, *, batch_size: int = 8, repeats: int = 5, warm_up: int = 2
) -> float:
    """Throughput of the forward pass in eval mode: images over the median time.

    Args:
        model: a vision model; its mode is restored.
        batch_size: images of one pass.
        repeats: timed passes.
        warm_up: passes before them.

    Raises:
        ValueError: a number below 1 (warm_up: below 0).
    """
    if batch_size < 1 or repeats < 1 or warm_up < 0:
        raise ValueError(
            "batch_size and repeats must be at least 1 and warm_up at least 0, got "
            f"{batch_size}, {repeats} and {warm_up}"
        )
    images = _images(model, batch_size)
    seconds = _run(model, (images,), repeats=warm_up + repeats)[warm_up:]
    return batch_size / statistics.median(seconds)


def _images(model: nn.Layer, batch_size: int) -> paddle.Tensor:
    config = model.backbone_config
    shape = [batch_size, config.in_chans, config.img_size, config.img_size]
    return paddle.zeros(shape) + paddle.linspace(-1.0, 1.0, config.img_size)


def _run(model: nn.Layer, inputs: tuple[paddle.Tensor, ...], *, repeats: int) -> list[float]:
    """Seconds of each forward pass, in eval mode."""
    modes = [(layer, layer.training) for layer in model.sublayers(include_self=True)]
    model.eval()
    seconds = []
    try:
        with paddle.no_grad():
            for _ in range(repeats):
                start = time.perf_counter()
                output = model(*inputs)
                output.numpy()  # waits for a device that works in the background
                seconds.append(time.perf_counter() - start)
    finally:
        for layer, training in modes:
            layer.training = training
    return seconds
