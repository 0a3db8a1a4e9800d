"""Parts of the report's page, which stands alone, without network or script, on phone and paper.

Texts are plain and are escaped here; arguments called ``html`` are ready markup. Tables become
labelled blocks where the screen is narrow, so nothing is cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

STYLE = """
:root { color-scheme: light dark; --bg:#fbfbfa; --card:#ffffff; --ink:#1c2024; --soft:#5d6670;
  --line:#e1e3e6; --faint:#f3f4f5; --pass:#1d7a4a; --pass-bg:#e8f4ed; --fail:#b3261e;
  --fail-bg:#fbeae8; --focus:#2458b0; }
@media (prefers-color-scheme: dark) { :root { --bg:#14171a; --card:#1b1f23; --ink:#e4e7ea;
  --soft:#9aa4ae; --line:#31373d; --faint:#22272c; --pass:#5cc48d; --pass-bg:#17301f;
  --fail:#f28b82; --fail-bg:#3a1d1b; --focus:#7fabf5; } }
* { box-sizing:border-box; }
html { -webkit-text-size-adjust:100%; }
body { margin:0; background:var(--bg); color:var(--ink); font:15px/1.55 system-ui, -apple-system,
  "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width:1080px; margin:0 auto; padding:32px 24px 64px; overflow-wrap:anywhere; }
h1 { font-size:22px; line-height:1.25; font-weight:600; letter-spacing:-.01em; margin:0 0 14px; }
h2 { font-size:19px; font-weight:600; letter-spacing:-.01em; margin:40px 0 12px; }
h3 { font-size:15px; font-weight:600; margin:28px 0 8px; }
h4 { font-size:13px; font-weight:600; margin:20px 0 6px; color:var(--soft); }
p { margin:0 0 10px; max-width:74ch; }
a { color:inherit; text-underline-offset:2px; text-decoration-color:var(--soft); }
code { font:12.5px/1.5 ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas,
  "DejaVu Sans Mono", monospace; }
dl { margin:6px 0 12px; display:grid; grid-template-columns:max-content minmax(0, 1fr);
  gap:2px 14px; }
dt { font-weight:600; } dd { margin:0; }
.soft { color:var(--soft); }
.pass { --tone:var(--pass); --tone-bg:var(--pass-bg); }
.fail { --tone:var(--fail); --tone-bg:var(--fail-bg); }
.banner { border:1px solid var(--line); border-left:6px solid var(--tone); background:var(--card);
  border-radius:6px; padding:20px 24px; }
.banner strong { display:block; font-size:28px; line-height:1.2; color:var(--tone); }
.banner p { margin:6px 0 0; }
.banner ul { margin:12px 0 0; padding-left:18px; }
.facts { display:grid; grid-template-columns:repeat(auto-fit, minmax(150px, 1fr)); gap:1px;
  background:var(--line); border:1px solid var(--line); border-radius:6px; overflow:hidden;
  margin:14px 0 0; }
.facts div { background:var(--card); padding:12px 16px; }
.facts b { display:block; font-size:20px; font-weight:600; }
.facts span { color:var(--soft); font-size:13px; }
.facts, table, summary { font-variant-numeric:tabular-nums; }
table { border-collapse:separate; border-spacing:0; width:100%; font-size:13.5px;
  border:1px solid var(--line); border-radius:6px; background:var(--card); }
th, td { padding:7px 12px; border-bottom:1px solid var(--line); vertical-align:top;
  text-align:left; }
tr:last-child > td, tr:last-child > th { border-bottom:0; }
thead th { color:var(--soft); font-weight:600; font-size:12.5px; overflow-wrap:normal; }
tbody th { font-weight:500; min-width:110px; }
td.n, th.n { text-align:right; white-space:nowrap; }
.chip { display:inline-block; padding:1px 7px; margin:1px; border-radius:4px; font-size:12px;
  color:var(--tone); background:var(--tone-bg); text-decoration:none; white-space:nowrap; }
summary { cursor:pointer; list-style:none; }
summary::-webkit-details-marker { display:none; }
summary::before { content:"\\25B8"; font-size:16px; line-height:1; }
details[open] > summary::before { content:"\\25BE"; }
summary:focus-visible { outline:2px solid var(--focus); outline-offset:1px; }
@media screen and (max-width:640px) { main { padding:18px 12px 40px; } h2 { margin-top:32px; }
  .banner { padding:16px; } .banner strong { font-size:24px; }
  .facts { grid-template-columns:1fr 1fr; } dl { grid-template-columns:1fr; } }
@media screen and (max-width:820px) { table, tbody, tr, th, td { display:block; width:auto; }
  thead, td:empty { display:none; }
  tr { padding:6px 12px; border-bottom:1px solid var(--line); }
  tbody th, tbody td, tbody td.n { border:0; padding:2px 0; text-align:left; white-space:normal; }
  td[data-label]::before { content:attr(data-label) " "; color:var(--soft); } }
@page { margin:12mm; }
@media print { body { background:#fff; font-size:10px; } main { max-width:none; padding:0; }
  h2 { margin:18px 0 6px; font-size:14px; } .banner { padding:8px 14px; } table { font-size:8.5px; }
  code { font-size:inherit; } h3 { font-size:12px; margin:12px 0 4px; }
  th, td { padding:2px 6px; } tr { break-inside:avoid; } h2, h3 { break-after:avoid; } }
"""


def document(title: str, html: str, style: str = "") -> str:
    """A whole page, with rules of style of its own; it refers to no other file or host."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}{style}</style></head>"
        f"<body><main>{html}</main></body></html>\n"
    )


def banner(passed: bool, word: str, sentence: str, items: Sequence[str] = ()) -> str:
    """The verdict: one large word, a sentence, and a list of ready ``items``."""
    rows = f"<ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>" if items else ""
    return (
        f'<section class="banner {"pass" if passed else "fail"}"><strong>{escape(word)}</strong>'
        f"<p>{escape(sentence)}</p>{rows}</section>"
    )


def facts(counts: Iterable[tuple[str, str]]) -> str:
    """Large numbers, each above what it counts."""
    cells = (f"<div><b>{escape(n)}</b><span>{escape(what)}</span></div>" for n, what in counts)
    return f'<div class="facts">{"".join(cells)}</div>'


def listed(rows: Iterable[tuple[str, str]]) -> str:
    """Names and what they mean, both plain text; "" without rows."""
    cells = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in rows)
    return f"<dl>{cells}</dl>" if cells else ""


def properties(values: Mapping[str, Any]) -> str:
    """A table of names and values, nested or not, such as the environment of a run."""
    cells = [[escape(str(name)), f"<code>{escape(spoken(v))}</code>"] for name, v in values.items()]
    return table(("", ""), cells) if cells else "<p>Nothing was recorded.</p>"


def spoken(value: Any) -> str:
    """Nested mappings and lists in one line: "numpy 1.26, torch 2.13"."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {spoken(item)}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(spoken, value))
    return str(value)


def chip(passed: bool, text: str, title: str = "", link: str = "") -> str:
    """A small coloured mark; with ``link`` it leads to the element of that id."""
    state = f'class="chip {"pass" if passed else "fail"}"'
    hint = f' title="{escape(title)}"' if title else ""
    start, end = (f'a href="#{link}"', "a") if link else ("span", "span")
    return f"<{start} {state}{hint}>{escape(text)}</{end}>"


def table(titles: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "") -> str:
    """A table of ready HTML cells, whose first column names the row.

    Args:
        titles: plain text; one that starts with # makes a column of numbers.
        rows: as many cells each as there are titles; an empty one is left out on a phone.
        kind: class of the table.
    """
    kinds = [' class="n"' if title.startswith("#") else "" for title in titles]
    names = [escape(title.lstrip("#")) for title in titles]
    labels = [f' data-label="{name}"' if name else "" for name in names]
    top = "".join(f"<th{k}>{name}</th>" for k, name in zip(kinds, names, strict=True))
    body = []
    for name, *cells in rows:
        marks = zip(kinds[1:], labels[1:], cells, strict=True)
        shown = "".join(f"<td{k}{label if cell else ''}>{cell}</td>" for k, label, cell in marks)
        body.append(f"<tr><th>{name}</th>{shown}</tr>")
    head = f"<thead><tr>{top}</tr></thead>" if any(names) else ""
    start = f'<table class="{kind}">' if kind else "<table>"
    return f"{start}{head}<tbody>{''.join(body)}</tbody></table>"
