"""Workloads and groups of pods: served behind their gate, validated field by field, protected, with a priority."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest

from dralloc.primitives.features import FeatureGates
from dralloc.server.store.memory import MemoryStore
from dralloc.testing.virtual_time import run_virtual
from tests.support.api_server import api_server
from tests.support.local_api import PODS, LocalApi, local_api, refusal
from tests.support.local_api import pod_document as pod

BASE = "/apis/scheduling.k8s.io/v1beta1/namespaces/default"
GROUPS = f"{BASE}/podgroups"
WORKLOADS = f"{BASE}/workloads"
FINALIZER = "scheduling.k8s.io/podgroup-protection"
BOTH = "GenericWorkload=true,DRAWorkloadResourceClaims=true"
ALL = f"{BOTH},TopologyAwareWorkloadScheduling=true,PodGroupPreemptionPolicy=true"
GANG = {"gang": {"minCount": 2}}
SHARED = [{"name": "gpu", "resourceClaimTemplateName": "t"}]


def group(name: str = "g", *, policy: Any = GANG, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"schedulingPolicy": policy, **spec}}


def workload(name: str = "w", **template: Any) -> dict[str, Any]:
    templates = [{"name": "workers", "schedulingPolicy": GANG, **template}]
    return {"metadata": {"name": name}, "spec": {"podGroupTemplates": templates}}


def member(name: str = "p", of: str = "g") -> dict[str, Any]:
    document = pod(name)
    return {**document, "spec": {**document["spec"], "schedulingGroup": {"podGroupName": of}}}


def with_groups(test: Callable[[LocalApi], Coroutine[Any, Any, None]], gates: str = BOTH) -> None:
    async def run() -> None:
        async with local_api(gates=FeatureGates.parse(gates)) as api:
            await test(api)

    run_virtual(run())


def test_without_the_gate_there_are_no_groups() -> None:
    async def scenario(api: LocalApi) -> None:
        for path in (GROUPS, WORKLOADS):
            assert (await api.call("POST", path, group())).code == 404
            assert (await api.call("GET", path)).code == 404
        assert (await api.call("GET", "/apis/scheduling.k8s.io/v1beta1")).code == 404
        listed = await api.get("/apis/scheduling.k8s.io")
        assert [version["version"] for version in listed["versions"]] == ["v1"]
        assert "apis/scheduling.k8s.io/v1beta1" not in (await api.get("/openapi/v3"))["paths"]
        assert "schedulingGroup" not in (await api.create(PODS, member()))["spec"]

    with_groups(scenario, gates="")


def test_with_the_gate_groups_are_discovered_and_described() -> None:
    async def scenario(api: LocalApi) -> None:
        listed = (await api.get("/apis/scheduling.k8s.io/v1beta1"))["resources"]
        assert [each["name"] for each in listed] == ["podgroups", "podgroups/status", "workloads"]
        assert all(each["namespaced"] for each in listed)
        preferred = (await api.get("/apis/scheduling.k8s.io"))["preferredVersion"]["version"]
        assert preferred == "v1"
        schemas = (await api.get("/openapi/v3/apis/scheduling.k8s.io/v1beta1"))["components"]["schemas"]
        spec = schemas["io.k8s.api.scheduling.v1beta1.PodGroupSpec"]["properties"]
        assert spec["resourceClaims"]["x-kubernetes-list-map-keys"] == ["name"]
        assert "io.k8s.api.scheduling.v1beta1.WorkloadSpec" in schemas

    with_groups(scenario)


def test_a_new_group_is_protected_and_has_defaults() -> None:
    async def scenario(api: LocalApi) -> None:
        sent = {**group(resourceClaims=SHARED), "status": {"resourceClaimStatuses": [{"name": "gpu"}]}}
        made = await api.create(GROUPS, sent)
        assert made["metadata"]["finalizers"] == [FINALIZER]
        assert made["spec"]["disruptionMode"] == {"single": {}}
        assert made["spec"]["priority"] == 0
        assert made["spec"]["resourceClaims"] == SHARED
        assert "preemptionPolicy" not in made["spec"]
        assert made["status"] == {}
        deleted = await api.delete(f"{GROUPS}/g")
        assert deleted["metadata"]["deletionTimestamp"]
        assert await api.exists(f"{GROUPS}/g")
        await api.patch(f"{GROUPS}/g", {"metadata": {"finalizers": None}})
        assert not await api.exists(f"{GROUPS}/g")

    with_groups(scenario)


def test_an_update_needs_the_revision_and_leaves_the_status() -> None:
    async def scenario(api: LocalApi) -> None:
        made = await api.create(GROUPS, group(resourceClaims=SHARED))
        unconditional = {**made, "metadata": {"name": "g"}}
        assert (await refusal(api.update(f"{GROUPS}/g", unconditional))).code == 422
        statuses = [{"name": "gpu", "resourceClaimName": "g-gpu-1"}]
        changed = {**made, "status": {"resourceClaimStatuses": statuses}}
        assert (await api.update(f"{GROUPS}/g", changed))["status"] == {}
        other = {**changed, "spec": {"schedulingPolicy": {"basic": {}}}}
        stored = await api.update(f"{GROUPS}/g/status", other)
        assert stored["status"]["resourceClaimStatuses"] == statuses
        assert stored["spec"] == made["spec"]
        assert (await api.call("PUT", f"{GROUPS}/none", group("none"))).code == 404

    with_groups(scenario)


@dataclass(frozen=True)
class PriorityCase:
    """`want` is the group's class, priority and preemption policy, or why it is refused."""

    id: str
    spec: dict[str, Any]
    want: tuple[str | None, int, str | None] | str
    classes: tuple[dict[str, Any], ...] = field(
        default=(
            {"metadata": {"name": "high"}, "value": 1000},
            {"metadata": {"name": "calm"}, "value": -5, "preemptionPolicy": "Never"},
        )
    )
    gates: str = BOTH


PRIORITIES = [
    PriorityCase("no class", {}, (None, 0, None)),
    PriorityCase("a class", {"priorityClassName": "high"}, ("high", 1000, None)),
    PriorityCase("its own number", {"priorityClassName": "high", "priority": 1000}, ("high", 1000, None)),
    PriorityCase(
        "another number",
        {"priorityClassName": "high", "priority": 5},
        'podgroups.scheduling.k8s.io "g" is forbidden: priority cannot be 5: its PriorityClass high has 1000',
    ),
    PriorityCase(
        "an unknown class",
        {"priorityClassName": "x"},
        'podgroups.scheduling.k8s.io "g" is forbidden: no PriorityClass with name x was found',
    ),
    PriorityCase(
        "the default class",
        {},
        ("usual", 7, None),
        ({"metadata": {"name": "usual"}, "value": 7, "globalDefault": True},),
    ),
    PriorityCase("a policy", {"priorityClassName": "calm"}, ("calm", -5, "Never"), gates=ALL),
    PriorityCase("the usual policy", {}, (None, 0, "PreemptLowerPriority"), gates=ALL),
    PriorityCase("no policy without its gate", {"preemptionPolicy": "Never"}, (None, 0, None)),
]


@pytest.mark.parametrize("case", PRIORITIES, ids=lambda case: case.id)
def test_priority_of_a_group(case: PriorityCase) -> None:
    async def scenario(api: LocalApi) -> None:
        for each in case.classes:
            await api.create("/apis/scheduling.k8s.io/v1/priorityclasses", each)
        if isinstance(case.want, str):
            answer = await refusal(api.create(GROUPS, group(**case.spec)))
            assert (answer.code, answer.document["message"]) == (403, case.want)
            return
        spec = (await api.create(GROUPS, group(**case.spec)))["spec"]
        assert (spec.get("priorityClassName"), spec["priority"], spec.get("preemptionPolicy")) == case.want

    with_groups(scenario, gates=case.gates)


def test_fields_of_disabled_gates_are_dropped() -> None:
    async def scenario(api: LocalApi) -> None:
        constraints = {"topology": [{"key": "rack"}]}
        made = await api.create(GROUPS, group(resourceClaims=SHARED, schedulingConstraints=constraints))
        assert not {"resourceClaims", "schedulingConstraints"} & made["spec"].keys()
        statuses = {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "c"}]}}
        assert (await api.patch(f"{GROUPS}/g/status", statuses))["status"] == {}
        made = await api.create(WORKLOADS, workload(resourceClaims=SHARED, schedulingConstraints=constraints))
        (template,) = made["spec"]["podGroupTemplates"]
        assert "resourceClaims" not in template
        assert template["schedulingConstraints"] is None

    with_groups(scenario, gates="GenericWorkload=true")


def test_tables() -> None:
    async def scenario(api: LocalApi) -> None:
        await api.create(GROUPS, group(workloadRef={"workloadName": "w", "templateName": "workers"}))
        await api.create(GROUPS, group("single", policy={"basic": {}}))
        condition = {"type": "PodGroupInitiallyScheduled", "status": "True", "reason": "Scheduled", "message": ""}
        scheduled = {**condition, "lastTransitionTime": "2026-01-01T00:00:00Z"}
        await api.patch(f"{GROUPS}/single/status", {"status": {"conditions": [scheduled]}})
        table = await api.call("GET", GROUPS, accept="application/json;as=Table;g=meta.k8s.io;v=v1")
        assert [column["name"] for column in table.document["columnDefinitions"][:4]] == [
            *("Name", "Policy", "Workload", "Status")
        ]
        assert [row["cells"][:4] for row in table.document["rows"]] == [
            ["g", "Gang", "w", "Pending"],
            ["single", "Basic", "<none>", "Scheduled"],
        ]

    with_groups(scenario)


def test_gates_off_and_on_again_with_stored_objects() -> None:
    """Nothing stored is lost while a gate is off."""

    async def scenario() -> None:
        async with MemoryStore() as store:

            async def at(gates: str, steps: Callable[[LocalApi], Coroutine[Any, Any, None]]) -> None:
                async with api_server(store=store, gates=FeatureGates.parse(gates)) as server:
                    await steps(LocalApi(server))

            async def create(api: LocalApi) -> None:
                await api.create(GROUPS, group(resourceClaims=SHARED))
                await api.create(WORKLOADS, workload(resourceClaims=SHARED))
                await api.create(PODS, member())

            async def without_claims(api: LocalApi) -> None:
                patched = await api.patch(f"{GROUPS}/g", {"spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}})
                assert patched["spec"]["resourceClaims"] == SHARED
                statuses = [{"name": "gpu", "resourceClaimName": "c"}]
                written = await api.patch(f"{GROUPS}/g/status", {"status": {"resourceClaimStatuses": statuses}})
                assert written["status"]["resourceClaimStatuses"] == statuses
                assert "resourceClaims" not in (await api.create(GROUPS, group("new", resourceClaims=SHARED)))["spec"]

            async def without_groups(api: LocalApi) -> None:
                assert (await api.call("GET", f"{GROUPS}/g")).code == 404
                labelled = await api.patch(f"{PODS}/p", {"metadata": {"labels": {"a": "b"}}})
                assert labelled["spec"]["schedulingGroup"] == {"podGroupName": "g"}
                assert "schedulingGroup" not in (await api.create(PODS, member("q")))["spec"]

            async def again(api: LocalApi) -> None:
                stored = await api.get(f"{GROUPS}/g")
                assert stored["spec"]["resourceClaims"] == SHARED
                assert stored["spec"]["schedulingPolicy"] == {"gang": {"minCount": 3}}
                (template,) = (await api.get(f"{WORKLOADS}/w"))["spec"]["podGroupTemplates"]
                assert template["resourceClaims"] == SHARED

            await at(BOTH, create)
            await at("GenericWorkload=true", without_claims)
            await at("", without_groups)
            await at(BOTH, again)

    run_virtual(scenario())


@pytest.mark.parametrize(
    ("gates", "missing"),
    [
        ("DRAWorkloadResourceClaims=true", "GenericWorkload"),
        ("TopologyAwareWorkloadScheduling=true", "GenericWorkload"),
        ("WorkloadWithJob=true,AllAlpha=true", "GenericWorkload"),
        ("PodGroupPreemptionPolicy=true,GenericWorkload=false", "GenericWorkload"),
    ],
)
def test_a_gate_needs_the_gates_it_depends_on(gates: str, missing: str) -> None:
    with pytest.raises(ValueError, match=f"needs {missing}"):
        FeatureGates.parse(gates)


def test_all_alpha_turns_on_what_its_beta_gates_allow() -> None:
    assert "WorkloadWithJob" not in FeatureGates.parse("AllAlpha=true")
    assert "WorkloadWithJob" in FeatureGates.parse("AllAlpha=true,GenericWorkload=true")
