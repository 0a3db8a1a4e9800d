"""The peers' benchmark: what counts as located and as missed, and what it refuses."""

import json

import pytest

from tests.certificate import peers

ROW = {"fault": "attention_mask_inverted", "step": "forward", "detected": False}
SUMMARY = {"faults": 1, "detected": 0, "located": 0, "explained": 0.5, "false_alarms": 0}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (("fail", "forward", "layers.0.attention"), True),
        (("fail", "forward", "layers.1"), False),
        (("fail", "forward"), True),
        (("fail", "training"), False),
        (("pass",), False),
    ],
)
def test_a_named_layer_has_to_be_the_right_one(answer, expected):
    assert peers.is_located("reprod_log", ROW, peers.Answer(*answer)) is expected


@pytest.mark.parametrize(("state", "missed"), [("fail", 1), ("pass", 0)])
def test_a_fault_that_only_a_peer_sees_is_named(capsys, state, missed):
    certificate = {**SUMMARY, "clean_runs": 900, "rows": [ROW]}
    said = {ROW["fault"]: peers.Answer(state, "forward"), "bert, seed 0": peers.Answer("pass")}
    assert peers.show(certificate, {"reprod_log": said}) == missed
    text = capsys.readouterr().out
    assert "| this suite | 1 of 1 | 0 | 0 | 0.5 | 0 of 900 |" in text
    assert f"| 1 of 1 | {missed} | {missed} | – | 0 of 1 | 0 of 1 |" in text
    assert f"does not: {ROW['fault'] if missed else 'none'}." in text


def test_reprod_log_lets_a_transposed_array_pass() -> None:
    """Why its files are an output of the suite and never a gate."""
    value = peers.np.arange(6.0).reshape(2, 3)
    assert peers._reprod_log_says("forward", {"x": value}, {"x": value.T}) == ""
    assert "False" in peers._reprod_log_says("forward", {"x": value}, {"x": value + 1})


def test_what_is_no_padiff_is_refused(tmp_path, capsys):
    path = tmp_path / "c.json"
    path.write_text(json.dumps(SUMMARY))
    assert peers.main([str(path), "--padiff", str(tmp_path)]) == 2
    assert "no package padiff there" in capsys.readouterr().err
