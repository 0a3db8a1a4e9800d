"""Changes of the trainer, planted in the product: each is placed at the step where it begins."""

from __future__ import annotations

import textwrap

import paddle
import pytest

from align.cases.sides import trainer_program
from align.cases.values import trainer_values
from sot_paddle.train import exact_state
from sot_paddle.train.callbacks import StepCount
from sot_paddle.train.trainer import ExactTrainer

pytestmark = pytest.mark.slow

HERE = "trainer_interrupted_between_epochs"
TWICE = "trainer_interrupted_twice"
TWO = "trainer_unequal_2_processes"


def failed_first(result):
    return next(c for c in result.comparisons if not c.passed)


def test_an_interrupted_run_is_the_references_uninterrupted_one(run_case) -> None:
    """The case that ``python -m align --quick`` leaves out."""
    dtype, mode = paddle.get_default_dtype(), paddle.seed(7).random()
    result = run_case(TWICE, "training", "float64")
    assert result.passed, result.problems
    assert result.note == "4 optimizer steps, 1 process(es)"
    assert result.comparisons[0].name == "first step: gradient/head.cls_fc.bias"
    assert run_case(TWICE, "learning_rate", "float64").passed
    assert paddle.get_default_dtype() == dtype
    assert mode == paddle.seed(7).random()


def test_an_accumulation_that_is_not_averaged(run_case, failed, monkeypatch) -> None:
    original = ExactTrainer.compute_loss
    monkeypatch.setattr(
        ExactTrainer, "compute_loss", lambda self, *given: 2 * original(self, *given)
    )
    first = failed_first(run_case(HERE, "training", "float64"))
    assert first.name == "first step: gradient/head.cls_fc.bias"
    assert first.hint == (
        "the reference does the same with: a sum instead of the mean of the micro-batches"
    )


def test_an_accumulation_that_forgets(run_case, monkeypatch) -> None:
    original = ExactTrainer.training_step

    def step(self, model, inputs, *rest):
        for parameter in model.parameters():
            parameter.clear_gradient(False)
        return original(self, model, inputs, *rest)

    monkeypatch.setattr(ExactTrainer, "training_step", step)
    first = failed_first(run_case(HERE, "training", "float64"))
    assert first.name == "first step: gradient/head.cls_fc.bias"
    assert first.hint.endswith("the last micro-batch only")


def test_moments_that_are_lost_on_the_way(run_case, failed, monkeypatch) -> None:
    monkeypatch.setattr(exact_state, "restore_optimizer", lambda *given: None)
    found = failed(run_case(HERE, "training", "float64"))
    assert found
    assert not any(name.startswith("first step") for name in found)
    assert run_case(HERE, "learning_rate", "float64").passed


def test_micro_batches_carried_over_that_are_lost_on_the_way(run_case, failed, monkeypatch) -> None:
    monkeypatch.setattr(ExactTrainer, "begin_epoch", lambda self: None)
    found = failed(run_case(HERE, "training", "float64"))
    assert found
    assert not any(name.startswith("first step") for name in found)


@pytest.fixture
def unset_schedule(monkeypatch) -> None:
    """The Trainer's own steps of the schedule alone, which no run's step corrects."""
    monkeypatch.setattr(StepCount, "on_step_end", lambda self, *given, **state: None)


def test_a_schedule_that_begins_anew(run_case, unset_schedule, monkeypatch) -> None:
    monkeypatch.setattr(paddle.optimizer.lr.LambdaDecay, "set_state_dict", lambda self, state: None)
    first = failed_first(run_case(HERE, "learning_rate", "float64"))
    assert first.name == "learning rates"
    assert first.hint.endswith("with: a schedule begun anew after step 2")


def test_a_schedule_that_is_stepped_twice(run_case, unset_schedule, monkeypatch) -> None:
    monkeypatch.setattr(ExactTrainer, "after_step", lambda self: self.lr_scheduler.step())
    first = failed_first(run_case(HERE, "learning_rate", "float64"))
    assert first.name == "learning rates"
    assert first.hint.endswith("with: a schedule stepped twice each step")


PLANTS = {
    "shares fixed to 1": """
        from sot_paddle.train.feeding import MicroBatches
        MicroBatches.weight = lambda self, epoch, batch: 1.0
    """,
    "the gradients of process 0 only, not reduced": """
        from sot_paddle.train.trainer import ExactTrainer
        ExactTrainer._wrap_model = lambda self, model, training=True: model
    """,
}


@pytest.mark.parametrize("name", PLANTS)
def test_processes_that_are_put_together_wrongly(run_case, monkeypatch, tmp_path, name) -> None:
    program = tmp_path / "planted.py"
    begin = ["import sys", "from align.cases.sides import trainer_worker"]
    lines = [*begin, textwrap.dedent(PLANTS[name])]
    program.write_text("\n".join([*lines, "sys.exit(trainer_worker.main())"]), encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(trainer_program.WORKER.parents[3]))
    monkeypatch.setattr(trainer_program, "WORKER", program)
    first = failed_first(run_case(TWO, "training", "float64", epochs=1))
    assert first.name == "first step: gradient/head.cls_fc.bias"
    assert first.hint == f"the reference does the same with: {name}"


def test_edits_are_those_that_change_something() -> None:
    assert trainer_values.weight_edits([[4]]) == {}
    assert set(trainer_values.weight_edits([[2], [2]])) == {
        "a sum instead of the mean of the micro-batches",
        "the last micro-batch only",
    }
    assert "shares fixed to 1" not in trainer_values.weight_edits([[2, 2]])
    assert "shares fixed to 1" in trainer_values.weight_edits([[2, 1]])
