"""Evictions and disruption budgets, whose status a controller keeps."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from dralloc.server.store.memory import MemoryStore
from dralloc.testing.virtual_time import run_virtual
from tests.support.api_server import api_server
from tests.support.etcd_apis import etcd_apis
from tests.support.local_api import MERGE_PATCH, PODS, LocalApi, pod_document, with_api

BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


async def make_pod(api: LocalApi, name: str, status: dict[str, Any] | None = None) -> None:
    document = pod_document(name, labels={"app": "a"})
    document["spec"]["nodeName"] = "n"
    await api.create(PODS, document)
    await api.call("PATCH", f"{PODS}/{name}/status", {"status": status or READY}, content_type=MERGE_PATCH)


async def make_budget(api: LocalApi, name: str = "b", *, status: dict[str, Any] | None = None, **spec: Any) -> None:
    spec = {"selector": {"matchLabels": {"app": "a"}}, "minAvailable": 1, **spec}
    await api.create(BUDGETS, {"metadata": {"name": name}, "spec": spec})
    if status is not None:
        await api.call("PATCH", f"{BUDGETS}/{name}/status", {"status": status}, content_type=MERGE_PATCH)


async def evict(api: LocalApi, name: str, **options: Any) -> Any:
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, "deleteOptions": options}
    return await api.call("POST", f"{PODS}/{name}/eviction", eviction)


@with_api
async def test_an_eviction_uses_up_a_disruption(api: LocalApi) -> None:
    await make_budget(api, status={"observedGeneration": 1, "disruptionsAllowed": 1, "desiredHealthy": 1})
    for name in ("p", "q"):
        await make_pod(api, name)
    assert (await evict(api, "p", dryRun=["All"])).code == 201
    assert (await evict(api, "p")).code == 201
    status = (await api.get(f"{BUDGETS}/b"))["status"]
    assert (status["disruptionsAllowed"], list(status["disruptedPods"])) == (0, ["p"])
    refused = await evict(api, "q")
    assert (refused.code, refused.document["reason"]) == (429, "TooManyRequests")
    (cause,) = refused.document["details"]["causes"]
    assert cause["reason"] == "DisruptionBudget"
    assert "deletionTimestamp" not in (await api.get(f"{PODS}/q"))["metadata"]


@with_api
async def test_concurrent_evictions_use_no_more_than_is_allowed(api: LocalApi) -> None:
    await make_budget(api, status={"observedGeneration": 1, "disruptionsAllowed": 2, "desiredHealthy": 1})
    names = [f"p{number}" for number in range(5)]
    for name in names:
        await make_pod(api, name)
    answers = await asyncio.gather(*(evict(api, name) for name in names))
    assert sorted(answer.code for answer in answers) == [201, 201, 429, 429, 429]


@pytest.mark.parametrize(
    ("budget", "pod", "code"),
    [
        ({}, READY, 201),
        ({"status": {"observedGeneration": 0, "disruptionsAllowed": 1}}, READY, 429),
        ({"status": {"observedGeneration": 1}, "selector": {"matchLabels": {"app": "b"}}}, READY, 201),
        ({"status": {"observedGeneration": 1}, "selector": {}}, READY, 429),
        ({"status": {"observedGeneration": 1}}, {"phase": "Pending"}, 201),
        ({"status": {"observedGeneration": 1}}, {"phase": "Succeeded"}, 201),
        ({"status": {"observedGeneration": 1, "desiredHealthy": 1, "currentHealthy": 1}}, {"phase": "Running"}, 201),
        ({"status": {"observedGeneration": 1, "desiredHealthy": 1, "currentHealthy": 0}}, {"phase": "Running"}, 429),
        ({"status": {"observedGeneration": 1}, "unhealthyPodEvictionPolicy": "AlwaysAllow"}, {"phase": "Running"}, 201),
    ],
)
def test_which_pods_a_budget_protects(budget: dict[str, Any], pod: dict[str, Any], code: int) -> None:
    @with_api
    async def main(api: LocalApi) -> None:
        await make_budget(api, **budget)
        await make_pod(api, "p", pod)
        assert (await evict(api, "p")).code == code

    main()


def test_a_budget_that_an_earlier_version_stored_with_a_wrong_type_limits_nothing() -> None:
    async def main() -> None:
        async with MemoryStore() as store, api_server(store=store) as server:
            budget = b'{"metadata":{"name":"b","namespace":"default"},"spec":"1654","status":{"observedGeneration":1}}'
            await store.create("/registry/poddisruptionbudgets.policy/default/b", budget)
            await make_pod(api := LocalApi(server), "p")
            assert (await evict(api, "p")).code == 201

    run_virtual(main())


@with_api
async def test_two_budgets_for_a_pod_are_an_error(api: LocalApi) -> None:
    for name in ("b", "c"):
        await make_budget(api, name, status={"observedGeneration": 1, "disruptionsAllowed": 1})
    await make_pod(api, "p")
    refused = await evict(api, "p")
    assert (refused.code, "more than one" in refused.document["message"]) == (500, True)


def test_a_pod_that_becomes_ready_is_not_evicted_as_one_that_is_not() -> None:
    """The budget allows no disruption, but the eviction of pods that are not ready. The pod becomes ready at any time."""
    enough = {"observedGeneration": 1, "disruptionsAllowed": 0, "desiredHealthy": 1, "currentHealthy": 1}

    async def round_of(seed: int) -> tuple[int, bool]:
        async with etcd_apis(Random(seed)) as ((api,), _):
            await make_budget(api, status=enough)
            await make_pod(api, "p", {"phase": "Running"})
            ready = api.patch(f"{PODS}/p/status", {"status": READY})
            evicted, pod = await asyncio.gather(evict(api, "p"), ready)
            return evicted.code, "deletionTimestamp" in pod["metadata"]

    assert {run_virtual(round_of(seed)) for seed in range(60)} == {(201, True), (429, False)}


def test_the_disruption_of_a_pod_is_not_used_for_the_next_one_of_its_name() -> None:
    """The pod is replaced at any time during its eviction. The budget allows one disruption."""
    one = {"observedGeneration": 1, "disruptionsAllowed": 1, "desiredHealthy": 1, "currentHealthy": 2}

    async def replace(api: LocalApi) -> int:
        await api.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})
        return int((await api.create(PODS, pod_document("p", labels={"app": "a"})))["metadata"]["resourceVersion"])

    async def round_of(seed: int) -> None:
        async with etcd_apis(Random(seed)) as ((api,), _):
            await make_budget(api, status=one)
            await make_pod(api, "p")
            _, created_at = await asyncio.gather(evict(api, "p"), replace(api))
            budget, found = await api.get(f"{BUDGETS}/b"), await api.call("GET", f"{PODS}/p")
            is_evicted = found.code == 404 or "deletionTimestamp" in found.document["metadata"]
            # Of itself, the next one needs no disruption: it is not running yet.
            was_used = not budget["status"]["disruptionsAllowed"]
            used_before = was_used and int(budget["metadata"]["resourceVersion"]) < created_at
            assert not (is_evicted and used_before), f"seed {seed}"

    for seed in range(60):
        run_virtual(round_of(seed))


@with_api
async def test_an_eviction_of_another_version_or_pod_is_refused(api: LocalApi) -> None:
    await make_pod(api, "p", {"phase": "Running"})
    for stated in ({"uid": "another"}, {"resourceVersion": "1"}):
        assert (await evict(api, "p", preconditions=stated)).code == 409
