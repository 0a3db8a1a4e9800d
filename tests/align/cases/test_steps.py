"""Every step: catches its controls where they are planted, and fails when one is not caught."""

import dataclasses
import re

import pytest

from align.cases import model_pair
from align.cases.context import Context
from align.cases.kinds.case_kinds import ModelCase, Recipe
from align.cases.planted_controls import ModelFault, put
from align.cases.runner import runner_of
from align.cases.sides import drawn_models
from align.record.run_report import Report
from tests.align.tiny_bert import OPTIONS

# small steps: Paddle's float32 powers of beta2 make its first updates 3e-6 to 7e-6 off, and in six
# steps of 2e-3 that moves the smallest moments of so small a model beyond the suite's bound
BRIEF = Recipe(steps=6, warmup_steps=2, total_steps=8, learning_rate=2e-4, weight_decay=0.1)
MODEL_STEPS = ("forward", "backward", "optimizer", "training")
QK = ModelCase("qk", options=OPTIONS, recipe=BRIEF, steps=MODEL_STEPS)
NO_FAULT = ModelFault("no fault", lambda model: ("nowhere", model), put)
NO_BACKWARD_FAULT = dataclasses.replace(NO_FAULT, backward_only=True)


@pytest.fixture(scope="module")
def context():
    return Context()


def run(step, case, dtype, context):
    return runner_of(case, step)(case, dtype, context)


def test_a_control_points_at_the_place_of_its_fault(context):
    located = {c.name: c.located for c in run("forward", QK, "float64", context).controls}
    assert located["layer_norm_epsilon"] == "embeddings"
    assert located["token_norm_epsilon"] == "head.q"
    assert located["svpn_exponent"] == "head.power_norm"
    assert located["classifier_bias_shifted"] in ("head.word_logits", "head.cls_logits")
    located = {c.name: c.located for c in run("backward", QK, "float64", context).controls}
    assert located["the [PAD] row trained"] == "bert.embeddings.word_embeddings.weight"
    located = {c.name: c.located for c in run("training", QK, "float64", context).controls}
    assert located["warm_up_one_step_longer"] in ("losses", "learning rates")


def nothing_planted(step, monkeypatch):
    """Replace a step's faults by one that changes nothing."""
    if step in ("forward", "backward"):
        monkeypatch.setattr(model_pair, "MODEL_FAULTS", (NO_FAULT, NO_BACKWARD_FAULT))
        return
    monkeypatch.setattr(model_pair, "recipe_faults", lambda _, recipe: {"no fault": recipe})


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("step", MODEL_STEPS)
def test_a_control_that_is_not_caught_fails_the_result(step, dtype, monkeypatch, context):
    """Also: no step calls a fault caught that is none."""
    nothing_planted(step, monkeypatch)
    result = run(step, QK, dtype, context)
    missed = [control.name for control in result.controls if not control.caught]
    assert set(missed) == {"no fault"}
    assert result.failures == []
    assert not result.passed
    assert len(result.problems) == len(missed)
    assert result.problems[0].startswith(f"control not caught: {missed[0]} (nothing failed")
    assert Report({}, [result]).exit_code == 1


def test_the_same_framework_in_the_forward_step_fails(monkeypatch):
    """The whole Paddle side replaced by the reference itself."""
    case = ModelCase("qk", options=OPTIONS, train=False)
    monkeypatch.setattr(model_pair, "MODEL_FAULTS", ())
    context = Context()
    pair = context.pair(case, "float64")
    pair.ours = pair.reference
    result = run("forward", case, "float64", context)
    assert result.failures == []
    assert result.problems == ["both sides were computed by torch: nothing is proved"]


def test_a_fault_that_shows_in_no_step_is_judged_at_the_end(context, monkeypatch):
    late = dataclasses.replace(QK.recipe, learning_rate=0.0)
    case = dataclasses.replace(QK, name="no rate", recipe=late)
    faults = {"decays": dataclasses.replace(late, weight_decay=0.5), "clips": late}
    monkeypatch.setattr(model_pair, "recipe_faults", lambda *_: faults)
    controls = [c for c in run("training", case, "float64", context).controls if c.name in faults]
    assert [control.caught for control in controls] == [False, False]
    assert all("after 6 of 6 steps" in control.detail for control in controls)


def test_a_faulty_run_is_stopped_as_soon_as_its_fault_shows(context):
    controls = {c.name: c for c in run("training", QK, "float64", context).controls}
    exchanged = "batches[0] and batches[1] exchanged"
    for name in (exchanged, *model_pair.recipe_faults("training", BRIEF)):
        steps = re.search(rf", after (\d+) of {BRIEF.steps} steps: ", controls[name].detail)
        assert int(steps[1]) <= 3, name


def test_the_training_step_has_a_batch_of_its_own_for_each_forward_pass():
    recipe = dataclasses.replace(BRIEF, accumulate=2)
    case = dataclasses.replace(QK, recipe=recipe)
    batches = drawn_models.training_batches(case)
    assert len(batches) == 12
    assert len({batch["input_ids"].tobytes() for batch in batches}) == 12
