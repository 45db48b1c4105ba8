"""Roles and bindings: they decide requests from the moment that they are stored, and no user grants what it does not have."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dralloc.kube.rbac_v1 import GROUP
from dralloc.kube.registry import find_kind
from dralloc.primitives.features import FeatureGates
from dralloc.server.access.default_policy import AUTO_UPDATE, default_documents
from dralloc.server.access.users import AUTHENTICATED, User
from dralloc.server.server import ApiServer
from dralloc.server.store.interface import Store
from dralloc.server.store.memory import MemoryStore
from dralloc.server.store.store_url import open_store
from dralloc.testing.api_server import running_api_server
from tests.support.etcd_server import EtcdServer
from tests.support.local_api import (
    APPLY_PATCH,
    CLAIMS,
    FixedClock,
    LocalApi,
    claim_document,
    refusal,
)

RBAC = f"/apis/{GROUP}/v1"
ROLES = f"{RBAC}/namespaces/default/roles"
BINDINGS = f"{RBAC}/namespaces/default/rolebindings"
CLUSTER_ROLES = f"{RBAC}/clusterroles"
CLUSTER_BINDINGS = f"{RBAC}/clusterrolebindings"

ALICE = User(name="alice", groups=("devs", AUTHENTICATED))
READ_CLAIMS = {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": ["get", "list"]}
WRITE_ROLES = {"apiGroups": [GROUP], "resources": ["roles", "rolebindings"], "verbs": ["create", "update", "patch"]}


def role(name: str, *rules: dict[str, Any], **members: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "rules": list(rules), **members}


def binding(name: str, role_name: str, user: str = "alice", kind: str = "Role") -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role_name},
        "subjects": [{"kind": "User", "name": user}],
    }


@asynccontextmanager
async def server_on(store: Store) -> AsyncIterator[LocalApi]:
    settings: dict[str, Any] = {"clock": FixedClock(), "gates": FeatureGates.defaults(), "enforces_roles": True}
    async with running_api_server(ApiServer(store, **settings)) as server:
        yield LocalApi(server)


def with_roles(test: Callable[[LocalApi, LocalApi], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Decorates a test that gets an administrator and alice, who has no rights, as clients of a server."""

    async def run() -> None:
        async with asyncio.timeout(60), MemoryStore() as store, server_on(store) as admin:
            await test(admin, LocalApi(admin.server, ALICE))

    def wrapper() -> None:
        asyncio.run(run())

    wrapper.__name__, wrapper.__doc__ = test.__name__, test.__doc__
    return wrapper


async def grant(admin: LocalApi, name: str, *rules: dict[str, Any]) -> None:
    await admin.create(ROLES, role(name, *rules))
    await admin.create(BINDINGS, binding(name, name))


@with_roles
async def test_a_right_begins_and_ends_with_the_write_that_gives_and_takes_it(admin: LocalApi, alice: LocalApi) -> None:
    refused = await refusal(alice.get(CLAIMS))
    what = (
        'User "alice" cannot list resource "resourceclaims" in API group "resource.k8s.io" in the namespace "default"'
    )
    assert (refused.code, refused.document["message"]) == (403, f"resourceclaims.resource.k8s.io is forbidden: {what}")
    for _ in range(20):
        await grant(admin, "read", READ_CLAIMS)
        await alice.get(CLAIMS)
        await admin.update(f"{ROLES}/read", role("read"))
        await refusal(alice.get(CLAIMS))
        await admin.patch(f"{ROLES}/read", {"rules": [READ_CLAIMS]})
        await alice.get(CLAIMS)
        await admin.delete(f"{BINDINGS}/read")
        await refusal(alice.get(CLAIMS))
        await admin.delete(f"{ROLES}/read")


@with_roles
async def test_a_missing_role_is_named(admin: LocalApi, alice: LocalApi) -> None:
    await admin.create(BINDINGS, binding("b", "gone"))
    said = (await refusal(alice.get(CLAIMS))).document["message"]
    assert said.endswith(f': rbac: RBAC: role.{GROUP} "gone" not found')


@with_roles
async def test_a_user_grants_only_what_it_has(admin: LocalApi, alice: LocalApi) -> None:
    await grant(admin, "manage", WRITE_ROLES)
    refused = await refusal(alice.create(ROLES, role("r", READ_CLAIMS)))
    assert refused.code == 403
    assert refused.document["message"].endswith(
        '(groups=["devs" "system:authenticated"]) is attempting to grant RBAC permissions not currently held:\n'
        '{APIGroups:["resource.k8s.io"], Resources:["resourceclaims"], Verbs:["get" "list"]}'
    )
    await admin.create(ROLES, role("r", READ_CLAIMS))
    assert (await refusal(alice.create(BINDINGS, binding("self", "r")))).code == 403
    assert (await refusal(alice.create(BINDINGS, binding("self", "cluster-admin", kind="ClusterRole")))).code == 403
    await grant(admin, "read", READ_CLAIMS)
    await alice.create(BINDINGS, binding("other", "r", user="bob"))
    await alice.create(ROLES, role("copy", READ_CLAIMS))
    assert (await refusal(alice.patch(f"{ROLES}/copy", {"rules": [{**READ_CLAIMS, "verbs": ["*"]}]}))).code == 403
    applied = {"apiVersion": f"{GROUP}/v1", "kind": "Role", **role("copy", {**READ_CLAIMS, "verbs": ["delete"]})}
    options = {"fieldManager": "f", "force": "true"}
    assert (await refusal(alice.patch(f"{ROLES}/copy", applied, content_type=APPLY_PATCH, **options))).code == 403


@with_roles
async def test_escalate_and_bind_replace_the_rights(admin: LocalApi, alice: LocalApi) -> None:
    right = {"apiGroups": [GROUP], "resources": ["roles"]}
    await grant(admin, "manage", WRITE_ROLES)
    await admin.create(ROLES, role("r", READ_CLAIMS))
    assert (await refusal(alice.create(BINDINGS, binding("b", "r")))).code == 403
    await grant(admin, "bind", {**right, "verbs": ["bind"], "resourceNames": ["r"]})
    await alice.create(BINDINGS, binding("b", "r", user="bob"))
    assert (await refusal(alice.create(ROLES, role("x", {**READ_CLAIMS, "verbs": ["delete"]})))).code == 403
    await grant(admin, "escalate", {**right, "verbs": ["escalate"]})
    await alice.create(ROLES, role("x", {**READ_CLAIMS, "verbs": ["delete"]}))


@with_roles
async def test_finalizers_and_owners_change_without_the_rights_of_the_role(admin: LocalApi, alice: LocalApi) -> None:
    await grant(admin, "manage", WRITE_ROLES)
    await admin.create(ROLES, role("r", READ_CLAIMS))
    await alice.patch(f"{ROLES}/r", {"metadata": {"finalizers": ["example.com/x"]}})
    assert (await refusal(alice.patch(f"{ROLES}/r", {"metadata": {"labels": {"a": "b"}}}))).code == 403


@with_roles
async def test_what_an_update_or_apply_creates_needs_the_right_to_create(admin: LocalApi, alice: LocalApi) -> None:
    claims = {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"]}
    roles = {"apiGroups": [GROUP], "resources": ["roles"]}
    await grant(admin, "change", {**claims, "verbs": ["patch"]}, {**roles, "verbs": ["update", "patch"]})
    applied = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", **claim_document()}
    refused = await refusal(
        alice.patch(f"{CLAIMS}/c", applied, content_type=APPLY_PATCH, fieldManager="f", force="true")
    )
    assert (refused.code, refused.document["details"]["kind"]) == (403, "resourceclaims")
    assert (await refusal(alice.update(f"{ROLES}/new", role("new")))).code == 403
    await grant(admin, "create", {**claims, "verbs": ["create"]}, {**roles, "verbs": ["create"]})
    await alice.patch(f"{CLAIMS}/c", applied, content_type=APPLY_PATCH, fieldManager="f", force="true")
    assert (await alice.call("PUT", f"{ROLES}/new", role("new"))).code == 201
    assert (await alice.call("PUT", f"{ROLES}/new", role("new"))).code == 200


# --- Default roles and aggregation -----------------------------------------------------------------------------


@with_roles
async def test_the_default_policy_is_stored_and_aggregated(admin: LocalApi, alice: LocalApi) -> None:
    for document in default_documents():
        kind = find_kind(document["apiVersion"], document["kind"])
        assert kind is not None
        namespace = document["metadata"].get("namespace")
        inside = f"/namespaces/{namespace}" if namespace else ""
        assert await admin.exists(f"{RBAC}{inside}/{kind.plural}/{document['metadata']['name']}")
    view = await admin.get(f"{CLUSTER_ROLES}/view")
    edit = await admin.get(f"{CLUSTER_ROLES}/edit")
    everything = await admin.get(f"{CLUSTER_ROLES}/admin")
    assert 0 < len(view["rules"]) < len(edit["rules"]) < len(everything["rules"])
    assert (await alice.call("GET", "/version")).code == 200
    assert (await alice.call("GET", "/metrics")).code == 403


@with_roles
async def test_an_aggregated_role_follows_the_roles_that_it_selects(admin: LocalApi, alice: LocalApi) -> None:
    selector = {"clusterRoleSelectors": [{"matchLabels": {"to-view": "yes"}}]}
    await admin.create(CLUSTER_ROLES, role("all", aggregationRule=selector))
    await admin.create(CLUSTER_BINDINGS, binding("all", "all", kind="ClusterRole"))
    part = role("part", READ_CLAIMS)
    part["metadata"]["labels"] = {"to-view": "yes"}
    await admin.create(CLUSTER_ROLES, part)
    while (await alice.call("GET", CLAIMS)).code != 200:
        await asyncio.sleep(0)
    await admin.delete(f"{CLUSTER_ROLES}/part")
    while (await alice.call("GET", CLAIMS)).code != 403:
        await asyncio.sleep(0)


def test_stored_defaults_are_brought_up_to_date_at_the_start() -> None:
    async def main() -> None:
        async with asyncio.timeout(60), MemoryStore() as store:
            async with server_on(store) as admin:
                await admin.patch(f"{CLUSTER_ROLES}/system:discovery", {"rules": [READ_CLAIMS]})
                await admin.patch(f"{CLUSTER_BINDINGS}/system:discovery", {"subjects": []})
                own = {"metadata": {"annotations": {AUTO_UPDATE: "false"}}, "rules": [READ_CLAIMS]}
                await admin.patch(f"{CLUSTER_ROLES}/system:basic-user", own)
                await admin.delete(f"{CLUSTER_ROLES}/view")
            async with server_on(store) as admin:
                discovery = await admin.get(f"{CLUSTER_ROLES}/system:discovery")
                assert discovery["rules"][0] == READ_CLAIMS
                assert {"nonResourceURLs": ["/version"], "verbs": ["get"]} in discovery["rules"]
                bound = await admin.get(f"{CLUSTER_BINDINGS}/system:discovery")
                assert [subject["name"] for subject in bound["subjects"]] == [AUTHENTICATED]
                assert (await admin.get(f"{CLUSTER_ROLES}/system:basic-user"))["rules"] == [READ_CLAIMS]
                assert (await admin.get(f"{CLUSTER_ROLES}/view"))["rules"]

    asyncio.run(main())


def test_a_restart_writes_nothing() -> None:
    async def main() -> None:
        async with MemoryStore() as store:
            async with server_on(store):
                pass
            before = await store.current_revision()
            async with server_on(store):
                pass
            assert await store.current_revision() == before

    asyncio.run(main())


# --- Servers on etcd -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_servers_on_one_etcd_follow_each_other(tmp_path: Path) -> None:
    """At once on the server that took the write, and when etcd has delivered it on the other one."""

    async def main(url: str) -> None:
        async with (
            asyncio.timeout(60),
            await open_store(url) as store,
            await open_store(url) as other_store,
            server_on(store) as admin,
            server_on(other_store) as other,
        ):
            alice, alice_there = LocalApi(admin.server, ALICE), LocalApi(other.server, ALICE)
            for _ in range(10):
                await grant(admin, "read", READ_CLAIMS)
                await alice.get(CLAIMS)
                while (await alice_there.call("GET", CLAIMS)).code != 200:
                    await asyncio.sleep(0.001)
                await other.delete(f"{BINDINGS}/read")
                assert (await alice_there.call("GET", CLAIMS)).code == 403
                while (await alice.call("GET", CLAIMS)).code != 403:
                    await asyncio.sleep(0.001)
                await admin.delete(f"{ROLES}/read")

    with EtcdServer(tmp_path) as etcd:
        asyncio.run(main(etcd.url()))
