"""Defaults of options, optimizers, formulas, and tables of tasks: each change is placed."""

import dataclasses
from pathlib import Path

import paddle
import pytest

from align.cases.sides import command_defaults
from align.cases.tables.cases_built import BUILT
from sot_paddle import config, functional, vision_config
from sot_paddle.data import glue_tasks
from sot_paddle.heads import fusion
from sot_paddle.tasks import glue_options as arguments
from sot_paddle.tasks import image_options as image_arguments
from sot_paddle.tasks import losses
from sot_paddle.train import image_command, optimizer, schedule, text_command

CASES = {case.name: case for case in BUILT}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("beta2: float = 0.999", "beta2: float = 0.99", "betas (0.9, 0.99) against (0.9, 0.999)"),
        ("epsilon: float = 1e-6", "epsilon: float = 1e-8", "eps 1e-08 against 1e-06"),
        ("bias: bool = True", "bias: bool = False", "correct_bias False against True"),
        ("decay: float = 0.0", "decay: float = 0.01", "weight_decay 0.01 against 0.0"),
    ],
)
def test_defaults_of_the_text_optimizer(caught, old, new, said):
    planted = (optimizer.HFAdamW, "__init__", old, new)
    caught("defaults_hf_adamw built", *planted, "(optimizer)", said)


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("opt_betas", (0.9, 0.99), "(0.9, 0.99) against (0.9, 0.999)"),
        ("opt_eps", 1e-6, "1e-06 against 1e-08"),
        ("weight_decay", 0.05, "listed as 0.03 against 0.05, found 0.05 against 0.05"),
        ("mixup_switch_prob", 0.4, "0.4 against 0.5"),
        ("model_ema_decay", 0.9999, "0.9999 against 0.99996"),
    ],
)
def test_defaults_of_image_flags(change_default, places, option, value, said):
    change_default(image_arguments.ImageTrainConfig, option, value)
    names, reasons = places("defaults_image_flags")
    assert option in names[0]
    assert len(names) == 1
    assert said in reasons


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("adam_epsilon", 1e-6),
        ("weight_decay", 0.01),
        ("max_seq_length", 512),
        ("seed", 0),
        ("wr_dim", 16),
        ("head_num_heads", 8),
        ("mask_padding", True),
        ("optimizer", "adamw"),
    ],
)
def test_defaults_of_text_flags(change_default, places, option, value):
    change_default(arguments.TrainConfig, option, value)
    names, reasons = places("defaults_text_flags")
    assert names == [option]
    assert f"{value!r} against" in reasons


def test_an_option_that_nobody_announced(run_case, failed):
    own = tuple(name for name in CASES["defaults_text_flags"].given["own"] if name != "seeds")
    result = run_case("defaults_text_flags", "built", own=own)
    assert failed(result) == ["seeds"]
    result = run_case("defaults_text_flags", "built", own=(*own, "seeds", "gone"))
    assert failed(result) == ["gone"]


@pytest.mark.parametrize(
    ("case", "record", "option", "value"),
    [
        ("defaults_head", config.HeadConfig, "head_num_heads", 8),
        ("defaults_head", config.HeadConfig, "wr_dim", 16),
        ("defaults_head", config.HeadConfig, "mpn_iter", 5),
        ("defaults_encoder", config.EncoderConfig, "layer_norm_eps", 1e-5),
        ("defaults_vit", vision_config.ViTConfig, "layer_norm_eps", 1e-6),
        ("defaults_swin", vision_config.SwinConfig, "window_size", 8),
        ("defaults_epochs", schedule.EpochRates, "min_lr", 1e-6),
    ],
)
def test_defaults_of_records(change_default, places, case, record, option, value):
    change_default(record, option, value)
    names, reasons = places(case)
    assert len(names) == 1
    assert option in names[0]
    assert f"default {value!r} against" in reasons


def test_a_default_inside_a_formula(caught):
    planted = (functional, "entrywise_power_norm", "eps: float = 1e-8", "eps: float = 1e-5")
    caught("defaults_functions built", *planted, "entrywise_power_norm(eps)")


def test_a_default_of_a_class_that_both_packages_have(monkeypatch, places):
    monkeypatch.setitem(fusion.WordHead.__init__.__kwdefaults__, "dropout", 1.0)
    assert places("defaults_shared_names")[0] == ["WordHead(dropout)"]


def test_a_default_that_a_library_gives_another_name(monkeypatch, places):
    monkeypatch.setattr(losses.image_loss, "__defaults__", (0.1,))
    names, reasons = places("defaults_counterparts")
    assert names == ["tasks.losses image_loss smoothing"]
    assert "default 0.1 against 0.0" in reasons


# Tables of the tasks


@pytest.mark.parametrize(
    ("task", "changes", "said"),
    [
        (
            "mrpc",
            {"metrics": ("f1", "acc_and_f1", "acc")},
            "metrics ('f1', 'acc_and_f1', 'acc') against ('acc', 'f1', 'acc_and_f1')",
        ),
        ("mnli", {"labels": ("entailment", "neutral", "contradiction")}, "labels ('entailment'"),
        ("qnli", {"text": ("sentence", "question")}, "text ('sentence', 'question')"),
        ("sts-b", {"labels": ("0", "1")}, "outputs 2 against 1"),
        ("sts-b", {"score_range": (1.0, 5.0)}, "scores (1.0, 5.0) against (0.0, 5.0)"),
    ],
)
def test_one_entry_of_the_table_of_tasks(monkeypatch, places, task, changes, said):
    table = {**glue_tasks.TASKS, task: dataclasses.replace(glue_tasks.TASKS[task], **changes)}
    monkeypatch.setattr(command_defaults, "TASKS", table)
    names, reasons = places("tables_glue_tasks")
    assert names == [task]
    assert said in reasons


def test_one_published_setting_of_the_head(monkeypatch, places):
    table = {**arguments.MGCRP_BY_TASK, "CoLA": arguments.MGCRP_BY_TASK["RTE"]}
    monkeypatch.setattr(arguments, "MGCRP_BY_TASK", table)
    names, reasons = places("tables_head_settings")
    assert names == ["CoLA"]
    assert "q_dim 56 against 96" in reasons


def test_a_configuration_of_a_published_model(monkeypatch, places):
    read = command_defaults.load_yaml

    def changed(path):
        return {**read(path), "weight_decay": 0.03}

    monkeypatch.setattr(command_defaults, "load_yaml", changed)
    names, reasons = places("defaults_image_recipes")
    assert names == ["sot_base"]
    assert "weight_decay 0.03 against 0.065" in reasons


def test_a_configuration_of_a_published_text_run(monkeypatch, places):
    read = command_defaults.load_yaml

    def changed(path):
        return {**read(path), "learning_rate": 2e-5}

    monkeypatch.setattr(command_defaults, "load_yaml", changed)
    names, reasons = places("defaults_text_recipes")
    assert names == ["QNLI (base)", "QNLI (large)"]
    assert "learning_rate 2e-05 against 3e-05" in reasons


@pytest.mark.parametrize(
    ("trainer", "rule"), [("image_command", optimizer.decayed_names), ("text_command", None)]
)
def test_what_the_trainers_build(monkeypatch, places, trainer, rule):
    if rule is not None:
        monkeypatch.setattr(image_command, "decayed_names_by_shape", rule)
        names, _ = places("defaults_trainers")
        assert names == ["images"]
    else:
        monkeypatch.setitem(text_command.OPTIMIZERS, "hf_adamw", paddle.optimizer.AdamW)
        names, reasons = places("defaults_trainers")
        assert names == ["text"]
        assert "optimizer 'AdamW' against 'HFAdamW'" in reasons


def test_the_trainers_of_the_unchanged_product_pass(run_case):
    assert run_case("defaults_trainers", "built").passed


def test_every_deliberate_difference_is_in_the_docs():
    text = (Path(__file__).parents[3] / "docs" / "differences.md").read_text(encoding="utf-8")
    listed = [one for case in BUILT for one in case.given.get("differences", ())]
    assert {one.name for one in listed} > {"weight_decay", "pooling"}
    assert [one.name for one in listed if f"`{one.name}`" not in text] == []
    assert all(one.why for one in listed)
