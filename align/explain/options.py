"""Options that ought to be equal, by a table of synonyms: of two layers, and of two calls."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from align.explain.experiment import number
from align.frameworks.object_options import LAYER_WORDS

SILENT = ("inplace", "training", "name", "return_mask")
"""Options of layers that change no number, and the mode that a whole model is in."""
AXES = (
    "batch_first: PyTorch's layer takes (sequence, batch, features), Paddle's always (batch, "
    "sequence, features)"
)
PADDLE_NAMES = {
    "clamp": "clip",
    "amax": "max",
    "amin": "min",
    "huber_loss": "smooth_l1_loss",
    "multilabel_soft_margin_loss": "multi_label_soft_margin_loss",
    "div": "divide",
    "mul": "multiply",
    "sub": "subtract",
}
"""PyTorch's name of a function -> Paddle's, where they differ."""
DATA = frozenset(("x", "y", "input", "logit", "other", "label", "labels", "shape", "training"))
"""Arguments of calls that are data, or the mode of a model."""


class Unequal(NamedTuple):
    """An option that differs: Paddle's attribute, PyTorch's value in its form, both in words."""

    attribute: str
    value: Any
    says: str


def unequal(layer: Any, module: Any) -> Iterator[Unequal]:
    """Yield the options of a Paddle layer that PyTorch's module has with another value."""
    if layer is None or module is None:
        return
    torch_options = {
        _word(name): value for name, value in vars(module).items() if _is_option(value)
    }
    if not torch_options.get("batch_first", True) and hasattr(layer, "need_weights"):  # attention
        yield Unequal("batch_first", False, AXES)
    for name, paddle_value in list(vars(layer).items()):
        word = _word(name)
        if word in SILENT or not _is_option(paddle_value):
            continue
        if word == "stride" and paddle_value is None:  # of a pool: its windows do not overlap
            paddle_value = vars(layer).get("ksize", vars(layer).get("kernel_size"))
        value = converted(word, torch_options, paddle_value)
        if not _of_one_kind(word, value, paddle_value):
            continue
        if word == "axis" and (paddle_value or 0) * (value or 0) < 0:
            continue  # one counts from the end: a call tells whether they are one axis
        if single(paddle_value) != single(value):
            value = in_form_of(paddle_value, value)
            a, b = _shown(paddle_value), _shown(value)
            if a != b:  # PyTorch's norms follow the float32 of Paddle's kernels
                raw = torch_options.get(word, value)  # a momentum counts the other way round
                is_turned = isinstance(raw, float) and raw != value
                meant = f" (its {word} is {_shown(raw)})" if is_turned else ""
                yield Unequal(name, value, f"{word}: Paddle's layer has {a}, PyTorch's {b}{meant}")


def unseen(layer: Any, module: Any) -> str:
    """Say in which class or options two layers of the frameworks themselves differ, "" for none.

    Class names are compared by their letters: BatchNorm2D is BatchNorm2d, Conv2DTranspose is
    ConvTranspose2d.
    """
    a, b = type(layer), type(module)
    if not (a.__module__.startswith("paddle.nn.") and b.__module__.startswith("torch.nn.")):
        return ""
    if layer.sublayers() or len(list(module.modules())) > 1:
        return ""
    if sorted(a.__name__.lower()) not in (sorted(kind.__name__.lower()) for kind in b.__mro__):
        return f"Paddle has {a.__name__}, PyTorch {b.__name__}"
    return "; ".join(option.says for option in unequal(layer, module))


def in_form_of(paddle_value: Any, torch_value: Any) -> Any:
    """PyTorch's value in the form in which Paddle's layer holds it."""
    if not isinstance(paddle_value, (list, tuple)):
        return torch_value
    several = isinstance(torch_value, (list, tuple))
    return type(paddle_value)(torch_value if several else [torch_value] * len(paddle_value))


def converted(word: str, torch_options: Mapping[str, Any], absent: Any = None) -> Any:
    """Return PyTorch's value of Paddle's option, in Paddle's convention."""
    other, convert = LAYER_WORDS.get(word, (word, None))
    other, convert = (other, convert) if other in torch_options else (word, None)
    value = torch_options.get(other, absent)
    return value if convert is None or value is None else convert(value)


def single(value: Any) -> Any:
    """Return a pair of equal numbers as the number."""
    equal = isinstance(value, (list, tuple)) and value and all(part == value[0] for part in value)
    return value[0] if equal else value


def _word(name: str) -> str:
    return name.lstrip("_").lower()


def _is_option(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return 0 < len(value) <= 4 and all(isinstance(part, (int, float)) for part in value)
    return value is None or isinstance(value, (bool, int, float, str))


def _shown(value: Any) -> str:
    value = single(value)
    return f"{value:.6g}" if isinstance(value, float) else repr(value)


class OtherArgument(NamedTuple):
    """An argument that differs: Paddle's word, Paddle's value, PyTorch's in Paddle's meaning."""

    word: str
    paddle_value: Any
    torch_value: Any


def argument_edits(
    call: Any, paddle_calls: Sequence[Any], torch_calls: Sequence[Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Set arguments of a call to PyTorch's, in words: one, two, then all that differ.

    Args:
        call: one of Paddle's (`WatchedCall`).
        paddle_calls: the watched calls of one run.
        torch_calls: PyTorch's (`TorchCall`); the one of the same number counts, all where there are
            more or fewer.
    """
    numbers = [other.number for other in paddle_calls if other.name == call.name]
    partners = [
        other for other in torch_calls if PADDLE_NAMES.get(other.name, other.name) == call.name
    ]
    if len(numbers) == len(partners):
        partners = [partners[numbers.index(call.number)]]
    edits: dict[str, dict[str, Any]] = {}
    for partner in partners:
        apart = list(_differences(call, partner.arguments))
        for count in (1, 2, len(apart)) if apart else ():
            for chosen in itertools.combinations(apart, count):
                values = {argument.word: argument.torch_value for argument in chosen}
                edits.setdefault(_sentence(call.name, chosen), values)
    yield from edits.items()


def _differences(call: Any, torch_arguments: Mapping[str, Any]) -> Iterator[OtherArgument]:
    values_by_name = {name: plain(value) for name, value in torch_arguments.items()}
    values = {name: value for name, value in values_by_name.items() if _is_value(value)}
    for word, argument in call.arguments().items():
        paddle_value = plain(argument)
        known_there = {word, LAYER_WORDS.get(word, (word,))[0]} & set(values_by_name)
        if word in DATA or not known_there or not _is_value(paddle_value):
            continue
        torch_value = converted(word, values, paddle_value)
        if torch_value is None and isinstance(paddle_value, bool):
            torch_value = False
        if word == "axis" and isinstance(paddle_value, int) and isinstance(torch_value, int):
            rank = len(getattr(call.args[0], "shape", ()))
            paddle_value, torch_value = (x + rank * (x < 0) for x in (paddle_value, torch_value))
        is_unset = paddle_value is None or torch_value is None
        is_comparable = is_unset or _of_one_kind(word, paddle_value, torch_value)
        if is_comparable and not _same(paddle_value, torch_value):
            yield OtherArgument(word, paddle_value, torch_value)


def plain(value: Any) -> Any:
    """Tensors as arrays, but for those that are trained; pairs of equal numbers as the number."""
    trained = getattr(value, "requires_grad", not getattr(value, "stop_gradient", True))
    if hasattr(value, "detach") and not trained:
        array = value.detach().cpu().numpy()
        return array if array.ndim else array.item()
    return single(value)


def _is_value(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim == 1
    parts = value if isinstance(value, (list, tuple)) else [value]
    return all(part is None or isinstance(part, (bool, int, float, str)) for part in parts)


def _of_one_kind(word: str, *values: Any) -> bool:
    """Whether two values can be of one option: both are words or neither; "SAME" is a padding."""
    return word == "padding" or len({isinstance(value, str) for value in values}) < 2


def _same(paddle_value: Any, torch_value: Any) -> bool:
    a, b = np.asarray(paddle_value), np.asarray(torch_value)
    numbers = a.dtype.kind in "biuf" and b.dtype.kind in "biuf"
    return a.shape == b.shape and bool(np.allclose(a, b, 1e-12, 0) if numbers else (a == b).all())


def _sentence(name: str, chosen: Sequence[OtherArgument]) -> str:
    sentences = []
    for word, *values in chosen:
        a, b = (number(x.tolist() if isinstance(x, np.ndarray) else x) for x in values)
        sentences.append(f"{word} of {name}: Paddle has {a}, PyTorch {b}")
    return "; ".join(sentences)
