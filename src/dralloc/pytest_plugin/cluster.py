"""The cluster of a test, with blocking methods.

    with running_cluster(nodes={"gpu": 2}) as cluster:
        cluster.apply("manifests/")
        cluster.wait_until_running("inference")

The fixture `dra_cluster` is a `running_cluster` for one test. Modules that only some tests need are imported late.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from dralloc.client.async_client import AsyncClient, Item, Propagation
from dralloc.client.blocking_client import Client, LoopThread, Runner
from dralloc.client.known_resources import resource_of
from dralloc.client.typed_resource import Object
from dralloc.controllers.controller_set import CONTROLLERS
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.pod_v1 import Pod, PodCondition
from dralloc.kube.resource_v1 import DeviceRequestAllocationResult, ResourceClaim
from dralloc.node.simulated.profiles import BadProfile
from dralloc.primitives.errors import ApiError, NotFound
from dralloc.primitives.features import FeatureGates
from dralloc.pytest_plugin.cluster_report import cluster_report
from dralloc.server.identity.kubeconfig import write_kubeconfig
from dralloc.system_clock import SystemClock
from dralloc.testing.cluster import TOKEN, ClusterSettings, InProcessCluster, fleet
from dralloc.testing.components import ComponentDied
from dralloc.testing.virtual_time import VirtualClock, VirtualTimeLoop

if TYPE_CHECKING:
    from dralloc.pytest_plugin.driver_node import DriverNode
from dralloc.cli.manifest_records import read_sources
from dralloc.kube.manifests import read_manifest
from dralloc.server.store.errors import Compacted, WatcherTooSlow
from dralloc.server.store.memory import MemoryStore
from dralloc.testing.cluster import cluster_in_process

__all__ = ["BadCluster", "DraCluster", "WaitFailed", "running_cluster"]

Result = TypeVar("Result")

# Much longer than anything takes that works.
TIMEOUT_S: Final = 30.0
NODES: Final = {"gpu": 1, "nic": 1}


class BadCluster(ValueError):
    """The settings or the call are invalid; the message says why."""


class WaitFailed(AssertionError):
    """A wait timed out. The message contains the state of the cluster."""

    shows_cluster = True


class DraCluster:
    """A running cluster. The default namespace is `default`; times are seconds, virtual or real."""

    def __init__(self, cluster: InProcessCluster, task: ClusterTask, loop: Runner, directory: Path) -> None:
        self._cluster = cluster
        self._task = task
        self._loop = loop
        self._directory = directory
        self._death_reported = False
        # Strict: a misspelled field in a manifest is a bug of the test.
        self.async_client = AsyncClient(cluster.transport, field_validation="Strict")
        self.client = Client(self.async_client, loop)

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """The result of a coroutine on the cluster's loop; raises ComponentDied if a component dies."""
        try:
            return self._loop.run(self._cluster.components.guard(coroutine))
        except ComponentDied as died:
            if not self._death_reported:
                self._death_reported = True
                died.add_note(self.describe())
            raise

    # --- Writing ----------------------------------------------------------------------------------------------------

    def apply(self, *sources: Source) -> list[Any]:
        """Create or update objects from files, directories, YAML or JSON text, dicts or typed objects."""
        items = [item for source in sources for item in documents_of(source)]
        return [self._write(item) for item in items]

    def _write(self, item: Item) -> Any:
        client, name = self.async_client, _name(item)
        try:
            return self.run(client.apply(item, force=True) if name else client.create(item))
        except ApiError as error:
            error.add_note(f"The refused object is {resource_of(item).kind} {name or '(without a name)'}.")
            raise

    def delete(
        self,
        object_type: type[ApiObject],
        name: str,
        *,
        namespace: str = "default",
        propagation: Propagation = "Background",
    ) -> None:
        """Delete the object and wait until it is gone. Its dependents follow in the background by default."""
        __tracebackhide__ = True
        self.client.delete(object_type, name, namespace=namespace, propagation=propagation)
        self.wait_until_gone(object_type, name, namespace=namespace)

    def end_pod(self, name: str, *, namespace: str = "default", phase: str = "Succeeded") -> None:
        """End the containers of the pod: phase Succeeded or Failed."""
        self.client.patch(Pod, name, {"status": {"phase": phase}}, namespace=namespace, subresource="status")

    def advance(self, seconds: float) -> None:
        """Let virtual time pass; everything that is due until then happens."""
        if not isinstance(self._loop, asyncio.Runner):
            raise BadCluster("advance() needs a cluster with virtual_time=True")
        self.run(asyncio.sleep(seconds))

    # --- Reading ----------------------------------------------------------------------------------------------------

    def pod(self, name: str, *, namespace: str = "default") -> Pod:
        """The pod as it is now. Raises NotFound."""
        return self.client.get(Pod, name, namespace=namespace)

    def claim(self, name: str, *, namespace: str = "default") -> ResourceClaim:
        """The claim as it is now. Raises NotFound."""
        return self.client.get(ResourceClaim, name, namespace=namespace)

    def claims_of(self, pod: str, *, namespace: str = "default") -> dict[str, ResourceClaim]:
        """The claims of the pod, also those generated from templates, by the names of its `resourceClaims` entries."""
        read = self.pod(pod, namespace=namespace)
        made = {status.name: status.resource_claim_name for status in read.status.resource_claim_statuses}
        names = {entry.name: entry.resource_claim_name or made.get(entry.name) for entry in read.spec.resource_claims}
        return {entry: self.claim(name, namespace=namespace) for entry, name in names.items() if name}

    def devices_of(self, pod: str, *, namespace: str = "default") -> list[DeviceRequestAllocationResult]:
        """The allocation results of all claims of the pod: device, share ID, consumed capacity and so on."""
        allocations = [claim.status.allocation for claim in self.claims_of(pod, namespace=namespace).values()]
        return [result for allocation in allocations if allocation for result in allocation.devices.results]

    def explain(self, pod: str, *, namespace: str = "default") -> str:
        """The output of `dralloc explain pod`: why the pod gets no devices and what would help, or why it got these."""
        from dralloc.answers.pod_explanation import SubjectQuestion, ask_cluster

        settings = self._task.settings
        question = SubjectQuestion("pod", f"{namespace}/{pod}", scheduler_names=settings.scheduler_names)
        now = settings.clock.now()
        found, _ = self.run(ask_cluster(question, self._cluster.transport, namespace, settings.gates, now))
        return "\n".join(found.lines())

    def describe(self) -> str:
        """Nodes, pods, claims and the latest events, as text."""
        try:
            return self._loop.run(cluster_report(self.async_client))
        except Exception as error:  # noqa: BLE001 - the failure that this belongs to must not be lost
            return f"the state of the cluster cannot be read: {type(error).__name__}: {error}"

    # --- Waiting ----------------------------------------------------------------------------------------------------

    def wait_for(
        self, condition: Callable[[], Result], timeout: float = TIMEOUT_S, *, what: str = "the condition is true"
    ) -> Result:
        """The result of the condition as soon as it is true. The condition is called after every change of any object.

        NotFound counts as false.
        """
        __tracebackhide__ = True
        deadline = self._now() + timeout
        while True:
            revision = self.run(self._task.revision())
            try:
                if met := condition():
                    return met
            except NotFound:
                pass
            left = deadline - self._now()
            if left <= 0 or not self.run(self._task.has_changed_since(revision, left)):
                raise WaitFailed(f"timed out after {timeout:g} s waiting until {what}\n\n{self.describe()}")

    def wait_until(
        self,
        object_type: type[Object],
        name: str,
        is_so: Callable[[Object], object],
        timeout: float = TIMEOUT_S,
        *,
        namespace: str = "default",
        what: str = "matches",
    ) -> Object:
        """The object as soon as it exists and `is_so(object)` is true."""
        __tracebackhide__ = True

        def wanted() -> Object | None:
            read = self.client.get(object_type, name, namespace=namespace)
            return read if is_so(read) else None

        found = self.wait_for(wanted, timeout, what=f"{object_type.__name__} {namespace}/{name} {what}")
        assert found is not None, "wait_for returns only true values"
        return found

    def wait_until_running(self, pod: str, timeout: float = TIMEOUT_S, *, namespace: str = "default") -> Pod:
        """The pod as soon as it runs. Raises WaitFailed."""
        __tracebackhide__ = True
        return self.wait_until(
            Pod, pod, lambda read: read.status.phase == "Running", timeout, namespace=namespace, what="runs"
        )

    def wait_until_pending(
        self, pod: str, says: str = "", timeout: float = TIMEOUT_S, *, namespace: str = "default"
    ) -> str:
        """The message of the condition PodScheduled as soon as it is false and contains the text `says`."""
        __tracebackhide__ = True

        def is_refused(read: Pod) -> bool:
            condition = _scheduled(read)
            return condition is not None and condition.status == "False" and says in condition.message

        what = f"is pending with the message {says!r}" if says else "is pending with a message"
        found = _scheduled(self.wait_until(Pod, pod, is_refused, timeout, namespace=namespace, what=what))
        assert found is not None, "is_refused found it"
        return found.message

    def wait_until_gone(
        self, object_type: type[ApiObject], name: str, timeout: float = TIMEOUT_S, *, namespace: str = "default"
    ) -> None:
        """Waits until the object does not exist. Raises WaitFailed."""
        __tracebackhide__ = True

        def is_gone() -> bool:
            try:
                self.client.get(object_type, name, namespace=namespace)
            except NotFound:
                return True
            return False

        self.wait_for(is_gone, timeout, what=f"{object_type.__name__} {namespace}/{name} is gone")

    # --- Other programs ----------------------------------------------------------------------------------------------

    def kubeconfig(self) -> Path:
        """A kubeconfig for other programs. The first call makes the cluster listen on a free port of loopback."""
        if isinstance(self._loop, asyncio.Runner):
            raise BadCluster(
                "other programs run in real time: kubeconfig() and start_node() need a cluster without virtual_time"
            )
        path = self._directory / "kubeconfig"
        if not path.exists():
            write_kubeconfig(path, server=self.run(self._cluster.listen()), authority_pem=None, token=TOKEN)
        return path

    def start_node(self, name: str, *, runs_processes: bool = False) -> DriverNode:
        """Start a node that drivers register with. Its containers are processes of this machine, or only simulated."""
        from dralloc.pytest_plugin.driver_node import DriverNode, start_agent

        node = DriverNode(name, self._directory / name, self.kubeconfig())
        self.run(start_agent(self._cluster, self._task.settings, node, runs_processes=runs_processes))
        return node

    # --- Ending -----------------------------------------------------------------------------------------------------

    def _now(self) -> float:
        return self._loop.run(_loop_time())

    def _close(self) -> None:
        try:
            self._loop.run(self._task.stop())
        except ComponentDied:
            if not self._death_reported:
                raise


def _name(item: Item) -> str:
    return str((item.get("metadata") or {}).get("name", "") if isinstance(item, Mapping) else item.metadata.name)


async def _loop_time() -> float:
    return asyncio.get_running_loop().time()


def _scheduled(pod: Pod) -> PodCondition | None:
    return next((condition for condition in pod.status.conditions if condition.type == "PodScheduled"), None)


@contextmanager
def running_cluster(
    *,
    nodes: Mapping[str, int] = NODES,
    virtual_time: bool = False,
    feature_gates: str = "",
    controllers: Sequence[str] = tuple(CONTROLLERS),
) -> Iterator[DraCluster]:
    """A cluster inside the block, with all nodes ready. `nodes` maps profiles to counts. Raises BadCluster."""
    settings = _settings(nodes, feature_gates, controllers)
    # With virtual time the loop runs only during a call, so nothing happens between two calls.
    loop: Runner = asyncio.Runner(loop_factory=VirtualTimeLoop) if virtual_time else LoopThread()
    with closing(loop), tempfile.TemporaryDirectory(prefix="dra-cluster-") as directory:
        task, cluster = loop.run(_start(settings, virtual_time=virtual_time))
        running = DraCluster(cluster, task, loop, Path(directory))
        try:
            yield running
        finally:
            running._close()


def _settings(nodes: Mapping[str, int], feature_gates: str, controllers: Sequence[str]) -> ClusterSettings:
    """Raises BadCluster. The values come from a marker, so their types are not checked yet."""
    if not isinstance(nodes, Mapping) or not all(isinstance(count, int) and count > 0 for count in nodes.values()):
        raise BadCluster(f"nodes must map profiles to counts, such as {NODES}; got {nodes!r}")
    if unknown := sorted(set(controllers) - set(CONTROLLERS)):
        raise BadCluster(f"unknown controllers: {', '.join(unknown)}; available: {', '.join(CONTROLLERS)}")
    try:
        fleets = tuple(fleet(profile, count) for profile, count in nodes.items())
        gates = FeatureGates.parse(feature_gates)
    except (BadProfile, ValueError) as error:
        raise BadCluster(str(error)) from None
    return ClusterSettings(gates=gates, fleets=fleets, controllers=tuple(controllers))


async def _start(settings: ClusterSettings, *, virtual_time: bool) -> tuple[ClusterTask, InProcessCluster]:
    clock = VirtualClock(asyncio.get_running_loop()) if virtual_time else SystemClock()
    task = ClusterTask(replace(settings, clock=clock))
    return task, await task.start()


# --- Cluster task ---------------------------------------------------------------------------------------------------
# A cluster that one task of an event loop starts, holds and stops, so that blocking callers can use it in between.


EVERYTHING: Final = "/"


class ClusterTask:
    """Call `start` and `stop` on the same loop."""

    def __init__(self, settings: ClusterSettings) -> None:
        self.settings = settings
        self._store = MemoryStore()
        self._until_stopped = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> InProcessCluster:
        up: asyncio.Future[InProcessCluster] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(up))
        await asyncio.wait((self._task, up), return_when=asyncio.FIRST_COMPLETED)
        if not up.done():
            await self._task
        return up.result()

    async def stop(self) -> None:
        """Stop the cluster; raises ComponentDied if a component had died."""
        assert self._task is not None, "start() was called"
        self._until_stopped.set()
        await self._task

    async def _run(self, up: asyncio.Future[InProcessCluster]) -> None:
        async with self._store, cluster_in_process(self.settings, store=self._store) as cluster:
            up.set_result(cluster)
            await self._until_stopped.wait()

    async def revision(self) -> int:
        return await self._store.current_revision()

    async def has_changed_since(self, revision: int, timeout_s: float) -> bool:
        """True if any object changed after the revision, or changes before the timeout."""
        try:
            with await self._store.watch(EVERYTHING, after_revision=revision) as watch:
                return bool(await watch.next(limit=1, timeout_s=timeout_s))
        except (Compacted, WatcherTooSlow):
            return True


# --- Manifests ------------------------------------------------------------------------------------------------------
# The objects that a test applies: from a file or directory, a text, a document, or a typed object.


Source = str | Path | Mapping[str, Any] | ApiObject


class BadManifest(ValueError):
    """A source without valid objects; the message says where and why."""


def documents_of(source: Source) -> Iterator[Item]:
    """The objects of a source, in order. A text of one line is a path, unless it is JSON."""
    if isinstance(source, Path) or (isinstance(source, str) and "\n" not in source and not source.startswith("{")):
        for file in read_sources([str(source)]):
            if file.error:
                raise BadManifest(f"{file.name}: {file.error}")
            yield from _documents(file.content, file.name)
    elif isinstance(source, str):
        yield from _documents(source.encode(), "the text")
    else:
        yield source


def _documents(content: bytes, name: str) -> Iterator[Mapping[str, Any]]:
    manifest = read_manifest(content)
    if manifest.error is not None:
        place = manifest.error.position
        raise BadManifest(f"{name}, line {place.line}, column {place.column}: {manifest.error}")
    for document in manifest.documents:
        if not isinstance(document.tree, dict) or not document.kind:
            raise BadManifest(f"{name}: document {document.index + 1} is not a Kubernetes object: it has no kind")
        yield document.tree
