"""The files of a report: JSON, JUnit XML for continuous integration, one page for people.

Files are written atomically: a reader sees the old file or the whole new one. JUnit XML has a test
suite for each case, a test case for each step and dtype; a failure holds what the console says.
Times are seconds.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from align.record.results import StepResult
from align.record.run_report import Report
from align.report.report_html import page
from align.report.report_text import NOTHING, console, explain, headline
from sot_paddle.atomic import write_atomically

__all__ = ["check_writable", "console", "write_asked", "write_page"]

Name = str | os.PathLike[str]


def write_page(report: Report, out: Name) -> Path:
    """Writes report.json and report.html into a folder; returns the path of the page."""
    write_atomically(Path(out) / "report.json", report.dumps().encode())
    return write_atomically(Path(out) / "report.html", page(report).encode())


def check_writable(folders: Sequence[Name | None], files: Sequence[Name | None] = ()) -> None:
    """Creates the folders that files will be written to, before the work; None is passed over.

    Raises:
        ValueError: a folder cannot be created, or one stands in a file's place.
    """
    wanted = [(name, Path(name)) for name in folders if name is not None]
    wanted += [(name, Path(name).parent) for name in files if name is not None]
    for name, folder in wanted:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"cannot write to {name}: {error.strerror}") from error
    for name in files:
        if name is not None and Path(name).is_dir():
            raise ValueError(f"cannot write to {name}: it is a folder, expected a file")


def write_asked(report: Report, out: Name | None, json: Name | None, junit: Name | None) -> None:
    """Writes the files that a command was asked for and prints where they are."""
    if json:
        print("JSON:", write_atomically(json, report.dumps().encode()))
    if junit:
        print("JUnit XML:", write_atomically(junit, junit_of(report)))
    if out:
        print("HTML report:", write_page(report, out))


_UNPRINTABLE = {i: "?" for i in range(32) if chr(i) not in "\t\n\r"}


def junit_of(report: Report) -> bytes:
    """Return a report as JUnit XML.

    Returns:
        UTF-8 bytes with declaration. A report without results has one failing test, because
        nothing was proved.
    """
    results = report.results
    failures = sum(not result.passed for result in results)
    root = _element(None, "testsuites", name=headline(report))
    for case, case_results in report.cases.items():
        tests = str(len(case_results))
        failed = str(sum(not result.passed for result in case_results))
        seconds = f"{sum(result.seconds for result in case_results):.3f}"
        suite = _element(
            root, "testsuite", name=case, tests=tests, failures=failed, errors="0", time=seconds
        )
        for result in case_results:
            _case(suite, report, result)
    if not results:
        suite = _element(root, "testsuite", name="align", tests="1", failures="1")
        test = _element(suite, "testcase", classname="align", name="anything ran")
        _element(test, "failure", message=NOTHING)
    root.set("tests", str(len(results) or 1))
    root.set("failures", str(failures if results else 1))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n"


def _case(suite: Element, report: Report, result: StepResult) -> None:
    name = f"{result.step} {result.dtype}" if result.dtype else result.step
    seconds = f"{result.seconds:.3f}"
    test = _element(suite, "testcase", classname=f"align.{result.case}", name=name, time=seconds)
    if result.passed:
        return
    reasons = explain(result)
    findings = [
        str(finding)
        for finding in report.findings
        if finding.step == result.step and finding.dtype in (result.dtype, "")
    ]
    failure = _element(test, "failure", message=reasons[0], type="AlignmentFailure")
    failure.text = _text("\n".join([*reasons, *findings]))


def _element(
    parent: ElementTree.Element | None, tag: str, **attributes: str
) -> ElementTree.Element:
    kept = {name: _text(value) for name, value in attributes.items()}
    if parent is None:
        return ElementTree.Element(tag, kept)
    return ElementTree.SubElement(parent, tag, kept)


def _text(text: str) -> str:
    """Without the control characters that XML forbids."""
    return text.translate(_UNPRINTABLE)
