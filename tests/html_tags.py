"""A page as tests see it: tags, attributes and text; an unclosed tag fails."""

from __future__ import annotations

import re
from html.parser import HTMLParser

VOID = {"meta", "br", "wbr", "img", "link", "hr", "input"}


class Page(HTMLParser):
    """Collects tags, attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags, self.attributes, self.stack, self.opened, self.text = [], [], [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag == "details" and dict(attrs).get("class", "").split()[:1] in (["pass"], ["fail"]):
            self.opened.append("open" in dict(attrs))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag) -> None:
        assert self.stack.pop() == tag

    def handle_data(self, data) -> None:
        self.text += data

    def values(self, name: str) -> list[str]:
        """Every value of an attribute."""
        return [value for key, value in self.attributes if key == name]


def assert_stands_alone(text: str) -> Page:
    """Well formed, without a script, and nothing in it refers to another file or host."""
    page = Page(text)
    assert page.stack == []
    assert not {"script", "link", "iframe"} & set(page.tags)
    assert not re.search(r"https?:|//|@import|url\(", re.sub(r"base64,[^\"]*", "", text))
    assert not any(name.startswith("on") for name, _ in page.attributes)
    assert set(page.values("href")) <= {f"#{name}" for name in page.values("id")}
    assert all(source.startswith("data:") for source in page.values("src"))
    assert "width=device-width" in text
    assert "prefers-color-scheme" in text
    return page
