"""Float32 results that failed are judged again by moved runs; real faults still fail."""

import numpy as np
import paddle
import pytest
import torch

import align

import sot_torch_ref  # noqa: F401  isort: skip (declares the operators that torchvision lacks)
import torchvision  # isort: skip


def resnets(seed):
    torch.manual_seed(seed)
    theirs = torchvision.models.resnet18(num_classes=10)
    return theirs, paddle.vision.models.resnet18(num_classes=10)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_right_resnet_passes_where_its_batch_norm_sees_two_values(seed):
    image = np.random.default_rng(seed).normal(size=(2, 3, 32, 32)).astype("float32")
    found = align.compare(*resnets(seed), image, train=True, dtype="float32")
    assert found.passed, found.verdict
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
