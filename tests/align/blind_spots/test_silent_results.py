"""Changes that load, run and compute something else: each fails a case, at the right place."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle.nn import functional as nn_functional

from align.weights import build_plan
from align.weights.engine import build
from sot_paddle import create_model, functional, load_weights, save_weights, weights
from sot_paddle.backbones import inputs, paddlenlp_encoder, text
from sot_paddle.heads import pooling, power_norm

EXCHANGED = [
    ("gelu", nn_functional.relu, "bert_plain"),
    ("gelu", text.ACTIVATION_FUNCTIONS["gelu_new"], "bert_plain"),
    ("gelu_new", nn_functional.gelu, "bert_act_gelu_new"),
    ("gelu_pytorch_tanh", nn_functional.gelu, "bert_act_gelu_pytorch_tanh"),
    ("relu", nn_functional.gelu, "bert_act_relu"),
    ("silu", nn_functional.gelu, "bert_act_silu"),
    ("tanh", nn_functional.silu, "bert_act_tanh"),
]


@pytest.mark.parametrize(("name", "function", "case"), EXCHANGED)
def test_an_exchanged_activation_fails_at_the_first_layer(
    run_case, failed, monkeypatch, name, function, case
) -> None:
    monkeypatch.setitem(text.ACTIVATION_FUNCTIONS, name, function)
    result = run_case(case, "forward", "float64")
    assert failed(result)[0] == "layers.0"


def test_a_full_matrix_in_place_of_the_triangle_is_named(run_case, monkeypatch) -> None:
    """Its width does not fit the classifier: the model refuses the weights by name."""
    monkeypatch.setattr(pooling, "_entries", lambda size, upper_triangle: size**2)
    monkeypatch.setattr(pooling, "_flatten", lambda matrices, upper_triangle: matrices.flatten(1))
    with pytest.raises(ValueError, match="word_fc.weight of shape .* does not fit"):
        run_case("head_mgcrp_triu", "forward", "float64")


TRIANGLE = "for row in range(size) for column in range(row, size)"
BY_COLUMNS = "for column in range(size) for row in range(column + 1)"
CHANGES = [
    ("bert_layer_norm_eps forward float64", paddlenlp_encoder.CorrectedEncoder, "correct")
    + ("_epsilon = config.layer_norm_eps", "_epsilon = 1e-12", "embeddings"),
    *(
        (f"{case} {step} float64", functional, "triu_vectorize", TRIANGLE, BY_COLUMNS, place)
        for case in ("head_mgcrp_triu", "head_gcp_text_mpn", "head_gcp_text_svpn_triu")
        for step, place in (("forward", "head.representation"), ("backward", "loss"))
    ),
    *(
        (f"{case} forward float64", power_norm.MatrixSqrt, "forward", "F.matrix_sqrt(x,")
        + ("(lambda x, **_: x)(x,", "head.power_norm")
        for case in ("head_gcp_text_mpn", "head_gcp_text_mpn_five")
    ),
    ("head_gcp_text_mpn_five forward float64", power_norm.MatrixSqrt, "forward")
    + ("num_iter=self.num_iter, ", "", "head.power_norm"),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: f"{change[0]} {change[4]}")
def test_a_change_is_caught_and_placed(caught, change) -> None:
    caught(*change)


_TINY = {
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "vocab_size": 30,
    "max_position_embeddings": 8,
}


def widened(**options):
    """A model whose weights are large enough for every part to show in the scores."""
    paddle.seed(0)
    model = create_model("bert_base", 3, **_TINY, **options)
    with paddle.no_grad():
        for parameter in model.parameters():
            paddle.assign(parameter * 8.0, output=parameter)
    return model


@pytest.mark.parametrize(
    "stated",
    [{"hidden_act": "relu"}, {"hidden_act": "gelu_new"}, {"layer_norm_eps": 1e-3}],
    ids=str,
)
def test_options_that_a_file_states_are_held_against_the_model(tmp_path, monkeypatch, stated):
    """Without the check the file loads, and the scores are others: what the check is there for."""
    source, path = widened(**stated), tmp_path / "m.safetensors"
    save_weights(source, path)
    default = create_model("bert_base", 3, **_TINY)
    with pytest.raises(ValueError, match=rf"^\S+: was made with {next(iter(stated))}="):
        load_weights(default, path)
    monkeypatch.setattr(weights, "check_options", lambda *_, **__: None)
    load_weights(default, path)
    ids = paddle.to_tensor([[3, 7, 1, 9], [2, 2, 5, 8]])
    scores = []
    for model in (source, default):
        model.eval()
        scores.append(model(ids).numpy())
    assert np.abs(scores[0] - scores[1]).max() > 1e-6  # of the same options: exactly 0


@pytest.mark.parametrize("kind", ["additive", "twice"])
def test_a_mask_that_is_none_is_refused_because_it_computes_something_else(monkeypatch, kind):
    model = widened()
    model.eval()
    ids = paddle.to_tensor([[3, 7, 1, 0], [2, 2, 5, 8]])
    valid = paddle.to_tensor([[1.0, 1.0, 1.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    other = (1.0 - valid) * -1e4 if kind == "additive" else 2.0 * valid
    with pytest.raises(ValueError, match="attention_mask must hold 1"):
        model(ids, attention_mask=other)
    monkeypatch.setattr(inputs.TextCheck, "_check_values", lambda *_: None)
    scores = [model(ids, attention_mask=mask).numpy() for mask in (valid, other)]
    assert np.abs(scores[0] - scores[1]).max() > 1e-6


def test_a_token_classifier_that_would_load_as_another_head_is_left_out(monkeypatch) -> None:
    shapes = {entry.source: entry.source_shape for entry in _plain_plan().entries}
    shapes = {n: s for n, s in shapes.items() if ".pooler." not in n}
    assert "head.cls_fc.weight" in build_plan("bert_hf", "bert_base", shapes).absent
    monkeypatch.setattr(build, "_of_other_heads", lambda *_: {})
    filled = {e.destination for e in build_plan("bert_hf", "bert_base", shapes).entries}
    assert "head.cls_fc.weight" in filled


def _plain_plan():
    state = create_model("bert_base", 3, **_TINY).state_dict()
    shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
    back = build_plan("bert_hf", "bert_base", shapes, reverse=True)
    there = back.destination_shapes
    return build_plan("bert_hf", "bert_base", there)
