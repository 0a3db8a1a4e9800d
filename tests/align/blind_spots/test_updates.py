"""Changes of the optimizer, its clipping, its decay and its rates, planted in the product."""

from __future__ import annotations

import math

import paddle
import pytest

from sot_paddle.train import exact_state, optimizer, schedule
from sot_paddle.train.optimizer import ClipGradByGlobalNorm, HFAdamW

UPDATES = (
    "update_below_the_clip",
    "update_just_below_the_clip",
    "update_at_the_clip",
    "update_without_bias_correction",
    "update_other_betas",
    "update_default_options",
    "update_reloaded",
    "update_vision_decay",
    "update_adamw_other_betas",
)
RATES = ("lr_constant", "lr_cosine", "lr_epochs_constant", "lr_epochs_of_several_steps")


@pytest.mark.parametrize("name", UPDATES)
def test_an_unchanged_update_passes(run_case, name) -> None:
    result = run_case(name, "optimizer", "float64")
    assert result.passed, result.problems
    assert any(c.name == "step 1: weight/head.factor" for c in result.comparisons)


@pytest.mark.parametrize("name", RATES)
def test_unchanged_rates_pass(run_case, name) -> None:
    assert run_case(name, "learning_rate").passed


def clip_by(monkeypatch, factor) -> None:
    """Replace clipping by one with another factor of (clip norm, norm)."""

    @paddle.no_grad()
    def clip(self, params_grads):
        squares = [gradient.square().sum() for _, gradient in params_grads]
        norm = math.sqrt(sum(float(square) for square in squares))
        return [(p, gradient * factor(self.clip_norm, norm)) for p, gradient in params_grads]

    monkeypatch.setattr(ClipGradByGlobalNorm, "_dygraph_clip", clip)


CLIPPINGS = [
    (
        "update_below_the_clip",
        lambda c, norm: c / (norm + 1e-6),
        "always rescaled to the clip norm",
    ),
    ("update_just_below_the_clip", lambda c, norm: c / (norm + 1e-6) if norm >= c else 1.0, "no c"),
    ("update_at_the_clip", lambda c, norm: min(1.0, c / norm), "no clipping"),
    (
        "update_at_the_clip",
        lambda c, norm: c / (norm + 1e-6) if norm > c * (1 + 1e-12) else 1.0,
        "",
    ),
]


@pytest.mark.parametrize(("name", "factor", "hint"), CLIPPINGS)
def test_another_clipping_is_seen_at_the_moments(
    run_case, failed, monkeypatch, name, factor, hint
) -> None:
    clip_by(monkeypatch, factor)
    result = run_case(name, "optimizer", "float64")
    assert failed(result)[0].startswith("step 1: exp_avg/")
    assert hint in next(c for c in result.comparisons if not c.passed).hint


def with_options(monkeypatch, **changed) -> None:
    """Build the optimizer with other options than it is given."""
    original = HFAdamW.__init__

    def init(self, *args, **options) -> None:
        original(self, *args, **(options | changed))

    monkeypatch.setattr(HFAdamW, "__init__", init)


def test_correct_bias_that_is_ignored(run_case, failed, monkeypatch) -> None:
    with_options(monkeypatch, correct_bias=True)
    result = run_case("update_without_bias_correction", "optimizer", "float64")
    assert failed(result)[0].startswith("step 1: weight/")
    assert "bias corrected" in next(c.hint for c in result.comparisons if not c.passed)


@pytest.mark.parametrize(
    ("changed", "kind", "hint"),
    [
        ({"beta2": 0.8}, "exp_avg_sq", "the second moment's beta is the first's"),
        ({"beta1": 0.9, "beta2": 0.999}, "exp_avg", "the betas' defaults"),
        ({"beta1": 0.95, "beta2": 0.8}, "exp_avg", ""),
        ({"epsilon": 1e-5}, "weight", "epsilon ten times larger"),
    ],
)
def test_other_betas_or_epsilon(run_case, failed, monkeypatch, changed, kind, hint) -> None:
    with_options(monkeypatch, **changed)
    result = run_case("update_other_betas", "optimizer", "float64")
    assert failed(result)[0].startswith(f"step 1: {kind}/")
    assert hint in next(c.hint for c in result.comparisons if not c.passed)


@pytest.mark.parametrize(
    ("position", "value", "kind", "hint"),
    [(3, 1e-8, "weight", "epsilon 1e-8"), (1, 0.8, "exp_avg", ""), (2, 0.95, "exp_avg_sq", "")],
)
def test_another_default(run_case, failed, monkeypatch, position, value, kind, hint) -> None:
    """The defaults of learning_rate, beta1, beta2, epsilon ... in the order of the signature."""
    defaults = list(HFAdamW.__init__.__defaults__)
    defaults[position] = value
    monkeypatch.setattr(HFAdamW.__init__, "__defaults__", tuple(defaults))
    result = run_case("update_default_options", "optimizer", "float64")
    assert failed(result)[0].startswith(f"step 1: {kind}/")
    assert hint in next(c.hint for c in result.comparisons if not c.passed)


def test_epsilon_rescaled_by_the_bias_correction(run_case, failed, monkeypatch) -> None:
    monkeypatch.setattr(HFAdamW, "_corrected_epsilon", lambda self, *_: self._epsilon)
    result = run_case("update_other_betas", "optimizer", "float64")
    assert failed(result)[0].startswith("step 1: weight/")


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
        self._decay_after(parameter, None, rate_now)

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
    from align.cases.sides import paddle_side

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
    from align.cases.sides import paddle_side

    rules = paddle_side._DECAY_RULES
    assert rules["text"] is optimizer.decayed_names
    assert rules["vision"] is optimizer.decayed_names_by_shape


def test_a_constant_rate_that_falls(run_case, failed, monkeypatch) -> None:
    monkeypatch.setitem(schedule.SCHEDULES, "constant", schedule.linear_factor)
    assert failed(run_case("lr_constant", "learning_rate")) == ["learning rates"]


def test_a_constant_rate_by_epoch_that_ends_at_the_minimum(run_case, failed, monkeypatch) -> None:
    original = schedule.EpochRates.rate

    def rate(self, epoch: int) -> float:
        return self.min_lr if epoch >= self.epochs else original(self, epoch)

    monkeypatch.setattr(schedule.EpochRates, "rate", rate)
    result = run_case("lr_epochs_constant", "learning_rate")
    assert failed(result) == ["learning rates"]
    assert result.comparisons[0].position == (12,)


def test_rates_of_an_epoch_that_change_within_it(run_case, failed, monkeypatch) -> None:
    monkeypatch.setattr(
        schedule.PerEpoch, "get_lr", lambda self: self._rates.rate(self.last_epoch // 2)
    )
    result = run_case("lr_epochs_of_several_steps", "learning_rate")
    assert failed(result) == ["learning rates"]
