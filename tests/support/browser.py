"""A headless Chromium for tests, driven over its DevTools protocol.

The protocol is JSON over a websocket, so aiohttp is enough. Every browser has a temporary profile.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import shutil
import signal
import tempfile
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import aiohttp

STARTS_WITHIN_S: Final = 60.0
ANSWERS_WITHIN_S: Final = 60.0
DEADLINE_S: Final = 60.0

# No connections except to the page's server; runs as any user in any container.
OPTIONS: Final = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--disable-features=Translate,MediaRouter,OptimizationHints",
    "--log-level=3",
    "--no-first-run",
    "--no-default-browser-check",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)


class NoBrowser(AssertionError):
    """No browser is installed."""

    def __init__(self) -> None:
        super().__init__("needs chromium: scripts/install-system-tools installs it as root on Debian")


class PageFailed(AssertionError):
    """The page raised an error, or a wait timed out."""


@dataclass(frozen=True, slots=True)
class Sent:
    method: str
    url: str


class Page:
    """One tab. Its logged errors and its requests are recorded."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._calls = 0
        self._listening = asyncio.create_task(self._listen())
        self._loaded = asyncio.Event()
        self.errors: list[str] = []
        self.sent: list[Sent] = []

    async def prepare(self) -> None:
        for domain in ("Page", "Runtime", "Network", "Log"):
            await self.call(f"{domain}.enable")

    async def close(self) -> None:
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)
        await self._socket.close()

    async def call(self, method: str, within_s: float = ANSWERS_WITHIN_S, **parameters: Any) -> dict[str, Any]:
        """The result of a DevTools command."""
        self._calls += 1
        answer = self._answers[self._calls] = asyncio.get_running_loop().create_future()
        await self._socket.send_str(json.dumps({"id": self._calls, "method": method, "params": parameters}))
        async with asyncio.timeout(within_s):
            document = await answer
        if "error" in document:
            raise PageFailed(f"{method}: {document['error'].get('message')}")
        result: dict[str, Any] = document.get("result", {})
        return result

    async def _listen(self) -> None:
        async for message in self._socket:
            document = json.loads(message.data)
            answer = self._answers.pop(document.get("id", 0), None)
            if answer is not None and not answer.done():
                answer.set_result(document)
            elif "method" in document:
                self._note(document["method"], document["params"])

    def _note(self, event: str, parameters: dict[str, Any]) -> None:
        match event:
            case "Page.loadEventFired":
                self._loaded.set()
            case "Network.requestWillBeSent":
                request = parameters["request"]
                self.sent.append(Sent(request["method"], request["url"]))
            case "Runtime.exceptionThrown":
                details = parameters["exceptionDetails"]
                self.errors.append(details.get("exception", {}).get("description") or details["text"])
            case "Runtime.consoleAPICalled" if parameters["type"] in ("error", "warning", "assert"):
                self.errors.append(" ".join(str(each.get("value", each)) for each in parameters["args"]))
            case "Log.entryAdded" if parameters["entry"]["level"] == "error":
                self.errors.append(f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}")

    # --- What a user does ---------------------------------------------------------------------------------------------

    async def open(self, url: str) -> None:
        await self._load("Page.navigate", url=url)

    async def reload(self) -> None:
        await self._load("Page.reload")

    async def _load(self, method: str, **parameters: Any) -> None:
        async with self.loading():
            await self.call(method, **parameters)

    @asynccontextmanager
    async def loading(self) -> AsyncIterator[None]:
        """At the end of the block, wait until the page that something in it opens is loaded."""
        self._loaded.clear()
        yield
        async with asyncio.timeout(ANSWERS_WITHIN_S):
            await self._loaded.wait()

    async def go(self, fragment: str) -> None:
        """Follow a link inside the page, and wait until the page shows it."""
        await self.run(f"""new Promise((done) => {{
            const wanted = new URL({json.dumps(fragment)}, location).hash;
            if (location.hash === wanted) return done();
            addEventListener('hashchange', () => done(), {{ once: true }});
            location.hash = wanted;
        }})""")

    async def click(self, selector: str) -> None:
        await self.until(f"document.querySelector({json.dumps(selector)})")
        await self.run(f"document.querySelector({json.dumps(selector)}).click()")

    async def fill(self, selector: str, text: str) -> None:
        """Type a text into a field."""
        await self.until(f"document.querySelector({json.dumps(selector)})")
        await self.run(f"(field => (field.focus(), field.select()))(document.querySelector({json.dumps(selector)}))")
        await self.call("Input.insertText", text=text)

    async def press(self, key: str, code: str = "") -> None:
        parameters: dict[str, Any] = {"key": key, "code": code or key, "windowsVirtualKeyCode": _KEY_CODES.get(key, 0)}
        typed: dict[str, Any] = {"text": "\r" if key == "Enter" else key} if len(key) == 1 or key == "Enter" else {}
        await self.call("Input.dispatchKeyEvent", type="keyDown", **parameters, **typed)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **parameters)

    # --- What a user sees ---------------------------------------------------------------------------------------------

    async def run(self, expression: str, within_s: float = ANSWERS_WITHIN_S) -> Any:
        """The value of a JavaScript expression; promises are awaited."""
        result = await self.call(
            "Runtime.evaluate", within_s, expression=expression, awaitPromise=True, returnByValue=True
        )
        if details := result.get("exceptionDetails"):
            raise PageFailed(details.get("exception", {}).get("description") or details["text"])
        return result["result"].get("value")

    async def until(self, condition: str, deadline_s: float = DEADLINE_S) -> Any:
        """The value of the expression as soon as it is true."""
        watching = f"""new Promise((resolve, reject) => {{
            const ends = performance.now() + {deadline_s * 1000};
            const look = () => {{
                const found = (() => {{ try {{ return {condition}; }} catch {{ return false; }} }})();
                if (found) resolve(found instanceof Node ? true : found);
                else if (performance.now() > ends) reject(new Error('did not come about'));
                else setTimeout(look, 25);
            }};
            look();
        }})"""
        try:
            return await self.run(watching, deadline_s + ANSWERS_WITHIN_S)
        except PageFailed:
            seen = await self.run("document.body.innerText")
            raise PageFailed(f"{condition} did not come about; the page shows:\n{seen[:3000]}") from None

    async def sees(self, text: str, selector: str = "main", deadline_s: float = DEADLINE_S) -> None:
        """Wait until the page contains the text."""
        await self.until(
            f"document.querySelector({json.dumps(selector)}).innerText.includes({json.dumps(text)})", deadline_s
        )

    async def text(self, selector: str = "main") -> str:
        return str(await self.run(f"document.querySelector({json.dumps(selector)}).innerText"))

    async def resize(self, width: int, height: int) -> None:
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    async def prefer(self, **features: str) -> None:
        """Emulate media features, such as `color_scheme="dark"`."""
        named = [{"name": f"prefers-{name.replace('_', '-')}", "value": value} for name, value in features.items()]
        await self.call("Emulation.setEmulatedMedia", features=named)

    async def screenshot(self) -> bytes:
        return base64.b64decode((await self.call("Page.captureScreenshot", format="png"))["data"])


_KEY_CODES: Final = {"Tab": 9, "Enter": 13, "Escape": 27}


@asynccontextmanager
async def browser_page(*options: str) -> AsyncIterator[Page]:
    """A window of a new browser, inside the block; raises NoBrowser."""
    async with browser_windows(1, *options) as (page,):
        yield page


@asynccontextmanager
async def browser_windows(count: int, *options: str) -> AsyncIterator[tuple[Page, ...]]:
    """Windows of one new browser, inside the block; raises NoBrowser."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        async with AsyncExitStack() as stack:
            address = await stack.enter_async_context(_browser(f"--user-data-dir={profile}", *options))
            session = await stack.enter_async_context(aiohttp.ClientSession())
            async with session.get(f"http://{address}/json/list") as response:
                first = next(each["id"] for each in await response.json() if each["type"] == "page")
            pages = [await stack.enter_async_context(_window(session, address, first))]
            for _ in range(count - 1):
                made = await pages[0].call("Target.createTarget", url="about:blank", newWindow=True)
                pages.append(await stack.enter_async_context(_window(session, address, made["targetId"])))
            yield tuple(pages)


@asynccontextmanager
async def _window(session: aiohttp.ClientSession, address: str, target: str) -> AsyncIterator[Page]:
    page = Page(await session.ws_connect(f"ws://{address}/devtools/page/{target}", max_msg_size=0))
    try:
        await page.prepare()
        yield page
    finally:
        await page.close()


@asynccontextmanager
async def _browser(*options: str) -> AsyncIterator[str]:
    """The DevTools URL of a new browser, inside the block."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        raise NoBrowser
    # A process group of its own, because a browser has many processes, which must all be ended.
    process = await asyncio.create_subprocess_exec(
        program, *OPTIONS, *options, "about:blank", stdout=DEVNULL, stderr=PIPE, start_new_session=True
    )
    assert process.stderr is not None, "it is a pipe"
    try:
        yield await _debugging_address(process.stderr)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        # Read to the end, or the pipe stays open.
        await process.stderr.read()
        await process.wait()


async def _debugging_address(output: asyncio.StreamReader) -> str:
    said = b""
    async with asyncio.timeout(STARTS_WITHIN_S):
        async for line in output:
            said += line
            if match := re.search(rb"DevTools listening on ws://([^/]+)/", line):
                return match[1].decode()
    raise RuntimeError(f"the browser ended before it was ready: {said.decode(errors='replace')[-2000:]}")
