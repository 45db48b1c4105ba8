"""The documentation site: Sphinx renders the pages of the repository as they are, so that each page also reads well on a code host.

`make site` builds it. The lists of docs/README.md are its navigation.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from sphinx.addnodes import pending_xref

ROOT = Path(__file__).parents[2]
INDEX = ROOT / "docs" / "README.md"
PICTURES = ROOT / "docs" / "screenshots"

project = "dralloc"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "README"
# Quotes and dashes stay as they are typed, also in options outside code.
smartquotes = False
# Colours only: `…` stands for omitted text, which no language knows.
suppress_warnings = ["misc.highlighting_failure"]
include_patterns = ["*.md", "docs/**", "examples/**", "deploy/**"]
exclude_patterns = ["docs/site"]

# Anchors as code hosts make them.
myst_heading_anchors = 6

html_theme = "pydata_sphinx_theme"
html_title = "dralloc"
html_favicon = html_logo = "../../src/dralloc/web/static/icon.svg"
templates_path = ["templates"]
html_static_path = ["static"]
html_css_files = ["site.css"]
html_sidebars = {"**": ["all-pages.html"]}
html_context = {"default_mode": "auto"}
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_theme_options = {
    "logo": {"text": "dralloc"},
    "navbar_center": [],
    "navbar_end": ["theme-switcher"],
    "search_as_you_type": True,
    "show_prev_next": False,
    "secondary_sidebar_items": {"**": ["page-toc"], root_doc: []},
    "footer_start": [],
    "footer_end": [],
}


def table_of_contents(pages: list[Path], *options: str) -> str:
    paths = (f"/{page.relative_to(ROOT)}" for page in pages)
    return "\n".join(["", "```{toctree}", ":hidden:", *options, "", *paths, "```", ""])


def linked_pages(page: Path, text: str) -> list[Path]:
    """The pages that the text links to, in order."""
    return [(page.parent / target).resolve() for target in re.findall(r"\]\(([^)#:]+\.md)\)", text)]


def add_navigation(app: Any, name: str, source: list[str]) -> None:
    """Each section of docs/README.md is one of the site; each page of another folder is below the README of the folder."""
    page = ROOT / f"{name}.md"
    if name == root_doc:
        app.env.note_dependency(str(INDEX))
        source[0] += table_of_contents([INDEX])
        _, *sections = re.split(r"^## ", INDEX.read_text(), flags=re.M)
        for section in sections:
            caption, _, text = section.partition("\n")
            source[0] += table_of_contents(linked_pages(INDEX, text), f":caption: {caption}")
    elif page.name == "README.md" and page != INDEX:
        below = [linked for linked in linked_pages(page, source[0]) if linked.parent.is_relative_to(page.parent)]
        source[0] += table_of_contents(below)


def unlink_folders(app: Any, tree: Any) -> None:
    """A code host shows folders, the site has none: there their names are plain text."""
    folder = (ROOT / f"{app.env.docname}.md").parent
    for link in list(tree.findall(pending_xref)):
        if (folder / link["reftarget"]).is_dir():
            link.replace_self(link.children)


def add_files(app: Any, error: Exception | None) -> None:
    """Pictures keep their place beside the pages; the first page is also found without a name."""
    if error is None:
        site = Path(app.outdir)
        shutil.copytree(PICTURES, site / PICTURES.relative_to(ROOT), dirs_exist_ok=True)
        shutil.copy(site / f"{root_doc}.html", site / "index.html")


def setup(app: Any) -> None:
    app.connect("source-read", add_navigation)
    app.connect("doctree-read", unlink_folders)
    app.connect("build-finished", add_files)
