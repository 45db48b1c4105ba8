"""Namespaces: deleted with their content, and held by finalizers."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from dralloc.testing.virtual_time import run_virtual
from tests.support.etcd_apis import etcd_apis
from tests.support.local_api import (
    RESOURCE,
    LocalApi,
    refusal,
    settle,
    with_api,
)
from tests.support.local_api import claim_document as claim
from tests.support.local_api import pod_document as pod


@with_api
async def test_a_namespace_is_removed_after_its_content(api: LocalApi) -> None:
    await api.create("/api/v1/namespaces", {"metadata": {"name": "n"}})
    there = f"{RESOURCE}/namespaces/n/resourceclaims"
    await api.create(there, claim("free"))
    await api.create(there, claim("held", finalizers=["example.com/hold"]))
    await api.create("/api/v1/namespaces/n/pods", pod("p"))
    assert (await api.delete("/api/v1/namespaces/n"))["status"]["phase"] == "Terminating"
    await settle()
    assert [item["metadata"]["name"] for item in (await api.get(there))["items"]] == ["held"]
    new = await refusal(api.create(there, claim("new")))
    assert (new.code, new.causes) == (403, [("NamespaceTerminating", "metadata.namespace")])
    await api.patch(f"{there}/held", {"metadata": {"finalizers": None}})
    await settle()
    assert not await api.exists("/api/v1/namespaces/n")


@with_api
async def test_a_namespace_waits_for_other_finalizers(api: LocalApi) -> None:
    held = {"metadata": {"name": "n"}, "spec": {"finalizers": ["kubernetes", "example.com/other"]}}
    await api.create("/api/v1/namespaces", held)
    await api.delete("/api/v1/namespaces/n")
    await settle()
    assert (await api.get("/api/v1/namespaces/n"))["spec"]["finalizers"] == ["example.com/other"]
    await api.update("/api/v1/namespaces/n/finalize", {"spec": {"finalizers": []}})
    assert not await api.exists("/api/v1/namespaces/n")


@with_api
async def test_finalizers_are_set_in_the_namespace_that_a_client_has_seen(api: LocalApi) -> None:
    """A controller that is late neither takes finalizers away that came since, nor those of the next namespace of this name."""
    seen = await api.create("/api/v1/namespaces", {"metadata": {"name": "n"}})
    await api.patch("/api/v1/namespaces/n", {"metadata": {"labels": {"changed": "true"}}})
    of_another = {"metadata": {"uid": "another"}, "spec": {"finalizers": []}}
    for late in ({**seen, "spec": {"finalizers": []}}, of_another):
        assert (await refusal(api.update("/api/v1/namespaces/n/finalize", late))).code == 409
    now = await api.get("/api/v1/namespaces/n")
    assert now["spec"]["finalizers"] == ["kubernetes"]
    await api.update("/api/v1/namespaces/n/finalize", {**now, "spec": {"finalizers": []}})


def test_nothing_is_left_behind_that_is_created_while_its_namespace_goes() -> None:
    """The namespace was there when the server read it, and is gone when the object is stored."""

    async def round_of(seed: int) -> None:
        async with etcd_apis(Random(seed), delays_s=(0.05, 0.5)) as ((api, slow), _):
            maps = "/api/v1/namespaces/n/configmaps"
            await api.create("/api/v1/namespaces", {"metadata": {"name": "n"}})
            await asyncio.sleep(5)
            creation = asyncio.create_task(slow.create(maps, {"metadata": {"name": "late"}}))
            await api.delete("/api/v1/namespaces/n")
            await asyncio.gather(creation, return_exceptions=True)
            await asyncio.sleep(30)
            assert not await api.exists("/api/v1/namespaces/n"), f"seed {seed}"
            assert not await api.exists(f"{maps}/late"), f"seed {seed}"

    for seed in range(30):
        run_virtual(round_of(seed))


@pytest.mark.parametrize("seed", range(5))
def test_a_namespace_that_changes_meanwhile_refuses_no_create(seed: int) -> None:
    async def round_of() -> None:
        async with etcd_apis(Random(seed), delays_s=(0.01, 0.5)) as ((api, slow), _):
            maps = "/api/v1/namespaces/default/configmaps"
            creation = asyncio.create_task(slow.create(maps, {"metadata": {"name": "m"}}))
            for number in range(10):
                await api.patch("/api/v1/namespaces/default", {"metadata": {"labels": {"number": str(number)}}})
            assert (await creation)["metadata"]["namespace"] == "default"

    run_virtual(round_of())
