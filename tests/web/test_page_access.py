"""The page for everybody: by keyboard, with a screen reader, in both themes, and on a phone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dralloc.client.blocking_client import Client
from tests.support.accessibility import accessibility_violations
from tests.support.browser import Page
from tests.support.web_window import LIVE, Window

pytestmark = [pytest.mark.slow, pytest.mark.real]

VIEWS = {
    "all devices": "#/",
    "a node": "#/nodes/gpu-2",
    "a node with blocked devices": "#/nodes/mig-0",
    "a pool": "#/pools/nic.example.com/nic-0",
    "a device": "#/devices/gpu.example.com/gpu-1/gpu-0",
    "all claims": "#/claims",
    "a claim with devices": "#/claims/research/fine-tune",
    "alternatives": "#/claims/research/flexible",
    "a claim that waits": "#/claims/research/giant",
    "a claim that does not exist": "#/claims/research/missing",
    "all pods": "#/pods",
    "a pod that waits": "#/pods/research/giant",
    "a group": "#/podgroups/research/gang",
    "finds": "#/find?q=chat",
    "no finds": "#/find?q=nothing-has-this-name",
    "sign in": "#/sign-in",
    "a wrong address": "#/nowhere/at/all",
}
PHONE = (360, 740)
DESK = (1280, 800)
# Texts that a reader cannot see in whole: beyond the screen, or cut off by an element around them.
CUT_OFF = """(() => {
    const cut = [];
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        const element = texts.currentNode.parentElement;
        if (!texts.currentNode.data.trim() || !element.checkVisibility() || element.closest('.hidden-text, .skip, thead, option')) continue;
        const range = document.createRange();
        range.selectNodeContents(texts.currentNode);
        const box = range.getBoundingClientRect();
        let isCut = box.left < -0.5 || box.right > document.documentElement.clientWidth + 0.5;
        for (let each = element; each && !isCut; each = each.parentElement) {
            const style = getComputedStyle(each);
            const frame = each.getBoundingClientRect();
            if (style.overflowX !== 'visible' && (box.right > frame.right + 0.5 || each.scrollWidth > each.clientWidth + 1)) isCut = true;
            if (style.overflowY === 'hidden' && box.bottom > frame.bottom + 0.5) isCut = true;
            if (style.textOverflow === 'ellipsis') isCut = true;
        }
        if (isCut) cut.push(texts.currentNode.data.trim());
    }
    return cut;
})()"""
# What a thumb must hit: controls and links that lead on.
SMALL_TARGETS = """[...document.querySelectorAll('header a, button, input, select, summary, th a, .finds a, .device-name a, .share a')]
    .filter((each) => each.checkVisibility() && !each.matches('.skip, .link'))
    .filter((each) => each.getBoundingClientRect().height < 43.5).map((each) => each.outerHTML.slice(0, 120))"""


async def show(page: Page, view: str) -> None:
    await page.go(view)
    await page.until("!document.querySelector('main').innerText.includes('Loading')")
    await page.until("!document.querySelector('[aria-busy=true]')")


@pytest.mark.usefixtures("gang")
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_has_nothing_to_report(opened: Window, theme: str) -> None:
    async def look(page: Page) -> None:
        await page.prefer(color_scheme=theme, reduced_motion="reduce")
        found: dict[str, Any] = {}
        for name, view in VIEWS.items():
            await show(page, view)
            # What is folded is read, too.
            await page.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
            if violations := await accessibility_violations(page):
                found[name] = violations
        assert found == {}, json.dumps(found, indent=1)

    opened.run(look)


@pytest.mark.usefixtures("gang")
def test_every_text_is_readable_on_a_phone(opened: Window) -> None:
    async def look(page: Page) -> None:
        await page.prefer(color_scheme="light", reduced_motion="reduce")
        await page.resize(*PHONE)
        try:
            for name, view in VIEWS.items():
                await show(page, view)
                await page.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
                assert await page.run("document.documentElement.scrollWidth") <= PHONE[0], name
                assert await page.run(CUT_OFF) == [], name
                assert await page.run(SMALL_TARGETS) == [], name
            await show(page, VIEWS["all pods"])
            assert await accessibility_violations(page) == []
        finally:
            await page.resize(*DESK)

    opened.run(look)


def test_a_long_reason_is_readable_on_a_phone(opened: Window, client: Client) -> None:
    """Every part of a reason that names a device with a very long name, a node and an expression without a space."""
    expression = f"device.attributes['gpu.example.com'].model=='{'x' * 120}'"
    selector = {"selectors": [{"cel": {"expression": expression}}]}
    request = {"name": "r" * 60, "exactly": {"deviceClassName": "gpu.example.com", **selector}}
    claim = {"metadata": {"name": "w" * 60, "namespace": "research"}, "spec": {"devices": {"requests": [request]}}}
    client.create({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", **claim})

    async def look(page: Page) -> None:
        await page.resize(*PHONE)
        try:
            await show(page, f"#/claims/research/{'w' * 60}")
            await page.sees("x" * 120)
            await page.sees("does not fit on any of")
            assert await page.run(CUT_OFF) == []
            assert await page.run("document.documentElement.scrollWidth") <= PHONE[0]
        finally:
            await page.resize(*DESK)

    opened.run(look)


def test_the_keyboard_is_enough(opened: Window) -> None:
    focused = "document.activeElement"
    ring = f"getComputedStyle({focused}).outlineStyle !== 'none' && parseFloat(getComputedStyle({focused}).outlineWidth) >= 2"

    async def look(page: Page) -> None:
        await page.go("#/claims")
        await page.until(f"{focused}.innerText === 'Claims'")
        await page.press("/", "Slash")
        await page.until(f"{focused}.id === 'find'")
        await page.call("Input.insertText", text="fine-tune")
        await page.until("document.querySelectorAll('.finds').length === 2")
        assert await page.run(f"{focused}.id") == "find", "typing goes on"
        await page.press("Enter")
        await page.until(f"{focused}.closest('.finds')")
        assert await page.run(ring)
        await page.press("Enter")
        await page.until("location.hash === '#/claims/research/fine-tune'")
        await page.until(f"{focused}.tagName === 'H1'")
        await page.run("history.back()")
        await page.until("location.hash === '#/find?q=fine-tune'")
        await page.run("document.querySelector('.skip').focus()")
        await page.press("Enter")
        await page.until(f"{focused}.id === 'content'")

    opened.run(look)


def test_every_control_can_be_reached_with_tab_and_shows_the_focus(opened: Window) -> None:
    reachable = "[...document.querySelectorAll('a[href], button, input, select, summary')].filter((each) => each.tabIndex >= 0 && each.checkVisibility() && !each.disabled)"

    async def look(page: Page) -> None:
        await page.go("#/claims/research/flexible")
        await page.until("!document.querySelector('[aria-busy=true]')")
        await page.run(
            "document.activeElement.blur(); getSelection().removeAllRanges(); document.body.tabIndex = -1; document.body.focus()"
        )
        count = await page.run(f"{reachable}.length")
        for _ in range(count):
            await page.press("Tab")
            shown = await page.run(
                "(() => { const e = document.activeElement; const s = getComputedStyle(e); e.dataset.reached = 1;"
                " return s.outlineStyle !== 'none' && e.checkVisibility(); })()"
            )
            assert shown, await page.run("document.activeElement.outerHTML.slice(0, 200)")
        missed = f"{reachable}.filter((each) => !each.dataset.reached).map((each) => each.outerHTML.slice(0, 120))"
        assert await page.run(missed) == []

    opened.run(look)


def test_a_screen_reader_hears_of_a_search_and_not_of_the_cluster(opened: Window, client: Client) -> None:
    """The live regions change with what the user types; a claim that arrives changes the list in silence."""
    heard = "[...document.querySelectorAll('main [role=status]')].map((each) => each.textContent).join()"
    request = {"name": "device", "exactly": {"deviceClassName": "gpu.example.com"}}

    def create(name: str) -> None:
        claim = {"metadata": {"name": name, "namespace": "research"}, "spec": {"devices": {"requests": [request]}}}
        client.create({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", **claim})

    async def look(page: Page) -> None:
        create("quiet-1")
        await page.go("#/claims")
        await page.sees("quiet-1")
        await page.fill("#filter", "quiet")
        await page.until(f"{heard} === '1 claim'")
        create("quiet-2")
        await page.until("document.querySelector('.found').innerText === '2 claims'")
        assert await page.run(heard) == "1 claim"

    opened.run(look)


def test_a_chosen_theme_is_kept(opened: Window) -> None:
    ground = "getComputedStyle(document.documentElement).backgroundColor"

    async def look(page: Page) -> None:
        await page.prefer(color_scheme="light")
        light = await page.run(ground)
        await page.click(".icon-button")
        dark = await page.run(ground)
        assert dark != light
        await page.reload()
        await page.until(LIVE)
        assert await page.run(ground) == dark
        await page.click(".icon-button")
        assert await page.run(ground) == light
        await page.run("localStorage.clear()")

    opened.run(look)


def test_reduced_motion_is_respected(opened: Window) -> None:
    moving = (
        "[...document.querySelectorAll('*')].some((each) => parseFloat(getComputedStyle(each).transitionDuration) > 0)"
    )

    async def look(page: Page) -> None:
        await page.go("#/")
        await page.prefer(reduced_motion="no-preference")
        assert await page.run(moving), "bars move otherwise"
        await page.prefer(reduced_motion="reduce")
        assert not await page.run(moving)

    opened.run(look)
