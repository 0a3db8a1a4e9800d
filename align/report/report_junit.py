"""A report as JUnit XML, which continuous integration systems read.

One test suite for each case, one test case for each step and dtype; a failure holds what the
console says. Times are seconds.
"""

from __future__ import annotations

from xml.etree import ElementTree

from align.record.results import Report, StepResult
from align.report.report_text import explain, headline

_UNPRINTABLE = {i: "?" for i in range(32) if chr(i) not in "\t\n\r"}


def junit(report: Report) -> bytes:
    """The XML document.

    Args:
        report: the run.

    Returns:
        UTF-8 bytes with declaration. A report without results has one failing test, because
        nothing was proved.
    """
    cases: dict[str, list[StepResult]] = {}
    for result in report.results:
        cases.setdefault(result.case, []).append(result)
    root = ElementTree.Element("testsuites", name=_text(headline(report)))
    total = failures = 0
    for case, results in cases.items():
        failed = sum(not result.passed for result in results)
        seconds = sum(result.seconds for result in results)
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=_text(case),
            tests=str(len(results)),
            failures=str(failed),
            errors="0",
            time=f"{seconds:.3f}",
        )
        for result in results:
            _case(suite, report, result)
        total, failures = total + len(results), failures + failed
    if not report.results:
        suite = ElementTree.SubElement(root, "testsuite", name="align", tests="1", failures="1")
        test = ElementTree.SubElement(suite, "testcase", classname="align", name="anything ran")
        ElementTree.SubElement(test, "failure", message="nothing was run, so nothing is proved")
        total = failures = 1
    root.set("tests", str(total))
    root.set("failures", str(failures))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n"


def _case(suite: ElementTree.Element, report: Report, result: StepResult) -> None:
    name = f"{result.step} {result.dtype}" if result.dtype else result.step
    test = ElementTree.SubElement(
        suite,
        "testcase",
        classname=_text(f"align.{result.case}"),
        name=_text(name),
        time=f"{result.seconds:.3f}",
    )
    if result.passed:
        return
    reasons = explain(result)
    found = [
        str(one)
        for one in report.findings
        if one.step == result.step and one.dtype in (result.dtype, None)
    ]
    failure = ElementTree.SubElement(
        test, "failure", message=_text(reasons[0]), type="AlignmentFailure"
    )
    failure.text = _text("\n".join([*reasons, *found]))


def _text(text: str) -> str:
    """Without the control characters that XML forbids."""
    return text.translate(_UNPRINTABLE)
