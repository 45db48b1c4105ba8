"""The links and anchors of an HTML page, as far as tests of the documentation site need them."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


@dataclass
class Link:
    target: str
    # Part of the page's own text, not of the navigation around it.
    is_in_text: bool


@dataclass
class HtmlPage(HTMLParser):
    """One page of the site."""

    path: Path
    ids: set[str] = field(default_factory=set)
    links: list[Link] = field(default_factory=list)
    _articles: int = 0

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._articles += tag == "article"
        for name, value in attrs:
            if value is None:
                continue
            if name == "id":
                self.ids.add(value)
            elif name in ("href", "src") or (name == "srcset" and tag == "source"):
                self.links.append(Link(value, self._articles > 0))

    def handle_endtag(self, tag: str) -> None:
        self._articles -= tag == "article"

    def target_of(self, link: Link) -> tuple[Path, str] | None:
        """File and anchor that a link leads to; None if it leads out of the site."""
        parts = urlsplit(link.target)
        if parts.scheme or parts.netloc:
            return None
        path = (self.path.parent / unquote(parts.path)).resolve() if parts.path else self.path
        return path, unquote(parts.fragment)
