"""Changes that load, run and compute something else: each fails a case, at the right place."""

from __future__ import annotations

import warnings

import pytest
from paddle.nn import functional as nn_functional

with warnings.catch_warnings():  # 2026-11-22, paddlenlp 3.0.0b4: deprecated modules at import
    warnings.simplefilter("ignore")
    from sot_paddle.backbones import bert

from sot_paddle import functional
from sot_paddle.heads import pooling, power_norm

EXCHANGED = [
    ("gelu", nn_functional.relu, "bert_plain"),
    ("gelu", bert.ACTIVATION_FUNCTIONS["gelu_new"], "bert_plain"),
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
    clean = run_case(case, "forward", "float64")
    assert clean.passed
    monkeypatch.setitem(bert.ACTIVATION_FUNCTIONS, name, function)
    result = run_case(case, "forward", "float64")
    assert failed(result)[0] == "layers.0"


def test_a_lost_epsilon_fails_at_the_embeddings(run_case, failed, monkeypatch) -> None:
    assert run_case("bert_layer_norm_eps", "forward", "float64").passed
    norm = bert.nn.LayerNorm
    original = norm.__setattr__

    def forget(layer, name, value) -> None:
        original(layer, name, 1e-12 if name == "_epsilon" else value)

    monkeypatch.setattr(norm, "__setattr__", forget)
    assert failed(run_case("bert_layer_norm_eps", "forward", "float64"))[0] == "embeddings"


def test_a_full_matrix_in_place_of_the_triangle_is_named(run_case, monkeypatch) -> None:
    """Its width does not fit the classifier: the model refuses the weights by name."""
    monkeypatch.setattr(pooling, "_entries", lambda size, upper_triangle: size**2)
    monkeypatch.setattr(pooling, "_flatten", lambda matrices, upper_triangle: matrices.flatten(1))
    with pytest.raises(ValueError, match="word_fc.weight: expected shape"):
        run_case("head_mgcrp_triu", "forward", "float64")


@pytest.mark.parametrize(
    "case", ["head_mgcrp_triu", "head_gcp_text_mpn", "head_gcp_text_svpn_triu"]
)
@pytest.mark.parametrize("step", ["forward", "backward"])
def test_another_triangle_fails_at_the_representation(
    run_case, failed, monkeypatch, case, step
) -> None:
    assert run_case(case, step, "float64").passed
    monkeypatch.setattr(pooling.F, "triu_vectorize", functional.triu_forward)
    places = failed(run_case(case, step, "float64"))
    if step == "forward":
        assert places[0] == "head.representation"
        assert not {"head.covariance", "head.power_norm"} & set(places)
    else:
        assert "head.word_fc.weight" in places


@pytest.mark.parametrize("case", ["head_gcp_text_mpn", "head_gcp_text_mpn_five"])
def test_a_skipped_matrix_root_fails_at_the_power_norm(run_case, failed, monkeypatch, case) -> None:
    assert run_case(case, "forward", "float64").passed
    monkeypatch.setattr(power_norm.MatrixSqrt, "forward", lambda layer, x: x)
    places = failed(run_case(case, "forward", "float64"))
    assert places[0] == "head.power_norm"
    assert "head.covariance" not in places


def test_a_forgotten_count_of_iterations_fails_at_the_power_norm(
    run_case, failed, monkeypatch
) -> None:
    original = functional.matrix_sqrt
    monkeypatch.setattr(
        power_norm.F, "matrix_sqrt", lambda x, num_iter, on_zero: original(x, on_zero=on_zero)
    )
    assert run_case("head_gcp_text_mpn", "forward", "float64").passed  # 3 is the default
    assert failed(run_case("head_gcp_text_mpn_five", "forward", "float64"))[0] == "head.power_norm"


_COV, _UPPER, _LOWER = functional.cov_forward, functional.triu_vectorize, functional.triu_forward
HELPERS = [
    ("cov_forward", lambda x, **_: _COV(x, scale="tokens")),
    ("cov_forward_tokens", lambda x, **_: _COV(x)),
    ("triu_forward", _UPPER),
    ("triu_vectorize", lambda x: _LOWER(x.transpose([0, 2, 1]))),
]


@pytest.mark.parametrize(("name", "change"), HELPERS)
def test_a_changed_helper_fails_its_own_case(run_case, failed, monkeypatch, name, change) -> None:
    case = f"function_{name}"
    assert run_case(case, "forward", "float64").passed
    assert run_case(case, "backward", "float64").passed
    monkeypatch.setattr(functional, name.removesuffix("_tokens"), change)
    assert failed(run_case(case, "forward", "float64")) == ["value"]
    assert failed(run_case(case, "backward", "float64")) == ["(input)"]
