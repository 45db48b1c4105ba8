"""Priority classes, and the pods that get their priority from one."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dralloc.primitives.features import FeatureGates
from dralloc.server.server import ApiServer
from dralloc.server.store.store_url import open_store
from dralloc.testing.api_server import running_api_server
from tests.support.local_api import PODS, FixedClock, LocalApi, refusal, with_api
from tests.support.local_api import pod_document as pod

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
NEVER = {"preemptionPolicy": "Never"}


def priority_class(name: str, value: int, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "value": value, **more}


def pod_with(name: str = "p", **spec: Any) -> dict[str, Any]:
    document = pod(name)
    return {**document, "spec": {**document["spec"], **spec}}


@dataclass(frozen=True)
class PodCase:
    """`want` is the pod's class, priority and preemption policy, or why it is refused."""

    id: str
    spec: dict[str, Any]
    want: tuple[str | None, int, str] | str
    classes: tuple[dict[str, Any], ...] = field(
        default=(priority_class("high", 1000), priority_class("calm", -5, **NEVER))
    )


USUAL = "PreemptLowerPriority"
DEFAULT = (priority_class("usual", 7, globalDefault=True),)
PODS_WITH_CLASSES = [
    PodCase("no class", {}, (None, 0, USUAL)),
    PodCase("a class", {"priorityClassName": "high"}, ("high", 1000, USUAL)),
    PodCase("a class that takes nobody's place", {"priorityClassName": "calm"}, ("calm", -5, "Never")),
    PodCase(
        "a class of the system",
        {"priorityClassName": "system-node-critical"},
        ("system-node-critical", 2000001000, USUAL),
    ),
    PodCase(
        "a class that does not exist",
        {"priorityClassName": "x"},
        'pods "p" is forbidden: no PriorityClass with name x was found',
    ),
    PodCase("the default", {}, ("usual", 7, USUAL), DEFAULT),
    PodCase("the numbers of its class", {"priorityClassName": "high", "priority": 1000}, ("high", 1000, USUAL)),
    PodCase("a number of its own", {"priority": 5}, "priority cannot be 5: a pod without PriorityClass has 0"),
    PodCase(
        "another number than its class",
        {"priorityClassName": "high", "priority": 5},
        "priority cannot be 5: its PriorityClass high has 1000",
    ),
    PodCase(
        "another policy than its class",
        {"priorityClassName": "high", **NEVER},
        f"preemptionPolicy cannot be Never: its PriorityClass high has {USUAL}",
    ),
]


@pytest.mark.parametrize("case", PODS_WITH_CLASSES, ids=lambda case: case.id)
@with_api
async def test_a_new_pod_gets_the_priority_of_its_class(api: LocalApi, case: PodCase) -> None:
    for document in case.classes:
        await api.create(CLASSES, document)
    if isinstance(case.want, str):
        refused = await refusal(api.create(PODS, pod_with(**case.spec)))
        assert (refused.code, refused.document["reason"]) == (403, "Forbidden")
        assert case.want in refused.document["message"]
    else:
        spec = (await api.create(PODS, pod_with(**case.spec)))["spec"]
        assert (spec.get("priorityClassName"), spec["priority"], spec["preemptionPolicy"]) == case.want


@with_api
async def test_a_pod_keeps_its_priority_when_its_class_changes(api: LocalApi) -> None:
    await api.create(CLASSES, priority_class("high", 1000))
    before = await api.create(PODS, pod_with(priorityClassName="high"))
    await api.delete(f"{CLASSES}/high")
    spec = {name: value for name, value in before["spec"].items() if name not in ("priority", "preemptionPolicy")}
    changed = {**before, "spec": spec, "metadata": {**before["metadata"], "labels": {"a": "b"}}}
    after = await api.update(f"{PODS}/p", changed)
    assert (after["metadata"]["labels"], after["spec"]) == ({"a": "b"}, before["spec"])


@dataclass(frozen=True)
class ClassCase:
    id: str
    document: dict[str, Any]
    want: str


BAD_CLASSES = [
    ClassCase("a value for the system alone", priority_class("x", 1_000_000_001), "value: Forbidden"),
    ClassCase("a name like the system's", priority_class("system-mine", 1), "metadata.name: Forbidden"),
    ClassCase(
        "a policy that there is not", priority_class("x", 1, preemptionPolicy="Maybe"), "preemptionPolicy: Unsupported"
    ),
    ClassCase("a second default", priority_class("x", 1, globalDefault=True), "usual is the default already"),
]


@pytest.mark.parametrize("case", BAD_CLASSES, ids=lambda case: case.id)
@with_api
async def test_invalid_priority_classes_are_refused(api: LocalApi, case: ClassCase) -> None:
    await api.create(CLASSES, DEFAULT[0])
    assert case.want in (await refusal(api.create(CLASSES, case.document))).document["message"]


def test_of_concurrent_default_classes_one_is_stored(tmp_path: Path) -> None:
    async def run() -> None:
        async with (
            await open_store(f"sqlite://{tmp_path / 'store.db'}") as store,
            running_api_server(ApiServer(store, clock=FixedClock(), gates=FeatureGates.defaults())) as server,
        ):
            api = LocalApi(server)
            classes = [priority_class(f"c{number}", number, globalDefault=True) for number in range(5)]
            answers = await asyncio.gather(*(api.call("POST", CLASSES, each) for each in classes))
            assert sorted(answer.code for answer in answers) == [201, 403, 403, 403, 403]
            await api.patch(f"{CLASSES}/c0", {"globalDefault": False})
            await api.create(CLASSES, priority_class("other", 1, globalDefault=True))

    asyncio.run(run())


@with_api
async def test_the_value_of_a_class_is_immutable(api: LocalApi) -> None:
    made = await api.create(CLASSES, priority_class("high", 1_000_000_000))
    assert (made["preemptionPolicy"], made["metadata"]["generation"]) == (USUAL, 1)
    for patch in ({"value": 1}, NEVER):
        assert (await refusal(api.patch(f"{CLASSES}/high", patch))).code == 422
    assert (await api.patch(f"{CLASSES}/high", {"globalDefault": True}))["globalDefault"]


@with_api
async def test_system_classes_exist_and_cannot_be_deleted(api: LocalApi) -> None:
    listed = (await api.get(CLASSES))["items"]
    assert {each["metadata"]["name"]: each["value"] for each in listed} == {
        "system-cluster-critical": 2000000000,
        "system-node-critical": 2000001000,
    }
    refused = await refusal(api.delete(f"{CLASSES}/system-node-critical"))
    assert (refused.code, refused.document["reason"]) == (403, "Forbidden")
