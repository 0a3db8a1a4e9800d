"""Exchanged dropout masks in PyTorch: its operators' draws are answered, whoever calls them.

All dropouts of PyTorch (functional ones, alpha and feature dropout, those inside attention and
recurrent layers, timm's drop paths) end in a few operators below autograd; a dispatch mode answers
these, so it does not matter under which name a model imported a function.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from align.frameworks.masks import Masks, Session

_OPS = torch.ops.aten


class _Answer(TorchDispatchMode):
    """Fills what random operators return from the session's numbers."""

    def __init__(self, side: Any, session: Session) -> None:
        super().__init__()
        self.side, self.session = side, session

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None):
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)
        packet = func.overloadpacket
        if packet is _OPS.native_dropout:
            return self._native_dropout(*args)
        if packet in (_OPS.bernoulli_, _OPS.bernoulli):
            return self._bernoulli(func, *args, **kwargs)
        if packet in (_OPS.rand, _OPS.rand_like, _OPS.uniform_):
            return self._uniform(func, *args, **kwargs)
        raise self.session.refuse("PyTorch", f"torch's {packet.__name__}")

    def _bernoulli(self, func: Any, tensor: torch.Tensor, keep: Any = None, **kwargs: Any):
        """Ones with the probability `keep`, or with the tensor's own values as probabilities."""
        out = func(tensor, *(() if keep is None else (keep,)), **kwargs)
        chance = keep
        if keep is None:
            chance = 0.5 if packet_name(func) == "bernoulli_" else self.side.numpy(tensor)
        elif isinstance(keep, torch.Tensor):
            chance = self.side.numpy(keep)
        return out.copy_(self._kept(tuple(out.shape), 1.0 - np.asarray(chance, np.float64)))

    def _kept(self, shape: tuple[int, ...], drop: np.ndarray) -> torch.Tensor:
        single = drop.size and float(np.ptp(drop)) == 0
        p = float(drop.flat[0]) if single else None
        numbers = self.session.uniform(shape, "mask", p)
        return torch.from_numpy((numbers >= drop).astype(np.float64))

    def _uniform(self, func: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        out = func(*args, **kwargs)
        low, high = 0.0, 1.0
        if packet_name(func) == "uniform_":
            low, high = (*args[1:], *(0.0, 1.0)[len(args) - 1 :])
        numbers = self.session.uniform(tuple(out.shape))
        return out.copy_(torch.from_numpy(low + (high - low) * numbers))

    def _native_dropout(self, tensor: torch.Tensor, p: float, train: bool | None = True):
        if not train or p == 0:
            return tensor.clone(), torch.ones_like(tensor, dtype=torch.bool)
        kept = self.session.kept(tuple(tensor.shape), p)
        mask = torch.from_numpy(kept).to(tensor.device)
        scale = 0.0 if p == 1 else 1.0 / (1.0 - p)
        return tensor * (mask * scale).to(tensor.dtype), mask.to(torch.bool)


def packet_name(func: Any) -> str:
    """The operator's name without its overload."""
    return func.overloadpacket.__name__


@contextlib.contextmanager
def dropout_exchanged(side: Any, masks: Masks, model: torch.nn.Module, step: int) -> Iterator[None]:
    """Training mode with the shared masks.

    Args:
        side: the module `on_torch`.
        masks: shared by both sides.
        model: whose modules are followed.
        step: training step, 0 for a single pass.
    """
    session = masks.session("PyTorch", step)
    with session.watch(side, model) as stack:
        # the fused attention kernels draw inside; the plain formula uses the operators above
        stack.enter_context(sdpa_kernel([SDPBackend.MATH]))
        stack.enter_context(torch.random.fork_rng(devices=[]))
        stack.enter_context(session.seeded())
        stack.enter_context(_Answer(side, session))
        yield
