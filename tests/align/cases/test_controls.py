"""Planted faults: each changes the model, each is undone bit by bit, none is caught for nothing."""

import numpy as np
import pytest

from align.cases import planted_controls
from align.cases.kinds.case_kinds import Batch, ImageBatch, ModelCase
from align.cases.model_pair import ModelPair
from align.cases.planted_controls import MODEL_FAULTS, ModelFault, planted, put
from align.cases.tables.cases import CASES
from align.judge.comparator import compare_mappings
from align.record.results import Tolerance
from align.stages.stages import judged_control
from tests.align import tiny_bert
from tests.certificate.faults import ROWS

OPTIONS = {**tiny_bert.OPTIONS, "head_num_heads": 2, "wr_dim": 4, "qkv_dim": 3}
IMAGES = {
    "sot": ("sot_tiny", {"img_size": 16, "embed_dim": 12, "depth": 1, "num_heads": 3}),
    "swin": (
        "swin_tiny",
        {"img_size": 24, "window_size": 3, "embed_dim": 8, "depths": (2,), "num_heads": (2,)},
    ),
}
STATES = ("adapter_classifier", "layer_classifiers")
BACKBONES = ("pooler", "mgcrp", "mgcrp_qk", "gcp_text", "layers", *IMAGES)
KINDS = (*BACKBONES, *STATES)
APPLIES = {
    "layer_norm_epsilon": BACKBONES,
    "square_weight_transposed": (*BACKBONES, "adapter_classifier"),
    "w_and_r_swapped": ("mgcrp", "sot"),
    "svpn_exponent": ("mgcrp", "mgcrp_qk", "sot"),
    "activation_exchanged": ("gcp_text",),
    "upper_triangle_by_columns": ("gcp_text",),
    "matrix_root_skipped": ("gcp_text",),
    "token_norm_epsilon": ("mgcrp_qk", "gcp_text", "sot"),
    "attention_query_and_key_swapped": ("sot", "swin"),
    "positions_off_by_one": ("sot",),
    "swin_windows_not_shifted": ("swin",),
    "pooler_bias_shifted": ("pooler",),
    "class_token_of_the_layer_before": ("layers",),
    "layers_before_widths": ("adapter_classifier",),
    "probe_of_the_next_layer": ("layer_classifiers",),
    "classifier_bias_shifted": KINDS,
    "token_norm_biased_running_variance": (),  # in training mode only, see the test of its own
    "gradient_tripled_in_a_layer_without_parameters": (*BACKBONES, "adapter_classifier"),
}
RULE = Tolerance("scaled", 1e-10, "a rule for these tests")


def make(kind, *, train=False):
    if kind in IMAGES:
        name, options = IMAGES[kind]
        batch = ImageBatch(samples=2, size=options["img_size"])
        case = ModelCase("tiny", name, options, subject="images", train=train, batch=batch)
        return ModelPair(case, "float64")
    if kind in STATES:
        options = {"num_layers": 3, "hidden_size": 5, "seq_length": 4, "adapter_dim": 5}
        batch = Batch(lengths=(4, 4), length=4)
        case = ModelCase("tiny", kind, options, subject="states", train=False, batch=batch)
        return ModelPair(case, "float64")
    return make_text(kind)


def make_text(pooling):
    name = "bert_base" if pooling in ("pooler", "layers") else "bert_base_mgcrp"
    own = {"layers": (1,), "num_hidden_layers": 2} if pooling == "layers" else {}
    # eval mode: a second pass must give the same taps
    act = "silu" if pooling == "gcp_text" else "gelu"
    case = ModelCase(
        "tiny", name, {**OPTIONS, "pooling": pooling, "hidden_act": act, **own}, train=False
    )
    return ModelPair(case, "float64")


def fingerprint(model):
    """Every parameter and buffer as bytes, and the attributes that faults touch."""
    state = {name: tensor.numpy().tobytes() for name, tensor in model.state_dict().items()}
    for name, layer in model.named_sublayers():
        for attribute in ("_epsilon", "epsilon", "alpha", "shift", "activation", "layers"):
            if hasattr(layer, attribute):
                state[f"{name}.{attribute}"] = getattr(layer, attribute)
        for method in ("forward", "scores", "_update_running"):
            state[f"{name}.{method}"] = getattr(type(layer), method, None)
    return state


def differing(clean, found):
    """Names of the arrays that are not the same in every bit."""
    return [name for name in clean if not np.array_equal(found[name], clean[name])]


def test_the_table_of_these_tests_names_every_fault():
    assert [fault.name for fault in MODEL_FAULTS] == list(APPLIES)


NOT_IN_THE_CATALOGUE = (
    "activation_exchanged",
    "matrix_root_skipped",
    "swin_windows_not_shifted",
    "pooler_bias_shifted",
    "layers_before_widths",
    "class_token_of_the_layer_before",
    "probe_of_the_next_layer",
    "classifier_bias_shifted",
    "adam_bias_corrected",
    "adamw_of_the_other_library",
    "moving_average_slower",
    "warm_up_one_step_longer",
    "warm_up_one_epoch_longer",
    "schedule_stepped_every_step",
    "decay_by_the_other_rule",
)
"""Faults that only a model or a recipe of this project can have, or that no scene is needed for."""


def test_names_are_those_of_the_catalogue_or_listed() -> None:
    recipes = [case.recipe for case in CASES if isinstance(case, ModelCase)]
    steps = [(step, one) for one in recipes for step in ("optimizer", "training")]
    names = {name for one in steps for name in planted_controls.recipe_faults(*one)}
    names |= {fault.name for fault in MODEL_FAULTS}
    assert names - set(ROWS) == set(NOT_IN_THE_CATALOGUE)


def test_a_biased_running_variance_shows_in_the_statistics_alone():
    pair = make("sot", train=True)
    model, clean = pair.model, pair.ours
    (fault,) = (f for f in MODEL_FAULTS if f.name == "token_norm_biased_running_variance")
    before = fingerprint(model)
    with planted(fault, model) as where:
        assert where == "embed.blocks.1.norm"
        found = pair.run_ours()
    assert differing(clean.state, found.state) == [f"{where}.running_var"]
    assert differing(pair.outputs(clean), pair.outputs(found)) == []
    assert differing(clean.gradients, found.gradients) == []
    assert fingerprint(model) == before


@pytest.mark.parametrize("pooling", KINDS)
def test_each_fault_shows_and_is_undone_bit_by_bit(pooling):
    pair = make(pooling)
    model, clean = pair.model, pair.ours
    before = fingerprint(model)
    for fault in MODEL_FAULTS:
        with planted(fault, model) as where:
            assert (where is not None) == (pooling in APPLIES[fault.name]), fault.name
            if where is None:
                continue
            assert fingerprint(model) != before
            found = pair.run_ours()
        changed = differing(pair.outputs(clean), pair.outputs(found))
        assert bool(changed) != fault.backward_only, fault.name
        lost = set(clean.gradients) - set(found.gradients)  # of a layer that is not used
        assert lost or differing(clean.gradients, found.gradients), fault.name
        assert fingerprint(model) == before, fault.name
    again = pair.run_ours()
    assert differing(pair.outputs(clean), pair.outputs(again)) == []
    assert differing(clean.gradients, again.gradients) == []


def test_a_fault_is_undone_when_the_faulty_run_stops_with_an_error():
    model = make("mgcrp").model
    before = fingerprint(model)

    def stop():
        raise RuntimeError("stopped")

    for fault in MODEL_FAULTS:
        with pytest.raises(RuntimeError, match="stopped"), planted(fault, model):
            stop()
        assert fingerprint(model) == before


def test_a_fault_says_where_it_was_planted():
    model = make("mgcrp").model
    names = {name for name, _ in model.named_sublayers()}
    for fault in MODEL_FAULTS:
        with planted(fault, model) as where:
            assert where is None or where in names


def test_what_float32_cannot_see_is_not_asked_for_and_one_fault_is_backward_only():
    in_float64 = ["layer_norm_epsilon", "token_norm_biased_running_variance"]
    assert [f.name for f in MODEL_FAULTS if "float32" not in f.dtypes] == in_float64
    assert [f.name for f in MODEL_FAULTS if f.backward_only] == [
        "gradient_tripled_in_a_layer_without_parameters"
    ]
    assert ModelFault("x", lambda model: None, put).dtypes == ("float64", "float32")


def comparisons(ours):
    reference = {"small": np.arange(3.0), "large": np.arange(1.0, 21).reshape(4, 5) / 7}
    return compare_mappings(ours, reference, RULE)


def test_judge_calls_a_control_caught_only_when_a_comparison_failed():
    right = {"small": np.arange(3.0), "large": np.arange(1.0, 21).reshape(4, 5) / 7}
    missed = judged_control("nothing", comparisons(right), "here")
    assert (missed.caught, missed.located) == (False, "")
    caught = judged_control(
        "a fault", comparisons({**right, "small": np.arange(3.0) + 1e-3}), "here"
    )
    assert (caught.caught, caught.located) == (True, "small")
    assert caught.detail.startswith("here: differs by")
    assert not judged_control("nothing at all", [], "here").caught


def test_judge_asks_for_no_comparison_after_the_first_that_failed():
    right = {"small": np.arange(3.0), "large": np.arange(1.0, 21).reshape(4, 5) / 7}
    passing, failing = comparisons(right)[0], comparisons({**right, "small": np.ones(3)})[0]

    def one_by_one():
        yield passing
        yield failing
        pytest.fail("judged further than needed")

    assert judged_control("a fault", one_by_one(), "here").located == "small"
