"""Changes that only a call without masks, token types and taps runs, or a formula alone."""

from __future__ import annotations

import paddle
import pytest

from sot_paddle import functional, published
from sot_paddle.backbones import bert
from sot_paddle.data import vocabulary
from sot_paddle.heads import fusion

BERT, WORDS = "plain_call_bert_sum_fc", "plain_call_bert_aggre_all"


INVENTED = """bias = None
    if mask is None:
        mask = (ids != ids[:, -1:]).astype("int64")"""


def test_a_mask_invented_where_none_is_given(caught) -> None:
    change = (bert.BertEncoder, "_encode", "bias = None", INVENTED)
    assert caught(f"{BERT} forward float64", *change, "logits") == ["logits"]


def test_what_is_recorded_is_not_what_is_handed_on(run_case, failed, monkeypatch) -> None:
    """Every other case records taps: a model that computes something else without them."""
    original = fusion.record

    def record(taps, name, tensor):
        return original(taps, name, tensor) if taps is not None else tensor * 0.99

    monkeypatch.setattr(fusion, "record", record)
    assert failed(run_case(WORDS, "forward", "float64"))[0] == "logits"
    assert run_case("head_mgcrp_aggre_all", "forward", "float64").passed


@pytest.mark.parametrize("case", ["function_uncentred", "function_uncentred_masked"])
def test_uncentred_tokens_are_compared_with_and_without_a_mask(case, caught) -> None:
    known = 'require_one_of("centering", centering, CENTERINGS)'
    other = 'centering = "scalar" if centering == "none" else centering'
    caught(f"{case} forward float64", functional, "center_tokens", known, other, "value")


@pytest.mark.parametrize(
    ("case", "operation"),
    [
        ("function_svpn_exact", "svd"),
        ("function_sqrt_exact", "eigh"),
    ],
)
def test_the_exact_forms_are_compared(case, operation, run_case, failed, monkeypatch) -> None:
    original = getattr(paddle.linalg, operation)

    def changed(*arguments, **options):
        first, *rest = original(*arguments, **options)
        return (first * 1.001, *rest)

    monkeypatch.setattr(paddle.linalg, operation, changed)
    assert failed(run_case(case, "forward", "float64")) == ["value"]


def _alpha_lost(monkeypatch) -> None:
    original = published._normalization

    def normalization(options, wr_dim):
        return {name: v for name, v in original(options, wr_dim).items() if name != "alpha"}

    monkeypatch.setattr(published, "_normalization", normalization)


def _another_root(monkeypatch) -> None:
    monkeypatch.setitem(published._NORMS, "sqrt_d", "none")


def _a_norm_where_none_is_asked_for(monkeypatch) -> None:
    monkeypatch.setattr(published, "_normalization", lambda *_: {"normalization": "sqrt_d"})


@pytest.mark.parametrize(
    ("case", "plant", "place"),
    [
        ("published_mgcrp_sum_loss", _alpha_lost, ["output 1"]),
        ("published_mgcrp_sqrt_concat", _another_root, ["output 0"]),
        ("published_mgcrp_no_norm_aggre_all", _a_norm_where_none_is_asked_for, ["output 0"]),
    ],
)
def test_a_dictionary_read_wrongly(case, plant, place, run_case, failed, monkeypatch) -> None:
    plant(monkeypatch)
    assert failed(run_case(case, "forward", "float64")) == place


def test_a_vocabulary_file_read_from_its_second_line(run_case, failed, monkeypatch) -> None:
    original = vocabulary.read_text

    def read_text(path, *limits):
        return original(path, *limits).partition("\n")[2] + "[PAD]\n"

    monkeypatch.setattr(vocabulary, "read_text", read_text)
    assert failed(run_case("data_vocabulary_file", "data"))[0] == "input_ids"
    assert run_case("data_pairs", "data").passed
