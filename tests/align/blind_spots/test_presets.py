"""Presets, and what a model holds before weights are loaded: each change is placed."""

import pytest
from paddle import nn

from align.cases.sides import built_paddle
from align.cases.tables.cases_built import BUILT
from sot_paddle import config, registry
from sot_paddle.backbones import bert, layers, swin, swin_blocks, token_stages, vit
from sot_paddle.backbones.paddlenlp_encoder import CorrectedEncoder
from sot_paddle.heads import fusion, pooling, power_norm
from sot_paddle.registry import list_models

ACTIVATION = "layer.activation = ACTIVATION_FUNCTIONS[config.hidden_act]"
MOVED = f"{ACTIVATION}; layer.dropout.p, layer.dropout1.p = layer.dropout1.p, 0.0"
RATE = "rate * index / max(depth - 1, 1)"
WIDER = ("linear", "initializer.Normal(0.0, std)", "initializer.Normal(0.0, 2 * std)")
TWICE = "start ('normal', 0.0, 0.04) against ('normal', 0.0, 0.02)"


def preset(model, place, said, **changed):
    """A preset with other options."""
    own = f"{{**preset, **{changed!r}, **overrides}}"
    changed_call = (registry, "create_model", "{**preset, **overrides}", own)
    return f"built_{model} built", *changed_call, place, said


BACKBONE, HEAD = "(backbone options)", "(head options)"
CHANGES = [
    preset("sot_tiny", BACKBONE, "shape (240, 720) against (240, 600)", mlp_ratio=3.0),
    preset("swin_tiny", BACKBONE, "window 8 against 7", window_size=8),
    preset("sot_base", HEAD, "p 0.5 against 0.7", head_dropout=0.5),
    preset("sot_tiny", HEAD, "head_num_heads 8 against", head_num_heads=8),
    preset("sot_tiny", HEAD, "wr_dim 16 against", wr_dim=16),
    preset("deit_tiny", BACKBONE, "epsilon 1e-05 against 1e-06", layer_norm_eps=1e-5),
    # constants and tables as built
    ("built_sot_tiny built", vit, "sinusoid_table", "np.sin(angle), np.cos(angle)")
    + ("np.cos(angle), np.sin(angle)", "pos_embed"),
    ("built_swin_tiny_sot built", swin_blocks, "relative_position_index")
    + ("(dy + window - 1) * (2 * window - 1) + dx", "(dx + window - 1) * (2 * window - 1) + dy")
    + ("stages.0.blocks.0.attn.relative_position_index",),
    ("built_swin_tiny built", swin_blocks, "shift_mask", "MASKED, 0.0)", "-10.0, 0.0)")
    + ("stages.0.blocks.1.shift_mask",),
    ("built_head_mgcrp_ln built", power_norm.RowLayerNorm, "__init__", "= epsilon", "= 1e-6")
    + ("head.pooling.norm", "epsilon 1e-06 against 1e-05"),
    ("built_tokens_resnet built", token_stages.Bottleneck, "__init__")
    + ("self.norm1 = BatchNorm2D(self.width, **TIGHT)", "self.norm1 = BatchNorm2D(self.width)")
    + ("embed.blocks.0.norm1", "epsilon 1e-05 against 0.001"),
    ("built_sot_rates built", vit, "drop_path_rates", RATE, "rate")
    + ("blocks.0.drop_path", "rate 0.1 against 0.0"),
    ("built_swin_rates built", swin, "drop_path_rates", RATE, "rate")
    + ("stages.0.blocks.0.drop_path",),
    ("built_deit_tiny built", layers.Attention, "__init__", "self.head_dim**-0.5 if", "1.0 if")
    + ("blocks.0.attn", "scale 1.0 against 0.125"),
    ("built_bert_base_mgcrp built", pooling.TokenBatchNorm, "__init__", "ones([num", "zeros([num")
    + ("head.pooling.q_norm.running_var",),
    ("built_text_rates built", CorrectedEncoder, "correct", ACTIVATION, MOVED)
    + ("bert.encoder.layers.0.dropout1",),
    ("built_one_block_float64 built", vit.VisionTransformer, "__init__", ".astype(np.float32)")
    + ("", "pos_embed", "differs by"),
    # initial distributions
    ("built_sot_tiny built", layers, *WIDER, "blocks.0.*", TWICE),
    ("built_sot_tiny built", pooling, *WIDER, "head.pooling.wr.weight", TWICE),
    ("built_sot_tiny built", fusion, "linear", "Normal(0.0, std)", "Uniform(-0.02, 0.02)")
    + ("head.word_fc.weight", "start ('uniform', -0.02, 0.02) against ('normal', 0.0, 0.02)"),
    ("built_sot_small built", power_norm.SvPN, "__init__", "Normal(0.0, 1.0)", "Normal(0.0, 0.02)")
    + ("head.pooling.norm.weight", "against ('normal', 0.0, 1.0)"),
    # decay sets
    ("built_bert_base built", built_paddle, "decayed_names")
    + (" and not UNDECAYED.fullmatch(name)", "", "bert.*norm*", "decayed (text) True against"),
    ("built_sot_tiny built", built_paddle, "decayed_names_by_shape")
    + ("len(parameter.shape) != 1 and ", "", "*norm*", "decayed (vision) True against False"),
    ("built_head_mgcrp_sqrt_t built", built_paddle, "decayed_names_by_shape", "!= 1", "> 1")
    + ("head.pooling.norm.factor", "decayed (vision) False against True"),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: f"{change[0]} {change[4]}")
def test_a_change_is_caught_and_placed(caught, change):
    caught(*change)


def test_every_model_has_a_case():
    names = {case.name for case in BUILT}
    assert {f"built_{model}" for model in list_models()} <= names


def test_depth_of_a_preset(monkeypatch, places):
    monkeypatch.setitem(bert.LARGE, "num_hidden_layers", 23)
    names, reasons = places("built_bert_large")
    assert "num_hidden_layers 23 against 24" in reasons
    assert "bert.encoder.layers.23.linear1.weight" in names


def test_deviation_of_the_text_encoder(change_default, places):
    change_default(config.EncoderConfig, "initializer_range", 0.04)
    names, reasons = places("built_bert_base")
    assert "(backbone options)" in names
    assert "bert.encoder.layers.11.linear2.weight" in names
    assert TWICE in reasons


def test_a_draw_that_belies_its_initialiser(monkeypatch, places):
    made = nn.initializer.Normal.forward

    def wider(self, parameter, block=None):
        made(self, parameter, block)
        parameter.set_value(parameter * 1.2)

    monkeypatch.setattr(nn.initializer.Normal.__mro__[1], "forward", wider)
    names, reasons = places("built_draws_tokens")
    assert "head.word_fc.weight" in names
    assert "not normal(0.0, 0.02)" in reasons
