"""Runs containers as plain processes on this machine, without images and isolation.

The process of a container leads a session of its own, so its child processes are killed with it. A marker in the environment lets
a restarted agent find the processes that an earlier agent left running (on Linux).
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from dralloc.node.container_logs import ContainerLog, note_size, times_path
from dralloc.node.kubelet.cdi import ContainerEdits
from dralloc.node.kubelet.cdi_registry import BadDevices, CdiRegistry
from dralloc.node.pod_plan import Exit
from dralloc.node.pod_view import NodeContainer, NodePod
from dralloc.node.runtime import CannotStart, Launch, RuntimeListener
from dralloc.primitives.clock import Clock

MARKER: Final = "DRALLOC_CONTAINER"
# How often the sizes of logs are noted, which gives their lines a time.
NOTE_INTERVAL_S: Final = 0.25
LOST_CODE: Final = 137
POLL_INTERVAL_S: Final = 0.2


@dataclass(slots=True, eq=False)
class _Process:
    """The process of a container; `child` is None if an earlier agent started it."""

    pid: int
    started_at: datetime
    child: subprocess.Popen[bytes] | None
    log: Path
    watch: asyncio.Task[None] | None = None
    killer: asyncio.TimerHandle | None = None
    kills_at: float | None = None
    # The size of the log that was noted last.
    log_noted: int = -1

    def send(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


class ProcessRuntime:
    """Runs containers as processes. Their output goes to files under `root`."""

    def __init__(self, root: Path, cdi: CdiRegistry, clock: Clock, *, host_ip: str = "127.0.0.1") -> None:
        self._root = root
        self._cdi = cdi
        self._clock = clock
        self._host_ip = host_ip
        self._processes: dict[tuple[str, str], _Process] = {}
        self._left: dict[tuple[str, str], int] = dict(find_marked(str(root)))
        self._listener: RuntimeListener | None = None
        self._noting: asyncio.Task[None] | None = None

    def listen(self, listener: RuntimeListener) -> None:
        self._listener = listener

    def limits(self, pod: NodePod, cdi_ids: Sequence[str]) -> str:
        parts = [*unsupported_parts(pod)]
        # `start` reports devices that no file describes.
        with suppress(BadDevices):
            parts += (f"CDI {name}" for name in unsupported_edits(self._cdi.edits_for(cdi_ids)))
        return f"containers run as plain processes, without {', '.join(parts)}" if parts else ""

    async def start(self, launch: Launch) -> None:
        key = (launch.pod.metadata.uid, launch.container.name)
        if key in self._left:
            # Started by an agent that crashed before it reported the start.
            self._end_group(self._left.pop(key))
        command, environment = self._prepare(launch)
        home = self._pod_directory(launch.pod.metadata.uid)
        try:
            home.mkdir(parents=True, exist_ok=True)
            log = self._log_path(*key)
            self._keep_previous(log)
            with log.open("ab") as output:
                # Not through the event loop: uvloop forks, and the fork handlers that gRPC registers sometimes crash the child.
                # Popen does not run them.
                child = subprocess.Popen(
                    command,
                    env={**environment, MARKER: f"{self._root}:{':'.join(key)}"},
                    cwd=launch.container.working_dir or home,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise CannotStart("RunContainerError", f"cannot run {command[0]}: {reason}") from None
        process = self._processes[key] = _Process(child.pid, self._clock.now(), child, log)
        self._note_logs()
        self._get_listener().container_started(*key, process.started_at)
        process.watch = asyncio.create_task(self._watch_child(key, process, child))

    def adopt(self, pod: NodePod, container: str, started_at: datetime) -> bool:
        key = (pod.metadata.uid, container)
        pid = self._left.pop(key, None)
        if pid is None:
            return False
        process = self._processes[key] = _Process(pid, started_at, None, self._log_path(*key))
        process.watch = asyncio.create_task(self._watch_adopted(key, process))
        return True

    def stop(self, pod_uid: str, container: str, grace_s: float) -> None:
        process = self._processes.get((pod_uid, container))
        if process is None:
            return
        loop = asyncio.get_running_loop()
        kills_at = loop.time() + grace_s
        if process.kills_at is not None and process.kills_at <= kills_at:
            return
        if process.killer is not None:
            process.killer.cancel()
        if process.kills_at is None:
            process.send(signal.SIGTERM)
        process.kills_at = kills_at
        process.killer = loop.call_later(grace_s, process.send, signal.SIGKILL)

    def forget(self, pod_uid: str) -> None:
        shutil.rmtree(self._pod_directory(pod_uid), ignore_errors=True)

    def end_unknown(self, pods: Collection[NodePod]) -> None:
        """Remove the directories of pods that are not among these, and kill processes of an earlier agent whose pods should not run."""
        known = {pod.metadata.uid for pod in pods}
        running = {pod.metadata.uid for pod in pods if not pod.is_finished}
        with suppress(OSError):
            for directory in (self._root / "pods").iterdir():
                if directory.name not in known:
                    shutil.rmtree(directory, ignore_errors=True)
        for key, pid in list(self._left.items()):
            if key[0] not in running:
                self._end_group(pid)
                del self._left[key]

    # --- Logs -------------------------------------------------------------------------------------------------

    def log(self, pod_uid: str, container: str, *, previous: bool = False) -> ContainerLog:
        """The log of the container's last run, or of the one before."""
        key, path = (pod_uid, container), self._log_path(pod_uid, container)
        if previous:
            return ContainerLog(_previous(path), lambda: False, self._clock.now)
        return ContainerLog(path, lambda: key in self._processes, self._clock.now)

    def has_log(self, pod_uid: str, container: str, *, previous: bool = False) -> bool:
        path = self._log_path(pod_uid, container)
        return (_previous(path) if previous else path).exists()

    def _log_path(self, pod_uid: str, container: str) -> Path:
        return self._pod_directory(pod_uid) / f"{container}.log"

    def _keep_previous(self, log: Path) -> None:
        """The log of the last run becomes that of the previous one."""
        for path in (log, times_path(log)):
            with suppress(FileNotFoundError):
                path.replace(_previous(path) if path is log else times_path(_previous(log)))

    def _note_logs(self) -> None:
        """Note the sizes of logs as long as containers run."""
        if self._noting is None or self._noting.done():
            self._noting = asyncio.create_task(self._note_log_sizes())

    async def _note_log_sizes(self) -> None:
        while self._processes:
            for process in self._processes.values():
                self._note_log(process)
            await asyncio.sleep(NOTE_INTERVAL_S)

    def _note_log(self, process: _Process) -> None:
        with suppress(OSError):
            process.log_noted = note_size(process.log, process.log_noted, self._clock.now().timestamp())

    async def close(self, *, keep: bool) -> None:
        """Stop watching; kill all containers unless they are kept for the next agent."""
        if self._noting is not None:
            self._noting.cancel()
        for process in self._processes.values():
            if process.watch is not None:
                process.watch.cancel()
            if process.killer is not None:
                process.killer.cancel()
            if not keep:
                process.send(signal.SIGKILL)
            if process.child is not None:
                if keep:
                    # The process goes on; without a return code, Popen would warn about it.
                    process.child.returncode = 0
                else:
                    process.child.wait()

    # --- Processes ------------------------------------------------------------------------------------------------

    def _prepare(self, launch: Launch) -> tuple[list[str], dict[str, str]]:
        try:
            edits = self._cdi.edits_for(launch.cdi_ids)
            environment = container_environment(launch.pod, launch.container, edits, self._host_ip)
        except (BadDevices, BadEnvironment) as error:
            raise CannotStart("CreateContainerConfigError", str(error)) from None
        command = command_line(launch.container, environment)
        if not command:
            message = "containers run as plain processes, without images: the container must set its command"
            raise CannotStart("CreateContainerConfigError", message)
        return command, environment

    async def _watch_child(self, key: tuple[str, str], process: _Process, child: subprocess.Popen[bytes]) -> None:
        code = await _exit_code(child)
        # A signal is reported as shells do.
        self._ended(key, process, 128 - code if code < 0 else code)

    async def _watch_adopted(self, key: tuple[str, str], process: _Process) -> None:
        """Wait for a process that is not a child of this one; its exit code is not known."""
        while os.path.exists(f"/proc/{process.pid}") and not _is_zombie(process.pid):
            await asyncio.sleep(POLL_INTERVAL_S)
        self._ended(key, process, LOST_CODE)

    def _ended(self, key: tuple[str, str], process: _Process, code: int) -> None:
        if process.killer is not None:
            process.killer.cancel()
        # Child processes do not outlive the container.
        process.send(signal.SIGKILL)
        self._note_log(process)
        if self._processes.get(key) is process:
            del self._processes[key]
        exit = Exit(code=code, started_at=process.started_at, finished_at=self._clock.now())
        self._get_listener().container_exited(*key, exit)

    def _end_group(self, pid: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)

    def _pod_directory(self, pod_uid: str) -> Path:
        return self._root / "pods" / pod_uid

    def _get_listener(self) -> RuntimeListener:
        assert self._listener is not None, "a listener is set before the first container"
        return self._listener


async def _exit_code(child: subprocess.Popen[bytes]) -> int:
    """The exit code of the child, or the negative number of the signal that killed it."""
    if not hasattr(os, "pidfd_open"):
        while child.poll() is None:
            await asyncio.sleep(POLL_INTERVAL_S)
        return child.wait()
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    descriptor = os.pidfd_open(child.pid)
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
    return child.wait()


def _previous(log: Path) -> Path:
    return log.with_name(f"{log.stem}.previous.log")


def find_marked(root: str) -> Iterator[tuple[tuple[str, str], int]]:
    """The session leaders that an agent with this root started, by pod UID and container."""
    mark = f"{MARKER}={root}:".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            pid = int(entry.name)
            marks = [part for part in (entry / "environ").read_bytes().split(b"\0") if part.startswith(mark)]
            if marks and os.getsid(pid) == pid and not _is_zombie(pid):
                pod_uid, _, container = marks[0].removeprefix(mark).decode().partition(":")
                yield (pod_uid, container), pid


def _is_zombie(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return True
    return text.rpartition(")")[2].split()[0] in ("Z", "X")


# --- Environment ----------------------------------------------------------------------------------------------------
# The environment and the command line of a container, from the pod, the node and the container's devices.


# Tell a process without a container which device nodes and mounts its devices would add.
DEVICE_NODES: Final = "DRALLOC_DEVICE_NODES"
MOUNTS: Final = "DRALLOC_MOUNTS"
DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_REFERENCE: Final = re.compile(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")
_KEYED: Final = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")


class BadEnvironment(ValueError):
    """A variable of the container cannot be resolved; the message says which."""


def container_environment(
    pod: NodePod, container: NodeContainer, edits: ContainerEdits, host_ip: str
) -> dict[str, str]:
    """The variables of a container: the defaults, those of its spec, those of its devices."""
    environment = {"PATH": DEFAULT_PATH, "HOSTNAME": pod.metadata.name}
    for variable in container.env:
        if variable.value_from is not None:
            environment[variable.name] = _referenced(variable.name, variable.value_from, pod, host_ip)
        else:
            environment[variable.name] = expand(variable.value, environment)
    environment |= edits.env
    if edits.device_nodes:
        environment[DEVICE_NODES] = ":".join(node.host_path or node.path for node in edits.device_nodes)
    if edits.mounts:
        environment[MOUNTS] = ",".join(f"{mount.host_path}:{mount.container_path}" for mount in edits.mounts)
    return environment


def command_line(container: NodeContainer, environment: Mapping[str, str]) -> list[str]:
    return [expand(word, environment) for word in (*container.command, *container.args)]


def expand(text: str, environment: Mapping[str, str]) -> str:
    """The text with `$(NAME)` replaced if NAME is set, and `$$` by a dollar sign."""

    def replacement(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return environment.get(match[1], match[0])

    return _REFERENCE.sub(replacement, text)


def _referenced(name: str, source: Mapping[str, Any], pod: NodePod, host_ip: str) -> str:
    reference = source.get("fieldRef")
    if not isinstance(reference, dict):
        kinds = ", ".join(sorted(key for key, value in source.items() if value)) or "nothing"
        raise BadEnvironment(f"env {name}: only fieldRef is supported, not {kinds}")
    path = str(reference.get("fieldPath", ""))
    value = _field(path, pod, host_ip)
    if value is None:
        raise BadEnvironment(f"env {name}: fieldPath {path!r} is not supported")
    return value


def _field(path: str, pod: NodePod, host_ip: str) -> str | None:
    if match := _KEYED.fullmatch(path):
        keyed = pod.metadata.labels if match[1] == "labels" else pod.metadata.annotations
        return keyed.get(match[2], "")
    return {
        "metadata.name": pod.metadata.name,
        "metadata.namespace": pod.metadata.namespace,
        "metadata.uid": pod.metadata.uid,
        "spec.nodeName": pod.spec.node_name,
        "spec.serviceAccountName": pod.spec.service_account_name,
        "status.hostIP": host_ip,
        "status.podIP": host_ip,
    }.get(path)


def unsupported_parts(pod: NodePod) -> Sequence[str]:
    """The parts of the pod's spec that a plain process on the node does not get."""
    asked: dict[str, None] = {}
    for container in pod.spec.all_containers:
        parts = {
            "stdin": container.stdin,
            "tty": container.tty,
            "envFrom": container.env_from,
            "volumeMounts": container.volume_mounts,
            "volumeDevices": container.volume_devices,
            "livenessProbe": container.liveness_probe,
            "readinessProbe": container.readiness_probe,
            "startupProbe": container.startup_probe,
            "lifecycle": container.lifecycle,
            "securityContext": container.security_context,
            "resources.limits": container.resources.limits,
        }
        asked |= dict.fromkeys(f"{container.name}.{name}" for name, value in parts.items() if value)
    return tuple(asked)


def unsupported_edits(edits: ContainerEdits) -> Sequence[str]:
    """CDI edits of the container's devices that a plain process on the node does not get."""
    parts = {
        "hooks": edits.hooks,
        "netDevices": edits.net_devices,
        "additionalGids": edits.additional_gids,
        "intelRdt": edits.intel_rdt,
    }
    return tuple(name for name, value in parts.items() if value)
