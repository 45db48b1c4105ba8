"""A batch carries writes that are requests of their own; a status write may protect the claim that it allocates."""

from __future__ import annotations

from typing import Any, Final

import pytest

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
from tests.support.api_server import api_server
from tests.support.local_api import (
    CLAIMS,
    MERGE_PATCH,
    PODS,
    RESOURCE,
    LocalApi,
    claim_document,
    pod_document,
    refusal,
    with_api,
)

BATCH: Final = "/dralloc/v1/batch"
PROTECTION: Final = "resource.kubernetes.io/delete-protection"


def write(method: str, path: str, body: Any = None, content_type: str = "application/json") -> dict[str, Any]:
    return {"method": method, "path": path, "contentType": content_type, "body": body or {}}


async def statuses(api: LocalApi, *writes: dict[str, Any]) -> list[int]:
    answer = await api.create(BATCH, {"requests": writes})
    return [response["status"] for response in answer["responses"]]


@with_api
async def test_extensions_are_listed(api: LocalApi) -> None:
    assert await api.get("/dralloc/v1/extensions") == {"extensions": ["allocation-finalizer", "batch"]}
    assert (await refusal(api.create("/dralloc/v1/extensions", {}))).code == 405
    assert (await api.call("GET", BATCH)).code == 405


def test_a_server_without_guards_has_no_extensions() -> None:
    """It stands for one of Kubernetes."""

    async def main() -> None:
        async with api_server(guards_devices=False) as server:
            assert (await LocalApi(server).call("GET", "/dralloc/v1/extensions")).code == 404
            assert (await LocalApi(server).call("POST", BATCH, {"requests": []})).code == 404

    run_virtual(main())


@with_api
async def test_each_write_has_its_own_answer(api: LocalApi) -> None:
    await api.create(PODS, pod_document("p"))
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}
    label = {"metadata": {"labels": {"a": "b"}}}
    answer = await api.create(
        BATCH,
        {
            "requests": [
                write("POST", CLAIMS, claim_document("c")),
                write("PATCH", f"{CLAIMS}/none", label, MERGE_PATCH),
                write("POST", f"{PODS}/p/binding", binding),
                write("POST", CLAIMS, {"metadata": {"name": "Bad"}}),
                {**write("POST", CLAIMS, claim_document("unseen")), "query": {"dryRun": "All"}},
            ]
        },
    )
    created, missing, bound, invalid, dry = answer["responses"]
    assert (created["status"], created["body"]["metadata"]["name"]) == (201, "c")
    assert (missing["status"], missing["body"]["reason"]) == (404, "NotFound")
    assert (bound["status"], bound["body"]["kind"]) == (201, "Status")
    assert (invalid["status"], invalid["body"]["reason"]) == (422, "Invalid")
    assert dry["status"] == 201
    assert (await api.get(f"{PODS}/p"))["spec"]["nodeName"] == "n"
    assert not await api.exists(f"{CLAIMS}/unseen")


REFUSED: Final = [
    write("GET", f"{PODS}/p"),
    write("DELETE", PODS),
    write("POST", f"{PODS}/p/exec"),
    write("POST", f"{PODS}/p/proxy"),
    write("POST", "/api/v1/namespaces/default/serviceaccounts/default/token"),
    write("POST", BATCH, {"requests": []}),
    write("POST", "/metrics"),
]


@with_api
async def test_a_batch_has_no_parameters(api: LocalApi) -> None:
    """They are those of its requests: a dry run of a batch would write."""
    created = write("POST", CLAIMS, claim_document())
    assert (await api.call("POST", BATCH, {"requests": [created]}, dryRun="All")).code == 400
    assert not await api.exists(f"{CLAIMS}/c")
    assert await statuses(api, {**created, "query": {"dryRun": "All"}}) == [201]
    assert not await api.exists(f"{CLAIMS}/c")


@with_api
async def test_only_writes_of_objects_are_carried(api: LocalApi) -> None:
    await api.create(PODS, pod_document("p"))
    assert await statuses(api, *REFUSED) == [405] * len(REFUSED)


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"{",
        b'{"requests":[{}]}',
        b'{"requests":' + b"[" * 100_000,
        {"requests": [write("POST", CLAIMS)] * 129},
    ],
    ids=["list", "incomplete", "without method", "deep", "too many"],
)
def test_what_is_no_batch_is_refused(body: Any) -> None:
    async def main() -> None:
        async with api_server() as server:
            assert (await LocalApi(server).call("POST", BATCH, body)).code == 400

    run_virtual(main())


class OnlyClaims:
    """Allows one user to create claims, and nothing else."""

    def decide(self, request: AccessRequest) -> Decision:
        allowed = request.user.name == "u" and (request.verb, request.resource) == ("create", "resourceclaims")
        return ALLOWED if allowed else NO_OPINION


def test_each_write_is_authorized() -> None:
    async def main() -> None:
        roles = AuthorizerChain((Administrators(), OnlyClaims()))
        async with api_server(authorizer=roles) as server:
            user = LocalApi(server, User(name="u"))
            codes = await statuses(
                user, write("POST", CLAIMS, claim_document("c")), write("POST", PODS, pod_document("p"))
            )
        assert codes == [201, 403]

    run_virtual(main())


# --- Guards ---------------------------------------------------------------------------------------------------------


def allocate(claim: str, device: str) -> dict[str, Any]:
    result = {"request": "gpu", "driver": "d.example.com", "pool": "p", "device": device}
    body = {"status": {"allocation": {"devices": {"results": [result]}}}}
    return write("PATCH", f"{CLAIMS}/{claim}/status", body, MERGE_PATCH)


@with_api
async def test_the_writes_of_a_batch_are_guarded_against_each_other(api: LocalApi) -> None:
    for number in range(12):
        await api.create(CLAIMS, claim_document(f"c{number}"))
    one_device = await statuses(api, *(allocate(f"c{number}", "x") for number in range(10)))
    assert sorted(one_device) == [200] + [409] * 9
    one_claim = await statuses(api, allocate("c10", "y"), allocate("c10", "z"), allocate("c11", "y"))
    assert sorted(one_claim) == [200, 409, 422]


@with_api
async def test_the_creations_of_a_batch_do_not_exceed_a_quota_together(api: LocalApi) -> None:
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"count/resourceclaims.resource.k8s.io": "3"}}}
    await api.create("/api/v1/namespaces/default/resourcequotas", quota)
    codes = await statuses(api, *(write("POST", CLAIMS, claim_document(f"c{number}")) for number in range(10)))
    assert sorted(codes) == [201] * 3 + [403] * 7


# --- The finalizer of an allocation -------------------------------------------------------------------------------


def allocation(**metadata: Any) -> dict[str, Any]:
    result = {"request": "gpu", "driver": "d.example.com", "pool": "p", "device": "x"}
    return {"metadata": metadata, "status": {"allocation": {"devices": {"results": [result]}}}}


@with_api
async def test_the_write_that_allocates_a_claim_may_protect_it(api: LocalApi) -> None:
    await api.create(CLAIMS, claim_document("c", finalizers=["example.com/kept"]))
    sent = allocation(finalizers=["example.com/kept", PROTECTION, "example.com/other"], labels={"a": "b"})
    written = await api.patch(f"{CLAIMS}/c/status", sent)
    assert written["metadata"]["finalizers"] == ["example.com/kept", PROTECTION]
    assert "labels" not in written["metadata"]


UNPROTECTED: Final = {
    "not asked for": allocation(),
    "no allocation": {"metadata": {"finalizers": [PROTECTION]}, "status": {}},
    "another finalizer": allocation(finalizers=["example.com/other"]),
}


@pytest.mark.parametrize("patch", UNPROTECTED.values(), ids=UNPROTECTED)
def test_other_writes_of_the_status_change_no_finalizer(patch: dict[str, Any]) -> None:
    async def main() -> None:
        async with api_server() as server:
            api = LocalApi(server)
            await api.create(CLAIMS, claim_document("c"))
            assert "finalizers" not in (await api.patch(f"{CLAIMS}/c/status", patch))["metadata"]

    run_virtual(main())


@with_api
async def test_an_allocated_claim_is_not_protected_later(api: LocalApi) -> None:
    await api.create(CLAIMS, claim_document("c"))
    await api.patch(f"{CLAIMS}/c/status", allocation())
    again = await api.patch(f"{CLAIMS}/c/status", {"metadata": {"finalizers": [PROTECTION]}})
    assert "finalizers" not in again["metadata"]


@with_api
async def test_a_claim_that_is_being_deleted_is_not_allocated_with_a_finalizer(api: LocalApi) -> None:
    await api.create(CLAIMS, claim_document("c", finalizers=["example.com/kept"]))
    await api.delete(f"{CLAIMS}/c")
    refused = await refusal(api.patch(f"{CLAIMS}/c/status", allocation(finalizers=["example.com/kept", PROTECTION])))
    assert (refused.code, [field for _, field in refused.causes]) == (422, ["metadata.finalizers"])
    assert (await api.call("GET", f"{RESOURCE}/namespaces/default/resourceclaims/c")).code == 200
