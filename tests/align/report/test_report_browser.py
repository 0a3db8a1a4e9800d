"""The page in a real browser: nothing is cut on a phone, a print is short, links open results."""

import html
import re
import shutil
import subprocess

import numpy as np
import pytest

from align.judge.comparator import compare_arrays
from align.record.results import ControlResult, Divergence, StepResult, Tolerance
from align.record.run_report import Report
from align.report.report_html import page

CHROMIUM = shutil.which("chromium")
QUIET = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--hide-scrollbars",
)
RULE = Tolerance("scaled", 1e-10, "rounding is far below")
STAMPS = {"ours": {"framework": "paddle"}, "reference": {"framework": "torch"}}
LONG = "encoder.layers.11.attention.output.very_long_name_of_a_layer_without_a_place_to_break"


def report(cases, every):
    """Two results for each case, large ones for the first; each ``every``-th case fails."""
    results = []
    controls = [ControlResult("a fault", True, "seen " * 20, LONG)] * 5
    value = np.arange(3.0)
    for i in range(cases):
        off = 1e-3 if every and i % every == 0 else 1e-13
        names = [f"{LONG}.{k}" for k in range(40 if i < 10 else 1)]
        held = [compare_arrays(name, value + off, value, RULE) for name in names]
        for step in ("forward", "backward"):
            one = StepResult(f"case_{i}_{LONG}"[:38], step, "float64", held, controls)
            one.stamps = STAMPS
            results.append(one)
    found = [Divergence(LONG, f"{LONG}.{k}", "forward", "float64", "by 1", LONG) for k in range(40)]
    return Report({"packages": LONG}, results, found if every else [], notes=[LONG] * 40)


def browse(folder, text, *flags):
    """Open a page with chromium; returns what it prints."""
    (folder / "page.html").write_text(text, encoding="utf-8")
    command = [CHROMIUM, *QUIET, f"--user-data-dir={folder / 'profile'}", *flags]
    address = (folder / "page.html").as_uri()
    done = subprocess.run([*command, address], check=True, capture_output=True, timeout=120)
    return done.stdout.decode()


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
@pytest.mark.parametrize(("cases", "every"), [(350, 3), (1, 1)])
def test_a_print_has_ten_pages_at_most(tmp_path, cases, every):
    path = tmp_path / "report.pdf"
    browse(tmp_path, page(report(cases, every)), f"--print-to-pdf={path}")
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", path.read_bytes())) <= 10


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
@pytest.mark.parametrize("width", [390, 700, 1280])
def test_nothing_is_wider_than_the_screen(tmp_path, width):
    """A headless window is never as narrow as a phone: the page stands in a frame."""
    shown = page(report(2, 2)).replace("<details ", "<details open ")
    frame = f'<iframe style="border:0;width:{width}px" srcdoc="{html.escape(shown)}"></iframe>'
    script = (
        "onload = () => { const page = document.querySelector('iframe').contentDocument;"
        "const wide = [...page.querySelectorAll('body *')].filter(one => !one.closest('svg') &&"
        " (one.getBoundingClientRect().right > page.documentElement.clientWidth + 1 ||"
        " one.scrollWidth > one.clientWidth + 1 && one.clientWidth));"
        "document.body.innerHTML = '<b>' + page.body.scrollWidth + ':' +"
        " wide.slice(0, 3).map(one => one.outerHTML.slice(0, 60)).join() + '</b>'; }"
    )
    text = f"<!DOCTYPE html><body style='margin:0'>{frame}<script>{script}</script></body>"
    printed = browse(tmp_path, text, f"--window-size={width},900", "--dump-dom")
    assert re.search(r"<b>(.*?)</b>", printed, re.S)[1] == f"{width}:"


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_a_link_opens_its_result(tmp_path):
    shown = page(report(1, 0))
    script = "<script>onload = () => { location.hash = '#r1'; }</script>"
    printed = browse(tmp_path, shown.replace("</body>", f"{script}</body>"), "--dump-dom")
    rows = re.findall(r'<details class="pass[^>]*>', printed)
    assert ["open" in row for row in rows] == [False, True]
