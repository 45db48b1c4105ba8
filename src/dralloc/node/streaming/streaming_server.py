"""The streaming server of a node: answers its API server's requests for logs, exec, attach and port-forward.

Paths and parameters are a kubelet's. Only a client whose certificate is signed by the cluster's authority and has the name of an API
server is answered: other holders of certificates, such as other nodes, are not.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final

from dralloc.node.pod_view import NodePod
from dralloc.node.process_runtime import ProcessRuntime, RunningContainer
from dralloc.node.streaming.command_channels import CommandChannels, open_channels
from dralloc.node.streaming.container_logs import read_options
from dralloc.node.streaming.node_request import BadNodeRequest, NodeRequest, parse_request, response_head
from dralloc.node.streaming.port_forward import forward_ports
from dralloc.node.streaming.remote_commands import attach, run_command
from dralloc.node.streaming.streaming_tls import StreamingTls
from dralloc.primitives.clock import Clock

# The name in the certificate of an API server's client.
API_SERVER: Final = "kube-apiserver-kubelet-client"
HEAD_BYTES_MAX: Final = 64 * 1024
HEAD_TIMEOUT_S: Final = 10.0
# How long a client may take to leave after its command has ended.
LEAVE_TIMEOUT_S: Final = 1.0
SESSIONS_MAX: Final = 512

_logger = logging.getLogger(__name__)

FindPod = Callable[[str, str], NodePod | None]


class StreamingServer:
    """Serves the containers of a runtime. `find_pod` gets a namespace and a name."""

    def __init__(self, runtime: ProcessRuntime, find_pod: FindPod, clock: Clock) -> None:
        self._runtime = runtime
        self._find_pod = find_pod
        self._clock = clock
        self._sessions: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def listen(self, host: str, port: int, tls: StreamingTls) -> AsyncIterator[int]:
        """Serve inside the block; yields the port."""
        server = await asyncio.start_server(
            self._accept, host, port, ssl=tls.listening(), limit=HEAD_BYTES_MAX, ssl_handshake_timeout=HEAD_TIMEOUT_S
        )
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            for session in list(self._sessions):
                session.cancel()
            await asyncio.gather(*self._sessions, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "it runs in a task"
        self._sessions.add(task)
        try:
            await self._serve(reader, writer)
        except BadNodeRequest as refused:
            with suppress(OSError):
                writer.write(response_head(refused.status) + str(refused).encode())
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError) as error:
            _logger.debug("a streaming session ended: %s", error)
        except asyncio.CancelledError:
            # The agent ends.
            pass
        except Exception:
            _logger.exception("a streaming session failed")
        finally:
            self._sessions.discard(task)
            with suppress(OSError, RuntimeError):
                writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(HEAD_TIMEOUT_S):
            request = parse_request(await reader.readuntil(b"\r\n\r\n"))
        if _client_name(writer) != API_SERVER:
            raise BadNodeRequest(
                403, f"only an API server with a certificate for {API_SERVER} may connect to this node"
            )
        if len(self._sessions) > SESSIONS_MAX:
            raise BadNodeRequest(503, "this node has too many sessions already: try again later")
        match request.path:
            case ("healthz",):
                writer.write(response_head(200) + b"ok")
            case ("containerLogs", namespace, name, container):
                await self._logs(request, self._pod(namespace, name), container, writer)
            case ("exec", namespace, name, container):
                await self._exec(request, self._pod(namespace, name), container, reader, writer)
            case ("attach", namespace, name, container):
                await self._attach(request, self._pod(namespace, name), container, reader, writer)
            case ("portForward", namespace, name):
                self._pod(namespace, name)
                await forward_ports(request, reader, writer)
            case _:
                raise BadNodeRequest(404, "not found")

    def _pod(self, namespace: str, name: str) -> NodePod:
        pod = self._find_pod(namespace, name)
        if pod is None:
            raise BadNodeRequest(404, f'pod "{name}" is not on this node')
        return pod

    async def _logs(self, request: NodeRequest, pod: NodePod, container: str, writer: asyncio.StreamWriter) -> None:
        uid, previous = pod.metadata.uid, request.is_set("previous")
        options = read_options(request, self._clock.now())
        if not self._runtime.has_log(uid, container, previous=previous):
            where = f'container "{container}" in pod "{pod.metadata.name}"'
            if previous:
                raise BadNodeRequest(400, f"previous terminated {where} not found")
            raise BadNodeRequest(400, f"{where} is waiting to start: {_waits_for(pod, container)}")
        writer.write(response_head(200))
        async for piece in self._runtime.log(uid, container, previous=previous).read(options):
            writer.write(piece)
            await writer.drain()

    def _running(self, pod: NodePod, container: str) -> RunningContainer:
        running = self._runtime.running(pod.metadata.uid, container)
        if running is None:
            raise BadNodeRequest(404, f'container not found ("{container}"): it does not run')
        return running

    async def _exec(
        self,
        request: NodeRequest,
        pod: NodePod,
        container: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        running, command = self._running(pod, container), request.parameters("command")
        if not command:
            raise BadNodeRequest(400, "you must specify a command")
        environment, directory = running.environment(), running.directory()
        async with _session(request, reader, writer) as channels:
            await run_command(
                command,
                environment,
                directory,
                channels,
                stdin=request.is_set("input"),
                tty=request.is_set("tty"),
            )

    async def _attach(
        self,
        request: NodeRequest,
        pod: NodePod,
        container: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        running = self._running(pod, container)
        log = self._runtime.log(pod.metadata.uid, container)
        async with _session(request, reader, writer) as channels:
            stdin = running.stdin if request.is_set("input") else None
            ended = partial(self._runtime.input_ended, pod.metadata.uid, container)
            await attach(log, stdin, running.terminal, channels, input_ended=ended)


@asynccontextmanager
async def _session(
    request: NodeRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> AsyncIterator[CommandChannels]:
    channels, reading = await open_channels(request, reader, writer)
    try:
        yield channels
        # Closing at once would drop what the client has not read yet, if it still sends.
        await asyncio.wait((reading,), timeout=LEAVE_TIMEOUT_S)
    finally:
        reading.cancel()


def _client_name(writer: asyncio.StreamWriter) -> str:
    """The common name in the client's certificate, which is verified."""
    certificate = writer.get_extra_info("peercert") or {}
    names = [value for entry in certificate.get("subject", ()) for name, value in entry if name == "commonName"]
    return str(names[0]) if len(names) == 1 else ""


def _waits_for(pod: NodePod, container: str) -> str:
    status = pod.status
    for each in (*status.container_statuses, *status.init_container_statuses, *status.ephemeral_container_statuses):
        if each.name == container and each.state.waiting is not None:
            waiting = each.state.waiting
            return f"{waiting.reason}: {waiting.message}" if waiting.message else waiting.reason
    return "ContainerCreating"
