"""Runs the kit: starts an API server and the driver, runs the checks, and removes everything again."""

from __future__ import annotations

import asyncio
import difflib
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from dralloc.client.async_client import AsyncClient, connect_async
from dralloc.client.http_transport import HttpTransport
from dralloc.client.kubeconfig import BadKubeconfig, find_connection
from dralloc.client.transport import TransportError
from dralloc.driver_kit.api_proxy import ApiProxy
from dralloc.driver_kit.caller import RpcFailed
from dralloc.driver_kit.check import Check, CheckResult
from dralloc.driver_kit.checks import ALL
from dralloc.driver_kit.claim_maker import CannotAllocate
from dralloc.driver_kit.driver_process import CommandFailed, DeviceCommands, DriverProcess, RestartCommand, filled_in
from dralloc.driver_kit.driver_under_test import (
    LOOK_AGAIN_S,
    ClaimShape,
    DriverNotFound,
    DriverTraces,
    DriverUnderTest,
    InjectableFaults,
    Patience,
)
from dralloc.driver_kit.findings import Finding, NotApplicable, NotTestable, Remark, Skip, Violation
from dralloc.driver_kit.slice_rules import are_complete
from dralloc.kube.codec import DecodeError
from dralloc.kube.conversion import to_hub
from dralloc.kube.core_v1 import Node
from dralloc.kube.manifests import read_manifest
from dralloc.kube.meta_v1 import ApiObject, ObjectMeta
from dralloc.kube.registry import find_kind, read_object
from dralloc.kube.resource_v1 import DeviceClass, ResourceClaim
from dralloc.primitives.errors import AlreadyExists, ApiError, NotFound
from dralloc.server.server_process import ServerSettings, run_server

LAST_LINES: Final = 10
# What is filled in, between braces.
PLACES: Final = ("node", "kubeconfig", "registry", "plugins", "cdi")
DEVICE_PLACES: Final = ("device", "pool")


class BadSetup(ValueError):
    """The settings contradict each other, or a file has the wrong content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KitSettings:
    """The options of `dralloc driver-test`."""

    command: tuple[str, ...] = ()
    # Socket or registry directory of a driver that is already running.
    place: Path | None = None
    kubeconfig: Path | None = None
    serve_kubeconfig: Path | None = None
    node_name: str = "driver-test"
    driver_name: str = ""
    claim: Path | None = None
    cdi_dirs: tuple[Path, ...] = ()
    checkpoint: tuple[Path, ...] = ()
    restart_command: str | None = None
    kill_command: str | None = None
    lose_command: str | None = None
    restore_command: str | None = None
    only: tuple[str, ...] = ()
    start_s: float = 60.0
    repair_s: float = 90.0
    health_s: float = 35.0
    cleanup_s: float | None = None
    show_output: bool = False

    def __post_init__(self) -> None:
        if bool(self.command) == (self.place is not None):
            raise BadSetup("give the driver's command after --, or --socket or --registry of a running driver")
        if self.command and self.restart_command is not None:
            raise BadSetup("--restart-command is only for drivers that the kit does not start")
        if self.kill_command is not None and not self.command:
            raise BadSetup("--kill-command is only for drivers that the kit starts")
        if self.restore_command is not None and self.lose_command is None:
            raise BadSetup("--restore-device needs --lose-device")
        if self.kubeconfig is not None and self.serve_kubeconfig is not None:
            raise BadSetup("--kubeconfig and --serve-kubeconfig exclude each other")
        refuse_misspelt(self.command, PLACES)
        refuse_misspelt([self.lose_command or "", self.restore_command or ""], DEVICE_PLACES)
        checks_that_begin_with(self.only)


def refuse_misspelt(words: Iterable[str], places: Sequence[str]) -> None:
    """Raise `BadSetup` for a placeholder that resembles a known one; other words in braces belong to the command."""
    for found in (found for word in words for found in re.findall(r"(?<!\$)\{(\w+)\}", word)):
        if found not in places and (meant := difflib.get_close_matches(found, places, n=1)):
            raise BadSetup(f"{{{found}}} is not filled in; did you mean {{{meant[0]}}}?")


def checks_that_begin_with(beginnings: tuple[str, ...]) -> tuple[Check, ...]:
    """The checks with these beginnings of their IDs, or all; raises `BadSetup` if there are none."""
    found = tuple(check for check in ALL if not beginnings or check.id.startswith(beginnings))
    if not found:
        raise BadSetup(f"no check begins with {' or '.join(beginnings)}; the groups are {', '.join(_groups())}")
    return found


@dataclass(frozen=True, slots=True)
class KitResult:
    driver: str
    results: tuple[CheckResult, ...]


async def run_kit(
    settings: KitSettings, on_result: Callable[[CheckResult], None], say: Callable[[str], None]
) -> KitResult:
    """Run the whole kit. `say` gets progress messages for the user."""
    objects = _read_claim(settings.claim) if settings.claim is not None else ()
    if settings.lose_command is not None and settings.restore_command is None:
        say("the device that --lose-device takes away stays lost; --restore-device brings it back")
    async with _subject(settings, objects, say) as subject:
        await subject.connect()
        say(f"driver {subject.driver or '(unknown name)'} on node {settings.node_name}")
        results = []
        async for result in run_checks(subject, checks_that_begin_with(settings.only)):
            results.append(result)
            on_result(result)
        return KitResult(subject.driver, tuple(results))


@asynccontextmanager
async def _subject(
    settings: KitSettings, objects: tuple[ApiObject, ...], say: Callable[[str], None]
) -> AsyncIterator[DriverUnderTest]:
    async with AsyncExitStack() as stack:
        # A short prefix, because the length of a socket path is limited.
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dt-")))
        server = await _server(settings, directory, stack, say)
        client = server.client
        if client is not None:
            await stack.enter_async_context(
                _created(client, (Node(metadata=ObjectMeta(name=settings.node_name)), *objects))
            )
        subject = DriverUnderTest(
            place=settings.place or directory / "registry",
            node_name=settings.node_name,
            patience=Patience(
                start_s=settings.start_s,
                repair_s=settings.repair_s,
                health_s=settings.health_s,
                cleanup_s=settings.cleanup_s,
            ),
            client=client,
            shape=_shape(objects),
            traces=_traces(settings, directory),
            faults=InjectableFaults(api=server.proxy, device=_device_faults(settings)),
            is_alone=settings.kubeconfig is None and server.kubeconfig is not None,
            driver_name=settings.driver_name,
        )
        stack.push_async_callback(_leave, subject)
        if settings.command:
            async with _process(settings, directory, server.kubeconfig) as process:
                subject.restarter = process
                subject.faults = replace(subject.faults, process=process)
                yield subject
        else:
            subject.restarter = RestartCommand(settings.restart_command) if settings.restart_command else None
            yield subject


@dataclass(frozen=True, slots=True, kw_only=True)
class _Server:
    """The API server that the driver uses: a client of the kit, the kubeconfig for the driver, and what is between them."""

    client: AsyncClient | None
    kubeconfig: Path | None = None
    proxy: ApiProxy | None = None


def _traces(settings: KitSettings, directory: Path) -> DriverTraces:
    """Where the driver keeps files; a driver that the kit starts has directories of the kit."""
    return DriverTraces(
        cdi_dirs=settings.cdi_dirs or ((directory / "cdi",) if settings.command else ()),
        checkpoint=settings.checkpoint or ((directory / "plugins",) if settings.command else ()),
    )


def _device_faults(settings: KitSettings) -> DeviceCommands | None:
    if settings.lose_command is None:
        return None
    return DeviceCommands(settings.lose_command, settings.restore_command)


async def _server(settings: KitSettings, directory: Path, stack: AsyncExitStack, say: Callable[[str], None]) -> _Server:
    kubeconfig = settings.kubeconfig
    if kubeconfig is None:
        if not settings.command and settings.serve_kubeconfig is None:
            return _Server(client=await _server_of_kubectl(stack, say))
        kubeconfig = settings.serve_kubeconfig or directory / "kubeconfig"
        server = ServerSettings(data_dir=directory / "server", port=0, store="memory://", kubeconfig=kubeconfig)
        running = await stack.enter_async_context(run_server(server))
        if settings.serve_kubeconfig is not None:
            say(f"serving on {running.url}; kubeconfig: {kubeconfig}")
        else:
            proxy = ApiProxy.to(running.url)
            await stack.enter_async_context(proxy.running())
            # The port of the proxy instead of the server's.
            through = directory / "driver.kubeconfig"
            through.write_text(kubeconfig.read_text().replace(f":{proxy.port}", f":{proxy.listens_at}"))
            client = await stack.enter_async_context(connect_async(kubeconfig))
            return _Server(client=client, kubeconfig=through, proxy=proxy)
    return _Server(client=await stack.enter_async_context(connect_async(kubeconfig)), kubeconfig=kubeconfig)


async def _server_of_kubectl(stack: AsyncExitStack, say: Callable[[str], None]) -> AsyncClient | None:
    """The API server of the default kubeconfig, as for every other command."""
    try:
        connection = find_connection()
    except BadKubeconfig as error:
        say(f"{error} (or use --serve-kubeconfig); checks that need claims do not run")
        return None
    say(f"creating claims on {connection.server}")
    return await stack.enter_async_context(AsyncClient(HttpTransport(connection)))


@asynccontextmanager
async def _process(settings: KitSettings, directory: Path, kubeconfig: Path | None) -> AsyncIterator[DriverProcess]:
    places: dict[str, Path | str] = {"node": settings.node_name, "kubeconfig": kubeconfig or ""}
    for name in ("registry", "plugins", "cdi"):
        (directory / name).mkdir()
        places[name] = directory / name
    process = DriverProcess(
        filled_in(settings.command, places),
        _environment(places),
        is_quiet=not settings.show_output,
        kill_command=settings.kill_command,
    )
    await process.start()
    try:
        yield process
    except DriverNotFound as error:
        raise DriverNotFound(f"{error}{_quoted(process.last_lines(LAST_LINES))}") from None
    finally:
        await process.stop()


def _environment(places: Mapping[str, Path | str]) -> dict[str, str]:
    return {
        "KUBECONFIG": str(places["kubeconfig"]),
        "NODE_NAME": str(places["node"]),
        "DRA_REGISTRY_DIR": str(places["registry"]),
        "DRA_PLUGINS_DIR": str(places["plugins"]),
        "DRA_CDI_DIR": str(places["cdi"]),
    }


def _quoted(lines: Sequence[str]) -> str:
    return "\noutput of the driver:\n" + "\n".join(f"  {line}" for line in lines) if lines else ""


@asynccontextmanager
async def _created(client: AsyncClient, objects: tuple[ApiObject, ...]) -> AsyncIterator[None]:
    """The node and the classes exist inside the block; claims of the user's manifest are only templates."""
    async with AsyncExitStack() as stack:
        for item in objects:
            if not isinstance(item, ResourceClaim):
                with suppress(AlreadyExists):
                    await client.create(item)
                    stack.push_async_callback(_delete, client, item)
        yield


async def _delete(client: AsyncClient, item: ApiObject) -> None:
    with suppress(NotFound):
        await client.delete(type(item), item.metadata.name)


async def _leave(subject: DriverUnderTest) -> None:
    """Delete the claims of an interrupted check, and the class."""
    with suppress(Skip):
        if subject.is_connected:
            await subject.clean_up()
        await subject.claims.delete_class()
    await subject.disconnect()


def _read_claim(path: Path) -> tuple[ApiObject, ...]:
    manifest = read_manifest(path.read_bytes())
    if manifest.error is not None:
        raise BadSetup(f"{path}: {manifest.error}")
    objects = []
    for document in manifest.documents:
        kind = find_kind(document.api_version, document.kind)
        if kind is None:
            raise BadSetup(
                f"{path}: {document.api_version} {document.kind} is neither a DeviceClass nor a ResourceClaim"
            )
        try:
            read = read_object(kind, document.api_version.rpartition("/")[2], document.body)
        except DecodeError as error:
            raise BadSetup(f"{path}: {error}") from None
        objects.append(to_hub(read))
    if unexpected := [item.kind for item in objects if not isinstance(item, DeviceClass | ResourceClaim)]:
        raise BadSetup(f"{path}: {unexpected[0]} is neither a DeviceClass nor a ResourceClaim")
    if sum(isinstance(item, ResourceClaim) for item in objects) != 1:
        raise BadSetup(f"{path}: exactly one ResourceClaim is required")
    return tuple(objects)


def _shape(objects: tuple[ApiObject, ...]) -> ClaimShape:
    for item in objects:
        if isinstance(item, ResourceClaim):
            return ClaimShape(item.spec.devices.requests or (), item.spec.devices.config)
    return ClaimShape()


def _groups() -> list[str]:
    return list(dict.fromkeys(check.id.partition(".")[0] for check in ALL))


# --- Check runner ---------------------------------------------------------------------------------------------------
# Runs the checks one after another, and clears away the claims of each.


END_S: Final = 0.5
# Of one check: a driver that answers with thousands of devices breaks the same rule for each.
FINDINGS_MAX: Final = 20
# Characters of a finding: it quotes what the driver has answered.
TEXT_LENGTH_MAX: Final = 1024


async def run_checks(subject: DriverUnderTest, checks: Sequence[Check]) -> AsyncIterator[CheckResult]:
    """The results, one by one. The driver must be connected (`DriverUnderTest.connect`)."""
    async with subject.watching_slices():
        await _wait_for_devices(subject)
        for check in checks:
            yield await _run(check, subject)


async def _wait_for_devices(subject: DriverUnderTest) -> None:
    """Wait for published devices; if there are none, the checks that need devices report it."""
    try:
        await subject.claims.create_class()
    except Skip:
        return
    deadline = asyncio.get_running_loop().time() + subject.patience.start_s
    while asyncio.get_running_loop().time() < deadline and not are_complete(await subject.slices()):
        if subject.ended:
            return
        await asyncio.sleep(LOOK_AGAIN_S)


async def _run(check: Check, subject: DriverUnderTest) -> CheckResult:
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    findings: tuple[Finding, ...] = ()
    skip: Skip | None = None
    skipped = ""
    try:
        async with asyncio.timeout(subject.patience.check_s):
            findings = first_findings(tuple(await check.run(subject)))
    except Skip as reason:
        skip, skipped = reason, str(reason)
    except TimeoutError:
        findings = (Violation(f"the check did not end within {subject.patience.check_s:g} s"),)
    except (CommandFailed, CannotAllocate) as error:
        skipped = str(error)
    except RpcFailed as error:
        findings = (Violation(f"a call failed: {error}"),)
        if error.code == "UNAVAILABLE":
            await _wait_for_end(subject)
    except DriverNotFound as error:
        findings = (Violation(str(error)),)
    except (ApiError, TransportError) as error:
        skipped = f"a request to the API server failed: {error}"
    problem = await _clean_up(subject)
    return CheckResult(
        check,
        (*findings, *problem),
        skipped if not problem else "",
        loop.time() - begun_s,
        is_applicable=not isinstance(skip, NotApplicable),
        is_testable=not isinstance(skip, NotTestable),
    )


async def _wait_for_end(subject: DriverUnderTest) -> None:
    """A connection closes before the end of its process is known."""
    deadline = asyncio.get_running_loop().time() + END_S
    while asyncio.get_running_loop().time() < deadline and not subject.ended:
        await asyncio.sleep(LOOK_AGAIN_S)


async def _clean_up(subject: DriverUnderTest) -> tuple[Finding, ...]:
    """Release the claims of the check, and reconnect to the driver if necessary; a driver that ended is started again."""
    ended = (Violation(f"the driver did not survive the check: {subject.ended}"),) if subject.ended else ()
    try:
        if ended:
            await subject.restart()
        elif not subject.is_connected:
            await subject.connect()
        await subject.clean_up()
    except (DriverNotFound, CommandFailed) as error:
        return (*ended, Violation(f"the driver is no longer available: {error}"))
    except Skip:
        return ended
    return ended


def first_findings(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The first findings of a check, not too long, and how many there are besides."""
    first = tuple(replace(each, text=_in_short(each.text)) for each in findings[:FINDINGS_MAX])
    left = findings[FINDINGS_MAX:]
    if not left:
        return first
    kind = Violation if any(isinstance(each, Violation) for each in left) else Remark
    return (*first, kind(f"… and {len(left)} more"))


def _in_short(text: str) -> str:
    half = TEXT_LENGTH_MAX // 2
    return text if len(text) <= TEXT_LENGTH_MAX else f"{text[: half - 1]}…{text[-half:]}"
