"""The missing operators are declared once, and only when they are missing."""

import importlib.util
from types import SimpleNamespace

import pytest
import torch

from sot_torch_ref import torchvision_ops


def test_second_call_declares_nothing() -> None:
    assert torchvision_ops.declare_missing_operators() == ()


def test_absent_torchvision_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(torchvision_ops, "OPERATORS", ("sot_test_absent",))
    assert torchvision_ops.declare_missing_operators() == ()
    assert not hasattr(torch.ops.torchvision, "sot_test_absent")


@pytest.mark.parametrize("library", ["_C.so", "_C.cpython-311-x86_64-linux-gnu.so", "_C_stable.so"])
def test_loadable_library_is_left_alone(monkeypatch, tmp_path, library: str) -> None:
    """Of any version of torchvision: one that loads later ends the process (declared twice)."""
    (tmp_path / library).touch()
    installed = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: installed)
    monkeypatch.setattr(torch.ops, "load_library", lambda path: None)
    monkeypatch.setattr(torchvision_ops, "OPERATORS", ("sot_test_loadable",))
    assert torchvision_ops.declare_missing_operators() == ()
    assert not hasattr(torch.ops.torchvision, "sot_test_loadable")


def test_missing_operator_is_declared_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torchvision")
    monkeypatch.setattr(torchvision_ops, "OPERATORS", ("sot_test_missing",))
    monkeypatch.setattr(torchvision_ops, "_compiled_library_loads", lambda: False)
    monkeypatch.setattr(torchvision_ops, "_LIBRARIES", [])
    assert torchvision_ops.declare_missing_operators() == ("sot_test_missing",)
    assert len(torchvision_ops._LIBRARIES) == 1
    schema = torch.ops.torchvision.sot_test_missing.default._schema
    assert str(schema).endswith("(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
