"""The peers' benchmark: tasks, answers, what counts as located, refusals; reprod_log for real."""

import importlib.util
import sys
import textwrap
import warnings

import pytest

with warnings.catch_warnings():  # 2026-11-21, paddlenlp 3.0.0b4: deprecated modules at import
    warnings.simplefilter("ignore")
    from sot_paddle import registry  # noqa: F401

from align.certify import catalogue, scenes
from align.certify.certificate import Certificate, FaultRow
from align.certify.peers import benchmark, classic
from align.certify.peers.answer import CANNOT_RUN, FAIL, PASS, Answer
from align.certify.peers.benchmark import Benchmark, Tally, ask_all, details, located, table
from align.certify.peers.worker import TOOLS, tool_names, tool_of

FAULT = "attention_mask_inverted"


@pytest.fixture(scope="module")
def fault():
    return catalogue.find(FAULT)


def test_reprod_log_passes_a_clean_scene_and_sees_a_gross_fault(fault):
    clean = scenes.build("bert", 0)
    assert classic.answer(clean).state == PASS
    found = classic.answer(fault.plant(scenes.build(fault.scene, 0)))
    assert (found.state, found.check) == (FAIL, "forward")


def test_reprod_log_lets_a_transposed_array_pass():
    """Why its files are an output here and never a gate."""
    import numpy as np

    value = np.arange(6.0).reshape(2, 3)
    assert classic._judged("forward", {"x": value}, {"x": value.T}) == ""
    assert "False" in classic._judged("forward", {"x": value}, {"x": value + 1})


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Answer(FAIL, "forward", "layers.0.attention"), True),
        (Answer(FAIL, "forward", "layers.1"), False),
        (Answer(FAIL, "forward"), True),
        (Answer(FAIL, "training"), False),
    ],
)
def test_a_named_layer_has_to_be_the_right_one(fault, answer, expected):
    assert located(fault, answer, ("forward",)) is expected


def test_the_table_names_what_the_suite_misses(fault):
    row = FaultRow(fault.name, fault.area, fault.scene, fault.step, fault.place)
    own = Tally("suite", checked=1, words={fault.name: ""})
    peer = Tally("reprod_log", 1, 1, 1, clean=3, false_alarms=1, seen={fault.name})
    found = Benchmark(Certificate([row], []), [own, peer], [fault])
    assert found.missed == [FAULT]
    assert found.exit_code == 1
    assert f"does not: {FAULT}." in table(found)
    assert f"| `{FAULT}` | NO | yes |" in details(found)
    own.seen.add(FAULT)
    assert found.missed == []


def test_a_worker_that_dies_has_not_said_that_all_is_well(tmp_path):
    script = tmp_path / "dying.py"
    script.write_text(
        textwrap.dedent(
            """\
            import json, sys
            for line in sys.stdin:
                if json.loads(line)["seed"] == 1:
                    sys.exit("out of paper")
                print(json.dumps({"state": "pass"}), flush=True)
            """
        )
    )
    tasks = [{"scene": "bert", "seed": seed} for seed in range(3)]
    answers = ask_all([sys.executable, str(script)], tasks, 1, lambda *_: None)
    assert [a.state for a in answers] == [PASS, CANNOT_RUN, PASS]
    assert "out of paper" in answers[1].said


def test_padiff_is_asked_only_where_it_is():
    assert tool_names(None, False) == ("reprod_log",)
    assert tool_names(None, True) == TOOLS
    with pytest.raises(ValueError, match="no package padiff there"):
        tool_names("/nowhere", True)
    with pytest.raises(ValueError, match="expected one of"):
        tool_of("other", None)


def test_every_step_of_the_catalogue_is_judged_or_has_no_check():
    steps = {fault.step for fault in catalogue.select(None)}
    for checks in benchmark.CHECKS.values():
        assert set(checks) <= steps


def test_padiff_passes_a_clean_scene():
    if importlib.util.find_spec("padiff") is None:
        pytest.skip("PaDiff is optional")
    command = [sys.executable, "-m", "align.certify.peers.worker", "padiff_strict"]
    answers = ask_all(command, [{"scene": "segmenter", "seed": 0}], 1, lambda *_: None)
    assert answers[0].state == PASS
