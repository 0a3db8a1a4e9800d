"""A run of mutants: what is drawn, what each has to get past, one of them from end to end."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest

from align import cli
from align.cases.covered.syntax import parse
from align.certify import certificate_table, mutate, mutation_worker
from align.certify.mutate import PORTS, PRODUCT, draw, mutable_files
from align.certify.mutation_order import CheckRecord, Checks
from align.certify.mutation_result import MutantOutcome, Mutants
from align.certify.mutation_sites import MutableFile, Mutant
from align.certify.mutation_worker import COPY, ROOT, edited
from align.certify.not_drawn import EQUAL_EDITS, NOT_MUTATED, EqualEdit, NotMutated, changes_nothing
from align.certify.task_results import results

pytestmark = [pytest.mark.slow, pytest.mark.long]

SCHEDULE = "sot_paddle/train/schedule.py"
EVERY_LINE = frozenset(range(1, 1000))


def outcome(end: str, file: str = "sot_paddle/a.py", line: int = 1) -> MutantOutcome:
    mutant = Mutant(file, line, "operands", "a - b", "b - a", "")
    return MutantOutcome.of(mutant, {"end": end, "seconds": 1.0})


def records() -> list[CheckRecord]:
    everything = {
        file.name: EVERY_LINE for folder in (PRODUCT, PORTS) for file in mutable_files(folder)
    }
    return [
        CheckRecord("", 0.0, {}),
        CheckRecord("case", 1.0, everything),
        CheckRecord("scene one", 1.0, everything),
    ]


def test_a_seed_draws_the_same_mutants_and_another_one_others() -> None:
    first, again, other = (draw(PORTS, records(), 12, seed) for seed in (3, 3, 4))
    assert [str(one) for one, _ in first.chosen] == [str(one) for one, _ in again.chosen]
    assert first.chosen != other.chosen
    assert len({(one.file, one.line) for one, _ in first.chosen}) == 12


@pytest.mark.parametrize(("folder", "check"), [(PORTS, "scene one"), (PRODUCT, "case")])
def test_the_ports_are_judged_by_scenes_and_the_product_by_cases(folder: str, check: str) -> None:
    chosen = draw(folder, records(), 3, 0).chosen
    assert {name for _, checks in chosen for name, _ in checks} == {check}


def test_lines_that_no_check_runs_and_files_that_are_listed_are_not_drawn() -> None:
    assert "sot_paddle/train/run_folder.py" in {one.name for one in mutable_files(PRODUCT)}
    listed = next(one for one in mutable_files(PRODUCT) if one.name.endswith("run_folder.py"))
    assert list(listed.statements()) == []
    with pytest.raises(ValueError, match="2 mutants asked for, 0 can be made"):
        draw(PRODUCT, [CheckRecord("case", 1.0, {})], 2, 0)


@pytest.mark.parametrize("entry", NOT_MUTATED, ids=lambda entry: entry.place)
def test_no_entry_of_the_list_is_stale(entry: NotMutated) -> None:
    file = entry.place.partition("::")[0]
    source = parse((ROOT / PRODUCT / file).read_text(encoding="utf-8"))
    assert entry.lines(file, source)


@pytest.mark.parametrize("edit", EQUAL_EDITS, ids=lambda edit: f"{edit.file}: {edit.old}")
def test_every_equal_edit_can_be_made(edit: EqualEdit) -> None:
    file = next(one for one in mutable_files(PRODUCT) if one.name == f"{PRODUCT}/{edit.file}")
    pieces = file.text.split(edit.old)
    lines = {edit.old.join(pieces[:i]).count("\n") + 1 for i in range(1, len(pieces))}
    near = [one for one in file.statements() if lines & set(one.lines)]
    made = {mutant.text for statement in near for mutant in file.edits(statement)}
    assert made & set(edit.results(file.text))


def test_an_equal_edit_is_exact() -> None:
    edit = EqualEdit("a.py", "axis=1", "axis=(-1)", "the last axis")
    assert list(edit.results("f(axis=1, g(axis=1))")) == [
        "f(axis=(-1), g(axis=1))",
        "f(axis=1, g(axis=(-1)))",
    ]
    assert not changes_nothing("functional.py", "y = x.sum(axis=1)", "y = x.sum(axis=(-1))")


def test_an_entry_names_single_lines_and_whole_statements() -> None:
    text = "def f():\n    keep = 2\n    return g(\n        3,\n        keep=4,\n    )\n"
    entries = [NotMutated("a.py::f::keep=", "a"), NotMutated("a.py::f::return g", "b")]
    assert [one.lines("a.py", parse(text)) for one in entries] == [{5}, {3, 4, 5, 6}]
    file = MutableFile("a.py", text, entries[0].lines("a.py", parse(text)))
    lines = {one.line for statement in file.statements() for one in file.edits(statement)}
    assert lines == {2, 3, 4}


def test_checks_that_run_the_line_come_cheapest_first() -> None:
    file = MutableFile("p/a.py", "LIMIT = 3\n\n\ndef f(x, power=2):\n    return x**power\n")
    table, signature, formula = file.statements()
    imported = CheckRecord("", 0.0, {"p/a.py": frozenset({1, 4}), "p/b.py": frozenset({1})})
    slow = CheckRecord("slow", 3.0, {"p/a.py": frozenset({1, 4, 5})})
    quick = CheckRecord("quick", 1.0, {"p/a.py": frozenset({5})})
    importing = CheckRecord("importing", 0.5, {"p/b.py": frozenset({1, 3})})
    other = CheckRecord("other", 0.1, {"p/a.py": frozenset({1}), "p/c.py": frozenset({7})})
    reading = CheckRecord("defaults_of_f", 9.0, {})
    texts = {"p/a.py": file.text, "p/b.py": "from p.a import LIMIT\n"}
    checks = Checks([imported, slow, quick, importing, other, reading], texts)
    assert checks.past(formula) == [("quick", 1.0), ("slow", 3.0)]
    # what runs at the import may matter to whoever reads or imports it: those near it first
    tables = [name for name, _ in checks.past(table)]
    assert tables == ["defaults_of_f", "quick", "slow", "importing"]
    assert [name for name, _ in checks.past(signature)] == ["defaults_of_f", "quick", "slow"]
    assert Checks([imported, other], texts).past(formula) == []


def test_nothing_is_written_outside_a_copy(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    with pytest.raises(ValueError, match="into a copy only"), edited(tmp_path, "a.py", "x = 2", 1):
        raise AssertionError
    with pytest.raises(ValueError, match="into a copy only"), edited(ROOT, SCHEDULE, "x = 2", 1):
        raise AssertionError
    (tmp_path / COPY).touch()
    with edited(tmp_path, "a.py", "x = 2\n", 7):
        assert (tmp_path / "a.py").read_text() == "x = 2\n"
        assert (tmp_path / "a.py").stat().st_mtime == 7
    assert (tmp_path / "a.py").read_text() == "x = 1\n"


def test_one_mutant_from_end_to_end(tmp_path: Path) -> None:
    """A wrong schedule is detected, a crash is told apart, and the tree is as it was."""
    before = mutate._fingerprint()
    text = (ROOT / SCHEDULE).read_text(encoding="utf-8")
    wrong = text.replace("(total_steps - step) / max(", "(total_steps + step) / max(")
    assert wrong != text
    checks = [("lr_linear_warmup", 0.1)]
    tasks = [
        {"record": "lr_linear_warmup"},
        {"file": SCHEDULE, "text": text, "checks": checks},
        {
            "file": SCHEDULE,
            "text": wrong,
            "checks": checks,
        },
        {"file": SCHEDULE, "text": text + "\nraise RuntimeError('broken')\n", "checks": checks},
    ]
    work = functools.partial(mutation_worker.answers, folder=tmp_path)
    found = results(tasks, work, 1, mutation_worker.without)
    assert [one["end"] for one in found] == ["recorded", "survived", "detected", "crashed"]
    assert found[0]["lines"][SCHEDULE]
    assert found[2]["check"] == "lr_linear_warmup"
    assert "learning_rate" in found[2]["said"]
    assert "RuntimeError: broken" in found[3]["said"]
    assert mutate._fingerprint() == before


def test_the_listing_names_every_survivor_and_the_share() -> None:
    ends = ["detected"] * 97 + ["crashed"] * 40 + ["timeout"]
    rows = [outcome(end) for end in ends]
    rows += [outcome("survived", line=12), outcome("survived", "align/certify/ports/a.py")]
    found = Mutants(5, rows, ("sot_paddle/a.py:3: 2 * 3 -> 3 * 2",), 2000, 60.0, 2)
    text = certificate_table.console(found)
    product = next(line for line in text.splitlines() if line.startswith("sot_paddle "))
    assert product.split() == ["sot_paddle", "139", "97", "1", "40", "1", "99.0%"]
    assert "sot_paddle/a.py:12: a - b -> b - a [operands]" in text
    assert "1 provably equal" in text
    assert "seed 5" in text
    assert found.share() == 97 / 98
    assert found.passed
    fewer = Mutants(5, [*rows, outcome("survived")])
    assert not fewer.passed
    said = "missing: 97 of 99 judged mutants of sot_paddle detected, 98% are needed"
    assert said in certificate_table.console(fewer)
    interrupted = Mutants(5, rows, asked=220)
    assert not interrupted.passed
    assert "missing: interrupted: 140 of 220 mutants ran" in certificate_table.console(interrupted)
    content = found.to_json()
    assert content["survived"] == 2
    expected = {"mutants": 140, "detected": 97, "survived": 2, "crashed": 40, "timeout": 1}
    assert found.counts() == expected
    assert len(found.survivors) == 2
    assert content["product"]["survived"] == 1
    assert len(content["rows"]) == 140


@pytest.mark.parametrize(("survivors", "status"), [(1, 0), (3, 1)])
def test_the_command_writes_and_says_what_it_found(
    survivors: int, status: int, tmp_path: Path, monkeypatch, capsys
) -> None:
    rows = [outcome("detected")] * 97 + [outcome("survived")] * survivors
    asked = []

    def found(*given: object) -> Mutants:
        asked.append(given[:3])
        return Mutants(4, rows)

    monkeypatch.setattr(mutate, "certify_mutants", found)
    arguments = ["--mutants", "98", "--seed", "4", "--jobs", "1", "--out", str(tmp_path)]
    assert cli.main([*arguments, "--json", str(tmp_path / "m.json")]) == status
    assert asked == [(98, 4, 1)]
    assert "Mutants that were not detected" in capsys.readouterr().out
    kept = [json.loads((tmp_path / name).read_text()) for name in ("m.json", "mutants.json")]
    assert kept[0] == kept[1]
    assert kept[0]["passed"] is (status == 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mutants", "5", "--case", "lr_*"], "--case means nothing with --mutants"),
        (["--mutants", "5", "--seeds", "3"], "--seeds means nothing with --mutants"),
        (["--seed", "5"], "--seed belongs to --mutants"),
        (["--certify", "--seed", "5"], "--seed belongs to --mutants"),
        (["--mutants", "0"], "expected at least 1, got 0 and 2"),
    ],
)
def test_refused_combinations(arguments: list[str], message: str, capsys) -> None:
    assert cli.main(arguments) == 2
    assert message in capsys.readouterr().err
