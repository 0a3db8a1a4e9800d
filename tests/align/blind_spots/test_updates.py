"""Changes of the optimizer, its clipping, its decay and its rates, planted in the product."""

from __future__ import annotations

import paddle
import pytest

from align.cases.sides import paddle_side
from sot_paddle.train import exact_state, optimizer, schedule
from sot_paddle.train.optimizer import ClipGradByGlobalNorm, HFAdamW

CLIP = (ClipGradByGlobalNorm, "factor_of", "(self.clip_norm / (norm + 1e-6)).clip(max=1.0)")
FROM = "paddle.where(norm {}, self.clip_norm / (norm + 1e-6), paddle.ones_like(norm))"
STEP = "step 1: {}/*".format
INIT = (HFAdamW, "__init__")
BETAS = (*INIT, "beta1=beta1,\n        beta2=beta2,")


def job(name: str) -> str:
    """The step of a case, in float64."""
    return f"update_{name} optimizer float64"


CHANGES = [
    # clipping
    (job("below_the_clip"), *CLIP, "self.clip_norm / (norm + 1e-6)", STEP("exp_avg"))
    + ("always rescaled to the clip norm",),
    (job("just_below_the_clip"), *CLIP, FROM.format(">= self.clip_norm"), STEP("exp_avg"), "no c"),
    (job("at_the_clip"), *CLIP, "(self.clip_norm / norm).clip(max=1.0)", STEP("exp_avg"))
    + ("no clipping",),
    (job("at_the_clip"), *CLIP, FROM.format("> self.clip_norm * (1 + 1e-12)"), STEP("exp_avg")),
    # options that are ignored
    (job("without_bias_correction"), *INIT, "bias = correct_bias", "bias = True", STEP("weight"))
    + ("bias corrected",),
    (job("other_betas"), *INIT, "beta2=beta2", "beta2=0.8", STEP("exp_avg_sq"))
    + ("the second moment's beta is the first's",),
    (job("other_betas"), *BETAS, "beta1=0.9, beta2=0.999,", STEP("exp_avg"), "betas' defaults"),
    (job("other_betas"), *BETAS, "beta1=0.95, beta2=0.8,", STEP("exp_avg")),
    (job("other_betas"), *INIT, "epsilon=epsilon", "epsilon=1e-5", STEP("weight"))
    + ("epsilon ten times larger",),
    # other defaults
    (job("default_options"), *INIT, "= 1e-6", "= 1e-8", STEP("weight"), "epsilon 1e-8"),
    (job("default_options"), *INIT, "float = 0.9,", "float = 0.8,", STEP("exp_avg")),
    (job("default_options"), *INIT, "float = 0.999", "float = 0.95", STEP("exp_avg_sq")),
    # epsilon rescaled by the bias correction
    (job("other_betas"), HFAdamW, "_kernel_epsilon", " / math.sqrt(1.0 - self._beta2**step)")
    + ("", STEP("weight")),
    # rates
    ("lr_linear_warmup learning_rate", schedule, "rate_factor", "return step", "return (step + 1)")
    + ("learning rates",),
    ("lr_constant learning_rate", schedule, "rate_factor", "SCHEDULES[name](", "linear_factor(")
    + ("learning rates",),
    ("lr_epochs_constant learning_rate", schedule.EpochRates, "rate", 'kind == "constant":')
    + ('kind == "constant" and epoch < self.epochs:', "learning rates"),
    ("lr_epochs_of_several_steps learning_rate", schedule.PerEpoch, "get_lr", "self._steps", "2")
    + ("learning rates",),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: f"{change[0]} {change[4]}")
def test_a_change_is_caught_and_placed(caught, change) -> None:
    caught(*change)


def test_epsilon_inside_the_root(run_case, failed, monkeypatch) -> None:
    """sqrt(v + eps) instead of sqrt(v) + eps: planted as one plain update in Python."""

    def update(self, block, param_and_grad) -> None:
        parameter, gradient = param_and_grad
        names = (self._moment1_acc_str, self._moment2_acc_str, self._beta2_pow_acc_str)
        first, second, power2 = (self._get_accumulator_master(n, parameter) for n in names)
        power1 = self._get_accumulator_master(self._beta1_pow_acc_str, parameter)
        paddle.assign(self._beta1 * first + (1 - self._beta1) * gradient, output=first)
        paddle.assign(self._beta2 * second + (1 - self._beta2) * gradient**2, output=second)
        rate = self.get_lr() * ((1 - power2).sqrt() / (1 - power1)).item()
        root = (second + self._epsilon).sqrt()
        paddle.assign(parameter - rate * first / root, output=parameter)
        paddle.assign(power1 * self._beta1, output=power1)
        paddle.assign(power2 * self._beta2, output=power2)
        rate_now = paddle.to_tensor(self.get_lr(), dtype=parameter.dtype)
        self._decay(parameter, None, rate_now)

    monkeypatch.setattr(HFAdamW, "_append_optimize_op", update)
    result = run_case("update_other_betas", "optimizer", "float64")
    assert failed(result)[0].startswith("step 1: weight/")
    assert not any("exp_avg" in name and name.startswith("step 1") for name in failed(result))


def test_a_state_that_is_loaded_without_its_moments(run_case, failed, monkeypatch) -> None:
    monkeypatch.setattr(exact_state, "restore_optimizer", lambda *given: None)
    found = failed(run_case("update_reloaded", "optimizer", "float64"))
    assert found[0].startswith("step 2: exp_avg/")


def test_a_step_that_is_counted_anew_after_loading(run_case, failed, monkeypatch) -> None:
    monkeypatch.setattr(
        exact_state,
        "optimizer_counters",
        lambda optimizer, model: {name: 1 for name, _ in model.named_parameters()},
    )
    found = failed(run_case("update_reloaded", "optimizer", "float64"))
    assert found[0].startswith("step 2: weight/")
    assert not any("exp_avg" in name for name in found)


@pytest.mark.parametrize(
    ("name", "rule", "keeps"),
    [
        ("update_other_betas", "decayed_names", lambda n, p: "bias" not in n and p.ndim > 0),
        ("update_vision_decay", "decayed_names_by_shape", lambda n, p: p.ndim > 1),
        ("update_vision_decay", "decayed_names_by_shape", lambda n, p: p.ndim != 1),
    ],
    ids=["text: no 0-d", "vision: no 0-d", "vision: 0-d bias decayed"],
)
def test_a_scalar_in_the_wrong_group_is_named(
    run_case, failed, monkeypatch, name, rule, keeps
) -> None:
    kind = {"decayed_names": "text", "decayed_names_by_shape": "vision"}[rule]

    def changed(model) -> set[str]:
        parameters = model.named_parameters()
        return {n for n, p in parameters if keeps(n, p) and n not in _NORMS[kind]}

    monkeypatch.setitem(paddle_side._DECAY_RULES, kind, changed)
    scalar = "head.bias" if keeps("x", paddle.zeros([])) else "head.factor"
    found = failed(run_case(name, "optimizer", "float64"))
    assert found[0] == f"decayed/{scalar}"
    assert f"step 1: weight/{scalar}" in found


_NORMS = {"text": {"bert.embeddings.layer_norm.weight"}, "vision": set()}


def test_the_rules_that_are_replaced_are_the_products() -> None:
    rules = paddle_side._DECAY_RULES
    assert rules["text"] is optimizer.decayed_names
    assert rules["vision"] is optimizer.decayed_names_by_shape
