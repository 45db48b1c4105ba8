"""Kinds that are only stored: every one is created, read, changed, watched and deleted as in Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest

from dralloc.kube.kind import Kind
from dralloc.kube.protobuf_schema import message_name, messages
from dralloc.kube.registry import KINDS
from dralloc.kube.stored_kinds import STORED_KINDS
from tests.support.local_api import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, PODS, LocalApi, pod_document, with_api

STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"

STORED = [kind for kind in KINDS if any((row.group, row.kind) == (kind.group, kind.kind) for row in STORED_KINDS)]


def path_of(kind: Kind) -> str:
    prefix = f"/apis/{kind.group}" if kind.group else "/api"
    namespace = "/namespaces/default" if kind.namespaced else ""
    return f"{prefix}/{kind.hub_version}{namespace}/{kind.plural}"


def test_every_row_is_served() -> None:
    assert len(STORED) == len(STORED_KINDS)


@pytest.mark.parametrize("kind", STORED, ids=lambda kind: kind.resource)
def test_an_object_is_created_changed_watched_and_deleted(kind: Kind) -> None:
    @with_api
    async def main(api: LocalApi) -> None:
        path, row = path_of(kind), next(row for row in STORED_KINDS if (row.group, row.kind) == (kind.group, kind.kind))
        # Members that no release knows are stored, too.
        member = "spec" if "spec" in row.members else "unknown"
        sent: dict[str, Any] = {
            "metadata": {"name": "a", "labels": {"x": "1"}},
            member: {"any": ["thing", 1, {"b": 0.5}]},
        }
        created = await api.create(path, sent)
        assert created[member].items() >= sent[member].items()
        changed = await api.call("PATCH", f"{path}/a", {member: {"other": True}}, content_type=MERGE_PATCH)
        assert (changed.code, changed.document[member]) == (200, {**created[member], "other": True})
        if row.has_generation:
            assert (created["metadata"]["generation"], changed.document["metadata"]["generation"]) == (1, 2)
        if "status" in row.members:
            ignored = await api.call("PATCH", f"{path}/a", {"status": {"s": 1}}, content_type=MERGE_PATCH)
            assert "s" not in ignored.document.get("status", {})
            written = await api.call("PATCH", f"{path}/a/status", {"status": {"s": 1}}, content_type=MERGE_PATCH)
            assert written.document["status"] == {**row.initial_status, "s": 1}
        listed = await api.get(path, labelSelector="x=1")
        assert (listed["kind"], [item["metadata"]["name"] for item in listed["items"]]) == (kind.list_kind, ["a"])
        await api.delete(f"{path}/a")
        assert (await api.get(path))["items"] == []
        refused = await api.call("POST", path, {"metadata": {"name": "Not A Name"}})
        assert (refused.code, refused.causes[0][1]) == (422, "metadata.name")

    main()


MODELLED_IN_PART = [kind for kind in KINDS if kind.view is not None]


@pytest.mark.parametrize("kind", MODELLED_IN_PART, ids=lambda kind: kind.resource)
def test_a_value_of_another_type_than_in_kubernetes_is_refused(kind: Kind) -> None:
    """Clients decode every object of a list: one that they cannot decode would hide all others from them."""
    message = messages()[message_name(kind.api_version(kind.hub_version), kind.kind) or ""]
    wrong = {
        field.name: "1654" if field.is_list or field.is_map else [7]
        for field in message.values()
        if field.type != "json"
    }

    @with_api
    async def main(api: LocalApi) -> None:
        for name, value in wrong.items():
            sent = {"metadata": {"name": "a"}, name: value}
            answer = await api.call("POST", path_of(kind), sent)
            refusal = (
                f'{kind.kind} in version "{kind.hub_version}" cannot be handled as a {kind.kind}: {name}: expected '
            )
            assert (answer.code, answer.document["message"][: len(refusal)]) == (400, refusal)

    main()


@with_api
async def test_no_way_to_write_an_object_accepts_a_value_of_another_type(api: LocalApi) -> None:
    path = "/api/v1/namespaces/default/persistentvolumeclaims"
    stored = await api.create(path, {"metadata": {"name": "a"}, "spec": {"accessModes": ["ReadWriteOnce"]}})
    named = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "a"}}
    for method, where, body, content_type in (
        ("PUT", "a", {**stored, "spec": "1654"}, "application/json"),
        ("PUT", "a/status", {**stored, "status": {"capacity": ["1Gi"]}}, "application/json"),
        ("PATCH", "a", {"spec": {"resources": {"requests": {"storage": "much"}}}}, MERGE_PATCH),
        ("PATCH", "a", {"spec": {"accessModes": {"a": 1}}}, STRATEGIC_MERGE_PATCH),
        ("PATCH", "a", [{"op": "replace", "path": "/spec", "value": "1654"}], JSON_PATCH),
        ("PATCH", "a/status", {"status": {"conditions": [{"lastTransitionTime": "noon"}]}}, MERGE_PATCH),
        ("PATCH", "a", {**named, "spec": {"selector": []}}, APPLY_PATCH),
        ("PATCH", "b", {**named, "metadata": {"name": "b"}, "spec": "1654"}, APPLY_PATCH),
    ):
        query = {"fieldManager": "m", "force": "true"} if content_type == APPLY_PATCH else {}
        answer = await api.call(method, f"{path}/{where}", body, content_type=content_type, **query)
        assert (answer.code, "cannot be handled as" in answer.document["message"]) == (400, True), (where, answer)
    assert await api.get(f"{path}/a") == stored


@pytest.mark.parametrize(
    ("subresource", "body"),
    [
        ("binding", {"target": {"kind": "Node", "name": "n"}, "metadata": {"annotations": {"a": {"b": 1}}}}),
        ("binding", {"target": {"kind": "Node", "name": "n"}, "metadata": {"uid": 7}}),
        ("binding", {"target": "n"}),
        ("eviction", {"deleteOptions": {"gracePeriodSeconds": "x"}}),
    ],
)
@with_api
async def test_subresources_have_types_too(api: LocalApi, subresource: str, body: dict[str, Any]) -> None:
    created = await api.create(PODS, pod_document("p"))
    assert (await api.call("POST", f"{PODS}/p/{subresource}", body)).code == 400
    assert await api.get(f"{PODS}/p") == created


@with_api
async def test_both_groups_show_the_same_events(api: LocalApi) -> None:
    new, core = "/apis/events.k8s.io/v1/namespaces/default/events", "/api/v1/namespaces/default/events"
    regarding = {"kind": "Pod", "name": "p", "namespace": "default"}
    event = {"metadata": {"name": "e"}, "regarding": regarding, "note": "n", "reason": "R", "type": "Normal"}
    created = await api.create(new, {**event, "reportingController": "c", "series": {"count": 2}})
    assert (created["apiVersion"], created["regarding"], created["note"]) == ("events.k8s.io/v1", regarding, "n")
    (listed,) = (await api.get(core, fieldSelector="involvedObject.name=p"))["items"]
    assert (listed["involvedObject"], listed["message"], listed["reportingComponent"]) == (regarding, "n", "c")
    changed = await api.call("PATCH", f"{core}/e", {"message": "m", "count": 3}, content_type=MERGE_PATCH)
    assert changed.code == 200
    (shown,) = (await api.get(new, fieldSelector="regarding.name=p,reason=R"))["items"]
    assert (shown["note"], shown["deprecatedCount"]) == ("m", 3)
    assert "message" not in shown
    await api.delete(f"{new}/e")
    assert (await api.get(core))["items"] == []


@with_api
async def test_autoscalers_have_two_versions(api: LocalApi) -> None:
    path = "/apis/autoscaling/{}/namespaces/default/horizontalpodautoscalers"
    target = {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}
    spec = {"scaleTargetRef": target, "maxReplicas": 3, "targetCPUUtilizationPercentage": 80}
    created = await api.create(path.format("v1"), {"metadata": {"name": "h"}, "spec": spec})
    assert (created["apiVersion"], created["spec"]) == ("autoscaling/v1", {**spec, "minReplicas": 1})
    newer = await api.get(f"{path.format('v2')}/h")
    cpu = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
    }
    memory = {"type": "Resource", "resource": {"name": "memory", "target": {"type": "Utilization"}}}
    assert newer["spec"]["metrics"] == [cpu]
    newer["spec"]["metrics"] = [memory, cpu]
    await api.call("PUT", f"{path.format('v2')}/h", newer)
    older = await api.get(f"{path.format('v1')}/h")
    assert older["spec"]["targetCPUUtilizationPercentage"] == 80
    await api.call("PUT", f"{path.format('v1')}/h", older)
    kept = await api.get(f"{path.format('v2')}/h")
    assert memory in kept["spec"]["metrics"]
    assert cpu in kept["spec"]["metrics"]


POD_TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}


@pytest.mark.parametrize(
    ("path", "sent", "want"),
    [
        (
            "/apis/apps/v1/namespaces/default/deployments",
            {"selector": {"matchLabels": {"a": "b"}}, "template": POD_TEMPLATE},
            {
                "replicas": 1,
                "revisionHistoryLimit": 10,
                "progressDeadlineSeconds": 600,
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
            },
        ),
        (
            "/apis/apps/v1/namespaces/default/deployments",
            {"selector": {"matchLabels": {"a": "b"}}, "template": POD_TEMPLATE, "strategy": {"type": "Recreate"}},
            {"strategy": {"type": "Recreate"}},
        ),
        (
            "/apis/apps/v1/namespaces/default/statefulsets",
            {"replicas": 0, "volumeClaimTemplates": [{"metadata": {"name": "v"}, "spec": {}}]},
            {
                "replicas": 0,
                "revisionHistoryLimit": 10,
                "podManagementPolicy": "OrderedReady",
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
                "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
                "volumeClaimTemplates": [
                    {"metadata": {"name": "v"}, "spec": {"volumeMode": "Filesystem"}, "status": {"phase": "Pending"}}
                ],
            },
        ),
        (
            "/api/v1/namespaces/default/replicationcontrollers",
            {"template": POD_TEMPLATE},
            {"replicas": 1, "selector": {"a": "b"}},
        ),
        (
            "/api/v1/namespaces/default/services",
            {"ports": [{"port": 80}, {"port": 53, "protocol": "UDP", "targetPort": "dns"}]},
            {
                "type": "ClusterIP",
                "sessionAffinity": "None",
                "ports": [
                    {"port": 80, "protocol": "TCP", "targetPort": 80},
                    {"port": 53, "protocol": "UDP", "targetPort": "dns"},
                ],
            },
        ),
        ("/api/v1/persistentvolumes", {"local": {"path": "/x"}}, {"local": {"path": "/x"}, "volumeMode": "Filesystem"}),
        ("/apis/batch/v1/namespaces/default/cronjobs", {"jobTemplate": None}, {"suspend": False}),
    ],
)
def test_fields_have_the_defaults_of_kubernetes(path: str, sent: dict[str, Any], want: dict[str, Any]) -> None:
    @with_api
    async def main(api: LocalApi) -> None:
        created = await api.create(path, {"metadata": {"name": "a"}, "spec": sent})
        assert created["spec"].items() >= want.items()
        if "template" in sent:
            assert created["spec"]["template"]["spec"]["restartPolicy"] == "Always"

    main()


@with_api
async def test_a_kubelet_selects_services_and_certificates_by_their_fields(api: LocalApi) -> None:
    services, requests = "/api/v1/namespaces/default/services", "/apis/certificates.k8s.io/v1/podcertificaterequests"
    for name, address in (("headless", "None"), ("plain", "10.0.0.1")):
        await api.create(services, {"metadata": {"name": name}, "spec": {"clusterIP": address}})
    listed = await api.get("/api/v1/services", fieldSelector="spec.clusterIP!=None")
    assert [each["metadata"]["name"] for each in listed["items"]] == ["plain"]
    assert (await api.get(requests, fieldSelector="spec.nodeName=n"))["items"] == []
