"""The links that programs print, opened as they are in a browser that was never here."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.browser import Page
from tests.support.cluster_process import cluster_process
from tests.support.server_process import server_process
from tests.support.web_window import LIVE, window

pytestmark = [pytest.mark.slow, pytest.mark.real]

HEADING = "document.querySelector('h1')?.innerText"
NODES = ("--ephemeral", "--nodes", "gpu=1")


def link_in(said: str) -> str:
    """The address after the words "web page"."""
    found = re.search(r"web page +(\S+)", said)
    assert found is not None, said
    return found[1]


async def open_link(page: Page, link: str) -> None:
    await page.open(link)
    await page.until(LIVE)


async def check_token_is_gone(page: Page, token: str) -> None:
    """Neither the address nor the title has it, and going back does not bring it back."""
    assert token not in await page.run("location.href + document.title")
    history = await page.call("Page.getNavigationHistory")
    assert not [entry["url"] for entry in history["entries"] if token in entry["url"]]


@pytest.mark.parametrize(
    "options", [(), ("--tls",), ("--tls", "--bind", "0.0.0.0")], ids=["plain", "tls", "every-address"]
)
def test_the_link_of_a_cluster_shows_its_devices(options: tuple[str, ...]) -> None:
    async def look(page: Page, link: str) -> None:
        await open_link(page, link)
        await page.until(f"{HEADING} === 'Devices'")
        await page.sees("gpu.example.com")
        assert "ot found" not in await page.text("body")
        assert await page.run("location.hash") == "#/"
        await check_token_is_gone(page, token_of(link))
        await page.reload()
        await page.until(LIVE)
        await page.until(f"{HEADING} === 'Devices'")

    with cluster_process(*NODES, *options) as cluster, window("--ignore-certificate-errors") as shown:
        shown.run(lambda page: look(page, link_in(cluster.said)))


def test_a_link_to_a_view_can_have_the_token() -> None:
    async def look(page: Page, link: str) -> None:
        home, token = link.partition("#")[0], token_of(link)
        for fragment, left, heading in (
            (f"#/nodes/gpu-0?token={token}", "#/nodes/gpu-0", "gpu-0"),
            (f"#/pods?token={token}&q=chat", "#/pods?q=chat", "Pods"),
            (f"#token={token}#/claims?q=chat", "#/claims?q=chat", "Claims"),
            (f"#token={token}#/", "#/", "Devices"),
            # Nobody gets here, and the token must not stay, all the same.
            (f"#/nowhere?token={token}", "#/nowhere", "Not found"),
        ):
            await open_link(page, home + fragment)
            await page.until(f"{HEADING} === {heading!r}")
            assert await page.run("location.hash") == left
            await check_token_is_gone(page, token)
            await page.run("sessionStorage.clear()")
            await page.open("about:blank")

    with cluster_process(*NODES, "--tls") as cluster, window("--ignore-certificate-errors") as shown:
        shown.run(lambda page: look(page, link_in(cluster.said)))


def test_a_link_that_is_pasted_where_the_page_is_open_signs_in() -> None:
    """The browser loads nothing then: only the fragment changes."""

    async def look(page: Page, link: str) -> None:
        # Copied from a document, with its ellipsis.
        await page.open(f"{link.partition('#')[0]}#token=…")
        await page.sees("The server rejected this token")
        # Cut in the middle of a character.
        await page.run("location.hash = '#token=%E0%A4%A'")
        await page.until("location.hash === '#/'")
        await page.run(f"location.href = {link!r}")
        await page.until(LIVE)
        await page.until(f"{HEADING} === 'Devices'")
        assert await page.run("location.hash") == "#/"
        await check_token_is_gone(page, token_of(link))

    with cluster_process(*NODES, "--tls") as cluster, window("--ignore-certificate-errors") as shown:
        shown.run(lambda page: look(page, link_in(cluster.said)))


def test_the_link_of_a_server_asks_for_a_token(tmp_path: Path) -> None:
    async def look(page: Page, link: str) -> None:
        await page.open(link)
        await page.sees("Sign in")
        await page.open(link.removesuffix("ui/"))
        await page.sees("Sign in")

    with server_process(tmp_path) as server, window("--ignore-certificate-errors") as shown:
        shown.run(lambda page: look(page, server.page))


def token_of(link: str) -> str:
    token = urlsplit(link).fragment.removeprefix("token=")
    assert len(token) > 20
    return token
