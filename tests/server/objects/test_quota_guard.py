"""Quotas: no write, and no set of concurrent writes, exceeds one."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from typing import Any

from dralloc.testing.virtual_time import run_virtual
from tests.support.etcd_apis import etcd_apis
from tests.support.local_api import CLAIMS, MERGE_PATCH, PODS, RESOURCE, LocalApi, refusal, settle, with_api
from tests.support.local_api import claim_document as claim
from tests.support.local_api import pod_document as pod

QUOTAS = "/api/v1/namespaces/default/resourcequotas"


def quota(**hard: str) -> dict[str, Any]:
    return {"metadata": {"name": "q"}, "spec": {"hard": hard}}


def alternatives(name: str, **counts: int) -> dict[str, Any]:
    first_available = [
        {"name": f"a{number}", "deviceClassName": class_name, "count": count}
        for number, (class_name, count) in enumerate(counts.items())
    ]
    return {
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [{"name": "r", "firstAvailable": first_available}]}},
    }


@with_api
async def test_a_claim_needs_quota_for_every_alternative(api: LocalApi) -> None:
    await api.create(
        "/api/v1/namespaces/default/resourcequotas", quota(**{"small.deviceclass.resource.k8s.io/devices": "3"})
    )
    await api.create(CLAIMS, alternatives("fits", big=9, small=2))
    refused = await refusal(api.create(CLAIMS, alternatives("too-much", big=1, small=2)))
    assert refused.code == 403
    assert "exceeded quota: q, requested: small.deviceclass.resource.k8s.io/devices=2" in refused.document["message"]
    await api.delete(f"{CLAIMS}/fits")
    await settle()
    await api.create(CLAIMS, alternatives("now-it-fits", small=3))


@with_api
async def test_concurrent_claims_do_not_exceed_a_quota(api: LocalApi) -> None:
    await api.create(
        "/api/v1/namespaces/default/resourcequotas", quota(**{"count/resourceclaims.resource.k8s.io": "7"})
    )
    answers = await asyncio.gather(*(api.call("POST", CLAIMS, claim(f"c{number}")) for number in range(20)))
    assert sorted(answer.code for answer in answers) == [201] * 7 + [403] * 13
    for number, answer in enumerate(answers):
        if answer.code == 201:
            await api.delete(f"{CLAIMS}/c{number}")
    await settle()
    again = await asyncio.gather(*(api.call("POST", CLAIMS, claim(f"d{number}")) for number in range(20)))
    assert sum(answer.code == 201 for answer in again) == 7


@with_api
async def test_objects_from_before_the_quota_count(api: LocalApi) -> None:
    await api.create(PODS, pod("before"))
    await api.create("/api/v1/namespaces/default/resourcequotas", quota(**{"count/pods": "1"}))
    assert (await refusal(api.create(PODS, pod("after")))).code == 403
    await api.create(CLAIMS, claim())
    await api.delete("/api/v1/namespaces/default/resourcequotas/q")
    await api.create(PODS, pod("after"))


@with_api
async def test_dry_runs_and_failed_writes_release_their_quota(api: LocalApi) -> None:
    await api.create(
        "/api/v1/namespaces/default/resourcequotas", quota(**{"count/resourceclaims.resource.k8s.io": "2"})
    )
    await api.create(CLAIMS, claim("a"))
    for _ in range(5):
        await api.create(CLAIMS, claim("dry"), dryRun="All")
        assert (await refusal(api.create(CLAIMS, claim("a")))).code == 409
    await api.create(CLAIMS, claim("b"))


@with_api
async def test_quotas_that_come_and_go_disturb_no_create(api: LocalApi) -> None:
    path, claims = "/api/v1/namespaces/default/resourcequotas", "count/resourceclaims.resource.k8s.io"

    async def change_quotas() -> None:
        for number in range(30):
            made = {"metadata": {"name": f"q{number}"}, "spec": {"hard": {claims: "1000"}}}
            made["status"] = {"hard": {claims: "1000"}, "used": {claims: "0"}}
            await api.create(path, made)
            await api.call(
                "PUT", f"{path}/q{number}/status", await api.get(f"{path}/q{number}") | {"status": made["status"]}
            )
            if number > 1:
                await api.delete(f"{path}/q{number - 2}")

    changing = asyncio.create_task(change_quotas())
    codes = set()
    number = 0
    while not changing.done():
        number += 1
        creates = (api.call("POST", CLAIMS, claim(f"c{number}-{each}")) for each in range(4))
        codes |= {answer.code for answer in await asyncio.gather(*creates)}
    await changing
    assert codes == {201}


@with_api
async def test_what_is_used_is_in_the_status_when_a_create_is_answered(api: LocalApi) -> None:
    path = "/api/v1/namespaces/default/resourcequotas"
    devices, claims = "gpu.deviceclass.resource.k8s.io/devices", "count/resourceclaims.resource.k8s.io"
    await api.create(path, quota(**{devices: "20", claims: "10", "count/pods": "3"}))
    status = {"hard": {devices: "20", claims: "10", "count/pods": "3"}, "used": {devices: "0", claims: "0"}}
    await api.call("PATCH", f"{path}/q/status", {"status": status}, content_type=MERGE_PATCH)
    await asyncio.gather(*(api.create(CLAIMS, claim(f"c{number}")) for number in range(8)))
    assert (await api.get(f"{path}/q"))["status"] == {**status, "used": {devices: "8", claims: "8"}}
    await api.call("POST", CLAIMS, claim("tried"), dryRun="All")
    assert (await api.get(f"{path}/q"))["status"]["used"] == {devices: "8", claims: "8"}


@with_api
async def test_pods_and_their_claims_from_before_the_quota_are_charged_once(api: LocalApi) -> None:
    """Whether a pod or a claim is the first that the quota limits."""
    gpu = "example.com/gpu"
    await api.create(f"{RESOURCE}/deviceclasses", {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": gpu}})
    wants = {"containers": [{"name": "c", "image": "x", "resources": {"requests": {gpu: "1"}, "limits": {gpu: "1"}}}]}
    for namespace in ("first", "second"):
        await api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        pods, claims = (path.replace("default", namespace) for path in (PODS, CLAIMS))
        made = await api.create(pods, pod("before") | {"spec": wants})
        owner = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": "before",
            "uid": made["metadata"]["uid"],
            "controller": True,
        }
        special = {"resource.kubernetes.io/extended-resource-claim": "true"}
        await api.create(claims, claim("special", ownerReferences=[owner], annotations=special))
        await api.create(f"/api/v1/namespaces/{namespace}/resourcequotas", quota(**{f"requests.{gpu}": "2"}))
        if namespace == "first":
            await api.create(pods, pod("after") | {"spec": wants})
        else:
            await api.create(claims, claim("after"))
        assert (await refusal(api.create(pods, pod("too-much") | {"spec": wants}))).code == 403


@with_api
async def test_a_limit_that_comes_later_counts_what_is_used_already(api: LocalApi) -> None:
    """Also if the guard has counted something else before, and of objects that were made, changed and deleted since."""
    gpu, disk = "example.com/gpu", "example.com/disk"

    def asks_for(**amounts: str) -> dict[str, Any]:
        requests = {f"example.com/{name}": amount for name, amount in amounts.items()}
        return {"containers": [{"name": "c", "image": "x", "resources": {"requests": requests, "limits": requests}}]}

    await api.create(PODS, pod("before") | {"spec": asks_for(gpu="1", disk="5")})
    await api.create(QUOTAS, quota(**{"count/pods": "9"}))
    await api.create(PODS, pod("counted") | {"spec": asks_for(gpu="2")})
    await api.create(PODS, pod("deleted") | {"spec": asks_for(gpu="4")})
    await api.delete(f"{PODS}/deleted")
    await api.create(QUOTAS, quota(**{f"requests.{gpu}": "4"}) | {"metadata": {"name": "later"}})
    await api.create(PODS, pod("fits") | {"spec": asks_for(gpu="1", disk="1")})
    refused = await refusal(api.create(PODS, pod("too-much") | {"spec": asks_for(gpu="1")}))
    assert (
        f"requested: requests.{gpu}=1, used: requests.{gpu}=4, limited: requests.{gpu}=4" in refused.document["message"]
    )
    await api.delete(f"{QUOTAS}/later")
    await api.create(PODS, pod("free") | {"spec": asks_for(gpu="1")})
    await api.create(
        QUOTAS, quota(**{f"requests.{gpu}": "5", f"requests.{disk}": "7"}) | {"metadata": {"name": "last"}}
    )
    await api.create(PODS, pod("disk") | {"spec": asks_for(disk="1")})
    for asked in ({"gpu": "1"}, {"disk": "1"}):
        assert (await refusal(api.create(PODS, pod("too-much") | {"spec": asks_for(**asked)}))).code == 403


def test_pods_and_claims_of_two_servers_do_not_exceed_a_quota_together() -> None:
    """A quota of one device, for a pod that asks one server for it and a claim that asks the other."""
    gpu = "example.com/gpu"
    wants = {"containers": [{"name": "c", "image": "x", "resources": {"requests": {gpu: "1"}, "limits": {gpu: "1"}}}]}

    async def round_of(seed: int) -> tuple[int, int]:
        async with etcd_apis(Random(seed), delays_s=(0.05, 0.05)) as ((api, other), _):
            extended = {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": gpu}}
            await api.create(f"{RESOURCE}/deviceclasses", extended)
            await api.create(QUOTAS, quota(**{f"requests.{gpu}": "1"}))
            creates = api.call("POST", PODS, pod() | {"spec": wants}), other.call("POST", CLAIMS, claim())
            of_pod, of_claim = await asyncio.gather(*creates)
            return of_pod.code, of_claim.code

    assert {run_virtual(round_of(seed)) for seed in range(40)} == {(201, 403), (403, 201)}


def test_a_create_from_before_a_restore_does_not_exceed_a_quota_after_it() -> None:
    """The quota is used up by a claim that the back-up has, and that was deleted since. The last write before the back-up was this server's."""

    async def round_of(seed: int) -> int:
        random = Random(seed)
        async with etcd_apis(random) as ((api,), etcd):
            await api.create(QUOTAS, quota(**{"count/resourceclaims.resource.k8s.io": "1"}))
            await api.create(CLAIMS, claim("deleted"))
            back_up = etcd.snapshot()
            await api.delete(f"{CLAIMS}/deleted")
            creating = asyncio.create_task(api.call("POST", CLAIMS, claim("new")))
            await asyncio.sleep(random.random() * 0.1)
            etcd.restore(back_up)
            code = (await creating).code
            while (stored := await api.call("GET", CLAIMS)).code == 503:
                await asyncio.sleep(0.1)
            assert len(stored.document["items"]) == 1, f"seed {seed}: {code}"
            return code

    assert {run_virtual(round_of(seed)) for seed in range(60)} == {201, 403, 503}


def test_a_quota_that_is_replaced_disturbs_no_create() -> None:
    """Creates while there is no quota do not need what is used, which others, from before, are still waiting for."""
    limits = quota(**{"count/resourceclaims.resource.k8s.io": "1", "count/pods": "1"})

    async def round_of(seed: int) -> set[int]:
        random = Random(seed)

        async def create(api: LocalApi, path: str, document: dict[str, Any]) -> int:
            await asyncio.sleep(random.random() * 0.2)
            return (await api.call("POST", path, document)).code

        async def replace_quota(api: LocalApi) -> None:
            await api.delete(f"{QUOTAS}/q")
            await asyncio.sleep(random.random() * 0.1)
            await api.create(QUOTAS, limits)

        async with etcd_apis(random) as ((api,), _):
            await api.create(QUOTAS, limits)
            claims = (create(api, CLAIMS, claim(f"c{number}")) for number in range(4))
            pods = (create(api, PODS, pod(f"p{number}")) for number in range(4))
            replacing = asyncio.create_task(replace_quota(api))
            codes = await asyncio.gather(*claims, *pods)
            await replacing
            return set(codes)

    assert set[int]().union(*(run_virtual(round_of(seed)) for seed in range(60))) == {201, 403}


def test_no_create_waits_for_ever_when_clients_leave() -> None:
    """A claim whose outcome is not known is settled first, also for pods: they are charged together. Some pods exist already."""

    async def round_of(seed: int) -> None:
        random = Random(seed)

        async def create_pod(api: LocalApi, name: str) -> None:
            await asyncio.sleep(random.random() * 0.1)
            assert (await api.call("POST", PODS, pod(name))).code in (201, 409)

        async def begin_claim(api: LocalApi, name: str) -> None:
            await asyncio.sleep(random.random() * 0.1)
            with suppress(TimeoutError):
                async with asyncio.timeout(random.random() * 0.05):
                    await api.call("POST", CLAIMS, claim(name))

        async with etcd_apis(random) as ((api,), _), asyncio.timeout(60):
            await api.create(QUOTAS, quota(**{"count/pods": "100"}))
            pods = [create_pod(api, f"p{number % 6}") for number in range(12)]
            await asyncio.gather(*pods, *(begin_claim(api, f"c{number}") for number in range(5)))

    for seed in range(40):
        run_virtual(round_of(seed))
