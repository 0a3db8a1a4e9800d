"""A pair drawn from a seed: layers, how they are wired, inputs, loss, optimizer, precisions."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import paddle
import torch
from torch.utils.flop_counter import FlopCounterMode

from tests.align.right_pairs.call_rows import CALLS, OWN
from tests.align.right_pairs.layer_rows import ACTIVATIONS, NORMS, SPATIAL, WEIGHTED
from tests.align.right_pairs.pair_rows import IDS, IMAGES, ROWS, TOKENS, VOLUMES, Draws, Row, Shape
from tests.align.right_pairs.training_rows import Loss, Optimizer, draw_loss, draw_optimizer
from tests.align.small_pairs import in_both, model_of

REPEATING = (
    *("ReLU", "ReLU6", "Hardshrink", "Softshrink", "Hardtanh", "clip", "masked fill", "pad"),
    *("ZeroPad2D", "pad images", "Upsample", "interpolate", "index_select", "Hardswish"),
    *(f"{kind}Pool{dims}D" for kind in ("Max", "AdaptiveMax") for dims in (1, 2, 3)),
)
"""Layers behind which equal values, or zeros, are no chance."""
RECURRENT = ("LSTM", "GRU", "SimpleRNN")
GROUPS = (ACTIVATIONS, NORMS, NORMS, SPATIAL, SPATIAL, WEIGHTED, WEIGHTED, CALLS, CALLS, OWN)
"""Where a layer is drawn from: first a group, then a row of it."""
TABLE: dict[str, Row] = {row.name: row for group in GROUPS for row in group}
COST, LARGE_COST = 3e7, 2e8
"""What a pair may cost in `_cost`'s units, and one in twelve: about 1 and 10 seconds a compare."""
_ELEMENT = 40
"""Multiply-adds that one element of an activation costs as much as: recorded, cast, judged."""


_CELL = 3e6
"""The same of one step of a recurrent cell: Paddle runs them one by one, each through the hooks."""


@dataclass(frozen=True)
class Drawn:
    """One layer of a pair with its options.

    Attributes:
        row: name in the table.
        shape: of its input.
        options: of PyTorch's side.
        paddle_options: of the port, where they differ.
        wrapped: a call inside a layer of its own, not in the model's forward method.
        edit: "" or what is done to the built layer: "left out", "scaled", "transposed".
    """

    row: str
    shape: Shape
    options: dict[str, Any]
    paddle_options: dict[str, Any] | None = None
    wrapped: bool = False
    edit: str = ""

    def has_numbers(self) -> bool:
        """Whether the layer has parameters."""
        made = self.torch_layer("meta")
        return isinstance(made, torch.nn.Module) and any(True for _ in made.parameters())

    def torch_layer(self, device: str = "cpu") -> Any:
        """PyTorch's module or function; on "meta" without numbers."""
        with torch.device(device):
            made = TABLE[self.row].torch(self.shape, SimpleNamespace(**self.options))
        return model_of(torch, _call, function=made) if self.wrapped else made

    def paddle_layer(self) -> Any:
        """Paddle's layer or function."""
        options = self.options if self.paddle_options is None else self.paddle_options
        made = TABLE[self.row].paddle(self.shape, SimpleNamespace(**options))
        made = model_of(paddle, _call, function=made) if self.wrapped else made
        return EDITS[self.edit](made) if self.edit else made


@dataclass(frozen=True)
class Block:
    """Some layers: one after the other ("chain"), or two branches or one beside the input.

    Attributes:
        kind: "chain", "residual", "sum", "product" or "concat".
        branches: numbers of the layers of each branch.
    """

    kind: str
    branches: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Pair:
    """A port as it was drawn; `right` where nothing of it is edited."""

    seed: int
    layers: tuple[Drawn, ...]
    blocks: tuple[Block, ...]
    input_shape: Shape
    input_kind: str
    train: bool
    dtype: tuple[str, ...]
    loss: Loss | None
    optimizer: Optimizer | None
    cost: float

    def torch_model(self) -> torch.nn.Module:
        """The reference with weights of the seed, none of which is a fresh 0 or 1."""
        torch.manual_seed(self.seed)
        model = TorchWired([one.torch_layer() for one in self.layers], self.blocks)
        rng = np.random.default_rng([self.seed, 5])
        with torch.no_grad():
            for tensor in model.state_dict().values():
                if tensor.is_floating_point():
                    noise = torch.from_numpy(rng.normal(size=tuple(tensor.shape)))
                    tensor += 0.05 * noise.to(tensor.dtype)
        return model

    def paddle_model(self) -> paddle.nn.Layer:
        """The port, with weights of its own."""
        return PaddleWired([one.paddle_layer() for one in self.layers], self.blocks)

    def inputs(self) -> np.ndarray:
        """The batch."""
        return INPUTS[self.input_kind](np.random.default_rng([self.seed, 1]), self.input_shape)

    def left_out(self) -> dict[str, None]:
        """Modules that are not compared: dropouts on attention scores, which we hold per head."""
        own = (k for k, one in enumerate(self.layers) if one.row == "own attention")
        return {f"layer{index}.attn_drop": None for index in own}

    def with_layer(self, index: int, **changes: Any) -> Pair:
        """The pair with other fields of one layer."""
        layers = list(self.layers)
        layers[index] = dataclasses.replace(layers[index], **changes)
        return dataclasses.replace(self, layers=tuple(layers))

    def recipe(self) -> str:
        """The pair in one line."""
        parts = []
        for block in self.blocks:
            branches = [" > ".join(_told(self.layers[k]) for k in b) for b in block.branches]
            inside = " | ".join(branches)
            parts.append(inside if block.kind == "chain" else f"{block.kind}({inside})")
        with_options = [self.loss and self.loss.name, self.optimizer and self.optimizer.told()]
        more = [
            "train" if self.train else "eval",
            "+".join(self.dtype),
            *filter(None, with_options),
        ]
        return f"{self.input_kind} {self.input_shape}: {' > '.join(parts)}; {', '.join(more)}"


def _told(one: Drawn) -> str:
    def text(options: dict[str, Any]) -> str:
        return ", ".join(f"{key}={value}" for key, value in options.items())

    wrong = "" if one.paddle_options is None else f" [Paddle: {text(one.paddle_options)}]"
    return f"{one.row}({text(one.options)}){wrong}{f' [{one.edit}]' if one.edit else ''}"


class Wired:
    """The forward method of both sides: the blocks one after the other."""

    def _hold(self, layers: Sequence[Any], blocks: Sequence[Block], kind: type) -> None:
        self.layers, self.blocks = {}, blocks
        for index, layer in enumerate(layers):
            if isinstance(layer, kind):
                setattr(self, f"layer{index}", layer)
            else:
                self.layers[index] = layer

    def _branch(self, indices: Sequence[int], x: Any) -> Any:
        for index in indices:
            layer = self.layers.get(index) or getattr(self, f"layer{index}")
            x = layer(x)
            x = x[0] if isinstance(x, tuple) else x
        return x

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            found = [self._branch(branch, x) for branch in block.branches]
            if block.kind == "residual":
                x = x + found[0]
            elif block.kind == "sum":
                x = found[0] + found[1]
            elif block.kind == "product":
                x = found[0] * found[1]
            else:
                x = found[0] if len(found) == 1 else self.concat(found, 1)
        return x


def _call(model: Any, x: Any) -> Any:
    return model.function(x)


def wired(f, module):
    class Model(Wired, module):
        """The reference, or the port."""

        concat = staticmethod(torch.cat if f is torch else paddle.concat)

        def __init__(self, layers: Sequence[Any], blocks: Sequence[Block]) -> None:
            module.__init__(self)
            self._hold(layers, blocks, module)

    return Model


TorchWired, PaddleWired = in_both(wired)


def _with_forward(layer: Any, forward: Callable) -> Any:
    """A layer that keeps its parameters and computes something else; a function becomes another."""
    if isinstance(layer, paddle.nn.Layer):
        layer.forward = forward
        return layer
    return forward


def _left_out(layer: Any) -> Any:
    return _with_forward(layer, lambda x, *more: x)


def _scaled(layer: Any) -> Any:
    right = layer.forward if isinstance(layer, paddle.nn.Layer) else layer
    return _with_forward(layer, lambda *arguments: right(*arguments) * 1.01)


def _transposed(layer: Any) -> Any:
    return _with_forward(
        layer, lambda x: paddle.nn.functional.linear(x, layer.weight.T, layer.bias)
    )


def _without_bias(layer: Any) -> Any:
    return _with_forward(layer, lambda x: paddle.nn.functional.linear(x, layer.weight))


EDITS = {
    "left out": _left_out,
    "scaled": _scaled,
    "transposed": _transposed,
    "without bias": _without_bias,
}

INPUTS = {
    "normal": lambda rng, s: rng.normal(size=s),
    "small": lambda rng, s: 1e-3 * rng.normal(size=s),
    "offset": lambda rng, s: 3 + rng.random(size=s),
    "heavy": lambda rng, s: np.clip(rng.standard_t(3, size=s), -50, 50),
    "integers": lambda rng, s: rng.integers(-3, 4, s).astype("float64"),
    "ids": lambda rng, s: rng.integers(0, 1000, s),
}


def _first_shape(d: Draws) -> tuple[int, Shape]:
    """Kind and shape of an input, log-uniform."""
    kind = d.of(ROWS, ROWS, TOKENS, TOKENS, TOKENS, IMAGES, IMAGES, IMAGES, VOLUMES, IDS)
    if kind == ROWS:
        return kind, (d.log(1, 16384), d.width())
    if kind == TOKENS:
        return kind, (d.log(1, 32), d.log(1, 512), d.width())
    if kind == IMAGES:
        return kind, (d.log(1, 16), d.of(1, 3, 3, d.log(1, 128)), d.log(8, 224), d.log(8, 224))
    if kind == VOLUMES:
        return kind, (d.log(1, 4), d.log(1, 16), d.log(8, 32), d.log(8, 32), d.log(8, 32))
    return kind, (d.log(1, 32), d.log(1, 512))


def _after(one: Drawn, most: float) -> tuple[Shape, float]:
    """Shape behind a layer and what it costs; computed without numbers where the layer can.

    Raises:
        ValueError: the layer does not take the shape, or costs more than `most`.
    """
    kind = torch.int64 if one.row == "Embedding" else torch.float32
    device = "cpu" if one.row.endswith("head") else "meta"  # autocast knows no meta device
    counter = FlopCounterMode(display=False)
    made = one.torch_layer("meta")
    numbers = sum(p.numel() for p in made.parameters()) if hasattr(made, "parameters") else 0
    if one.row in RECURRENT:
        count = 1 + one.options["both"]
        shape = (*one.shape[:2], one.options["width"] * count)
        operations = _CELL * one.options["layers"] * count * one.shape[1]
    elif _ELEMENT * numbers > most:
        raise ValueError(f"{numbers} parameters are too many")
    else:
        try:
            with torch.device(device), counter:
                result = one.torch_layer(device)(torch.ones(one.shape, dtype=kind))
        except (RuntimeError, NotImplementedError, AssertionError) as error:
            raise ValueError(str(error)) from error
        shape = tuple((result[0] if isinstance(result, tuple) else result).shape)
        operations = counter.get_total_flops() / 2
    cost = operations + _ELEMENT * (math.prod(shape) + numbers)
    if cost > most:
        raise ValueError(f"costs {cost:.3g}, {most:.3g} at most")
    return shape, cost


class _Drawing:
    """A pair while it is drawn."""

    def __init__(self, d: Draws, shape: Shape, kind: int, limit: float) -> None:
        self.d, self.shape, self.kind, self.limit = d, shape, kind, limit
        self.layers: list[Drawn] = []
        self.blocks: list[Block] = []
        self.cost = _ELEMENT * math.prod(shape)

    def layer(self, shape: Shape, same: bool = False) -> Shape | None:
        """Draw one more layer on a shape; None where none was found that fits and is cheap."""
        for _ in range(60):
            row = self.d.of(*self.d.of(*GROUPS))
            rank = IDS if self.kind == IDS and not self.layers else len(shape)
            if rank not in row.takes or not row.fits(shape):
                continue
            if row.ties and any(one.row in REPEATING for one in self.layers):
                continue
            options = dict(row.draw(self.d, shape))
            one = Drawn(row.name, shape, options)
            is_call = not isinstance(one.torch_layer("meta"), torch.nn.Module)
            one = dataclasses.replace(one, wrapped=is_call and self.d.chance(0.5))
            try:
                result, cost = _after(one, self.limit - self.cost)
            except ValueError:
                continue
            if 0 in result or len(result) < 2 or (same and result != shape):
                continue
            self.cost += cost
            self.layers.append(one)
            return result
        return None

    def branch(self, shape: Shape, count: int, same: bool) -> tuple[tuple[int, ...], Shape]:
        """Draw some layers one after the other."""
        first = len(self.layers)
        for _ in range(count):
            shape = self.layer(shape, same) or shape
        return tuple(range(first, len(self.layers))), shape

    def block(self, count: int) -> None:
        """Draw a block of at most so many layers behind the last one."""
        kind = self.d.of("chain", "chain", "chain", "residual", "sum", "product", "concat")
        if kind == "chain" or (self.kind == IDS and not self.layers):
            indices, self.shape = self.branch(self.shape, count, same=False)
            self.blocks += [Block("chain", (indices,))] if indices else []
            return
        branches = [self.branch(self.shape, max(1, count // 2), same=True)[0]]
        if kind != "residual":
            branches.append(self.branch(self.shape, max(1, count // 2), same=True)[0])
        if not all(branches):  # too large for another layer: what there is, in a chain
            indices = tuple(index for branch in branches for index in branch)
            self.blocks += [Block("chain", (indices,))] if indices else []
            return
        self.blocks.append(Block(kind, tuple(branches)))
        if kind == "concat":
            self.shape = (self.shape[0], 2 * self.shape[1], *self.shape[2:])


def draw_pair(seed: int, most: float = 1.0) -> Pair:
    """Draw a right pair.

    Args:
        seed: of everything about it.
        most: factor of what it may cost, below 1 for quick ones.
    """
    d = Draws([seed])
    limit = most * (LARGE_COST if d.chance(1 / 12) else COST)
    optimizer = draw_optimizer(d) if d.chance(0.25) else None
    if optimizer:
        limit /= 2 + optimizer.steps
    while True:
        kind, shape = _first_shape(d)
        if _ELEMENT * math.prod(shape) > limit / 4:
            continue
        drawing = _Drawing(d, shape, kind, limit)
        wanted = d.of(1, 1, 2, 2, 3, 4, 5, 6, 8)
        while len(drawing.layers) < wanted:
            before = len(drawing.layers)
            drawing.block(d.of(*range(1, wanted - before + 1)))
            if len(drawing.layers) == before:
                break
        if drawing.layers:
            break
    if not any(one.has_numbers() for one in drawing.layers):
        optimizer = None
    loss = draw_loss(d, drawing.shape) if d.chance(0.5) else None
    kinds = ["normal", "normal", "normal", "small", "offset", "heavy"]
    if not any(TABLE[one.row].ties for one in drawing.layers):
        kinds.append("integers")
    return Pair(
        seed,
        tuple(drawing.layers),
        tuple(drawing.blocks),
        shape,
        "ids" if kind == IDS else d.of(*kinds),
        d.chance(0.5),
        d.of(("float64", "float32"), ("float64", "float32"), ("float64",), ("float32",)),
        loss,
        optimizer,
        drawing.cost,
    )
