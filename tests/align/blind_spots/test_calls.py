"""Changes that only a call without masks, token types and taps runs, or a formula alone."""

from __future__ import annotations

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


def test_a_vocabulary_file_read_from_its_second_line(run_case, failed, monkeypatch) -> None:
    original = vocabulary.read_text

    def read_text(path, *limits):
        return original(path, *limits).partition("\n")[2] + "[PAD]\n"

    monkeypatch.setattr(vocabulary, "read_text", read_text)
    assert failed(run_case("data_vocabulary_file", "data"))[0] == "input_ids"
    assert run_case("data_pairs", "data").passed
