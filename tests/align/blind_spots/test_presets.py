"""Presets, and what a model holds before weights are loaded: each change is placed."""

import re

import numpy as np
import paddle
import pytest
from paddle import nn

from align.cases.tables.cases_built import BUILT
from sot_paddle import config
from sot_paddle.backbones import bert, layers, swin, swin_blocks, token_stages, vit
from sot_paddle.heads import factory, fusion, pooling, power_norm
from sot_paddle.registry import list_models
from sot_paddle.train import optimizer


@pytest.mark.parametrize(
    "name",
    [
        "built_sot_tiny",
        "built_swin_tiny_sot",
        "built_bert_base_mgcrp",
        "built_head_mgcrp_sqrt_t",
        "built_draws_tokens",
        "defaults_image_flags",
        "tables_glue_tasks",
    ],
)
def test_the_unchanged_product_passes(run_case, name):
    result = run_case(name, "built")
    assert result.passed, (result.problems, result.failures)
    assert len(result.controls) >= 4


def test_every_model_has_a_case():
    names = {case.name for case in BUILT}
    assert {f"built_{model}" for model in list_models()} <= names


# Presets


def test_mlp_ratio_of_a_preset(monkeypatch, places):
    build = vit._build

    def changed(name, num_classes, preset, options):
        return build(name, num_classes, {**preset, "mlp_ratio": 3.0}, options)

    monkeypatch.setattr(vit, "_build", changed)
    names, reasons = places("built_sot_tiny")
    assert names[0] == "(backbone options)"
    assert "mlp_ratio 3.0 against 2.5" in reasons
    assert "blocks.0.mlp.fc1.weight" in names
    assert "shape (240, 720) against (240, 600)" in reasons
    assert "(counts)" in names


def test_window_of_a_swin_preset(monkeypatch, places):
    monkeypatch.setattr(swin, "_TINY", {**swin._TINY, "window_size": 8})
    names, reasons = places("built_swin_tiny")
    assert names[0] == "(backbone options)"
    assert "window_size 8 against 7" in reasons
    assert "stages.0.blocks.0" in names
    assert "window 8 against 7" in reasons


def test_depth_of_a_preset(monkeypatch, places):
    monkeypatch.setitem(bert.LARGE, "num_hidden_layers", 23)
    names, reasons = places("built_bert_large")
    assert "num_hidden_layers 23 against 24" in reasons
    assert "bert.encoder.layers.23.linear1.weight" in names


def test_dropout_of_a_preset(monkeypatch, places):
    monkeypatch.setattr(vit, "_SOT_BASE", {**vit._SOT_BASE, "head_dropout": 0.5})
    names, reasons = places("built_sot_base")
    assert names == ["(head options)", "head.dropout"]
    assert "p 0.5 against 0.7" in reasons


@pytest.mark.parametrize(
    ("option", "value", "place"),
    [("head_num_heads", 8, "head.pooling"), ("wr_dim", 16, "head.pooling.wr.weight")],
)
def test_the_head_of_a_preset(monkeypatch, places, option, value, place):
    monkeypatch.setattr(vit, "_SOT_TINY", {**vit._SOT_TINY, option: value})
    names, reasons = places("built_sot_tiny")
    assert "(head options)" in names
    assert place in names
    assert f"{option} {value} against" in reasons


# Constants and tables as built


def test_sine_and_cosine_exchanged(monkeypatch, places):
    made = vit.sinusoid_table

    def exchanged(length, dim):
        return made(length, dim).reshape(1, length, dim // 2, 2)[..., ::-1].reshape(1, length, dim)

    monkeypatch.setattr(vit, "sinusoid_table", exchanged)
    names, _ = places("built_sot_tiny")
    assert names == ["pos_embed"]


def test_relative_positions_transposed(monkeypatch, places):
    made = swin_blocks.relative_position_index
    monkeypatch.setattr(swin_blocks, "relative_position_index", lambda window: made(window).T)
    names, _ = places("built_swin_tiny_sot")
    assert names[0] == "stages.0.blocks.0.attn.relative_position_index"
    assert all(name.endswith("relative_position_index") for name in names)


def test_mask_of_shifted_windows(monkeypatch, places):
    monkeypatch.setattr(swin_blocks, "MASKED", -10.0)
    names, _ = places("built_swin_tiny")
    assert names[0] == "stages.0.blocks.1.shift_mask"
    assert all(name.endswith("shift_mask") for name in names)


def test_layer_norm_epsilon(monkeypatch, places):
    made = factory._NORMS["ln"]
    monkeypatch.setitem(
        factory._NORMS, "ln", lambda dim, options: _with_epsilon(made(dim, options), 1e-6)
    )
    names, reasons = places("built_head_mgcrp_ln")
    assert names == ["head.pooling.norm"]
    assert "epsilon 1e-06 against 1e-05" in reasons


def _with_epsilon(layer, epsilon):
    layer.epsilon = epsilon
    return layer


def test_epsilon_of_a_preset(monkeypatch, places):
    monkeypatch.setattr(vit, "_DEIT_TINY", {**vit._DEIT_TINY, "layer_norm_eps": 1e-5})
    names, reasons = places("built_deit_tiny")
    assert {"(backbone options)", "blocks.0.norm1", "norm"} <= set(names)
    assert "epsilon 1e-05 against 1e-06" in reasons


def test_epsilon_and_momentum_of_a_token_embedding(monkeypatch, places):
    monkeypatch.setattr(token_stages, "TIGHT", {"epsilon": 1e-5, "momentum": 0.9})
    names, reasons = places("built_tokens_resnet")
    assert names == [f"embed.blocks.{block}.norm{norm}" for block in range(3) for norm in (1, 2, 3)]
    assert "epsilon 1e-05 against 0.001" in reasons


def test_constant_stochastic_depth(monkeypatch, places):
    monkeypatch.setattr(vit, "drop_path_rates", lambda rate, depth: [rate] * depth)
    names, reasons = places("built_sot_rates")
    assert names == [f"blocks.{index}.drop_path" for index in range(3)]  # the last one is right
    assert "rate 0.1 against 0.0" in reasons


def test_stochastic_depth_of_stages(monkeypatch, places):
    monkeypatch.setattr(swin, "drop_path_rates", lambda rate, depth: [rate] * depth)
    names, _ = places("built_swin_rates")
    assert names[0] == "stages.0.blocks.0.drop_path"


def test_scale_of_the_attention(monkeypatch, places):
    made = layers.Attention.__init__

    def unscaled(self, *args, **options):
        made(self, *args, **options)
        self.scale = 1.0

    monkeypatch.setattr(layers.Attention, "__init__", unscaled)
    names, reasons = places("built_deit_tiny")
    assert names[0] == "blocks.0.attn"
    assert "scale 1.0 against 0.125" in reasons


def test_statistics_that_start_at_zero(monkeypatch, places):
    made = pooling.TokenBatchNorm.__init__

    def zeroed(self, *args, **options):
        made(self, *args, **options)
        self.running_var.set_value(paddle.zeros_like(self.running_var))

    monkeypatch.setattr(pooling.TokenBatchNorm, "__init__", zeroed)
    names, _ = places("built_bert_base_mgcrp")
    assert names == ["head.pooling.q_norm.running_var", "head.pooling.k_norm.running_var"]


def test_encoder_dropout_at_the_wrong_place(monkeypatch, places):
    made = bert.BertEncoder.__init__

    def moved(self, options):
        made(self, options)
        for layer in self.encoder.layers:
            layer.dropout.p, layer.dropout1.p = layer.dropout1.p, 0.0

    monkeypatch.setattr(bert.BertEncoder, "__init__", moved)
    names, _ = places("built_text_rates")
    assert names[:2] == ["bert.encoder.layers.0.dropout1", "bert.encoder.layers.0.dropout"]


# Initial distributions


@pytest.mark.parametrize("module", [layers, pooling])
def test_deviation_of_linear_layers(monkeypatch, places, module):
    made = pooling.linear

    def wider(*args, **options):
        return made(*args, **{"std": 0.04, **options})

    users = {"layers": (layers, swin_blocks), "pooling": (pooling, fusion)}
    for user in users[module.__name__.rpartition(".")[2]]:
        monkeypatch.setattr(user, "linear", wider)
    names, reasons = places("built_sot_tiny")
    place = "blocks.0.mlp.fc1.weight" if module is layers else "head.pooling.wr.weight"
    assert place in names
    assert "start ('normal', 0.0, 0.04) against ('normal', 0.0, 0.02)" in reasons


def test_normal_to_uniform(monkeypatch, places):
    def uniform(*args, **options):
        weight = paddle.ParamAttr(initializer=nn.initializer.Uniform(-0.02, 0.02))
        return nn.Linear(*args[:2], weight_attr=weight, bias_attr=None)

    monkeypatch.setattr(fusion, "linear", uniform)
    names, reasons = places("built_sot_tiny")
    assert "head.word_fc.weight" in names
    assert "start ('uniform', -0.02, 0.02) against ('normal', 0.0, 0.02)" in reasons


def test_deviation_of_the_text_encoder(change_default, places):
    change_default(config.EncoderConfig, "initializer_range", 0.04)
    names, reasons = places("built_bert_base")
    assert "(backbone options)" in names
    assert "bert.encoder.layers.11.linear2.weight" in names
    assert "start ('normal', 0.0, 0.04) against ('normal', 0.0, 0.02)" in reasons


def test_start_of_the_power_norm(monkeypatch, places):
    made = power_norm.SvPN.create_parameter

    def narrow(self, shape, **options):
        return made(self, shape, default_initializer=nn.initializer.Normal(0.0, 0.02))

    monkeypatch.setattr(power_norm.SvPN, "create_parameter", narrow, raising=False)
    names, reasons = places("built_sot_small")
    assert names == ["head.pooling.norm.weight"]
    assert "against ('normal', 0.0, 1.0)" in reasons


def test_a_draw_that_belies_its_initialiser(monkeypatch, places):
    made = nn.initializer.Normal.forward

    def wider(self, parameter, block=None):
        made(self, parameter, block)
        parameter.set_value(parameter * 1.2)

    monkeypatch.setattr(nn.initializer.Normal.__mro__[1], "forward", wider)
    names, reasons = places("built_draws_tokens")
    assert "head.word_fc.weight" in names
    assert "not normal(0.0, 0.02)" in reasons


# Decay sets


def test_an_exclusion_missing_from_the_text_rule(monkeypatch, places):
    monkeypatch.setattr(optimizer, "UNDECAYED", re.compile(r"^nothing$"))
    names, reasons = places("built_bert_base")
    assert "bert.encoder.layers.0.norm1.weight" in names
    assert not [name for name in names if name.startswith("head.")]
    assert "decayed (text) True against False" in reasons


def _norms_too(model):
    return {
        name
        for name, parameter in model.named_parameters()
        if not parameter.stop_gradient and not name.endswith(".bias")
    }


def _matrices_only(model):
    return {
        name
        for name, parameter in model.named_parameters()
        if not parameter.stop_gradient and len(parameter.shape) > 1
    }


def test_an_exclusion_missing_from_the_vision_rule(monkeypatch, places):
    rule = optimizer.decayed_names_by_shape  # its callers hold it by name: change what it does
    monkeypatch.setattr(rule, "__code__", _norms_too.__code__)
    names, reasons = places("built_sot_tiny")
    assert "blocks.0.norm1.weight" in names
    assert "decayed (vision) True against False" in reasons


def test_a_factor_without_axes_left_undecayed(monkeypatch, places):
    rule = optimizer.decayed_names_by_shape
    monkeypatch.setattr(rule, "__code__", _matrices_only.__code__)
    names, reasons = places("built_head_mgcrp_sqrt_t")
    assert names == ["head.pooling.norm.factor"]
    assert reasons == "decayed (vision) False against True"


def test_a_table_that_keeps_another_precision(monkeypatch, places):
    made = vit.sinusoid_table

    class Unrounded(np.ndarray):
        def astype(self, dtype):
            return self

    def exact(length, dim):
        return made(length, dim).view(Unrounded)

    monkeypatch.setattr(vit, "sinusoid_table", exact)
    names, reasons = places("built_one_block_float64")
    assert names == ["pos_embed"]
    assert "differs by" in reasons
