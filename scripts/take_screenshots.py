"""Takes the pictures of the web page for the documentation: a real cluster, a real browser, light and dark; and a moving one."""

from __future__ import annotations

import asyncio
import sys
from io import BytesIO
from pathlib import Path

from PIL import Image

from dralloc import connect
from dralloc.web.page import device_page
from tests.support.browser import NoBrowser, Page, browser_page
from tests.support.cluster_process import cluster_process
from tests.support.large_cluster import large_cluster
from tests.support.web_scene import NODES, scene

PICTURES = Path(__file__).parents[1] / "docs" / "screenshots"
SIZE = (1280, 800)
BYTES_MAX = 200_000
FILM_BYTES_MAX = 500_000
FILM_SIZE = (960, 600)
# The moving picture: address, a text of the view, and for how many seconds it stays.
FILM = (
    ("#/", "gpu-0", 3.0),
    ("#/claims/research/fine-tune", "fine-tune", 3.0),
    ("#/pods", "giant", 2.5),
    ("#/pods/research/giant", "would fit if", 6.0),
)
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
        await page.until("!document.querySelector('[aria-busy=true]')")
        await save(page, name)
    await take_film(page)


async def take_film(page: Page) -> None:
    await page.prefer(color_scheme="light", reduced_motion="reduce")
    frames = []
    for fragment, text, _ in FILM:
        await page.go(fragment)
        await page.sees(text)
        await drawn(page)
        frames.append(
            Image.open(BytesIO(await page.screenshot())).convert("RGB").resize(FILM_SIZE, Image.Resampling.LANCZOS)
        )
    durations = [int(seconds * 1000) for _, _, seconds in FILM]
    film = BytesIO()
    frames[0].save(
        film, "WEBP", save_all=True, append_images=frames[1:], duration=durations, loop=0, quality=80, method=6
    )
    assert film.tell() < FILM_BYTES_MAX, f"the moving picture takes {film.tell()} bytes"
    (PICTURES / "page.webp").write_bytes(film.getvalue())


async def drawn(page: Page) -> None:
    """Wait for the next frame: canvas drawings follow the theme one frame later."""
    await page.run("new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")


async def take_many(page: Page) -> None:
    """Shows a cluster that is too large to browse node by node."""
    async with large_cluster(5_000, device_page()) as url:
        await page.open(f"{url}/ui/")
        await page.sees("40,000 devices", deadline_s=60)
        await save(page, "many-nodes")


async def save(page: Page, name: str) -> None:
    for theme in ("light", "dark"):
        await page.prefer(color_scheme=theme, reduced_motion="reduce")
        await drawn(page)
        picture = await page.screenshot()
        assert len(picture) < BYTES_MAX, f"{name} takes {len(picture)} bytes"
        (PICTURES / f"{name}-{theme}.png").write_bytes(picture)


async def main(url: str) -> None:
    async with browser_page() as page:
        await take(page, url)
        await take_many(page)


PICTURES.mkdir(exist_ok=True)
with cluster_process("--ephemeral", "--nodes", NODES) as cluster:
    with connect(cluster.kubeconfig) as client:
        for document in scene():
            client.create(document)
    try:
        asyncio.run(main(cluster.url))
    except NoBrowser as error:
        sys.exit(f"taking screenshots {error}")
