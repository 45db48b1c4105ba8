"""What the identity of a node may read and write on a server, and what it may not, in Kubernetes' words."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from dralloc.primitives.features import FeatureGates
from dralloc.server.access.authorizer import ALLOWED, AccessRequest, Decision
from dralloc.server.access.users import AUTHENTICATED, NODES, User
from dralloc.server.server import ApiServer
from dralloc.server.store.memory import MemoryStore
from dralloc.server.store.records import Record
from dralloc.system_clock import SystemClock
from dralloc.testing.api_server import running_api_server
from dralloc.testing.virtual_time import run_virtual
from tests.support.api_server import api_server
from tests.support.local_api import (
    APPLY_PATCH,
    CLAIMS,
    PODS,
    RESOURCE,
    LocalApi,
    claim_document,
    pod_document,
    refusal,
    with_api,
)

SLICES: Final = f"{RESOURCE}/resourceslices"
LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
N1: Final = User(name="system:node:n1", groups=(NODES, AUTHENTICATED))


def node_of(api: LocalApi, user: User = N1) -> LocalApi:
    return LocalApi(api.server, user)


def slice_document(name: str, node: str, generation: int = 1) -> dict[str, Any]:
    pool = {"name": name, "generation": generation, "resourceSliceCount": 1}
    devices = [{"name": "gpu-0"}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {"driver": "d.example.com", "nodeName": node, "pool": pool, "devices": devices},
    }


def pod_on(node: str, name: str = "p", **spec: Any) -> dict[str, Any]:
    pod = pod_document(name)
    pod["spec"] |= {"nodeName": node, **spec}
    return pod


def said(answer: Any) -> str:
    assert answer.code == 403, answer
    return str(answer.document["message"])


NO_RELATION: Final = "node: no relationship found between node 'n1' and this object"


@with_api
async def test_a_node_cannot_write_slices_of_other_nodes(api: LocalApi) -> None:
    node = node_of(api)
    await api.create(SLICES, slice_document("other", "n2"))
    assert said(await refusal(node.update(f"{SLICES}/other", slice_document("other", "n2", 2)))).endswith(NO_RELATION)
    assert said(await refusal(node.update(f"{SLICES}/other", slice_document("other", "n1")))).endswith(NO_RELATION)
    assert said(await refusal(node.patch(f"{SLICES}/other", {"spec": {"nodeName": "n1"}}))).endswith(NO_RELATION)
    applied = slice_document("other", "n2", 3)
    apply = node.patch(f"{SLICES}/other", applied, content_type=APPLY_PATCH, fieldManager="f", force="true")
    assert said(await refusal(apply)).endswith(NO_RELATION)
    assert said(await refusal(node.delete(f"{SLICES}/other"))).endswith(NO_RELATION)
    created = said(await refusal(node.create(SLICES, slice_document("new", "n2"))))
    why = "can only create ResourceSlice with the same NodeName as the requesting node"
    assert created == f'resourceslices.resource.k8s.io "new" is forbidden: {why}'
    assert (await api.get(f"{SLICES}/other"))["spec"]["pool"]["generation"] == 1


@with_api
async def test_a_node_writes_its_own_slices(api: LocalApi) -> None:
    node = node_of(api)
    await node.create(SLICES, slice_document("own", "n1"))
    await node.update(f"{SLICES}/own", slice_document("own", "n1", 2))
    await node.patch(f"{SLICES}/own", {"spec": {"pool": {"generation": 3}}})
    applied = slice_document("own", "n1", 4)
    await node.patch(f"{SLICES}/own", applied, content_type=APPLY_PATCH, fieldManager="f", force="true")
    assert (await node.get(f"{SLICES}/own"))["spec"]["pool"]["generation"] == 4
    assert len((await node.get(SLICES, fieldSelector="spec.nodeName=n1"))["items"]) == 1
    assert (await refusal(node.get(SLICES))).code == 403
    assert (await refusal(node.get(SLICES, fieldSelector="spec.nodeName=n2"))).code == 403
    await node.delete(f"{SLICES}/own")
    await node.create(SLICES, slice_document("own", "n1"))
    await node.delete(SLICES, fieldSelector="spec.nodeName=n1")
    assert not await api.exists(f"{SLICES}/own")


@with_api
async def test_a_node_cannot_delete_pods_of_other_nodes_or_namespaces(api: LocalApi) -> None:
    node = node_of(api)
    await api.create(PODS, pod_on("n2"))
    await api.create(PODS, pod_on("n1", "own"))
    await api.create(PODS, pod_document("unbound"))
    await api.create("/api/v1/namespaces", {"metadata": {"name": "team"}})
    refused = said(await refusal(node.delete(f"{PODS}/p")))
    assert refused == 'pods "p" is forbidden: node "n1" can only delete pods with spec.nodeName set to itself'
    assert (await refusal(node.delete(f"{PODS}/unbound"))).code == 403
    assert (await refusal(node.delete(PODS))).code == 403
    assert (await refusal(node.delete("/api/v1/namespaces/team"))).code == 403
    eviction = {"metadata": {"name": "p"}}
    refused = said(await refusal(node.create(f"{PODS}/p/eviction", eviction)))
    assert refused == 'pods "p" is forbidden: node n1 can only evict pods with spec.nodeName set to itself'
    await node.create(f"{PODS}/own/eviction", {"metadata": {"name": "own"}})


@with_api
async def test_a_node_cannot_take_leases_of_others(api: LocalApi) -> None:
    node = node_of(api)
    await node.create(LEASES, {"metadata": {"name": "n1"}, "spec": {"holderIdentity": "n1"}})
    await node.patch(f"{LEASES}/n1", {"spec": {"leaseDurationSeconds": 40}})
    await api.create(LEASES, {"metadata": {"name": "n2"}, "spec": {"holderIdentity": "n2"}})
    assert (await refusal(node.patch(f"{LEASES}/n2", {"spec": {"holderIdentity": "n1"}}))).code == 403
    refused = said(await refusal(node.create(LEASES, {"metadata": {"name": "n3"}, "spec": {}})))
    assert refused.endswith(": can only access node lease with the same name as the requesting node")
    elsewhere = LEASES.replace("kube-node-lease", "kube-system")
    await api.create(elsewhere, {"metadata": {"name": "kube-scheduler"}, "spec": {"holderIdentity": "s"}})
    assert (await refusal(node.patch(f"{elsewhere}/kube-scheduler", {"spec": {"holderIdentity": "n1"}}))).code == 403
    assert (await refusal(node.create(elsewhere, {"metadata": {"name": "n1"}, "spec": {}}))).code == 403


@with_api
async def test_a_node_reads_the_claims_of_its_pods_and_follows_changes_at_once(api: LocalApi) -> None:
    node = node_of(api)
    for name in ("named", "made", "other"):
        await api.create(CLAIMS, claim_document(name))
    path = f"{CLAIMS}/named"
    assert said(await refusal(node.get(path))).endswith(NO_RELATION)
    await api.create(PODS, pod_on("n1", resourceClaims=[{"name": "x", "resourceClaimName": "named"}]))
    await node.get(path)
    await api.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})
    assert said(await refusal(node.get(path))).endswith(NO_RELATION)

    await api.create(PODS, pod_on("n1", resourceClaims=[{"name": "x", "resourceClaimTemplateName": "t"}]))
    assert (await refusal(node.get(f"{CLAIMS}/made"))).code == 403
    made = {"status": {"resourceClaimStatuses": [{"name": "x", "resourceClaimName": "made"}]}}
    await api.patch(f"{PODS}/p/status", made)
    await node.get(f"{CLAIMS}/made")
    assert (await refusal(node.get(f"{CLAIMS}/other"))).code == 403
    # The node cannot give itself the claim of another.
    stolen = {"status": {"resourceClaimStatuses": [{"name": "x", "resourceClaimName": "other"}]}}
    assert said(await refusal(node.patch(f"{PODS}/p/status", stolen))).endswith("cannot update resource claim statues")
    extended = {"status": {"extendedResourceClaimStatus": {"resourceClaimName": "other", "requestMappings": []}}}
    refused = said(await refusal(node.patch(f"{PODS}/p/status", extended)))
    assert refused.endswith('node "n1" cannot update extended resource claim status')
    assert (await refusal(node.get(f"{CLAIMS}/other"))).code == 403


@with_api
async def test_a_pod_that_is_bound_gives_its_node_access(api: LocalApi) -> None:
    node = node_of(api)
    await api.create(CLAIMS, claim_document("c"))
    pod = pod_document("p")
    pod["spec"]["resourceClaims"] = [{"name": "x", "resourceClaimName": "c"}]
    await api.create(PODS, pod)
    assert (await refusal(node.get(f"{PODS}/p"))).code == 403
    assert (await refusal(node.get(f"{CLAIMS}/c"))).code == 403
    result = {"request": "gpu", "driver": "d.example.com", "pool": "p", "device": "x"}
    await api.patch(f"{CLAIMS}/c/status", {"status": {"allocation": {"devices": {"results": [result]}}}})
    await api.create(f"{PODS}/p/binding", {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}})
    await node.get(f"{PODS}/p")
    await node.get(f"{CLAIMS}/c")


@with_api
async def test_a_mirror_pod_gives_its_node_nothing(api: LocalApi) -> None:
    node = node_of(api)
    await api.create(CLAIMS, claim_document("c"))
    mirror = pod_on("n1", resourceClaims=[{"name": "x", "resourceClaimName": "c"}])
    mirror["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "h"}
    await api.create(PODS, mirror)
    assert (await refusal(node.get(f"{CLAIMS}/c"))).code == 403
    uid = (await api.create("/api/v1/nodes", {"metadata": {"name": "n1"}}))["metadata"]["uid"]
    mirror["metadata"] |= {
        "name": "q",
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid, "controller": True}],
    }
    refused = said(await refusal(node.create(PODS, mirror)))
    assert refused == 'pods "q" is forbidden: node "n1" can not create pods that reference resourceclaims'
    del mirror["spec"]["resourceClaims"]
    await node.create(PODS, mirror)


@with_api
async def test_a_node_writes_its_own_node_object_except_what_attracts_pods(api: LocalApi) -> None:
    node = node_of(api)
    nodes = "/api/v1/nodes"
    await node.create(nodes, {"metadata": {"name": "n1", "labels": {"kubernetes.io/hostname": "n1"}}})
    await node.patch(f"{nodes}/n1/status", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    await node.patch(f"{nodes}/n1", {"metadata": {"labels": {"example.com/rack": "r1"}}})
    tainted = {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
    for path in (f"{nodes}/n1", f"{nodes}/n1/status"):
        assert said(await refusal(node.patch(path, tainted))).endswith('node "n1" is not allowed to modify taints')
        labelled = {"metadata": {"labels": {"node-restriction.kubernetes.io/x": "y", "node-role.kubernetes.io/a": ""}}}
        refused = said(await refusal(node.patch(path, labelled)))
        assert refused.endswith(
            "is not allowed to modify labels: node-restriction.kubernetes.io/x, node-role.kubernetes.io/a"
        )
    await api.create(nodes, {"metadata": {"name": "n2"}})
    refused = said(await refusal(node.patch(f"{nodes}/n2/status", {"status": {}})))
    assert refused == 'nodes "n2" is forbidden: node "n1" is not allowed to modify node "n2"'
    assert (await refusal(node.delete(f"{nodes}/n1"))).code == 403
    assert (await refusal(node.get(nodes))).code == 403


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/namespaces/default/secrets"),
        ("GET", f"{RESOURCE}/deviceclasses"),
        ("POST", f"{RESOURCE}/devicetaintrules"),
        ("POST", CLAIMS),
        ("DELETE", f"{CLAIMS}/c"),
        ("PATCH", f"{CLAIMS}/c/status"),
        ("POST", f"{PODS}/p/binding"),
        ("POST", "/api/v1/namespaces/default/bindings"),
        ("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"),
        ("GET", "/metrics"),
    ],
)
@with_api
async def test_nothing_else_is_reachable_for_a_node(api: LocalApi, method: str, path: str) -> None:
    assert (await node_of(api).call(method, path, {} if method != "GET" else None)).code == 403


@with_api
async def test_a_name_without_the_group_is_no_node_and_a_node_without_a_name_is_refused(api: LocalApi) -> None:
    nameless = node_of(api, User(name="system:node:", groups=(NODES, AUTHENTICATED)))
    assert said(await refusal(nameless.create(SLICES, slice_document("s", "")))).endswith(
        'node: unknown node for user "system:node:"'
    )


class AllowAll:
    def decide(self, _: AccessRequest) -> Decision:
        return ALLOWED


def test_a_node_without_a_name_writes_nothing_whatever_roles_it_has() -> None:
    async def main() -> None:
        async with api_server(authorizer=AllowAll()) as server:
            api, nameless = LocalApi(server), LocalApi(server, User(name="system:node:", groups=(NODES,)))
            # Its nodeName is empty, like the name of the node.
            await api.create(PODS, pod_document("p"))
            why = 'could not determine node from user "system:node:"'
            for method, path, body in (
                ("DELETE", f"{PODS}/p", None),
                ("POST", f"{PODS}/p/eviction", {}),
                ("POST", f"{PODS}/p/binding", {"target": {"name": "n1"}}),
                ("POST", PODS, pod_document("q")),
                ("POST", SLICES, slice_document("s", "")),
                ("POST", CLAIMS, claim_document("c")),
            ):
                assert said(await nameless.call(method, path, body)).endswith(why), (method, path)

    run_virtual(main())


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
@with_api
async def test_the_rules_hold_in_every_version(api: LocalApi, version: str) -> None:
    node, slices = node_of(api), SLICES.replace("/v1/", f"/{version}/")
    document = {**slice_document("other", "n2"), "apiVersion": f"resource.k8s.io/{version}"}
    assert said(await refusal(node.create(slices, document))).endswith("same NodeName as the requesting node")
    await api.create(slices, document)
    assert (await refusal(node.get(f"{slices}/other"))).code == 403
    assert (await refusal(node.delete(f"{slices}/other"))).code == 403
    own = {**slice_document("own", "n1"), "apiVersion": f"resource.k8s.io/{version}"}
    await node.create(slices, own)
    await node.delete(f"{slices}/own")


class InterruptedStore(MemoryStore):
    """A store in which something happens after a read."""

    interrupt: Callable[[], Awaitable[None]] | None = None

    async def get(self, key: str) -> Record | None:
        record = await super().get(key)
        if self.interrupt is not None and key.endswith("/pods/default/p"):
            interrupt, self.interrupt = self.interrupt, None
            await interrupt()
        return record


def test_a_pod_that_takes_the_name_of_another_is_not_deleted_for_it() -> None:
    """The check of the node's right and the deletion are two steps."""

    async def main() -> None:
        async with (
            InterruptedStore() as store,
            running_api_server(ApiServer(store, clock=SystemClock(), gates=FeatureGates.defaults())) as server,
        ):
            api, node = LocalApi(server), LocalApi(server, N1)

            async def replace_pod() -> None:
                await api.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})
                await api.create(PODS, pod_on("n2"))

            for deletion in (("DELETE", f"{PODS}/p"), ("POST", f"{PODS}/p/eviction")):
                await api.create(PODS, pod_on("n1"))
                store.interrupt = replace_pod
                assert (await node.call(*deletion, {})).code == 409
                assert (await api.get(f"{PODS}/p"))["spec"]["nodeName"] == "n2"
                await api.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})

    asyncio.run(main())
