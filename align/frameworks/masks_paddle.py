"""Exchanged dropout masks in Paddle: its random operators are answered from the shared numbers.

The dropouts of Paddle end in three operators (dropout, uniform, bernoulli) which are replaced for
the run; the functions above them only tell their p. Whatever else draws moves the state of Paddle's
generator, which is looked at after every layer: then the run is refused, with the layer's name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import paddle
from paddle import _C_ops
from paddle.nn.layer import rnn

from align.frameworks.masks import MASK, UNIFORM, Masks, Session
from align.frameworks.swapping import attributes, modules_of, set_to, swapped

_INFER = "downscale_in_infer"
_TELLING = ("dropout", "alpha_dropout", "feature_alpha_dropout")
"""Functions that draw uniform numbers for some of their arguments, and know p."""


class _Operators:
    """The replaced operators of one run."""

    def __init__(self, side: Any, session: Session) -> None:
        self.side, self.session = side, session
        self.told: tuple[float | None, str] = (None, "")

    def _drop(self, original: Callable) -> Callable:
        def dropout(x: Any, seed_tensor: Any, p: Any, is_test: bool, mode: str, *rest: Any) -> Any:
            p = float(p)
            if is_test or p == 0:
                return original(x, seed_tensor, p, is_test, mode, *rest)
            usual = mode == "upscale_in_train"
            kept = self.session.kept(tuple(x.shape), p, "" if usual else _INFER)
            scale = (0.0 if p == 1 else 1.0 / (1.0 - p)) if usual else 1.0
            made = x * paddle.to_tensor(kept * scale).astype(x.dtype)
            return paddle.assign(made, x) if original is _C_ops.dropout_ else made

        return dropout

    def uniform(self, shape: Any, dtype: Any, low: Any, high: Any, *_: Any, out: Any = None) -> Any:
        """Numbers between two bounds."""
        numbers = self._numbers(tuple(int(n) for n in shape), float(low), float(high))
        made = paddle.to_tensor(numbers).astype(dtype).reshape([int(n) for n in shape])
        return made if out is None else paddle.assign(made, out)

    def uniform_(self, x: Any, low: float = 0.0, high: float = 1.0, *_: Any) -> Any:
        """The same, in place."""
        numbers = self._numbers(tuple(x.shape), float(low), float(high))
        with paddle.no_grad():
            return paddle.assign(paddle.to_tensor(numbers).astype(x.dtype), x)

    def _numbers(self, shape: tuple[int, ...], low: float, high: float) -> np.ndarray:
        p, mode = self.told
        numbers = self.session.uniform(shape, UNIFORM if p is None else MASK, p, mode)
        return low + (high - low) * numbers

    def bernoulli(self, x: Any) -> Any:
        """Ones with the probabilities that a tensor holds."""
        return self._bernoulli(x, self.side.numpy(x))

    def bernoulli_(self, x: Any, p: Any = 0.5, name: str | None = None) -> Any:
        """The same, in place, with a probability or a tensor of them."""
        chance = self.side.numpy(p) if self.side.is_tensor(p) else np.asarray(p)
        with paddle.no_grad():
            return paddle.assign(self._bernoulli(x, chance), x)

    def _bernoulli(self, x: Any, chance: np.ndarray) -> Any:
        drop = 1.0 - chance.astype(np.float64)
        p = float(drop.flat[0]) if drop.size and float(np.ptp(drop)) == 0 else None
        kept = self.session.uniform(tuple(x.shape), MASK, p) >= drop
        return paddle.to_tensor(kept.astype(np.float64)).astype(x.dtype)

    def _telling(self, original: Callable) -> Callable:
        def tell(*args: Any, **kwargs: Any) -> Any:
            p = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
            words = [value for value in (*args, *kwargs.values()) if isinstance(value, str)]
            with attributes(self, told=(float(p), _INFER if _INFER in words else "")):
                return original(*args, **kwargs)

        return tell

    def _attention(self, original: Callable) -> Callable:
        """The plain formula, with the mask on the probabilities; the fused kernels draw inside."""

        def attend(
            query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, training=True,
            *args: Any, **options: Any,
        ):  # fmt: skip
            if not dropout_p or not training:
                given = (query, key, value, attn_mask, dropout_p, is_causal, training)
                return original(*given, *args, **options)
            scale = options.get("scale") or query.shape[-1] ** -0.5
            q, k, v = (t.transpose([0, 2, 1, 3]) for t in (query, key, value))
            scores = paddle.matmul(q * scale, k, transpose_y=True)
            if is_causal:
                later = paddle.triu(paddle.ones_like(scores), 1).astype("bool")
                scores = paddle.where(later, paddle.full_like(scores, -np.inf), scores)
            elif attn_mask is not None and attn_mask.dtype == paddle.bool:
                scores = paddle.where(attn_mask, scores, paddle.full_like(scores, -np.inf))
            elif attn_mask is not None:
                scores = scores + attn_mask
            weights = paddle.nn.functional.dropout(paddle.nn.functional.softmax(scores), dropout_p)
            return paddle.matmul(weights, v).transpose([0, 2, 1, 3])

        return attend

    def replacements(self) -> dict[Callable, Callable]:
        """Original -> replacement."""
        functional = paddle.nn.functional
        found = {
            _C_ops.dropout: self._drop(_C_ops.dropout),
            _C_ops.dropout_: self._drop(_C_ops.dropout_),
            _C_ops.uniform: self.uniform,
            _C_ops.uniform_inplace_: self.uniform_,
            _C_ops.bernoulli: self.bernoulli,
            paddle.bernoulli_: lambda *a, **k: self.bernoulli_(*a, **k),  # binds to a tensor
        }
        for name in _TELLING:
            function = getattr(functional, name)
            found[function] = self._telling(function)
        attend = functional.scaled_dot_product_attention
        found[attend] = self._attention(attend)
        return found


def _state() -> list[str]:
    """Of the generators that may draw, as printed, without the addresses in it."""
    states = [paddle.base.core.default_cpu_generator().get_state()]
    if paddle.get_device().startswith("gpu"):
        states += paddle.get_cuda_rng_state()
    return [word for state in states for word in str(state).split() if not word.startswith("0x")]


def _open_recurrence(layers: list[paddle.nn.Layer]) -> contextlib.AbstractContextManager[None]:
    """Recurrent layers with dropout run layer by layer, not in the kernel that draws by itself.

    PADDLE: a GRU or SimpleRNN fails there without initial states: they are a tuple of one tensor.
    """
    held = [x for x in layers if getattr(x, "could_use_cudnn", False) and getattr(x, "dropout", 0)]
    split = rnn.split_states

    def split_states(states: Any, bidirectional: bool = False, components: int = 1) -> Any:
        alone = components == 1 and not isinstance(states, paddle.Tensor)
        return split(states[0] if alone else states, bidirectional, components)

    closed = [(layer, "could_use_cudnn", False) for layer in held]
    return set_to([*closed, (rnn, "split_states", split_states)])


@contextlib.contextmanager
def dropout_exchanged(side: Any, masks: Masks, model: paddle.nn.Layer, step: int) -> Iterator[None]:
    """Training mode with the shared masks.

    Args:
        side: the module `on_paddle`.
        masks: shared by both sides.
        model: whose layers are followed.
        step: training step, 0 for a single pass.

    Raises:
        ValueError: something is drawn by chance that cannot be exchanged.
    """
    session = masks.session("Paddle", step)
    operators = _Operators(side, session)
    layers = list(side.modules(model).values())
    owners = [paddle.Tensor, *modules_of(layers)]
    before = _state()

    def untouched(*_: Any) -> None:
        if _state() != before:
            raise session.refuse("Paddle", "an operator of its own generator")

    with contextlib.ExitStack() as stack:
        for layer in layers:  # before the session's own hooks, which leave the layer
            stack.enter_context(side.hook(layer, lambda *_: None, untouched))
        stack.enter_context(session.watch(side, model))
        stack.enter_context(swapped(operators.replacements(), "paddle", owners))
        stack.enter_context(session.seeded())
        stack.enter_context(_open_recurrence(layers))
        yield
