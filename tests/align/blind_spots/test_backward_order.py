"""A cut or bent gradient is named where it is cut, not at the word embedding."""

import importlib

import numpy as np
import paddle
import pytest

from align.judge.backward_order import say_where_it_ends
from align.judge.comparator import compare_mappings
from align.record.results import Tolerance

CUTS = {  # case: module that records the taps, tap behind which is cut, first wrong, last right
    "bert_mgcrp": (
        "paddlenlp_encoder",
        "layers.1",
        "bert.encoder.layers.1.norm2",
        "bert.encoder.layers.2",
    ),
    "deit_plain": ("vit", "blocks.0", "blocks.0.mlp.fc2", "blocks.1.norm1"),
    "sot_densenet": ("vit", "blocks.0", "blocks.0.mlp.fc2", "blocks.1.norm1"),
    "swin_small_window": ("swin", "stages.0.blocks.1", "stages.0.blocks.1.mlp.fc2", "stages.1"),
}


class Doubled(paddle.autograd.PyLayer):
    """Identity with twice the gradient."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return 2.0 * gradient


def behind(monkeypatch, module, tap, change):
    """Change a tensor after it was recorded as a tap: the forward pass stays as it is."""
    place = importlib.import_module(f"sot_paddle.backbones.{module}")
    original = place.record

    def record(taps, name, value):
        recorded = original(taps, name, value)
        return change(recorded) if name == tap else recorded

    monkeypatch.setattr(place, "record", record)


@pytest.mark.parametrize("case", CUTS)
@pytest.mark.parametrize("change", [lambda x: x.detach(), Doubled.apply], ids=["cut", "doubled"])
def test_a_gradient_that_goes_wrong_in_the_middle_is_placed_there(
    case, change, run_case, failed, monkeypatch
):
    module, tap, first_wrong, last_right = CUTS[case]
    behind(monkeypatch, module, tap, change)
    result = run_case(case, "backward", "float64")
    taps = [name for name in failed(result) if name.startswith("gradient at ")]
    assert not taps or taps[0] == f"gradient at {tap}"  # of a cut one only one side knows
    first = next(c for c in result.failures if c.name not in taps)
    assert first.name.startswith(first_wrong)
    said = f"the last right gradient is of {last_right}"
    assert said in first.reason
    assert f"the first wrong one of {first_wrong}" in first.reason
    behind_it = [name for name in failed(result) if name.startswith(last_right)]
    assert behind_it == []
    assert run_case(case, "forward", "float64").failures == []


def test_nothing_is_said_of_a_clean_run(run_case):
    result = run_case("bert_mgcrp", "backward", "float64")
    assert result.passed
    names = [comparison.name for comparison in result.comparisons]
    parameters = [name for name in names if not name.startswith("gradient at ")]
    assert parameters[:2] == ["loss", "head.cls_fc.bias"]
    assert parameters[-1] == "bert.embeddings.word_embeddings.weight"
    taps = [name.removeprefix("gradient at ") for name in names if name not in parameters]
    assert taps.index("head.covariance") < taps.index("layers.2") < taps.index("layers.0")


def test_a_gradient_of_one_side_alone_is_not_taken_for_a_place():
    rule = Tolerance("scaled", 1e-10, "a rule for these tests")
    right, extra = {"b.weight": np.ones(2)}, {"b.weight": np.ones(2), "c.weight": np.ones(2)}
    found = list(say_where_it_ends(compare_mappings(extra, right, rule), right))
    assert [c.reason for c in found] == ["", "missing on the PyTorch side"]
