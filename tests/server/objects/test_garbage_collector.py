"""Garbage collection: dependents are deleted with their owners, orphaned, or deleted first."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from dralloc.testing.virtual_time import run_virtual
from tests.support.etcd_apis import etcd_apis
from tests.support.local_api import (
    CLAIMS,
    PODS,
    LocalApi,
    settle,
    with_api,
)
from tests.support.local_api import claim_document as claim
from tests.support.local_api import pod_document as pod

NAMESPACES = "/api/v1/namespaces"


def owned_by(owner: dict[str, Any], kind: str = "Pod", api_version: str = "v1", **more: Any) -> list[dict[str, Any]]:
    metadata = owner["metadata"]
    return [{"apiVersion": api_version, "kind": kind, "name": metadata["name"], "uid": metadata["uid"], **more}]


@with_api
async def test_dependents_are_deleted_with_their_last_owner(api: LocalApi) -> None:
    first, second = await api.create(PODS, pod("first")), await api.create(PODS, pod("second"))
    await api.create(CLAIMS, claim("of-one", ownerReferences=owned_by(first)))
    await api.create(CLAIMS, claim("of-two", ownerReferences=[*owned_by(first), *owned_by(second)]))
    await api.delete(f"{PODS}/first")
    await settle()
    assert not await api.exists(f"{CLAIMS}/of-one")
    assert (await api.get(f"{CLAIMS}/of-two"))["metadata"]["ownerReferences"] == owned_by(second)
    await api.delete(f"{PODS}/second")
    await settle()
    assert not await api.exists(f"{CLAIMS}/of-two")


@with_api
async def test_objects_whose_owners_do_not_exist_are_deleted(api: LocalApi) -> None:
    owner = await api.create(PODS, pod("p"))
    await api.delete(f"{PODS}/p")
    again = await api.create(PODS, pod("p"))
    await api.create(CLAIMS, claim("of-the-old", ownerReferences=owned_by(owner)))
    await api.create(CLAIMS, claim("of-the-new", ownerReferences=owned_by(again)))
    elsewhere = owned_by(owner, "TrainingRun", "example.com/v1")
    await api.create(CLAIMS, claim("of-a-kind-we-do-not-serve", ownerReferences=elsewhere))
    await settle()
    kept = {item["metadata"]["name"] for item in (await api.get(CLAIMS))["items"]}
    assert kept == {"of-the-new", "of-a-kind-we-do-not-serve"}


@with_api
async def test_a_reference_from_another_namespace_blocks_no_deletion(api: LocalApi) -> None:
    """It has the UID of the owner, and an object keeps itself with a finalizer."""
    await api.create("/api/v1/namespaces", {"metadata": {"name": "other"}})
    owner = await api.create(PODS, pod("p"))
    there = CLAIMS.replace("/default/", "/other/")
    blocking = owned_by(owner, blockOwnerDeletion=True)
    kept = [{"apiVersion": "example.com/v1", "kind": "Thing", "name": "x", "uid": "x"}]
    await api.create(there, claim(ownerReferences=[*blocking, *kept], finalizers=["example.com/mine"]))
    await api.delete(f"{PODS}/p", {"propagationPolicy": "Foreground"})
    await settle()
    assert not await api.exists(f"{PODS}/p")
    assert await api.exists(f"{there}/c")


@with_api
async def test_orphaned_dependents_stay(api: LocalApi) -> None:
    owner = await api.create(PODS, pod("p"))
    await api.create(CLAIMS, claim(ownerReferences=owned_by(owner)))
    await api.delete(f"{PODS}/p", {"propagationPolicy": "Orphan"})
    await settle()
    assert not await api.exists(f"{PODS}/p")
    assert (
        "ownerReferences" not in (await api.get(f"{CLAIMS}/c"))["metadata"]
        or not ((await api.get(f"{CLAIMS}/c"))["metadata"]["ownerReferences"])
    )


@with_api
async def test_foreground_deletion_waits_for_blocking_dependents(api: LocalApi) -> None:
    owner = await api.create(PODS, pod("p"))
    references = owned_by(owner, blockOwnerDeletion=True)
    await api.create(CLAIMS, claim(ownerReferences=references, finalizers=["example.com/hold"]))
    await api.delete(f"{PODS}/p", {"propagationPolicy": "Foreground"})
    await settle()
    assert await api.exists(f"{PODS}/p")
    assert (await api.get(f"{CLAIMS}/c"))["metadata"]["deletionTimestamp"]
    await api.patch(f"{CLAIMS}/c", {"metadata": {"finalizers": None}})
    await settle()
    assert not await api.exists(f"{CLAIMS}/c")
    assert not await api.exists(f"{PODS}/p")


@with_api
async def test_foreground_deletion_waits_for_dependents_of_dependents(api: LocalApi) -> None:
    owner = await api.create(PODS, pod("p"))
    middle = await api.create(PODS, pod("q", ownerReferences=owned_by(owner, blockOwnerDeletion=True)))
    references = owned_by(middle, blockOwnerDeletion=True)
    await api.create(CLAIMS, claim(ownerReferences=references, finalizers=["example.com/hold"]))
    await api.delete(f"{PODS}/p", {"propagationPolicy": "Foreground"})
    await settle()
    assert [await api.exists(f"{PODS}/{name}") for name in ("p", "q")] == [True, True]
    await api.patch(f"{CLAIMS}/c", {"metadata": {"finalizers": None}})
    await settle()
    assert [await api.exists(f"{PODS}/{name}") for name in ("p", "q")] == [False, False]


@with_api
async def test_an_owner_does_not_wait_for_dependents_that_another_owner_keeps(api: LocalApi) -> None:
    owner, other = await api.create(PODS, pod("p")), await api.create(PODS, pod("q"))
    await api.create(CLAIMS, claim(ownerReferences=[*owned_by(owner, blockOwnerDeletion=True), *owned_by(other)]))
    await api.delete(f"{PODS}/p", {"propagationPolicy": "Foreground"})
    await settle()
    assert not await api.exists(f"{PODS}/p")
    assert (await api.get(f"{CLAIMS}/c"))["metadata"]["ownerReferences"] == owned_by(other)


def test_new_dependents_are_orphaned_with_older_ones() -> None:
    """The collector looks at the owner when it is created, because it has an owner itself; by then it may have been deleted."""

    async def round_of(seed: int) -> None:
        async with etcd_apis(Random(seed)) as ((api,), _):
            owner = await api.create(PODS, pod("top"))
            owner = await api.create(PODS, pod("p", ownerReferences=owned_by(owner)))
            await api.create(CLAIMS, claim(ownerReferences=owned_by(owner)))
            await api.delete(f"{PODS}/p", propagationPolicy="Orphan")
            await asyncio.sleep(10)
            assert not await api.exists(f"{PODS}/p")
            assert await api.exists(f"{CLAIMS}/c"), f"seed {seed}"

    for seed in range(100):
        run_virtual(round_of(seed))


def test_a_namespace_is_not_emptied_for_an_earlier_one_of_its_name() -> None:
    """One of two servers has emptied and removed a namespace, which is created again while the slower one is still at it."""

    async def round_of(seed: int) -> None:
        async with etcd_apis(Random(seed), delays_s=(0.05, 0.2)) as ((api, _), _):
            maps = f"{NAMESPACES}/n/configmaps"
            await api.create(NAMESPACES, {"metadata": {"name": "n"}})
            await api.create(maps, {"metadata": {"name": "old"}})
            await api.delete(f"{NAMESPACES}/n")
            while await api.exists(f"{NAMESPACES}/n"):
                pass
            await api.create(NAMESPACES, {"metadata": {"name": "n"}})
            await api.create(maps, {"metadata": {"name": "new"}})
            await asyncio.sleep(10)
            assert (await api.get(f"{NAMESPACES}/n"))["spec"] == {"finalizers": ["kubernetes"]}, f"seed {seed}"
            assert await api.exists(f"{maps}/new"), f"seed {seed}"

    for seed in range(30):
        run_virtual(round_of(seed))
