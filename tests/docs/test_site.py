"""The documentation site as its readers use it: links, two clicks to every page, and search, keyboard, phone and dark mode in a browser."""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from tests.support.accessibility import accessibility_violations
from tests.support.browser import Page, browser_page
from tests.support.html import HtmlPage
from tests.support.markdown import pages_of
from tests.support.source_tree import ROOT

FIRST_PAGES = (ROOT / "README.md", ROOT / "docs" / "README.md")
CLICKS_MAX = 2
SCREEN = (1440, 900)
PHONE = (390, 800)
CONTROL = 2
# The name of the theme's search button lacks its keys, and arrows in its navigation have no name.
OF_THE_THEME = ("label-content-name-mismatch", "summary-name")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site; all workers share it, so that one builds it."""
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "documentation"
    shared.mkdir(exist_ok=True)
    with (shared / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (shared / "site" / "index.html").exists():
            built = subprocess.run(
                ["make", "--old-file=setup", "site", f"SITE={shared / 'site'}"],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
            )
            assert built.returncode == 0, built.stdout + built.stderr
    return shared / "site"


@pytest.fixture(scope="module")
def rendered(site: Path) -> dict[Path, HtmlPage]:
    """The pages of the site by their files."""
    return {path: HtmlPage(path) for path in site.rglob("*.html") if "_static" not in path.parts}


def html_of(page: Path, site: Path) -> Path:
    return site / page.relative_to(ROOT).with_suffix(".html")


def test_links_of_the_site_lead_somewhere(site: Path, rendered: dict[Path, HtmlPage]) -> None:
    faults = []
    for page in rendered.values():
        for link in page.links:
            if (target := page.target_of(link)) is None:
                # Checked for its form only: tests need no network.
                well_formed = re.match(
                    r"https://[\w.-]+\.\w+(/|$)|mailto:\S+@\S+$|data:|http://127\.0\.0\.1", link.target
                )
                leads_somewhere = well_formed is not None
            else:
                path, anchor = target
                leads_somewhere = path.is_file() and (
                    not anchor or path not in rendered or anchor in rendered[path].ids
                )
            if not leads_somewhere:
                faults.append(f"{page.path.relative_to(site)}: {link.target}")
    assert not faults


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    loading = re.compile(r"""<(?:script|link|img|source)\b[^>]*\b(?:src|href|srcset)="(?:https?:)?//[^"]*\"""")
    faults = [
        f"{path.relative_to(site)}: {found[0]}"
        for path in site.rglob("*.html")
        if (found := loading.search(path.read_text()))
    ]
    assert not faults


@pytest.mark.parametrize("first", FIRST_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_page_is_found_within_two_clicks(first: Path, site: Path, rendered: dict[Path, HtmlPage]) -> None:
    """By links in the text, so that it holds on a code host, too; the site's navigation is shorter."""
    found = reached = {html_of(first, site)}
    for _ in range(CLICKS_MAX):
        reached = {
            target[0]
            for path in reached
            for link in rendered[path].links
            if link.is_in_text and (target := rendered[path].target_of(link)) and target[0] in rendered
        } - found
        found = found | reached
    missing = [str(page.relative_to(ROOT)) for page in pages_of(ROOT) if html_of(page, site) not in found]
    assert not missing, f"link to these pages from docs/README.md: {missing}"


def test_the_navigation_has_every_page(site: Path, rendered: dict[Path, HtmlPage]) -> None:
    first = rendered[site / "index.html"]
    in_navigation = {target[0] for link in first.links if not link.is_in_text and (target := first.target_of(link))}
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "reference").glob("*.md")]
    assert [page.name for page in pages if html_of(page, site) not in in_navigation] == []


@asynccontextmanager
async def serving(site: Path) -> AsyncIterator[str]:
    """The URL of the site on this machine, inside the block."""
    application = web.Application()
    application.router.add_static("/", site)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.mark.real
def test_the_site_in_a_browser(site: Path) -> None:
    async def look() -> None:
        async with serving(site) as url, browser_page() as page:
            await page.resize(*SCREEN)
            await readme_fits_on_two_screens(page, url)
            await search_by_keyboard(page, url)
            for width, height in (SCREEN, PHONE):
                for theme in ("light", "dark"):
                    await page.resize(width, height)
                    await page.prefer(color_scheme=theme)
                    await can_be_read(page, url, theme)
            await menu_on_a_phone(page, url)
            assert page.errors == []
            assert {sent.url for sent in page.sent if not sent.url.startswith((url, "data:"))} == set()

    asyncio.run(look())


async def readme_fits_on_two_screens(page: Page, url: str) -> None:
    await page.open(f"{url}/index.html")
    # As wide as a code host shows it.
    column = "document.querySelector('article').getBoundingClientRect()"
    assert 640 <= await page.run(f"{column}.width") <= 900
    assert await page.run(f"{column}.height") <= 2 * SCREEN[1]


async def search_by_keyboard(page: Page, url: str) -> None:
    """Control and K, a word, Enter; then Enter on the first page that was found."""
    await page.open(f"{url}/index.html")
    for event in ("keyDown", "keyUp"):
        await page.call(
            "Input.dispatchKeyEvent", type=event, key="k", code="KeyK", windowsVirtualKeyCode=75, modifiers=CONTROL
        )
    for letter in "reservedForAnyPod":
        await page.press(letter)
    async with page.loading():
        await page.press("Enter")
    found = "#search-results li a"
    await page.until(
        f"[...document.querySelectorAll('{found}')].some(({{ href }}) => href.includes('docs/concepts.html'))"
    )
    await page.run(f"document.querySelector('{found}').focus()")
    async with page.loading():
        await page.press("Enter")
    await page.sees("reservedForAnyPod", "article")


async def can_be_read(page: Page, url: str, theme: str) -> None:
    for name in ("index", "docs/comparison"):
        await page.open(f"{url}/{name}.html")
        await page.until(f"document.documentElement.dataset.theme === '{theme}' && !document.getAnimations().length")
        assert await page.run("document.documentElement.scrollWidth <= innerWidth"), f"{name} is wider than the screen"
        faults = [fault for fault in await accessibility_violations(page) if fault["id"] not in OF_THE_THEME]
        assert faults == [], f"{name}, {theme}"


async def menu_on_a_phone(page: Page, url: str) -> None:
    """The navigation is behind a button; a link of it opens its page."""
    await page.open(f"{url}/index.html")
    entry = "[...document.querySelectorAll('dialog[open] nav a')].find((link) => link.innerText === 'Glossary')"
    await page.click("button.primary-toggle")
    await page.until(f"{entry}?.checkVisibility()")
    async with page.loading():
        await page.run(f"{entry}.click()")
    await page.sees("One word for each thing", "article")


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text('<a href="b.html#x">b</a><article><a id="here" href="#here">c</a></article>')
    page = HtmlPage(tmp_path / "page.html")
    assert [(page.target_of(link), link.is_in_text) for link in page.links] == [
        ((tmp_path / "b.html", "x"), False),
        ((tmp_path / "page.html", "here"), True),
    ]
    assert page.ids == {"here"}
