"""Coverage as a check, on a package of one file: what is named, accepted, refused and left out."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path

import pytest

from align.cases.covered.coverage_result import CONTROLLED, coverage_result
from align.cases.covered.coverage_verdict import NOT_ALIGNED, NotAligned, verdict_on
from align.cases.covered.measure import PRODUCT, FileRecord, measured, read
from align.cases.covered.pause import STARTED_BY, unmeasured
from align.cases.covered.syntax import parse
from align.record.run_report import Report
from align.report.report import console
from align.report.report_html import page

FILE = "shapes.py"
TEXT = """\
from __future__ import annotations


def area(side: float, kind: str = "square") -> float:
    if side < 0:
        message = f"got {side}"
        raise ValueError(message)
    if kind == "circle":
        return 3.0 * side * side
    if kind != "square":
        side = side / 2
    return side * side


class Printer:
    def show(self, side: float) -> str:
        try:
            text = str(area(side))
        except ValueError as error:
            raise RuntimeError("no area") from error
        return text
"""
CIRCLE, HALF, SHOW = 9, 11, range(17, 22)
ACCEPTED = (
    NotAligned(f'{FILE}::area::if kind == "circle"', "no circles in the originals"),
    NotAligned(f"{FILE}::area::side = side / 2", "halves are text"),
    NotAligned(f"{FILE}::Printer", "a text"),
)


def ran_by(product: Path, program: str):
    """What a program of its own runs of the package."""
    (product / FILE).write_text(TEXT, encoding="utf-8")
    paths = f"import sys; sys.path[:0] = {[str(product), str(PRODUCT.parent)]}; import shapes\n"
    with measured(product) as folder:
        subprocess.run([sys.executable, "-c", paths + program], check=True)
        return read(folder, product)


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory):
    """The area of a square."""
    return ran_by(tmp_path_factory.mktemp("product"), "shapes.area(2.0)")


def verdict(record, *listed: NotAligned):
    return verdict_on(record, {FILE: parse(TEXT)}, listed)


def test_lines_and_jumps_are_recorded(record) -> None:
    found = record[FILE]
    assert {4, 5, 8, 10, 12, 15, 16} <= found.executed
    assert {CIRCLE, HALF, 6, 7, 17, 18} <= found.missing
    assert (10, HALF) in found.branches


def test_what_runs_in_a_pause_is_not_recorded_and_what_follows_is(tmp_path: Path) -> None:
    program = """
from align.cases.covered.pause import unmeasured

@unmeasured()
def paused():
    with unmeasured():
        shapes.area(2.0, kind="circle")

paused()
shapes.Printer().show(2.0)
"""
    found = ran_by(tmp_path, program)[FILE]
    assert CIRCLE in found.missing
    assert {12, 18, 21} <= found.executed


def test_what_no_case_runs_is_named_with_its_text(record) -> None:
    places = verdict(record).unlisted[FILE]
    assert [place.line for place in places] == [CIRCLE, HALF, 17, 18, 21]
    assert str(places[0]) == "sot_paddle/shapes.py:9: return 3.0 * side * side"


def test_lines_that_only_refuse_need_no_entry(record) -> None:
    found = verdict(record)
    assert found.counts["refusals"] == 4  # two of area, the handler and what it raises
    assert not {6, 7, 19, 20} & {place.line for place in found.unlisted[FILE]}


def test_a_block_that_can_be_left_is_no_refusal() -> None:
    text = (
        "def f(x):\n    if x:\n        if x > 1:\n            return x\n        raise ValueError\n"
    )
    assert parse(text).refusals == {5}


def test_a_list_accepts_what_it_names(record) -> None:
    found = verdict(record, *ACCEPTED)
    assert not found.unlisted[FILE]
    assert not found.stale
    assert found.counts == {
        "statements": 17,
        "executed": 8,
        "refusals": 4,
        "listed": 5,
        "unlisted": 0,
    }


@pytest.mark.parametrize("left_out", range(len(ACCEPTED)))
def test_each_entry_is_needed(record, left_out: int) -> None:
    listed = [entry for at, entry in enumerate(ACCEPTED) if at != left_out]
    assert verdict(record, *listed).unlisted[FILE]


@pytest.mark.parametrize(
    "place",
    [
        "lost.py",
        f"{FILE}::volume",
        f"{FILE}::area::return side * side * side",
        f"{FILE}::area::return side * side",
        f"{FILE}::area::raise ValueError",
    ],
    ids=["no file", "no function", "no such text", "a line that runs", "only a refusal"],
)
def test_an_entry_that_accepts_nothing_is_stale(record, place: str) -> None:
    planted = NotAligned(place, "planted")
    assert verdict(record, *ACCEPTED, planted).stale == [planted]


def test_an_entry_of_lines_that_a_clock_decides_on_is_never_stale(record) -> None:
    chance = NotAligned(f"{FILE}::area::return side * side", "planted", by_chance=True)
    assert not verdict(record, *ACCEPTED, chance).stale


def test_a_jump_never_made_is_named() -> None:
    text = "def f(x):\n    if x:\n        x = 1\n    return x\n"
    ran = FileRecord(frozenset({1, 2, 3, 4}), frozenset(), frozenset({(2, 4)}))
    found = verdict_on({FILE: ran}, {FILE: parse(text)}, ())
    assert [str(place) for place in found.unlisted[FILE]] == [
        "sot_paddle/shapes.py:2: if x: (never goes on with line 4)"
    ]
    entry = NotAligned(f"{FILE}::f::if x", "always true in the originals")
    assert not verdict_on({FILE: ran}, {FILE: parse(text)}, [entry]).unlisted[FILE]


@functools.cache
def whole_product() -> dict[str, FileRecord]:
    """A record in which every statement of the product ran."""
    files = {path.relative_to(PRODUCT).as_posix(): path for path in PRODUCT.rglob("*.py")}
    return {
        name: FileRecord(
            frozenset(parse(path.read_text(encoding="utf-8")).blocks), frozenset(), frozenset()
        )
        for name, path in files.items()
    }


def test_the_result_passes_only_when_nothing_is_left_and_the_controls_are_caught() -> None:
    everything = whole_product()
    result = coverage_result(everything, listed=())
    assert result.passed
    assert [control.caught for control in result.controls] == [True] * 4
    line = max(everything[CONTROLLED].executed)
    lost = FileRecord(everything[CONTROLLED].executed - {line}, frozenset({line}), frozenset())
    result = coverage_result({**everything, CONTROLLED: lost}, listed=())
    assert not result.passed
    assert result.first_failure.name == f"sot_paddle/{CONTROLLED}"
    shown = console(Report({}, [result]))
    for text in (shown, page(Report({}, [result])), Report({}, [result]).dumps()):
        assert "statements of computing code" in text
        assert f"sot_paddle/{CONTROLLED}:{line}: " in text
    assert result.to_json()["coverage"]["unlisted"] == 1


def test_a_stale_entry_fails_the_result_and_is_named() -> None:
    result = coverage_result(whole_product(), [NotAligned("functional.py::lost", "planted")])
    assert not result.passed
    assert any("functional.py::lost" in problem for problem in result.problems)


def test_every_entry_says_why_and_none_comes_twice() -> None:
    """That it names something is for the measured run to say, which refuses a stale entry."""
    assert all(len(entry.reason) > 20 for entry in NOT_ALIGNED)
    places = [entry.place for entry in NOT_ALIGNED]
    assert len(set(places)) == len(places)


def test_no_record_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="install the pinned coverage"):
        read(tmp_path)


def test_a_pause_leaves_a_tracer_alone_where_nothing_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def tracer(*_: object) -> None:
        return None

    before = sys.gettrace()
    try:
        for environment, expected in ((None, tracer), ("settings.ini", None)):
            monkeypatch.delenv(STARTED_BY, raising=False)
            if environment:
                monkeypatch.setenv(STARTED_BY, environment)
            sys.settrace(tracer)
            with unmeasured():
                assert sys.gettrace() is expected
            assert sys.gettrace() is tracer
    finally:
        sys.settrace(before)
