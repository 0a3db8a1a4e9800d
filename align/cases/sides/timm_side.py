"""timm's own models as the reference of a case: built by timm, taps by forward hooks."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

import sot_torch_ref.torchvision_ops  # noqa: F401  isort: skip (timm imports beside a CPU torch)
import timm
import torch

from align.cases.kinds.case_kinds import TimmCase

Taps = dict[str, torch.Tensor]


class TimmReference(torch.nn.Module):
    """A timm model that returns taps; parameters keep timm's names.

    Args:
        case: names the model, its options and the modules to listen to.
    """

    def __init__(self, case: TimmCase) -> None:
        super().__init__()
        model = timm.create_model(
            case.timm_model, pretrained=False, num_classes=case.num_classes, **case.timm_options
        )
        object.__setattr__(self, "inner", model)  # no submodule: names stay timm's
        for name, child in model.named_children():
            self.add_module(name, child)
        for name, parameter in model.named_parameters(recurse=False):
            self.register_parameter(name, parameter)
        self.hooks: Mapping[str, str] = case.hooks

    def train(self, mode: bool = True) -> TimmReference:
        """Switch the mode of timm's model too."""
        self.inner.train(mode)
        return super().train(mode)

    def load_state_dict(self, state: Mapping[str, torch.Tensor], *args: bool, **options: bool):
        """Load into timm's model; what may be a new parameter there is the same one here."""
        found = self.inner.load_state_dict(state, *args, **options)
        for name, parameter in self.inner.named_parameters(recurse=False):
            self.register_parameter(name, parameter)
        return found

    def forward(self, images: torch.Tensor, return_taps: bool = False):
        """Images (B, 3, H, W) to logits, or to (logits, taps as (B, N, C))."""
        taps: Taps = {}

        def listen(name: str):
            def hook(_module, _inputs, output: torch.Tensor) -> None:
                taps[name] = output.flatten(1, 2) if output.ndim == 4 else output

            return hook

        modules = dict(self.inner.named_modules())
        with contextlib.ExitStack() as hooks:
            for ours, theirs in self.hooks.items():
                hooks.callback(modules[theirs].register_forward_hook(listen(ours)).remove)
            taps["logits"] = logits = self.inner(images)
        return (logits, taps) if return_taps else logits
