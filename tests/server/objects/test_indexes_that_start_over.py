"""An index that starts over decides nothing by a part of what is stored, and its tasks miss nothing that happened in between."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dralloc.kube.codec import decode
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.registry import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    DEVICE_CLASS,
    KINDS,
    POD,
    RESOURCE_CLAIM,
    RESOURCE_QUOTA,
)
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.kube.unstructured_object import read_unstructured
from dralloc.primitives.errors import Conflict, Forbidden
from dralloc.primitives.features import FeatureGates
from dralloc.server.access.authorizer import AccessRequest
from dralloc.server.access.users import User
from dralloc.server.read.api_resources import key_of
from dralloc.server.read.stored_policy import StoredPolicy
from dralloc.server.store.interface import HistoryLimits
from dralloc.server.store.memory import MemoryStore
from dralloc.server.store.records import Record
from dralloc.server.write.claim_use_guard import ClaimInUse, ClaimUseGuard
from dralloc.server.write.device_guard import DeviceGuard
from dralloc.server.write.guard_set import GuardSet
from dralloc.server.write.write_guards import Hold
from tests.support.api_server import api_server
from tests.support.local_api import CLAIMS, PODS, LocalApi, settle
from tests.support.local_api import claim_document as claim
from tests.support.local_api import pod_document as pod

# So many that an index that learns them gives way several times, and more changes than the store keeps.
MANY = 2_000
FEW_CHANGES = HistoryLimits(events_max=20)


class ChangedStore:
    """A store that changes so much in one step of the loop that every index falls behind."""

    def __init__(self) -> None:
        self.store = MemoryStore(limits=FEW_CHANGES)

    async def put(self, key: str, document: dict[str, Any]) -> None:
        known = await self.store.get(key)
        value = json.dumps(document, separators=(",", ":")).encode()
        if known is None:
            await self.store.create(key, value)
        else:
            await self.store.update(key, value, expected_revision=known.revision)

    async def delete(self, key: str) -> None:
        known = await self.record(key)
        await self.store.delete(key, expected_revision=known.revision)

    async def record(self, key: str) -> Record:
        known = await self.store.get(key)
        assert known is not None
        return known

    async def fill(self, make: Callable[[int], tuple[str, dict[str, Any]]]) -> None:
        for number in range(MANY):
            await self.put(*make(number))


@asynccontextmanager
async def changed_store() -> AsyncIterator[ChangedStore]:
    changed = ChangedStore()
    async with changed.store:
        yield changed


async def steps_until(done: Awaitable[Any]) -> AsyncIterator[None]:
    waiting = asyncio.ensure_future(done)
    while not waiting.done():
        yield
        await asyncio.sleep(0)
    await waiting


# --- roles ------------------------------------------------------------------------------------------------------


def role(name: str, resource: str) -> tuple[str, dict[str, Any]]:
    rules = [{"apiGroups": [""], "resources": [resource], "verbs": ["get"]}]
    return key_of(CLUSTER_ROLE, "", name), {"metadata": {"name": name}, "rules": rules}


def binding(name: str, user: str) -> tuple[str, dict[str, Any]]:
    subjects = [{"kind": "User", "name": user}]
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    return key_of(CLUSTER_ROLE_BINDING, "", name), {"metadata": {"name": name}, "subjects": subjects, "roleRef": ref}


def may(policy: StoredPolicy, resource: str) -> bool:
    asked = AccessRequest(user=User(name="alice"), verb="get", resource=resource, version="v1")
    return policy.decide(asked).allowed


@pytest.mark.parametrize("first", [True, False], ids=["the binding goes first", "the role changes first"])
def test_roles_and_bindings_are_of_one_moment(first: bool) -> None:
    """A user loses a role, which gets more rights then: the user never had these."""

    async def main() -> None:
        async with changed_store() as changed:
            await changed.put(*role("r", "pods"))
            await changed.put(*binding("r", "alice"))
            policy = StoredPolicy(changed.store)
            await policy.ready()
            assert may(policy, "pods")
            if first:
                await changed.delete(binding("r", "")[0])
                await changed.put(*role("r", "secrets"))
            await changed.fill(lambda number: role(f"other-{number}", "nodes"))
            await changed.fill(lambda number: binding(f"other-{number}", "bob"))
            if not first:
                await changed.delete(binding("r", "")[0])
                await changed.put(*role("r", "secrets"))
            seen = [(may(policy, "pods"), may(policy, "secrets")) async for _ in steps_until(policy.ready())]
            # Of the earlier moment, then of the later one.
            assert set(seen) <= {(True, False), (False, False)}
            assert seen[0] == (True, False)
            assert (may(policy, "pods"), may(policy, "secrets")) == (False, False)
            await policy.stop()

    asyncio.run(main())


# --- guards -----------------------------------------------------------------------------------------------------


def allocated(name: str, device: str, *pods: str) -> tuple[str, dict[str, Any]]:
    results = [{"request": "gpu", "driver": "d.example.com", "pool": "p", "device": device}]
    reserved = [{"resource": "pods", "name": each, "uid": each} for each in pods]
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": reserved}
    return key_of(RESOURCE_CLAIM, "default", name), {**claim(name, namespace="default"), "status": status}


def free(name: str) -> tuple[str, dict[str, Any]]:
    return key_of(RESOURCE_CLAIM, "default", name), claim(name, namespace="default")


def of(stored: tuple[str, dict[str, Any]]) -> ResourceClaim:
    return decode(json.dumps(stored[1]).encode(), ResourceClaim)


async def allocate(guard: DeviceGuard, name: str, device: str) -> Hold:
    new = allocated(name, device)
    hold = await guard.hold(new[0], of(new), of(free(name)))
    assert hold is not None, "the claim has devices"
    return hold


async def stored(guard: DeviceGuard, changed: ChangedStore, name: str, device: str) -> None:
    """Allocate and store it. The first write of a guard begins a sequence, which the others wait for."""
    hold = await allocate(guard, name, device)
    await changed.put(*allocated(name, device))
    hold.keep((await changed.record(allocated(name, device)[0])).revision)


def test_no_device_is_given_out_twice_while_the_guard_learns_again() -> None:
    """Whether another server gave it out before the index fell behind, or this one does while it learns."""

    async def main() -> None:
        async with changed_store() as changed:
            guard = DeviceGuard(changed.store)

            await stored(guard, changed, "first", "gpu-first")
            mine = await allocate(guard, "mine", "gpu-0")
            await changed.put(*allocated("theirs", "gpu-1"))
            await changed.fill(lambda number: allocated(f"other-{number}", f"other-{number}"))
            with pytest.raises(Conflict):
                await allocate(guard, "late", "gpu-1")
            # What is held is counted by the next index, too; and what is stored before the watch shows it.
            with pytest.raises(Conflict):
                await allocate(guard, "late", "gpu-0")
            await changed.fill(lambda number: allocated(f"more-{number}", f"more-{number}"))
            waiting = asyncio.ensure_future(allocate(guard, "late", "gpu-0"))
            async for _ in steps_until(asyncio.sleep(0.001)):
                pass
            await changed.put(*allocated("mine", "gpu-0"))
            mine.keep((await changed.record(allocated("mine", "")[0])).revision)
            with pytest.raises(Conflict):
                await waiting
            with pytest.raises(Conflict):
                await allocate(guard, "late", "gpu-0")
            await changed.delete(allocated("mine", "")[0])
            await allocate(guard, "late", "gpu-0")
            await guard.stop()

    asyncio.run(main())


def test_the_claim_of_a_bound_pod_is_not_deallocated_while_the_guard_learns_again() -> None:
    def bound(name: str) -> tuple[str, dict[str, Any]]:
        document = pod(name, namespace="default", uid=name)
        claims = [{"name": "c", "resourceClaimName": name}]
        return key_of(POD, "default", name), {
            **document,
            "spec": {**document["spec"], "nodeName": "n", "resourceClaims": claims},
        }

    async def main() -> None:
        async with changed_store() as changed:
            guard = ClaimUseGuard(changed.store)

            async def deallocate(name: str) -> Any:
                before = allocated(name, "gpu", name)
                return await guard.hold(before[0], of(free(name)), of(before))

            (await deallocate("p")).release()
            await changed.put(*bound("first"))
            await changed.fill(lambda number: bound(f"other-{number}"))
            with pytest.raises(ClaimInUse):
                await deallocate("first")
            await guard.stop()

    asyncio.run(main())


GPU = "example.com/gpu"


def asking(number: int) -> tuple[str, dict[str, Any]]:
    """A pod that asks for an extended resource."""
    name, limits = f"p-{number}", {"requests": {GPU: "1"}, "limits": {GPU: "1"}}
    document = pod(name, namespace="default", uid=name)
    containers = [{**each, "resources": limits} for each in document["spec"]["containers"]]
    return key_of(POD, "default", name), {**document, "spec": {**document["spec"], "containers": containers}}


def made_for(number: int) -> tuple[str, dict[str, Any]]:
    """The claim that serves it."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": f"p-{number}", "uid": f"p-{number}", "controller": True}
    special = {"resource.kubernetes.io/extended-resource-claim": "true"}
    name = f"of-{number}"
    made = claim(name, namespace="default", uid=name, ownerReferences=[owner], annotations=special)
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    requests = [{"name": "r", "exactly": exactly}]
    return key_of(RESOURCE_CLAIM, "default", name), {**made, "spec": {"devices": {"requests": requests}}}


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before the guard begins", "when it has fallen behind", "while it follows"])
def test_the_claims_of_pods_are_not_charged_before_their_pods(when: str) -> None:
    """Or they would count twice, until they change."""

    async def main() -> None:
        async with changed_store() as changed:
            spec = {"hard": {f"requests.{GPU}": str(MANY + 1)}}
            await changed.put(key_of(RESOURCE_QUOTA, "default", "q"), {"metadata": {"name": "q"}, "spec": spec})
            extended = {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": GPU}}
            await changed.put(key_of(DEVICE_CLASS, "", "gpu"), extended)
            guards = GuardSet(changed.store, KINDS, FeatureGates.defaults(), guards_devices=True)

            async def create(number: int) -> Any:
                key, document = asking(number)
                new = read_unstructured(json.dumps(document).encode(), view_type=Pod)
                return await guards.quotas[POD.resource].hold(key, new, None)

            if when != "before the guard begins":
                (await create(0)).release()
            if when != "while it follows":
                await changed.fill(asking)
                await changed.fill(made_for)
            else:
                for number in range(MANY):
                    await changed.put(*asking(number))
                    await changed.put(*made_for(number))
                    if number % 100 == 0:
                        await asyncio.sleep(0)
            (await create(MANY)).release()
            await changed.put(*asking(MANY))
            with pytest.raises(Forbidden):
                await create(MANY + 1)
            await guards.stop()

    asyncio.run(main())


# --- tasks of the server ------------------------------------------------------------------------------------------


def test_the_collector_does_what_became_due_while_it_fell_behind() -> None:
    async def main() -> None:
        async with MemoryStore(limits=FEW_CHANGES) as store, api_server(store=store) as server:
            api = LocalApi(server)
            owner = await api.create(PODS, pod("owner"))
            reference = {"apiVersion": "v1", "kind": "Pod", "name": "owner", "uid": owner["metadata"]["uid"]}
            await api.create(CLAIMS, claim("owned", ownerReferences=[reference]))
            blocked = await api.create(PODS, pod("blocked"))
            blocking = {"apiVersion": "v1", "kind": "Pod", "name": "blocked", "uid": blocked["metadata"]["uid"]}
            kept = claim("kept", ownerReferences=[{**blocking, "blockOwnerDeletion": True}], finalizers=["a.b/c"])
            await api.create(CLAIMS, kept)
            await api.delete(f"{PODS}/blocked", {"propagationPolicy": "Foreground"})
            await settle()
            # Another server deletes both in one step of this one.
            for key in (key_of(POD, "default", "owner"), key_of(RESOURCE_CLAIM, "default", "kept")):
                record = await store.get(key)
                assert record is not None
                await store.delete(key, expected_revision=record.revision)
            for number in range(MANY):
                await store.create(f"/registry/others/{number}", b"{}")
            async with asyncio.timeout(10):
                while await api.exists(f"{CLAIMS}/owned") or await api.exists(f"{PODS}/blocked"):
                    await asyncio.sleep(0.01)

    asyncio.run(main())


def encoded(stored: tuple[str, dict[str, Any]]) -> tuple[str, bytes]:
    return stored[0], json.dumps(stored[1], separators=(",", ":")).encode()
