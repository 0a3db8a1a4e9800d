"""Faults in dropout and stochastic depth: caught, at the layer and the property that is wrong."""

import numpy as np
import pytest
from paddle import nn

from align.cases.tables.cases_models import DRAWN
from align.cases.values.dropped_values import Draws, DroppedDraw
from sot_paddle.backbones import bert, layers, swin, vit
from sot_paddle.heads import factory
from sot_paddle.ops import layers as native

SAMPLE, BATCH = "(one value for a whole sample)", "(one mask for all samples)"
EVALUATION = "(draws in evaluation)"
VIT, SWIN, BERT = (f"drawn_{model} forward float64" for model in ("vit", "swin", "bert"))
ONE_EACH, RATE = "[x.shape[0]] + [1] * (x.ndim - 1)", "rate * index / max(depth - 1, 1)"
PATH = (layers.DropPath, "forward")

CHANGES = [  # what fails is all of the layer, at least once of the kind
    *(
        (job, *PATH, *change)
        for job in (VIT, SWIN)
        for change in (
            ("1.0 - self.rate", "1.0 - min(2 * self.rate, 0.9)", "drop_path", "dropped"),
            ("x / keep * kept", "x * kept", "drop_path", "scale"),
            (ONE_EACH, "x.shape", "drop_path", SAMPLE),
            (ONE_EACH, "[*x.shape[:2], 1]", "drop_path", SAMPLE),
            (ONE_EACH, "[1] * x.ndim", "drop_path", ""),  # all or none: it may drop nothing
        )
    ),
    *(
        (VIT, vit, "drop_path_rates", RATE, other, "drop_path", "")
        for other in (
            *("rate", "rate * index / depth", "rate * (depth - 1 - index) / (depth - 1)"),
            "0.0",
        )
    ),
    (SWIN, swin.SwinStage, "__init__", "enumerate(rates)")
    + ("enumerate(drop_path_rates(0.4, len(rates)))", "drop_path", "dropped"),  # .4 instead of .2
    *(
        (VIT, layers.Mlp, "__init__", "nn.Dropout(drop)", other, ".mlp.drop", kind)
        for other, kind in (
            ("nn.Dropout(2 * drop)", "dropped"),
            ('nn.Dropout(drop, mode="downscale_in_infer")', "scale"),
            ("nn.Dropout(drop, axis=0)", SAMPLE),
            ("nn.Identity()", BATCH),
        )
    ),
    (VIT, layers.Attention, "__init__", "Dropout(attn_drop)", "Dropout(0.2)", ".attn_drop", ""),
    ("drawn_vit_pooler forward float64", vit.VisionTransformer, "__init__")
    + ("pooler_dropout=backbone.drop_rate", "pooler_dropout=0.0", "head.dropout", ""),
    *(
        (BERT, bert.BertEncoder, "__init__", "**paddlenlp_options(config)")
        + (f"**{{**paddlenlp_options(config), '{option}': 0.1}}", layer, "dropped")
        for option, layer in (
            ("hidden_dropout_prob", "dropout"),
            ("attention_probs_dropout_prob", "self_attn"),
        )
    ),
]


@pytest.mark.parametrize("case", [case.name for case in DRAWN])
def test_the_shares_are_few(case, run_case):
    result = run_case(case, "forward", "float64")
    assert (result.failures, result.problems) == ([], [])
    assert len(result.comparisons) < 200  # shares are two of five: what the false alarms count on


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: f"{change[0]} {change[4]}")
def test_a_change_is_caught_at_its_layer(caught, change):
    *planted, layer, kind = change
    names = caught(*planted, "*")
    assert all(layer in name or name == EVALUATION for name in names), names
    assert any(name.endswith(kind) for name in names), names


def test_stochastic_depth_in_evaluation_too(caught):
    change = ("not self.training or self.rate == 0.0", "self.rate == 0.0")
    assert caught(VIT, *PATH, *change, EVALUATION) == [EVALUATION]


def test_dropout_in_evaluation_too(run_case, failed, monkeypatch):
    def always(self, x):
        return nn.functional.dropout(x, self.p, training=True)

    monkeypatch.setattr(native.Dropout, "forward", always)
    for job in (VIT, BERT):
        assert failed(run_case(*job.split()))[0] == EVALUATION


def test_the_rate_of_a_head_that_is_not_given(run_case, failed, monkeypatch):
    monkeypatch.setattr(factory, "TEXT_DROPOUT", 0.7)
    kinds = ("dropped", "agreeing", "scale")
    expected = [f"head.dropout {kind}" for kind in kinds]
    assert failed(run_case("drawn_bert_mgcrp", "forward", "float64")) == expected


def test_an_input_of_zero_says_nothing():
    before = np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 4.0]])
    draws = Draws()
    draws.note(before, before)
    assert draws.found == {}
    draws.note(before, 2.0 * before * np.array([[1.0], [0.0]]))
    draw = draws.found["(the model)"]
    assert (draw.scales, draw.shared(0), draw.shared(1)) == ((2.0, 2.0), False, True)
    assert draw.of_samples().kept.tolist() == [[True], [False]]
    assert not DroppedDraw(np.array([[True, False]]), np.array([[True, True]]), (1.0, 1.0)).shared(
        1
    )
