"""Every step: passes on right code, catches all its controls, and fails when one is not caught."""

import dataclasses
import warnings

import numpy as np
import pytest

with warnings.catch_warnings():  # 2026-11-21, paddlenlp 3.0.0b4: deprecated modules at import
    warnings.simplefilter("ignore")
    import sot_paddle.registry  # noqa: F401 (loads paddlenlp)
    from align.cases.context import Context
    from align.cases.runner import RUNNERS
    from align.cases.sides import paddle_side, torch_side
    from align.cases.steps.models import step_backward, step_forward, step_training
    from align.cases.steps.models import step_optimizer as optimizer_step
    from align.cases.steps.models.step_judged_runs import pauses_before
    from align.cases.steps.runs import step_data, step_learning_rate, step_metric
    from align.cases.steps.runs import step_loss as loss

from align.cases.kinds.case_kinds import (
    DataCase,
    LossCase,
    MetricCase,
    ModelCase,
    Recipe,
    ScheduleCase,
)
from align.cases.planted_controls import ModelFault
from align.record.results import Report
from tests.align.tiny_bert import OPTIONS

# small steps: Paddle's float32 powers of beta2 make its first updates 3e-6 to 7e-6 off, and in six
# steps of 2e-3 that moves the smallest moments of so small a model beyond the suite's bound
BRIEF = Recipe(steps=6, warmup_steps=2, total_steps=8, learning_rate=2e-4, weight_decay=0.1)
QK = ModelCase("qk", options=OPTIONS, recipe=BRIEF)
SCHEDULE = ScheduleCase("rates", "cosine", 1e-3, 3, 12)
LOSS = LossCase("loss", ignored=2)
METRIC = MetricCase("metric", "mrpc")
MODEL_STEPS = ("forward", "backward", "optimizer", "training")
NO_FAULT = ModelFault("no fault", lambda model: ("nowhere", lambda: None))
NO_BACKWARD_FAULT = dataclasses.replace(NO_FAULT, backward_only=True)
MIXED = ("Hello, café!", "TWO Words here", "a third, rather longer sentence of words")


@pytest.fixture(scope="module")
def context():
    return Context()


@pytest.fixture
def vocabulary(tmp_path):
    letters = [chr(c) for c in (*range(97, 123), *range(65, 91))]
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, ",", "!", "hello", "two"]
    words += [f"##{letter}" for letter in letters]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    return tmp_path


def run(step, case, dtype, context):
    return RUNNERS[step, type(case)](case, dtype, context)


def assert_proves(result, step, dtype):
    assert (result.step, result.dtype) == (step, dtype)
    assert result.passed, (result.problems, result.failures)
    assert result.controls
    assert all(control.caught and control.detail for control in result.controls)
    assert len({control.name for control in result.controls}) == len(result.controls)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("step", MODEL_STEPS)
def test_a_model_step_passes_and_catches_all_its_controls(context, step, dtype):
    result = run(step, QK, dtype, context)
    assert_proves(result, step, dtype)
    assert result.stamps["ours"]["framework"] == "paddle"
    assert result.stamps["reference"]["framework"] == "torch"
    assert {stamp["dtype"] for stamp in result.stamps.values()} == {dtype}


def test_a_control_points_at_the_place_of_its_fault(context):
    located = {c.name: c.located for c in run("forward", QK, "float64", context).controls}
    assert located["layer norm epsilon"] == "embeddings"
    assert located["batch norm epsilon ten times larger"] == "head.q"
    assert located["svPN exponent 2 % off"] == "head.power_norm"
    assert located["classifier bias shifted"] in ("head.word_logits", "head.cls_logits")
    located = {c.name: c.located for c in run("backward", QK, "float64", context).controls}
    assert located["the [PAD] row trained"] == "bert.embeddings.word_embeddings.weight"
    located = {c.name: c.located for c in run("training", QK, "float64", context).controls}
    assert located["warm-up one step longer"] in ("losses", "learning rates")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    "case",
    [LOSS, LossCase("one", num_classes=1), LossCase("two", pair=True)],
    ids=lambda case: case.name,
)
def test_the_loss_step(context, case, dtype):
    result = run("loss", case, dtype, context)
    assert_proves(result, "loss", dtype)
    assert {c.name for c in result.comparisons} >= {"loss", "logits.0"}


@pytest.mark.parametrize("task", ["cola", "mrpc", "sts-b", "mnli"])
def test_the_metric_step(context, task):
    result = run("metric", MetricCase(f"metric_{task}", task), None, context)
    assert_proves(result, "metric", None)
    assert result.framework_free


@pytest.mark.parametrize("schedule", ["linear", "cosine", "constant"])
@pytest.mark.parametrize("warmup", [0, 5])
def test_the_learning_rate_step(context, schedule, warmup):
    case = ScheduleCase("rates", schedule, 1e-3, warmup, 12)
    result = run("learning_rate", case, None, context)
    assert_proves(result, "learning_rate", None)
    assert ("warm-up one step longer" in {c.name for c in result.controls}) == (warmup > 0)
    assert len(result.series["learning_rate"]["paddle"]) == 12


@pytest.mark.parametrize("pairs", [False, True])
def test_the_data_step(vocabulary, pairs):
    context = Context(checkpoint=vocabulary, sentences=MIXED)
    result = run("data", DataCase("data", 24, pairs=pairs), None, context)
    assert_proves(result, "data", None)
    assert [c.name for c in result.controls] == [
        "the other letter case",
        "rows in another order",
        "one id shifted",
        "padding not masked",
        "types inverted",
    ]


@pytest.mark.parametrize("sentence", ["hello", "a b c d e f g h i j k", "??"])
def test_one_sentence_of_the_user_is_enough(vocabulary, sentence):
    """In another order or letter case it reads the same: that is no fault to be caught."""
    context = Context(checkpoint=vocabulary, sentences=[sentence])
    assert_proves(run("data", DataCase("data", 9), None, context), "data", None)


def nothing_planted(step, monkeypatch, context):
    """Replace a step's faults by one that changes nothing; returns the case to run."""
    if step in ("data", "metric"):  # their faults are made inside: blind the comparison instead
        module = {"data": step_data, "metric": step_metric}[step]
        compare = module.compare_mappings
        monkeypatch.setattr(
            module, "compare_mappings", lambda ours, reference, rule: compare(ours, ours, rule)
        )
        return {"data": DataCase("data", 24), "metric": METRIC}[step]
    if step in ("forward", "backward"):
        module = {"forward": step_forward, "backward": step_backward}[step]
        monkeypatch.setattr(module, "MODEL_FAULTS", (NO_FAULT, NO_BACKWARD_FAULT))
        return QK
    module = {
        "loss": loss,
        "learning_rate": step_learning_rate,
        "optimizer": optimizer_step,
        "training": step_training,
    }[step]
    unchanged = {
        "loss": lambda case, ours: {"no fault": ours},
        "learning_rate": lambda case, ours: [("no fault", ours)],
    }.get(step, lambda recipe: {"no fault": recipe})
    monkeypatch.setattr(module, "_faults", unchanged)
    return {"loss": LOSS, "learning_rate": SCHEDULE}.get(step, QK)


NUMERIC = [(step, dtype) for step in (*MODEL_STEPS, "loss") for dtype in ("float64", "float32")]


@pytest.mark.parametrize(
    ("step", "dtype"), [*NUMERIC, ("learning_rate", None), ("metric", None), ("data", None)]
)
def test_a_control_that_is_not_caught_fails_the_result(
    step, dtype, monkeypatch, context, vocabulary
):
    """Also: no step calls a fault caught that is none."""
    case = nothing_planted(step, monkeypatch, context)
    if step == "data":
        context = Context(checkpoint=vocabulary, sentences=MIXED)
    result = run(step, case, dtype, context)
    missed = [control.name for control in result.controls if not control.caught]
    assert missed
    if step not in ("metric", "data"):
        assert set(missed) == {"no fault"}
    assert result.failures == []
    assert not result.passed
    assert len(result.problems) == len(missed)
    assert result.problems[0].startswith(f"control not caught: {missed[0]} (nothing failed")
    assert Report({}, [result]).exit_code == 1


def test_a_result_without_controls_fails(monkeypatch, context):
    monkeypatch.setattr(step_learning_rate, "_faults", lambda case, ours: [])
    result = run("learning_rate", SCHEDULE, None, context)
    assert result.failures == []
    assert not result.passed
    assert result.problems == ["no negative control ran"]


@pytest.mark.parametrize("blind", ["paddle", "torch"])
@pytest.mark.parametrize("step", ["loss", "learning_rate"])
def test_the_same_framework_on_both_sides_fails(step, blind, monkeypatch, context):
    """The numbers agree to the last bit, and it proves nothing."""
    name, case, dtype = {
        "loss": ("loss_value", LOSS, "float64"),
        "learning_rate": ("learning_rates", SCHEDULE, None),
    }[step]
    sides = {"paddle": paddle_side, "torch": torch_side}
    own = getattr(sides[blind], name)
    for side in sides.values():
        monkeypatch.setattr(side, name, own)
    result = run(step, case, dtype, context)
    assert result.failures == []
    assert not result.passed
    assert result.problems == [f"both sides were computed by {blind}: nothing is proved"]


def test_the_same_framework_in_the_forward_step_fails(monkeypatch):
    """The whole Paddle side replaced by the reference itself."""
    case = ModelCase("qk", options=OPTIONS, train=False)
    monkeypatch.setattr(step_forward, "MODEL_FAULTS", ())
    context = Context()
    pair = context.pair(case, "float64")
    pair.ours_pass = pair.reference_pass
    result = run("forward", case, "float64", context)
    assert result.failures == []
    assert result.problems == ["both sides were computed by torch: nothing is proved"]


def test_the_optimizer_step_feeds_gradients_far_below_epsilon(context):
    pair = context.pair(QK, "float64")
    sizes = np.concatenate(
        [np.abs(g).ravel() for step in optimizer_step.draw_gradients(pair) for g in step.values()]
    )
    assert (sizes < QK.recipe.epsilon).mean() > 0.05
    assert (sizes > 1e-3).mean() > 0.05


@pytest.mark.parametrize("step", ["optimizer", "training"])
def test_a_faulty_run_is_stopped_at_its_pause(step, context, monkeypatch):
    """Nothing after the pause is run: a control costs a part of the run that it belongs to."""
    name, steps = {"optimizer": ("optimize", 5), "training": ("train", BRIEF.steps)}[step]
    right, yielded = getattr(paddle_side, name), []

    def counted(*rest):
        for run in right(*rest):
            yielded.append(run)
            yield run

    monkeypatch.setattr(paddle_side, name, counted)
    result = RUNNERS[step, ModelCase](QK, "float64", context)
    assert result.passed
    early = {"optimizer": "after 1 of 5 steps", "training": f"after 3 of {steps} steps"}[step]
    assert all(early in control.detail for control in result.controls)
    assert len(yielded) == 2 + len(result.controls)


def test_a_fault_that_does_not_show_at_the_pause_is_judged_at_the_end(context, monkeypatch):
    late = dataclasses.replace(QK.recipe, learning_rate=0.0)
    case = dataclasses.replace(QK, name="no rate", recipe=late)
    faults = {"decays": dataclasses.replace(late, weight_decay=0.5), "clips": late}
    monkeypatch.setattr(step_training, "_faults", lambda recipe: faults)
    controls = step_training.run(case, "float64", context).controls
    assert [control.caught for control in controls] == [False, False]
    assert all("after 6 of 6 steps" in control.detail for control in controls)


def test_a_run_that_differs_at_its_pause_fails_the_result(context, monkeypatch):
    """Else a control could be caught there for the run's own fault, whatever was planted."""
    right = paddle_side.train

    def wrong_at_first(*rest):
        first, last = right(*rest)
        yield dataclasses.replace(first, losses=[loss * 2 for loss in first.losses])
        yield last

    monkeypatch.setattr(paddle_side, "train", wrong_at_first)
    result = step_training.run(QK, "float64", context)
    assert not result.passed
    assert [c.name for c in result.failures] == ["losses (after 3 of 6 steps)"]


def test_a_run_shorter_than_its_pause_is_judged_at_its_end():
    assert pauses_before(20, 3) == (3, 20)
    assert pauses_before(3, 3) == (3,)
    assert pauses_before(2, 3) == (2,)


def test_the_training_step_has_a_batch_of_its_own_for_each_forward_pass(context):
    recipe = dataclasses.replace(BRIEF, accumulate=2)
    case = dataclasses.replace(QK, recipe=recipe)
    batches = step_training.make_batches(case, context)
    assert len(batches) == 12
    assert len({batch["input_ids"].tobytes() for batch in batches}) == 12


def test_the_classic_checks_are_gathered(context):
    """The steps above ran in this module's context, in any order."""
    for step in MODEL_STEPS:
        run(step, QK, "float64", context)
    run("loss", LOSS, "float64", context)
    run("metric", METRIC, None, context)
    assert set(context.classic) == {
        "forward_align",
        "metric_align",
        "loss_align",
        "backward_align",
        "train_align",
    }
    for torch_arrays, ours in context.classic.values():
        assert list(torch_arrays) == list(ours)
        assert torch_arrays
