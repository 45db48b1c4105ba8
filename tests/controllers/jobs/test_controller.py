"""Jobs from creation to end, with their claims, against a real server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from dralloc.client.known_resources import resource_for
from dralloc.client.typed_resource import ObjectKey
from dralloc.controllers.controller_set import WITHOUT_NODES
from dralloc.kube.batch_v1 import Job
from dralloc.kube.core_v1 import Event, ResourceQuota
from dralloc.kube.pod_v1 import FAILED, SUCCEEDED, Pod
from dralloc.kube.resource_v1 import ConsumerReference, ResourceClaim
from dralloc.scheduler.state.binding_conditions import BINDING_TIMEOUT_S
from dralloc.testing.builders import allocation, held, request
from dralloc.testing.virtual_time import run_virtual
from tests.simulator.network import Faults
from tests.support.controlled_cluster import ControlledCluster, controlled_cluster
from tests.support.workloads import claim_template, existing, job, quota
from tests.support.workloads import pod as pod_document

Scenario = Callable[[ControlledCluster], Awaitable[None]]


def play(scenario: Scenario, only: Sequence[str] = ("jobs",)) -> None:
    async def main() -> None:
        async with controlled_cluster(only=only) as cluster:
            await scenario(cluster)

    run_virtual(main())


async def status_of(cluster: ControlledCluster, name: str = "j") -> tuple[int, int, int]:
    """Active, succeeded, failed."""
    status = (await cluster.client.get(Job, name)).status
    return status.active, status.succeeded, status.failed


async def conditions_of(cluster: ControlledCluster, name: str = "j") -> dict[str, str]:
    status = (await cluster.client.get(Job, name)).status
    return {entry.type: entry.reason for entry in status.conditions if entry.status == "True"}


async def active_pods(cluster: ControlledCluster) -> list[Pod]:
    return [pod for pod in await cluster.client.list(Pod) if not pod.is_finished and not pod.is_terminating]


async def end_pods(cluster: ControlledCluster, count: int | None = None, phase: str = SUCCEEDED) -> None:
    for pod in (await active_pods(cluster))[:count]:
        await cluster.end_pod(pod.metadata.name, phase)
    await cluster.settle()


def test_a_job_runs_pods_up_to_its_parallelism_until_its_completions() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.client.create(job("j", parallelism=2, completions=5))
        await cluster.settle()
        for done in (0, 2, 4):
            assert await status_of(cluster) == (min(2, 5 - done), done, 0)
            await end_pods(cluster)
        assert await status_of(cluster) == (0, 5, 0)
        assert await conditions_of(cluster) == {
            "SuccessCriteriaMet": "CompletionsReached",
            "Complete": "CompletionsReached",
        }
        ended = (await cluster.client.get(Job, "j")).status
        assert ended.start_time is not None
        assert ended.completion_time is not None
        assert len(await cluster.client.list(Pod)) == 5

    play(scenario)


def test_failed_pods_are_replaced_up_to_the_backoff_limit() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.client.create(job("j", parallelism=1, completions=1, backoffLimit=2))
        await cluster.settle()
        await end_pods(cluster, phase=FAILED)
        assert await active_pods(cluster) == [], "the next pod waits for the backoff"
        await cluster.settle(10)
        await end_pods(cluster, phase=FAILED)
        await cluster.settle(20)
        assert await status_of(cluster) == (1, 0, 2)
        await end_pods(cluster, phase=FAILED)
        assert await conditions_of(cluster) == {
            "FailureTarget": "BackoffLimitExceeded",
            "Failed": "BackoffLimitExceeded",
        }
        await cluster.settle(600)
        assert len(await cluster.client.list(Pod)) == 3

    play(scenario)


def test_a_deleted_pod_is_replaced_and_a_succeeded_one_stays_counted() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.client.create(job("j", parallelism=3, completions=4))
        await cluster.settle()
        await end_pods(cluster, 1)
        (done,) = [pod for pod in await cluster.client.list(Pod) if pod.is_finished]
        await cluster.remove_pod(done.metadata.name)
        await cluster.remove_pod((await active_pods(cluster))[0].metadata.name)
        await cluster.settle(15)
        assert await status_of(cluster) == (3, 1, 1)
        await cluster.kill()
        cluster.start()
        await cluster.settle()
        assert await status_of(cluster) == (3, 1, 1), "a new leader continues the count"
        await end_pods(cluster)
        assert "Complete" in await conditions_of(cluster)

    play(scenario)


def test_every_index_succeeds_once() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.client.create(job("j", parallelism=2, completions=4, completionMode="Indexed"))
        await cluster.settle()
        await end_pods(cluster, 1)
        await end_pods(cluster, 1, phase=FAILED)
        await cluster.settle(15)
        for _ in range(4):
            await end_pods(cluster)
        indexes = [
            pod.metadata.labels["batch.kubernetes.io/job-completion-index"]
            for pod in await cluster.client.list(Pod)
            if pod.status.phase == SUCCEEDED
        ]
        assert sorted(indexes) == ["0", "1", "2", "3"]
        assert (await cluster.client.get(Job, "j")).status.completed_indexes == "0-3"
        assert "Complete" in await conditions_of(cluster)

    play(scenario)


def test_a_job_can_be_suspended_resumed_and_scaled() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.client.create(job("j", parallelism=3, completions=9, suspend=True))
        await cluster.settle()
        assert await active_pods(cluster) == []
        assert await conditions_of(cluster) == {"Suspended": "JobSuspended"}
        for spec, want in (
            ({"suspend": False}, 3),
            ({"parallelism": 5}, 5),
            ({"parallelism": 2}, 2),
            ({"suspend": True}, 0),
        ):
            await cluster.client.patch(Job, "j", {"spec": spec})
            await cluster.settle()
            assert len(await active_pods(cluster)) == want
        assert await status_of(cluster) == (0, 0, 0), "pods that the job deleted have not failed"

    play(scenario)


def test_a_job_fails_after_its_deadline_and_is_deleted_after_its_ttl() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.client.create(
            job("j", parallelism=1, completions=1, activeDeadlineSeconds=30, ttlSecondsAfterFinished=60)
        )
        await cluster.settle(25)
        assert await conditions_of(cluster) == {}
        await cluster.settle(10)
        assert (await conditions_of(cluster))["Failed"] == "DeadlineExceeded"
        await cluster.settle(70)
        assert not await cluster.exists(Job, "j")
        assert await cluster.client.list(Pod) == ()

    play(scenario)


def test_a_job_with_an_unsupported_field_fails_with_a_reason() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        document = job("j", completions=1)
        document["spec"]["podFailurePolicy"] = {"rules": []}
        await cluster.client.create(document)
        await cluster.client.create(job("others", completions=1, managedBy="kueue.example/multi"))
        await cluster.settle()
        status = (await cluster.client.get(Job, "j")).status
        assert [(entry.type, entry.message) for entry in status.conditions] == [
            ("FailureTarget", "spec.podFailurePolicy is not supported"),
            ("Failed", "spec.podFailurePolicy is not supported"),
        ]
        assert (await cluster.client.get(Job, "others")).status.start_time is None
        assert await cluster.client.list(Pod) == ()

    play(scenario)


def test_refused_pods_are_reported_once_and_retried() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.client.create(quota("few", {"count/pods": "2"}))
        await cluster.client.create(job("j", parallelism=5, completions=5))
        await cluster.settle(300)
        assert await status_of(cluster) == (2, 0, 0)
        events = await cluster.client.list(Event, fields="involvedObject.name=j")
        assert {event.reason for event in events} == {"FailedCreate"}
        assert len(events) == 1
        await cluster.client.patch(ResourceQuota, "few", {"spec": {"hard": {"count/pods": "9"}}})
        await cluster.settle(120)
        assert await status_of(cluster) == (5, 0, 0)

    play(scenario)


# --- claims that a job holds --------------------------------------------------------------------------------------

WITH_CLAIMS = ("jobs", "claim-templates", "claim-lifecycle")


async def schedule_job(cluster: ControlledCluster, claim: str = "shared", name: str = "j") -> ConsumerReference:
    """Allocate the claim of a job and bind the job's pods, as a scheduler does."""
    item = await cluster.client.get(Job, name)
    reference = ConsumerReference(api_group="batch", resource="jobs", name=name, uid=item.metadata.uid)
    await cluster.protect(claim)
    await cluster.allocate(claim, [reference], replace(allocation(held("gpu-0")), reserved_for_any_pod=True))
    for pod in await active_pods(cluster):
        await cluster.bind(pod.metadata.name)
    await cluster.settle()
    return reference


async def job_with_claim(cluster: ControlledCluster, **spec: Any) -> ConsumerReference:
    await cluster.client.create(claim_template("t", request()))
    document = job("j", {"gpu": existing("shared")}, annotations={"dralloc.io/shared-claims": "shared=t"}, **spec)
    await cluster.client.create(document)
    await cluster.settle()
    return await schedule_job(cluster)


def test_a_claim_stays_reserved_until_the_last_pod_of_its_job_has_finished() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        reference = await job_with_claim(cluster, parallelism=3, completions=3)
        claim = await cluster.claim("shared")
        assert claim.spec.reserved_for == reference
        assert claim.status.reserved_for == (reference,)
        await end_pods(cluster, 2)
        assert (await cluster.claim("shared")).status.reserved_for == (reference,)
        await end_pods(cluster)
        assert "Complete" in await conditions_of(cluster)
        ended = await cluster.claim("shared")
        assert ended.status.allocation is None
        assert ended.metadata.finalizers == ()
        await cluster.client.calls.delete(resource_for(Job), ObjectKey("default", "j"), propagation="Background")
        await cluster.settle()
        assert await cluster.claims() == ()

    play(scenario, WITH_CLAIMS)


def test_a_failed_job_releases_its_claim_after_its_pods_are_deleted() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await job_with_claim(cluster, parallelism=3, completions=3, backoffLimit=0)
        await end_pods(cluster, 1, phase=FAILED)
        await cluster.settle(60)
        leaving = [pod for pod in await cluster.client.list(Pod) if pod.is_terminating]
        assert len(leaving) == 2
        assert (await cluster.claim("shared")).status.allocation is not None
        assert "Failed" not in await conditions_of(cluster)
        for pod in leaving:
            await cluster.remove_pod(pod.metadata.name)
        await cluster.settle()
        assert "Failed" in await conditions_of(cluster)
        assert (await cluster.claim("shared")).status.allocation is None

    play(scenario, WITH_CLAIMS)


def test_the_claim_of_a_deleted_job_is_deallocated_after_its_pods() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.client.create(job("j", {"gpu": existing("shared")}, parallelism=2, completions=2))
        await cluster.settle()
        made = await cluster.client.get(Job, "j")
        document = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": "shared", "namespace": "default"},
            "spec": {
                "devices": {"requests": [{"name": "request", "exactly": {"deviceClassName": "gpu"}}]},
                "reservedFor": {"apiGroup": "batch", "resource": "jobs", "name": "j", "uid": made.metadata.uid},
            },
        }
        await cluster.client.create(document)
        await schedule_job(cluster)
        await cluster.client.calls.delete(resource_for(Job), ObjectKey("default", "j"), propagation="Background")
        await cluster.settle(20)
        pods = await cluster.client.list(Pod)
        assert [pod.is_terminating for pod in pods] == [True, True]
        assert (await cluster.claim("shared")).status.allocation is not None, "its pods may still run"
        for pod in pods:
            await cluster.remove_pod(pod.metadata.name)
        await cluster.settle()
        assert (await cluster.claim("shared")).status.allocation is None

    play(scenario, WITH_CLAIMS)


def test_a_job_removes_only_its_own_reservation() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        reference = await job_with_claim(cluster, parallelism=1, completions=1)
        other = ConsumerReference(api_group="batch", resource="unservedjobs", name="x", uid="u")
        patch = {"status": {"reservedFor": [reference, other]}}
        await cluster.client.patch(ResourceClaim, "shared", patch, subresource="status")
        await end_pods(cluster)
        assert (await cluster.claim("shared")).status.reserved_for == (other,)

    play(scenario, WITH_CLAIMS)


GHOST = ConsumerReference(api_group="batch", resource="jobs", name="ghost", uid="")


async def claim_reserved_for(
    cluster: ControlledCluster, reference: ConsumerReference, name: str = "wrong", namespace: str = "default"
) -> None:
    """An allocated claim of that workload, as a user and a scheduler write it."""
    document = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "devices": {"requests": [{"name": "request", "exactly": {"deviceClassName": "gpu"}}]},
            "reservedFor": reference,
        },
    }
    await cluster.client.create(document)
    result = replace(allocation(held("gpu-9")), reserved_for_any_pod=True)
    await cluster.protect(name, namespace)
    await cluster.allocate(name, [reference], result, namespace)
    await cluster.settle()


@pytest.mark.parametrize("namespace", ["default", "other"])
@pytest.mark.parametrize("ghost", [GHOST, replace(GHOST, name="j"), replace(GHOST, resource="unservedjobs")])
def test_a_wrong_reference_frees_no_claim_of_a_living_workload(namespace: str, ghost: ConsumerReference) -> None:
    """It has the UID of the job, but another name, kind or namespace."""

    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
        reference = await job_with_claim(cluster, parallelism=2, completions=2)
        wrong = replace(ghost, uid=reference.uid)
        if wrong != reference or namespace != "default":
            await claim_reserved_for(cluster, wrong, namespace=namespace)
        assert (await cluster.claim("shared")).status.reserved_for == (reference,)
        await end_pods(cluster)
        assert (await cluster.claim("shared")).status.allocation is None

    play(scenario, WITH_CLAIMS)


def test_a_pod_of_another_namespace_does_not_count_for_a_job() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
        await cluster.client.create(job("j", parallelism=1, completions=1))
        await cluster.settle()
        made = await cluster.client.get(Job, "j")
        forged = pod_document("forged", namespace="other", node="node-a")
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": made.metadata.uid, "controller": True}
        # A living owner in its own namespace keeps garbage collection from deleting it.
        node = {"apiVersion": "example.com/v1", "kind": "Thing", "name": "x", "uid": "x"}
        forged["metadata"]["ownerReferences"] = [owner, node]
        await cluster.client.create(forged)
        await cluster.end_pod("forged", SUCCEEDED, namespace="other")
        await cluster.settle()
        await cluster.client.patch(Job, "j", {"metadata": {"labels": {"changed": "yes"}}})
        await cluster.settle()
        assert await status_of(cluster) == (1, 0, 0)

    play(scenario)


def test_the_reference_to_a_workload_that_does_not_exist_stays_while_pods_use_the_claim() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        for name in ("one", "two"):
            await cluster.client.create(pod_document(name, {"gpu": existing("wrong")}))
        ghost = replace(GHOST, uid="u")
        await claim_reserved_for(cluster, ghost)
        before = await cluster.claim("wrong")
        assert before.status.reserved_for == (ghost,), "its pods are being scheduled"
        for name in ("one", "two"):
            await cluster.bind(name)
            await cluster.settle()
        await cluster.end_pod("one", SUCCEEDED)
        await cluster.settle(120)
        assert await cluster.claim("wrong") == before, "no write is needed"
        await cluster.end_pod("two", SUCCEEDED)
        await cluster.settle(120)
        after = await cluster.claim("wrong")
        assert (after.status.reserved_for, after.status.allocation) == ((), None)

    play(scenario, WITH_CLAIMS)


def test_pods_that_wait_for_long_do_not_keep_the_reference_to_a_workload_that_does_not_exist() -> None:
    """If the node of the devices is closed, they would wait for ever: the reference keeps them from all other devices."""

    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.client.create(pod_document("one", {"gpu": existing("wrong")}))
        ghost = replace(GHOST, uid="u")
        await claim_reserved_for(cluster, ghost)
        await cluster.settle(2 * BINDING_TIMEOUT_S)
        assert (await cluster.claim("wrong")).status.reserved_for == (ghost,), "the pod may be about to be bound"
        await cluster.settle(BINDING_TIMEOUT_S)
        after = await cluster.claim("wrong")
        assert (after.status.reserved_for, after.status.allocation) == ((), None)
        await cluster.allocate("wrong", [ghost], replace(allocation(held("gpu-8")), reserved_for_any_pod=True))
        await cluster.settle(2 * BINDING_TIMEOUT_S)
        assert (await cluster.claim("wrong")).status.reserved_for == (ghost,), "the next attempt has as much time"
        await cluster.bind("one")
        await cluster.settle(3 * BINDING_TIMEOUT_S)
        assert (await cluster.claim("wrong")).status.reserved_for == (ghost,), "the pod has a node"

    play(scenario, WITH_CLAIMS)


def test_the_claim_of_a_job_that_exists_stays_reserved_however_long_its_pods_wait() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.client.create(job("j", {"gpu": existing("wrong")}, parallelism=1, completions=1))
        await cluster.settle()
        reference = replace(GHOST, name="j", uid=(await cluster.client.get(Job, "j")).metadata.uid)
        await claim_reserved_for(cluster, reference)
        await cluster.settle(5 * BINDING_TIMEOUT_S)
        assert (await cluster.claim("wrong")).status.reserved_for == (reference,)

    play(scenario, WITH_CLAIMS)


@pytest.mark.slow
def test_evictions_count_as_failures_until_the_job_fails_and_releases_its_claim() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await job_with_claim(cluster, parallelism=2, completions=2, backoffLimit=3)
        await cluster.client.create(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "DeviceTaintRule",
                "metadata": {"name": "rule"},
                "spec": {"deviceSelector": {}, "taint": {"key": "faulty", "effect": "NoExecute"}},
            }
        )
        for _ in range(20):
            await cluster.settle(60)
            for pod in await cluster.client.list(Pod):
                if pod.is_terminating:
                    await cluster.remove_pod(pod.metadata.name)
        assert (await conditions_of(cluster))["Failed"] == "BackoffLimitExceeded"
        assert (await cluster.claim("shared")).status.allocation is None

    play(scenario, WITHOUT_NODES)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_jobs_converge_over_a_bad_network(seed: int) -> None:
    """No superfluous or missing pod, every index once, and every claim deallocated."""

    async def main() -> None:
        random = Random(seed)
        async with controlled_cluster(seed=seed) as cluster:
            cluster.network.faults = Faults(lose_request=0.15, lose_answer=0.15, break_stream=0.1)
            await cluster.client.create(claim_template("t", request()))
            document = job(
                "j",
                {"gpu": existing("shared")},
                annotations={"dralloc.io/shared-claims": "shared=t"},
                parallelism=6,
                completions=12,
                completionMode="Indexed",
                backoffLimit=100,
            )
            await cluster.client.create(document)
            await cluster.settle(60)
            await schedule_job(cluster)
            for _ in range(60):
                active = await active_pods(cluster)
                assert len(active) <= 6
                for pod in active:
                    outcome = random.choice([SUCCEEDED, SUCCEEDED, FAILED, "remove", "nothing"])
                    if outcome == "remove":
                        await cluster.remove_pod(pod.metadata.name)
                    elif outcome != "nothing":
                        await cluster.end_pod(pod.metadata.name, outcome)
                if random.random() < 0.1:
                    await cluster.kill()
                    cluster.start()
                await cluster.settle(random.random() * 60)
            cluster.network.faults = Faults()
            for _ in range(20):
                await cluster.settle(400)
                await end_pods(cluster)
            assert "Complete" in await conditions_of(cluster)
            succeeded = [
                pod.metadata.labels["batch.kubernetes.io/job-completion-index"]
                for pod in await cluster.client.list(Pod)
                if pod.status.phase == SUCCEEDED
            ]
            assert sorted(succeeded, key=int) == [str(index) for index in range(12)]
            claim = await cluster.claim("shared")
            assert (claim.status.allocation, claim.status.reserved_for) == (None, ())

    run_virtual(main())


def test_a_pod_that_is_being_deleted_counts_once_after_a_restart() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.client.create(job("j", parallelism=1, completions=1, backoffLimit=1))
        await cluster.settle()
        (pod,) = await active_pods(cluster)
        await cluster.bind(pod.metadata.name)
        await cluster.client.delete(Pod, pod.metadata.name)
        await cluster.settle(60)
        assert await status_of(cluster) == (1, 0, 1)
        await cluster.kill()
        cluster.start()
        await cluster.settle(60)
        assert (await status_of(cluster), await conditions_of(cluster)) == ((1, 0, 1), {})
        await cluster.remove_pod(pod.metadata.name)
        await cluster.settle(60)
        assert (await status_of(cluster), await conditions_of(cluster)) == ((1, 0, 1), {})

    play(scenario)


@pytest.mark.parametrize(
    ("change", "undo"),
    [
        pytest.param({"suspend": True}, {"suspend": False}, id="suspended"),
        pytest.param({"parallelism": 0}, {"parallelism": 2}, id="reduced"),
    ],
)
@pytest.mark.parametrize("phase", ["Running", FAILED], ids=["stopping", "stopped"])
def test_pods_that_a_job_deletes_have_not_failed_after_a_restart(
    change: dict[str, Any], undo: dict[str, Any], phase: str
) -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.client.create(job("j", parallelism=2, completions=2, backoffLimit=0))
        await cluster.settle()
        for pod in await active_pods(cluster):
            await cluster.bind(pod.metadata.name)
        await cluster.client.patch(Job, "j", {"spec": change})
        await cluster.settle()
        leaving = await cluster.client.list(Pod)
        assert [pod.is_terminating for pod in leaving] == [True, True]
        await cluster.kill()
        for pod in leaving:
            await cluster.end_pod(pod.metadata.name, phase)
        cluster.start()
        await cluster.settle()
        for pod in leaving:
            await cluster.remove_pod(pod.metadata.name)
        await cluster.client.patch(Job, "j", {"spec": undo})
        await cluster.settle(60)
        assert await status_of(cluster) == (2, 0, 0)

    play(scenario)


def test_an_index_that_succeeds_while_no_controller_runs_is_counted() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.client.create(job("j", parallelism=1, completions=2, completionMode="Indexed"))
        await cluster.settle()
        await end_pods(cluster)
        (done,) = [pod for pod in await cluster.client.list(Pod) if pod.is_finished]
        await cluster.remove_pod(done.metadata.name)
        await cluster.settle(5)
        assert await status_of(cluster) == (1, 1, 0)
        await cluster.kill()
        await end_pods(cluster)
        cluster.start()
        await cluster.settle(60)
        assert await status_of(cluster) == (0, 2, 0)
        assert "Complete" in await conditions_of(cluster)

    play(scenario)
