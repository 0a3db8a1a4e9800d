"""Faults in dropout and stochastic depth: caught, at the layer and the property that is wrong."""

import numpy as np
import paddle
import pytest
from paddle import nn

from align.cases.tables.cases_models import DRAWN
from align.cases.values.dropped_values import Draws, DroppedDraw
from sot_paddle.backbones import bert, layers, swin, vit
from sot_paddle.heads import factory

SAMPLE, BATCH = "(one value for a whole sample)", "(one mask for all samples)"
EVALUATION = "(draws in evaluation)"


@pytest.fixture
def wrong(run_case, failed):
    """The failing comparisons of a case."""
    return lambda case: failed(run_case(case, "forward", "float64"))


@pytest.mark.parametrize("case", [case.name for case in DRAWN])
def test_the_cases_pass_as_the_product_is(case, run_case):
    result = run_case(case, "forward", "float64")
    assert (result.failures, result.problems) == ([], [])
    assert len(result.comparisons) < 200  # shares are two of five: what the false alarms count on


def dropping(monkeypatch, change, layer=layers.DropPath):
    monkeypatch.setattr(layer, "forward", change)


def drop(x, rate, shape, *, scaled=True):
    kept = paddle.floor(1 - rate + paddle.rand(shape, dtype="float32")).astype(x.dtype)
    return x * kept / (1 - rate if scaled else 1)


def per_sample(x):
    return [len(x)] + [1] * (x.ndim - 1)


PATHS = {
    "doubled": (lambda s, x: drop(x, min(2 * s.rate, 0.9), per_sample(x)), "dropped"),
    "not scaled": (lambda s, x: drop(x, s.rate, per_sample(x), scaled=False), "scale"),
    "for each element": (lambda s, x: drop(x, s.rate, x.shape), SAMPLE),
    "for the whole batch": (lambda s, x: drop(x, s.rate, [1] * x.ndim), BATCH),
    "for each token": (lambda s, x: drop(x, s.rate, [*x.shape[:2], 1]), SAMPLE),
}


@pytest.mark.parametrize("change", PATHS)
@pytest.mark.parametrize("case", ["drawn_vit", "drawn_swin"])
def test_stochastic_depth_of_another_kind(change, case, wrong, monkeypatch):
    forward, what = PATHS[change]
    dropping(monkeypatch, lambda s, x: forward(s, x) if s.training and s.rate else x)
    found = wrong(case)
    if change == "for the whole batch":  # all or none: it may also have dropped nothing
        assert found[0].startswith(("blocks.1.drop_path", "stages.0.blocks.1.drop_path"))
    else:
        assert any("drop_path" in name and name.endswith(what) for name in found)
    assert all("drop_path" in name for name in found)


def test_stochastic_depth_in_evaluation_too(wrong, monkeypatch):
    dropping(monkeypatch, lambda s, x: drop(x, s.rate, per_sample(x)) if s.rate else x)
    assert wrong("drawn_vit") == [EVALUATION]


@pytest.mark.parametrize(
    ("rates", "first"),
    [
        (lambda rate, depth: [rate] * depth, "blocks.0.drop_path"),
        (lambda rate, depth: [rate * i / depth for i in range(depth)], "blocks.1.drop_path"),
        (lambda rate, depth: [rate * i / (depth - 1) for i in range(depth)][::-1], "blocks."),
        (lambda rate, depth: [0.0] * depth, "blocks.1.drop_path"),
    ],
    ids=["constant", "short of the last", "backwards", "lost"],
)
def test_rates_given_to_other_blocks(rates, first, wrong, monkeypatch):
    monkeypatch.setattr(vit, "drop_path_rates", rates)
    found = wrong("drawn_vit")
    assert any(name.startswith(first) for name in found)
    assert all("drop_path" in name for name in found)


def test_rates_that_begin_anew_in_each_stage(wrong, monkeypatch):
    right = swin.SwinStage.__init__

    def build(self, config, *, rates, **more):
        right(self, config, rates=layers.drop_path_rates(0.4, len(rates)), **more)

    monkeypatch.setattr(swin.SwinStage, "__init__", build)
    found = wrong("drawn_swin")
    assert found[0] == "stages.0.blocks.1.drop_path dropped"  # .4 instead of .2
    assert all("drop_path" in name for name in found)


def built_otherwise(monkeypatch, layer, **changes):
    right = layer.__init__

    def build(self, *args, **options):
        right(self, *args, **options)
        for name, change in changes.items():
            setattr(self, name, change(getattr(self, name)))

    monkeypatch.setattr(layer, "__init__", build)


def test_a_dropout_rate_doubled_or_lost_or_not_scaled(wrong, monkeypatch):
    kinds = {
        "dropped": lambda layer: nn.Dropout(2 * layer.p),
        "scale": lambda layer: nn.Dropout(layer.p, mode="downscale_in_infer"),
        SAMPLE: lambda layer: nn.Dropout(layer.p, axis=0),
        BATCH: lambda layer: nn.Identity(),
    }
    for what, change in kinds.items():
        with monkeypatch.context() as here:
            built_otherwise(here, layers.Mlp, drop=change)
            found = wrong("drawn_vit")
            assert any(".mlp.drop" in name and name.endswith(what) for name in found), what
            assert all(".mlp.drop" in name or name == EVALUATION for name in found)


def test_the_rate_of_another_option(wrong, monkeypatch):
    built_otherwise(monkeypatch, layers.Attention, attn_drop=lambda layer: nn.Dropout(0.2))
    assert {name.split(" ")[0].rpartition(".")[2] for name in wrong("drawn_vit")} == {"attn_drop"}


def test_dropout_in_evaluation_too(wrong, monkeypatch):
    def always(self, x):
        return nn.functional.dropout(x, self.p, training=True)

    dropping(monkeypatch, always, nn.Dropout)
    assert wrong("drawn_vit")[0] == EVALUATION
    assert wrong("drawn_bert")[0] == EVALUATION


def test_the_rate_of_a_head_that_is_not_given(wrong, monkeypatch):
    monkeypatch.setattr(factory, "TEXT_DROPOUT", 0.7)
    assert wrong("drawn_bert_mgcrp") == ["head.dropout dropped", "head.dropout agreeing",
                                         "head.dropout scale"]  # fmt: skip


def test_the_pooler_of_images_without_the_encoder_s_dropout(wrong, monkeypatch):
    right = vit.build_head
    monkeypatch.setattr(vit, "build_head", lambda h, **o: right(h, **{**o, "pooler_dropout": 0.0}))
    found = wrong("drawn_vit_pooler")
    assert found
    assert all(name.startswith("head.dropout") for name in found)


@pytest.mark.parametrize(
    ("option", "layer"),
    [
        ("hidden_dropout_prob", "bert.embeddings.dropout"),
        ("attention_probs_dropout_prob", "bert.encoder.layers.0.self_attn"),
    ],
)
def test_a_rate_of_the_text_encoder_ignored(option, layer, wrong, monkeypatch):
    right = bert.BertConfig
    monkeypatch.setattr(bert, "BertConfig", lambda **f: right(**{**f, option: 0.1}))
    assert wrong("drawn_bert")[0] == f"{layer} dropped"


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
