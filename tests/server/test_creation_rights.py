"""A write that creates an object needs the right to create it, whatever its method is."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.server.access.authorizer import (
    ALLOWED,
    NO_OPINION,
    AccessRequest,
    Administrators,
    AuthorizerChain,
    Decision,
)
from dralloc.server.access.users import User
from dralloc.testing.virtual_time import run_virtual
from tests.support.api_server import api_over_http, api_server
from tests.support.local_api import APPLY_PATCH, CLAIMS, LocalApi, claim_document

ROLES: Final = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles"


class Verbs:
    """Allows one user these verbs on everything."""

    def __init__(self, *verbs: str) -> None:
        self._verbs = verbs

    def decide(self, request: AccessRequest) -> Decision:
        return ALLOWED if request.user.name == "editor" and request.verb in self._verbs else NO_OPINION


@pytest.mark.parametrize("may_create", [False, True])
def test_apply_and_update_create_only_with_the_right_to_create(may_create: bool) -> None:
    verbs = ("get", "update", "patch", "escalate") + (("create",) if may_create else ())

    async def main() -> None:
        async with api_server(authorizer=AuthorizerChain((Administrators(), Verbs(*verbs)))) as server:
            editor = LocalApi(server, User(name="editor"))
            claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", **claim_document("new")}
            applied = await editor.call("PATCH", f"{CLAIMS}/new", claim, content_type=APPLY_PATCH, fieldManager="f")
            role = {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "Role",
                "metadata": {"name": "r"},
                "rules": [],
            }
            updated = await editor.call("PUT", f"{ROLES}/r", role)
            if may_create:
                assert (applied.code, updated.code) == (201, 201)
                return
            for answer, where in (
                (applied, ("resourceclaims", "resource.k8s.io", "new")),
                (updated, ("roles", "rbac.authorization.k8s.io", "r")),
            ):
                resource, group, name = where
                what = f'cannot create resource "{resource}" in API group "{group}" in the namespace "default"'
                assert answer.document["message"] == f'{resource}.{group} "{name}" is forbidden: User "editor" {what}'
                assert answer.code == 403
            assert not await LocalApi(server).exists(f"{CLAIMS}/new")
            # What exists can still be applied and updated.
            await LocalApi(server).create(CLAIMS, claim_document("new"))
            options = {"fieldManager": "f", "force": "true"}
            again = await editor.call("PATCH", f"{CLAIMS}/new", claim, content_type=APPLY_PATCH, **options)
            assert again.code == 200

    run_virtual(main())


def test_the_status_of_a_large_claim_is_authorized_like_that_of_a_small_one() -> None:
    """Large objects are computed in a thread, policies change in the event loop."""
    claim = claim_document("large", annotations={f"a{number}": "x" * 1000 for number in range(200)})
    result = {"request": "gpu", "driver": "d.example.com", "pool": "p", "device": "gpu-0"}
    allocation = {"status": {"allocation": {"devices": {"results": [result]}}}}

    async def main() -> None:
        async with api_over_http(authorizer=AuthorizerChain((Administrators(), Verbs("get", "patch")))) as client:
            await client.create({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", **claim})
            await client.patch(ResourceClaim, "large", allocation, subresource="status")

    asyncio.run(main())
