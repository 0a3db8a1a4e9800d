"""The table of cases: covers what the suite promises, with the promised bounds."""

import pytest

from align.cases.kinds.case_kinds import DTYPES, ModelCase, TimmCase
from align.cases.tables.cases import CASES
from align.judge.bounds import TOLERANCES
from align.record.results import STEPS
from sot_paddle.vision_config import TOKEN_TYPES
from sot_torch_ref import list_models

OF_ANY_PAIR = {"weights", "loss", "metric"}
"""Stages of align.compare; here trainers and tests/parity do it."""
BY_PYTEST = {"built", "learning_rate"}  # tests/parity
MODELS = [case for case in CASES if isinstance(case, ModelCase)]
POOLINGS = {"mgcrp", "mgcrp_qk", "gap", "gcp"}
FUSIONS = {"sum_fc", "concat", "aggre_all", "sum_loss", "class_token", "word_tokens"}


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("step", [s for s in STEPS if s not in OF_ANY_PAIR | BY_PYTEST])
def test_every_step_has_cases_in_the_precisions_that_matter(step, quick):
    found = {d for c in CASES if step in c.steps and c.quick >= quick for d in c.dtypes}
    without = ("data", "metric", "learning_rate")
    assert found >= ({None} if step in without else set(DTYPES))


def test_every_head_combination_has_a_case():
    seen = {(c.options.get("pooling"), c.options.get("fusion")) for c in MODELS}
    assert {(p, f) for p in POOLINGS for f in FUSIONS} <= seen
    assert {c.options["pooling"] for c in MODELS if c.subject == "words"} == POOLINGS | {"gcp_text"}


def test_plain_and_second_order_bert_in_both_modes_with_padding():
    for model, masked in (
        ("bert_base", False),
        ("bert_base_mgcrp", False),
        ("bert_base_mgcrp", True),
    ):
        chosen = [
            c
            for c in MODELS
            if c.model == model
            and c.options.get("mask_padding", False) == masked
            and "pooling" not in c.options
            and not (c.batch.sentences or c.batch.corpus)
        ]
        assert {c.train for c in chosen} == {True, False}
        assert all(min(c.batch.lengths) < c.batch.length for c in chosen)
    depths = {c.options.get("num_hidden_layers", 12) for c in MODELS}
    assert {1, 3, 12} <= depths
    assert {"random", "checkpoint"} == {c.weights for c in MODELS}


def test_every_image_model_and_token_embedding_has_a_case():
    images = [c for c in MODELS if c.subject == "images"]
    families = ("sot", "deit", "swin")
    assert {n for n in list_models() if n.startswith(families)} == {c.model for c in images}
    embeddings = {
        (c.options.get("token_type", "densenet"), c.options.get("dense_norm", "none"), c.train)
        for c in images
        if c.model == "sot_tiny"
    }
    kinds = {("densenet", "none"), ("densenet", "bn"), *((t, "none") for t in TOKEN_TYPES)}
    expected = {(*kind, train) for kind in kinds - {("patch", "none")} for train in (True, False)}
    assert expected <= embeddings
    full = {c.model for c in images if "embed_dim" not in c.options and not isinstance(c, TimmCase)}
    assert full == {"sot_tiny", "sot_small", "sot_base"}


def test_the_training_runs_are_long_enough_to_show_a_schedule():
    for case in MODELS:
        if "training" in case.steps and case.subject == "images":
            recipe, epochs = case.recipe, case.recipe.by_epoch
            assert recipe.steps >= 10
            assert 0 < epochs.warmup_epochs * epochs.steps < recipe.steps
            assert recipe.weight_decay > 0
            assert recipe.ema_decay
        elif "training" in case.steps:
            recipe = case.recipe
            assert recipe.steps >= 20
            assert 0 < recipe.warmup_steps < recipe.steps < recipe.total_steps
            assert recipe.weight_decay > 0
            # BERTVision does not clip
            theirs = case.subject == "states" or case.options.get("pooling") == "spans"
            assert (recipe.clip_norm is None) == theirs


@pytest.mark.parametrize("step", ["forward", "backward", "loss"])
def test_the_float64_bounds_are_those_of_the_specification(step):
    rule = TOLERANCES[step, "float64"]
    assert (rule.kind, rule.value) == ("scaled", 1e-10)


def test_the_other_bounds_are_those_of_the_specification():
    assert (TOLERANCES["training", "float64"].kind, TOLERANCES["training", "float64"].value) == (
        "scaled",
        1e-9,
    )
    rates = TOLERANCES["learning_rate", None]
    assert (rates.kind, rates.value) == ("relative", 1e-12)
    assert TOLERANCES["data", None].kind == "exact"
    for step in ("forward", "backward", "loss"):
        rule = TOLERANCES[step, "float32"]
        assert (rule.kind, rule.value, rule.bias) == ("band", 2.0**-20, 0.0)
    assert TOLERANCES["backward", "float32"].norm == "l2"


def test_every_bound_has_a_reason_and_every_model_case_a_bound():
    assert all(len(rule.why) > 15 for rule in TOLERANCES.values())
    judged = {"forward", "backward", "optimizer", "training"}
    for case in MODELS:
        assert all(
            TOLERANCES[step, dtype] for step in judged & {*case.steps} for dtype in case.dtypes
        )
