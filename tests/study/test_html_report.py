"""The report of a study in a real browser, in light and dark."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
import uvloop

from dralloc.study import Run, described_cluster, simulate, synthetic_trace
from dralloc.study.html_report import html_report
from tests.support.accessibility import accessibility_violations
from tests.support.browser import Page, browser_page

HOSTILE = "<img src=x onerror='window.taken=1'>&\"</svg>"


def study() -> list[Run]:
    """Two traces and two strategies; the names of one are hostile."""
    cluster = described_cluster("5x8:64:512")
    run = simulate(synthetic_trace("pods=60; cores=uniform(4, 12)"), cluster, load=1.2)
    settings = [(trace, strategy) for trace in ("one", HOSTILE) for strategy in ("Spread", f"My {HOSTILE}")]
    return [
        replace(run, setting=replace(run.setting, trace=trace, strategy=strategy, seed=seed))
        for trace, strategy in settings
        for seed in (1, 2)
    ]


@pytest.mark.slow
@pytest.mark.real
def test_the_report_in_a_browser(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(html_report(study()), encoding="utf-8")

    async def look(page: Page) -> None:
        await page.open(path.as_uri())
        assert await page.run("document.querySelectorAll('svg').length") == 1 + 2 * 3, "bars; lines and areas by trace"
        assert await page.run("document.querySelectorAll('svg polyline').length") == 4
        text = await page.text("body")
        for expected in ("Strategies side by side", "Allocation over arrivals", "Fragmentation by cause", HOSTILE):
            assert expected in text
        grounds = []
        for scheme in ("light", "dark"):
            await page.prefer(color_scheme=scheme)
            assert await accessibility_violations(page) == [], scheme
            assert await page.run(f"({PLOT_CONTRAST})()") == [], scheme
            grounds.append(await page.run("getComputedStyle(document.body).backgroundColor"))
        assert len(set(grounds)) == 2
        for width in (390, 1280):
            await page.resize(width, 800)
            assert await page.run("document.documentElement.scrollWidth <= innerWidth"), (
                f"no sideways scroll at {width}"
            )
        assert await page.run("window.taken") is None
        assert page.errors == []
        assert [sent.url for sent in page.sent if not sent.url.startswith(("file:", "about:"))] == []

    shown(look)


# Lines and texts of plots differ enough from the page: at least 3 to 1, and 4.5 to 1.
PLOT_CONTRAST = """() => {
  const pen = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const luminance = (colour) => {
    pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1);
    const parts = [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3).map((part) => part / 255);
    const [r, g, b] = parts.map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = luminance(getComputedStyle(document.body).backgroundColor);
  const contrast = (colour) => {
    const [light, dark] = [luminance(colour), ground].sort((one, other) => other - one);
    return (light + 0.05) / (dark + 0.05);
  };
  const faults = [];
  for (const each of document.querySelectorAll('svg text, svg polyline, svg rect, svg polygon')) {
    const style = getComputedStyle(each);
    const colour = each.tagName === 'polyline' ? style.stroke : style.fill;
    if (contrast(colour) < (each.tagName === 'text' ? 4.5 : 3)) faults.push(`${colour}: ${each.outerHTML.slice(0, 80)}`);
  }
  return faults;
}"""


def shown(look: Callable[[Page], Awaitable[None]]) -> None:
    async def looking() -> None:
        async with browser_page() as page:
            await look(page)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(looking())


def test_a_report_needs_nothing_but_itself() -> None:
    text = html_report(study())
    for loading in ("<script", "<link", "<img", "url(", "@import", "src="):
        assert loading not in text.replace("&lt;img src=x", ""), loading
