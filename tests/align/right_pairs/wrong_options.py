"""One wrong option of a drawn port: of a layer, of the loss, of the optimizer, of the wiring."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace

from tests.align.right_pairs.pair_rows import Draws
from tests.align.right_pairs.training_rows import LOSSES, OPTIMIZERS
from tests.align.right_pairs.wiring import TABLE, Block, Drawn, Pair


@dataclass(frozen=True)
class Edit:
    """What is wrong about a port.

    Attributes:
        told: in words.
        places: paths at which a report may place it; any path below them too.
        steps: of a loss or an optimizer, the steps that may report it.
        words: one of which names the option in a cause.
        values: the wrong and the right number; a cause that states both names the option too.
    """

    told: str
    places: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    values: tuple[str, ...] = ()


def draw_edit(pair: Pair) -> tuple[Edit, Pair] | None:
    """Draw one of all edits that fit a pair; the edit and the wrong port, None where none fits."""
    edits = [*_of_options(pair), *_of_layers(pair), *_of_training(pair), *_of_order(pair)]
    if not edits:
        return None
    kinds = sorted({told for told, _, _ in edits})
    d = Draws([pair.seed, 4])
    kind = d.of(*kinds)
    _, edit, port = d.of(*(one for one in edits if one[0] == kind))
    return edit, port


_Edits = Iterator[tuple[str, Edit, Pair]]


def places(pair: Pair, index: int) -> tuple[str, ...]:
    """Where a report may place a fault of a layer: at it or at what takes its output next."""
    found = [f"layer{index}"]
    if _is_inline(pair.layers[index]):
        found = ["(model)"]
        behind = (k for k in range(index + 1, len(pair.layers)) if not _is_inline(pair.layers[k]))
        found += [f"layer{k}" for k in [next(behind, None)] if k is not None]
    return tuple(found)


def _is_inline(one: Drawn) -> bool:
    return not one.wrapped and not hasattr(one.torch_layer("meta"), "parameters")


def _of_options(pair: Pair) -> _Edits:
    """Another value of an option of a layer."""
    for index, one in enumerate(pair.layers):
        for option, wrong in TABLE[one.row].wrong.items():
            value = wrong.of(one.shape, SimpleNamespace(**one.options))
            if value == one.options[option]:
                continue
            told = f"layer{index} {one.row}: {option}={value}, right is {one.options[option]}"
            port = pair.with_layer(index, paddle_options={**one.options, option: value})
            values = _numbers(value, one.options[option])
            edit = Edit(told, places(pair, index), words=wrong.words, values=values)
            yield f"option {option}", edit, port


def _numbers(*values: object) -> tuple[str, ...]:
    """Numbers as a cause writes them; () where one is none."""
    return (
        tuple(f"{v:g}" for v in values) if all(isinstance(v, int | float) for v in values) else ()
    )


_WORDS = {
    "left out": ("left out", "missing", "not used", "identity", "skip", "without"),
    "scaled": ("1.01", "factor", "scale", "times"),
    "transposed": ("transpos",),
    "without bias": ("bias",),
}


def _of_layers(pair: Pair) -> _Edits:
    """A layer that is left out, scaled, has its weight transposed or its bias forgotten."""
    for index, one in enumerate(pair.layers):
        kinds = ["scaled"] if one.row not in ("LSTM", "GRU", "SimpleRNN") else []
        if one.row in _KEEP_THE_SHAPE:
            kinds.append("left out")
        if one.row == "square Linear" or (one.row == "Linear" and one.options["bias"]):
            kinds.append("without bias")
        if one.row == "square Linear" and one.shape[-1] > 1:
            kinds.append("transposed")
        for kind in kinds:
            words = (*_WORDS[kind], one.row.lower()) if kind == "left out" else _WORDS[kind]
            edit = Edit(f"layer{index} {one.row}: {kind}", places(pair, index), words=words)
            yield kind, edit, pair.with_layer(index, edit=kind)


_KEEP_THE_SHAPE = (
    *("ReLU", "GELU", "Tanh", "SiLU", "Sigmoid", "LeakyReLU", "Softmax", "LayerNorm"),
    *("BatchNorm1D", "BatchNorm2D", "GroupNorm", "InstanceNorm2D", "square Linear", "normalize"),
    *("clip", "roll", "flip", "cumsum", "scale"),
)


def _of_order(pair: Pair) -> _Edits:
    """Two neighbours of a chain that change places; their parameters keep their names."""
    for number, block in enumerate(pair.blocks):
        for b, branch in enumerate(block.branches):
            for at in range(len(branch) - 1):
                first, second = branch[at : at + 2]
                if pair.layers[first].row == pair.layers[second].row or not (
                    pair.layers[first].row in _KEEP_THE_SHAPE
                    and pair.layers[second].row in _KEEP_THE_SHAPE
                ):
                    continue
                turned = (*branch[:at], second, first, *branch[at + 2 :])
                branches = (*block.branches[:b], turned, *block.branches[b + 1 :])
                blocks = list(pair.blocks)
                blocks[number] = Block(block.kind, branches)
                told = f"layer{first} and layer{second} in the other order"
                where = (*places(pair, first), *places(pair, second), "(model)")
                edit = Edit(told, where, words=("order", "before", "after", "swap"))
                yield "order", edit, dataclasses.replace(pair, blocks=tuple(blocks))


def _of_training(pair: Pair) -> _Edits:
    """Another option of the loss or of the optimizer."""
    if pair.loss:
        row, options = LOSSES[pair.loss.name], pair.loss.options
        for option, wrong in dict(row.wrong).items():
            value = wrong.of(pair.loss.shape, SimpleNamespace(**options))
            loss = dataclasses.replace(
                pair.loss, paddle_options={**options, option: value}, named=False
            )
            told = f"loss {pair.loss.name}: {option}={value}, right is {options[option]}"
            edit = Edit(told, steps=("loss",), words=wrong.words)
            yield f"loss {option}", edit, dataclasses.replace(pair, loss=loss)
    if pair.optimizer:
        options, wrongs = pair.optimizer.options, OPTIMIZERS[pair.optimizer.name][3]
        for option, wrong in wrongs.items():
            value = wrong.of((), SimpleNamespace(**options))
            made = {**options, option: value}
            optimizer = dataclasses.replace(pair.optimizer, paddle_options=made, named=False)
            told = f"{pair.optimizer.name}: {option}={value}, right is {options[option]}"
            steps = ("optimizer", "training", "learning_rate")
            edit = Edit(told, steps=steps, words=wrong.words)
            yield f"optimizer {option}", edit, dataclasses.replace(pair, optimizer=optimizer)
