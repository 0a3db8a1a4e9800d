"""HF AdamW against a NumPy trace, and the decay groups."""

import copy
import math

import numpy as np
import pytest
import torch

from sot_torch_ref import create_model
from sot_torch_ref.train.optimizer import (
    HFAdamW,
    decay_groups,
    is_decayed,
    is_decayed_vision,
    vision_decay_groups,
)

STEPS, SIZE = 20, 5


def trace(
    lr: float, eps: float, decay: float, correct_bias: bool, grads: np.ndarray, start: np.ndarray
) -> np.ndarray:
    """The class 2 rule in NumPy float64, one row per step."""
    p, m, v, rows = start.copy(), np.zeros(SIZE), np.zeros(SIZE), []
    for t, g in enumerate(grads, start=1):
        m, v = 0.8 * m + 0.2 * g, 0.95 * v + 0.05 * g * g
        factor = math.sqrt(1 - 0.95**t) / (1 - 0.8**t) if correct_bias else 1.0
        p = p - lr * factor * m / (np.sqrt(v) + eps)
        p = p - lr * decay * p
        rows.append(p)
    return np.array(rows)


@pytest.mark.parametrize("correct_bias", [True, False])
@pytest.mark.parametrize("decay", [0.0, 0.3])
@pytest.mark.parametrize("eps", [1e-8, 0.1])
def test_trace(correct_bias: bool, decay: float, eps: float) -> None:
    random = np.random.default_rng(0)
    grads, start = random.normal(size=(STEPS, SIZE)), random.normal(size=SIZE)
    expected = trace(0.05, eps, decay, correct_bias, grads, start)
    parameter = torch.nn.Parameter(torch.from_numpy(start.copy()))
    keys = {"lr": 0.05, "eps": eps, "weight_decay": decay, "correct_bias": correct_bias}
    optimizer = HFAdamW([parameter], betas=(0.8, 0.95), **keys)
    for step in range(STEPS):
        parameter.grad = torch.from_numpy(grads[step])
        optimizer.step()
        np.testing.assert_allclose(parameter.detach().numpy(), expected[step], rtol=1e-13)


def test_it_is_not_torch_adamw() -> None:
    results = []
    for kind in (HFAdamW, torch.optim.AdamW):
        parameter = torch.nn.Parameter(torch.ones(SIZE, dtype=torch.float64))
        optimizer = kind([parameter], lr=0.1, eps=0.1, weight_decay=0.3)
        for _ in range(3):
            parameter.grad = torch.full((SIZE,), 0.2, dtype=torch.float64)
            optimizer.step()
        results.append(parameter[0].item())
    assert abs(results[0] - results[1]) > 1e-3


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


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"lr": -1.0}, "lr must be at least 0"),
        ({"lr": float("nan")}, "lr must be at least 0"),
        ({"eps": -1e-8}, "eps must be at least 0"),
        ({"weight_decay": -0.1}, "weight_decay must be at least 0"),
        ({"betas": (0.9, 1.0)}, "betas must be in"),
    ],
)
def test_refusals(keys: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HFAdamW([torch.nn.Parameter(torch.ones(1))], **keys)


def test_is_decayed() -> None:
    assert is_decayed("bert.embeddings.word_embeddings.weight")
    assert is_decayed("head.pooling.norm.weight")
    assert is_decayed("head.pooling.q_norm.weight")
    assert not is_decayed("bert.encoder.layer.0.output.LayerNorm.weight")
    assert not is_decayed("head.word_fc.bias")


def test_decay_groups() -> None:
    model = create_model(
        "bert_base_mgcrp",
        vocab_size=11,
        hidden_size=6,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=7,
        q_dim=4,
        k_dim=3,
    )
    decayed, rest = decay_groups(model, 0.01)
    assert (decayed["weight_decay"], rest["weight_decay"]) == (0.01, 0.0)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    left = {names[id(parameter)] for parameter in decayed["params"]}
    right = {names[id(parameter)] for parameter in rest["params"]}
    assert left.isdisjoint(right)
    assert left | right == set(names.values())
    assert right == {n for n in names.values() if "bias" in n or "LayerNorm" in n}
    assert len(right) == 3 * 2 + 6 + 2 + 2  # layer norms, linears, batch norms, classifiers
    model.bert.requires_grad_(False)
    counts = [len(group["params"]) for group in decay_groups(model, 0.01)]
    assert counts == [7, 4]
    HFAdamW(decay_groups(model, 0.01), lr=1e-3)


def test_vision_rule_by_name_and_shape() -> None:
    vector, matrix = torch.zeros(3), torch.zeros(1, 1, 3)
    assert is_decayed_vision("cls_token", matrix)
    assert is_decayed_vision("head.pooling.norm.factor", torch.zeros(()))
    assert is_decayed_vision("biases.weight", torch.zeros(2, 3))
    assert not is_decayed_vision("head.pooling.norm.weight", vector)
    assert not is_decayed_vision("embed.blocks.1.norm.weight", vector)
    assert not is_decayed_vision("layer.bias", matrix)


def test_vision_groups_of_the_published_model() -> None:
    model = create_model("sot_tiny")
    decayed, rest = vision_decay_groups(model, 0.03)
    assert (len(decayed["params"]), len(rest["params"])) == (93, 97)
    assert (decayed["weight_decay"], rest["weight_decay"]) == (0.03, 0.0)
    assert sum(p.numel() for group in (decayed, rest) for p in group["params"]) == 7_983_550
    assert any(p is model.cls_token for p in decayed["params"])
    assert any(p is model.head.pooling.norm.weight for p in rest["params"])
    model.embed.requires_grad_(False)
    counts = [len(group["params"]) for group in vision_decay_groups(model, 0.03)]
    embed = [is_decayed_vision(name, p) for name, p in model.embed.named_parameters()]
    assert counts == [93 - sum(embed), 97 - embed.count(False)]


def test_vision_groups_are_those_of_timm() -> None:
    from timm.optim import param_groups_weight_decay

    model = create_model("deit_tiny", depth=1, normalization=None)
    expected = param_groups_weight_decay(model, 0.03)  # timm lists the undecayed first
    ours = vision_decay_groups(model, 0.03)
    for group, theirs in zip(ours, reversed(expected), strict=True):
        assert [id(p) for p in group["params"]] == [id(p) for p in theirs["params"]]
        assert group["weight_decay"] == theirs["weight_decay"]
