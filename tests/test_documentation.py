"""The README is short, and what README and docs link to exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
MAX_README_LINES = 120


def _without_code(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)


def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as code hosts make them."""
    headings = re.findall(r"^#+ (.+)$", _without_code(page), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}


def _broken_links(page: Path) -> list[str]:
    """Relative links of a page whose file or heading does not exist."""
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", _without_code(page)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            broken.append(link)
    return broken


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= MAX_README_LINES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page):
    assert _broken_links(page) == []


def test_the_readme_links_every_page():
    linked = set(re.findall(r"\]\((docs/\w+\.md)\)", _without_code(ROOT / "README.md")))
    assert linked == {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")}


def test_broken_links_are_found(tmp_path):
    """A missing file, a missing heading here and there; not a link inside a code block."""
    (tmp_path / "other.md").write_text("# A `b` c\n", encoding="utf-8")
    page = tmp_path / "page.md"
    text = "[1](other.md#a-b-c) [2](no.md) [3](other.md#d) [4](#e) [5](https://x.org)\n"
    page.write_text(f"{text}```text\n[6](gone.md)\n```\n", encoding="utf-8")
    assert _broken_links(page) == ["no.md", "other.md#d", "#e"]
