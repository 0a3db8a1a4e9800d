"""Compares a model of the reference with timm's own; no tests here."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from sot_torch_ref import create_model


def assert_same(
    model: nn.Module, other: nn.Module, rename: Callable[[str], str], images: torch.Tensor
) -> None:
    """Logits within 1e-12 and every gradient within 1e-10, relative to the largest entry."""
    results = []
    for side in (model, other):
        logits = side(images)
        (
            logits.sin() * torch.arange(1.0, logits.numel() + 1).reshape(logits.shape)
        ).sum().backward()
        results.append(logits.detach())
    ours, theirs = results
    assert (ours - theirs).abs().max() <= 1e-12 * theirs.abs().max()
    gradients = {name: p.grad for name, p in model.named_parameters()}
    named = {rename(name): p.grad for name, p in other.named_parameters()}
    assert gradients.keys() == named.keys()
    for name, expected in named.items():
        assert (gradients[name] - expected).abs().max() <= 1e-10 * expected.abs().max(), name


def with_their_weights(
    name: str, other: str, rename: Callable[[str], str], **keys: object
) -> tuple[nn.Module, nn.Module]:
    """A model of the reference and timm's with its weights, all far from their start."""
    import timm

    torch.manual_seed(5)
    theirs = timm.create_model(other, **keys)
    for parameter_name, parameter in theirs.named_parameters():
        strong = parameter.ndim == 1 or "relative_position" in parameter_name
        with torch.no_grad():  # norms, biases and position tables that matter
            parameter.add_(torch.randn_like(parameter) * (0.4 if strong else 0.05))
    model = create_model(name, **keys)
    model.load_state_dict({rename(n): v for n, v in theirs.state_dict().items()}, strict=True)
    return model, theirs


class Scale(nn.Module):
    """Stands for drop path: a factor for each of two samples instead of draws."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        factors = torch.tensor([0.0, 1.0 + 0.1 * self.index])
        return x * factors.reshape(-1, *[1] * (x.ndim - 1))
