"""HF AdamW: unused parameters, defaults, saved state; the decay groups of timm."""

import copy

import torch

from sot_torch_ref import create_model
from sot_torch_ref.train.optimizer import HFAdamW, vision_decay_groups

SIZE = 5


def test_parameter_without_gradient_is_left_alone() -> None:
    used, unused = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))
    optimizer = HFAdamW([used, unused], lr=0.1, weight_decay=0.5)
    used.sum().backward()
    optimizer.step()
    assert torch.equal(unused, torch.ones(2))
    assert not torch.equal(used, torch.ones(2))
    assert unused not in optimizer.state


def test_defaults_closure_and_saved_state() -> None:
    parameter = torch.nn.Parameter(torch.ones(SIZE))
    optimizer = HFAdamW([parameter])
    assert optimizer.defaults == {
        "lr": 1e-3,
        "betas": (0.9, 0.999),
        "eps": 1e-6,
        "weight_decay": 0.0,
        "correct_bias": True,
    }

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (parameter**2).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == SIZE
    twin = torch.nn.Parameter(parameter.detach().clone())
    resumed = HFAdamW([twin])
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for target, chosen in ((parameter, optimizer), (twin, resumed)):
        target.grad = torch.arange(float(SIZE))
        chosen.step()
        assert chosen.state[target]["step"] == 2
    assert torch.equal(parameter, twin)


def test_vision_groups_are_those_of_timm() -> None:
    from timm.optim import param_groups_weight_decay

    model = create_model("deit_tiny", depth=1, normalization=None)
    expected = param_groups_weight_decay(model, 0.03)  # timm lists the undecayed first
    ours = vision_decay_groups(model, 0.03)
    for group, theirs in zip(ours, reversed(expected), strict=True):
        assert [id(p) for p in group["params"]] == [id(p) for p in theirs["params"]]
        assert group["weight_decay"] == theirs["weight_decay"]
