"""From a name to its node, device and share in at most two clicks, each with an address of its own."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from dralloc.client.blocking_client import Client
from dralloc.kube.resource_v1 import ResourceClaim
from tests.support.browser import Page
from tests.support.web_window import LIVE, Window

pytestmark = [pytest.mark.slow, pytest.mark.real]


@dataclass(frozen=True)
class Place:
    """Where a claim's share is."""

    node: str
    device: str
    share: str

    @property
    def address(self) -> str:
        return f"#/devices/gpu.example.com/{self.node}/{self.device}"


def place_of(client: Client, name: str) -> Place:
    allocation = client.get(ResourceClaim, name, namespace="serving").status.allocation
    assert allocation is not None, "it is allocated when the page is opened"
    (result,) = allocation.devices.results
    assert result.share_id is not None, "cards are shared"
    return Place(result.pool, result.device, result.share_id)


async def find(page: Page, name: str) -> None:
    """What a user does: the key, then the name."""
    await page.run("document.activeElement.blur()")
    await page.press("/", "Slash")
    await page.fill("#find", name)
    await page.until(f"location.hash === '#/find?' + new URLSearchParams({{ q: {json.dumps(name)} }})")


async def follow(page: Page, address: str, within: str = "main") -> None:
    """One click on a link that leads there."""
    await page.click(f"{within} a[href={json.dumps(address)}]")
    await page.until(f"location.hash === {json.dumps(address)}")


@pytest.mark.parametrize("name", ["chat-0", "serving/chat-0"])
def test_from_a_pod_or_a_claim_one_click_leads_to_node_device_and_share(
    opened: Window, client: Client, name: str
) -> None:
    place = place_of(client, "chat-0")
    share = f"{place.address}?share={place.share}"

    async def look(page: Page) -> None:
        for address in (f"#/nodes/{place.node}", place.address, share):
            await find(page, name)
            await follow(page, address)
        marked = "document.querySelector('[aria-current=true]').innerText"
        await page.until(f"{marked}.includes('serving/chat-0')")
        assert "40Gi of memory" in await page.run(marked)
        assert place.share in await page.run(marked)

    opened.run(look)


def test_from_a_node_the_second_click_leads_to_a_device_and_from_a_device_to_a_share(
    opened: Window, client: Client
) -> None:
    place = place_of(client, "chat-0")

    async def look(page: Page) -> None:
        await find(page, place.node)
        await follow(page, f"#/nodes/{place.node}")
        await follow(page, place.address)
        await find(page, f"{place.node}/{place.device}")
        await follow(page, place.address)
        await follow(page, f"{place.address}?share={place.share}")

    opened.run(look)


def test_the_id_of_a_share_leads_to_its_claim(opened: Window, client: Client) -> None:
    place = place_of(client, "chat-1")

    async def look(page: Page) -> None:
        await find(page, place.share[:13])
        await follow(page, "#/claims/serving/chat-1")

    opened.run(look)


def test_every_place_has_an_address_and_the_way_back(opened: Window, client: Client) -> None:
    place = place_of(client, "chat-0")
    share = f"{place.address}?share={place.share}"

    async def look(page: Page) -> None:
        await page.go("#/claims")
        await find(page, "chat")
        await follow(page, place.address)
        await page.run("history.back()")
        await page.until("location.hash === '#/find?q=chat' && document.querySelector('#find').value === 'chat'")
        await page.run("history.back()")
        await page.until("location.hash === '#/claims'")
        await page.go(share)
        await page.reload()
        await page.until(LIVE)
        await page.until("document.querySelector('[aria-current=true]')")
        assert await page.run("document.querySelector('h1').innerText") == place.device

    opened.run(look)


def test_a_search_without_a_match_says_so(opened: Window) -> None:
    async def look(page: Page) -> None:
        await find(page, "<b>nobody</b>")
        await page.sees("Nothing has a name with <b>nobody</b>")
        await page.go("#/devices/gpu.example.com/gpu-0/gpu-99")
        await page.sees("There is no device gpu-99")
        await page.go("#/devices/gpu.example.com/gpu-0/gpu-0?share=released")
        await page.sees("No claim has the share released any more")
        # Not what every object has.
        await page.go("#/?by=__proto__")
        await page.sees("without this label", ".tiles")

    opened.run(look)
