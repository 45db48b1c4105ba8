"""Takes the screenshots of the web page for the documentation: a real cluster, a real browser, light and dark."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from dralloc import connect
from dralloc.web.page import device_page
from tests.support.browser import Page, browser_page, find_chromium
from tests.support.cluster_process import cluster_process
from tests.support.large_cluster import large_cluster
from tests.support.web_scene import NODES, scene

PICTURES = Path(__file__).parents[1] / "docs" / "screenshots"
SIZE = (1280, 800)
BYTES_MAX = 200_000
VIEWS = {
    "devices": "#/",
    "claim": "#/claims/research/fine-tune",
    "alternatives": "#/claims/research/flexible",
    "pods": "#/pods",
}


async def take(page: Page, url: str) -> None:
    await page.resize(*SIZE)
    await page.prefer(color_scheme="light", reduced_motion="reduce")
    await page.open(f"{url}/ui/")
    await page.sees("49 running", deadline_s=60)
    await page.sees("1 pending")
    for name, fragment in VIEWS.items():
        await page.go(fragment)
        await save(page, name)


async def take_many(page: Page) -> None:
    """Shows a cluster that is too large to browse node by node."""
    async with large_cluster(5_000, device_page()) as url:
        await page.open(f"{url}/ui/")
        await page.sees("40,000 devices", deadline_s=60)
        await save(page, "many-nodes")


async def save(page: Page, name: str) -> None:
    for theme in ("light", "dark"):
        await page.prefer(color_scheme=theme, reduced_motion="reduce")
        # Canvas drawings follow the theme one frame later.
        await page.run("new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
        picture = await page.screenshot()
        assert len(picture) < BYTES_MAX, f"{name} takes {len(picture)} bytes"
        (PICTURES / f"{name}-{theme}.png").write_bytes(picture)


async def main(program: str, url: str) -> None:
    async with browser_page(program) as page:
        await take(page, url)
        await take_many(page)


chromium = find_chromium()
if chromium is None:
    sys.exit("this needs chromium: scripts/install-system-tools installs it as root on Debian")
PICTURES.mkdir(exist_ok=True)
with cluster_process("--ephemeral", "--nodes", NODES) as cluster:
    with connect(cluster.kubeconfig) as client:
        for document in scene():
            client.create(document)
    asyncio.run(main(chromium, cluster.url))
