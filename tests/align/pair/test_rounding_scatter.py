"""Float32 results that failed are judged again by moved runs; real faults still fail."""

import numpy as np
import paddle
import pytest
import torch

import align

import sot_torch_ref  # noqa: F401  isort: skip (declares the operators that torchvision lacks)
import torchvision  # isort: skip


@pytest.mark.parametrize(
    ("name", "seed"), [("resnet18", 0), ("resnet18", 1), ("resnet18", 2), ("mobilenet_v2", 1)]
)
def test_a_right_model_passes_where_its_batch_norm_sees_two_values(name, seed):
    torch.manual_seed(seed)
    theirs = getattr(torchvision.models, name)(num_classes=10)
    ours = getattr(paddle.vision.models, name)(num_classes=10)
    image = np.random.default_rng(seed).normal(size=(2, 3, 32, 32)).astype("float32")
    found = align.compare(theirs, ours, image, train=True, dtype="float32")
    assert found.passed, str(found)
    forward = next(r for r in found.report.results if r.step == "forward")
    assert len(forward.comparisons) > 50


def test_a_fault_still_fails_after_the_scatter_was_measured():
    theirs = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.BatchNorm1d(5), torch.nn.ReLU())

    class Ours(paddle.nn.Sequential):
        def forward(self, x):
            return super().forward(x) * 1.001

    ours = Ours(paddle.nn.Linear(6, 5), paddle.nn.BatchNorm1D(5), paddle.nn.ReLU())
    data = np.random.default_rng(3).normal(size=(7, 6)).astype("float32")
    found = align.compare(theirs, ours, data, train=True, dtype="float32")
    assert not found.passed
    assert found.first_divergence is not None
