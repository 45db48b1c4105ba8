"""Partially modelled kinds: nothing is lost, and defaults are set."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect

from dralloc.kube.admission import Admitted, Refused
from dralloc.kube.codec import DecodeError
from dralloc.kube.core_v1 import Event
from dralloc.kube.kind import Kind
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.rbac_v1 import ClusterRoleBinding
from dralloc.kube.registry import KINDS, find_kind
from dralloc.kube.unstructured_object import UnstructuredObject, print_unstructured, read_unstructured, view
from tests.support.admission import causes, create, document_of, stored, update, update_status

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "c", "image": "x", "command": ["sleep"], "unheardOf": {"n": 1.50}}]},
}

JSON = st.recursive(
    st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@pytest.mark.slow
@pytest.mark.fuzz
@given(unknown=st.dictionaries(st.text(min_size=1, max_size=8).map(lambda key: f"x{key}"), JSON, max_size=3))
def test_unknown_members_are_kept(unknown: dict[str, Any]) -> None:
    document = {**POD, "spec": {**POD["spec"], **unknown}, **unknown}
    obj = read_unstructured(json.dumps(document).encode(), Pod)
    assert json.loads(print_unstructured(obj)) == document


def test_metadata_is_printed_first() -> None:
    event = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "action": "Bind", "count": 2}
    obj = read_unstructured(json.dumps(event).encode(), Event)
    assert print_unstructured(UnstructuredObject(metadata=obj.metadata, content=obj.content)).startswith(
        b'{"metadata":{"name":"e"},"action"'
    )


def test_numbers_keep_their_text_and_null_equals_absent() -> None:
    obj = read_unstructured(
        b'{"kind":"Pod","apiVersion":"v1","metadata":{},"spec":{"a":1.50,"b":null,"c":[{"d":null}]}}', Pod
    )
    assert print_unstructured(obj) == b'{"apiVersion":"v1","kind":"Pod","metadata":{},"spec":{"a":1.50,"c":[{}]}}'


def test_null_in_a_list_is_the_empty_value_of_its_items() -> None:
    """As Go decodes it; code that reads an item of a list of objects finds an object."""
    obj = read_unstructured(
        b'{"metadata":{"name":"b"},"subjects":[null,{"kind":null}],"roleRef":null,"other":[null]}', ClusterRoleBinding
    )
    assert obj.content == {"subjects": [{}, {}], "other": [None]}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.view is not None], ids=lambda kind: kind.kind)
def test_nulls_in_every_list_are_admitted_or_refused(kind: Kind) -> None:
    """Every list of every kind has one null; admission must not fail."""

    def filled(info: inspect.Type, depth: int = 0) -> Any:
        match info:
            case inspect.StructType():
                return {} if depth > 8 else {field.encode_name: filled(field.type, depth + 1) for field in info.fields}
            case inspect.VarTupleType() | inspect.ListType():
                return [None]
            case inspect.DictType():
                return {"a": None}
            case inspect.UnionType():
                return filled(next(member for member in info.types if not isinstance(member, inspect.NoneType)), depth)
            case _:
                return None

    assert kind.view is not None
    document = filled(inspect.type_info(kind.view))
    document |= {"apiVersion": kind.api_version(kind.hub_version), "kind": kind.kind, "metadata": {"name": "a"}}
    with suppress(DecodeError):
        create(document)


def test_known_fields_must_have_the_right_type() -> None:
    with pytest.raises(DecodeError, match=r"spec\.containers\[0\]\.name"):
        read_unstructured(b'{"kind":"Pod","apiVersion":"v1","spec":{"containers":[{"name":5}]}}', Pod)


def test_a_new_pod_is_pending_and_has_defaults() -> None:
    pod = document_of(stored({**POD, "status": {"phase": "Running"}}))
    assert pod["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert pod["metadata"]["generation"] == 1
    assert {
        name: pod["spec"][name]
        for name in ("restartPolicy", "schedulerName", "terminationGracePeriodSeconds", "priority")
    } == {
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "terminationGracePeriodSeconds": 30,
        "priority": 0,
    }
    container = pod["spec"]["containers"][0]
    assert (container["imagePullPolicy"], container["unheardOf"]) == ("Always", {"n": 1.5})
    assert [toleration["key"] for toleration in pod["spec"]["tolerations"]] == [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ]


@pytest.mark.parametrize(
    ("resources", "want"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}, "Burstable"),
    ],
)
def test_quality_of_service_follows_requests_and_limits(resources: dict[str, Any], want: str) -> None:
    document = {**POD, "spec": {"containers": [{"name": "c", "image": "x", "resources": resources}]}}
    assert document_of(stored(document))["status"]["qosClass"] == want


@pytest.mark.parametrize(
    ("port", "host_network", "want"),
    [
        ({"containerPort": 80}, True, {"containerPort": 80, "hostPort": 80, "protocol": "TCP"}),
        ({"containerPort": 80}, False, {"containerPort": 80, "protocol": "TCP"}),
        (
            {"containerPort": 53, "hostPort": 53, "protocol": "UDP"},
            True,
            {"containerPort": 53, "hostPort": 53, "protocol": "UDP"},
        ),
    ],
)
def test_with_host_network_every_port_is_a_host_port(
    port: dict[str, Any], host_network: bool, want: dict[str, Any]
) -> None:
    container = {"name": "c", "image": "x", "ports": [port]}
    spec = {"containers": [container], "initContainers": [{**container, "name": "i"}], "hostNetwork": host_network}
    made = document_of(stored({**POD, "spec": spec}))["spec"]
    assert [made[member][0]["ports"] for member in ("containers", "initContainers")] == [[want]] * 2


def test_with_host_network_host_port_and_container_port_must_match() -> None:
    container = {"name": "c", "image": "x", "ports": [{"containerPort": 80, "hostPort": 8080}]}
    refused = create({**POD, "spec": {"containers": [container], "hostNetwork": True}})
    assert causes(refused) == [("Invalid", "spec.containers[0].ports[0].hostPort")]


def test_a_limit_without_a_request_is_also_the_request() -> None:
    document = {**POD, "spec": {"containers": [{"name": "c", "image": "x", "resources": {"limits": {"cpu": "1"}}}]}}
    assert view(_core(document), Pod).spec.containers[0].resources.requests.keys() == {"cpu"}


def test_a_pod_update_keeps_the_status_and_a_status_update_keeps_the_spec() -> None:
    old = stored(POD)
    bound = update_status({**document_of(old), "spec": {}, "status": {"phase": "Running"}}, old)
    assert isinstance(bound, Admitted), causes(bound)
    assert document_of(bound.stored)["spec"] == document_of(old)["spec"]
    relabelled = update({**document_of(bound.stored), "status": {}}, bound.stored)
    assert isinstance(relabelled, Admitted), causes(relabelled)
    assert relabelled.stored == bound.stored


def test_a_list_with_null_is_a_field_error() -> None:
    assert ("Required", "spec.containers[0].name") in causes(
        create({**POD, "spec": {"containers": [None], "tolerations": [None]}})
    )


def job(template: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    pods = {"containers": [{"name": "c", "image": "x"}], "restartPolicy": "Never", **(template or {})}
    spec = {"completions": 3, "parallelism": 3, "manualSelector": True, "template": {"spec": pods}, **spec}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": spec}


LARGER = [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "2"}}}]
CLAIMING = [{"name": "c", "image": "x", "resources": {"claims": [{"name": "gpu"}]}}]
GPU = [{"name": "gpu", "resourceClaimName": "gpu"}]


@pytest.mark.parametrize(
    ("before", "after", "want"),
    [
        (job(), job(parallelism=1, suspend=True, backoffLimit=2, ttlSecondsAfterFinished=5), ""),
        (job(), job(completions=4), "spec.completions: Invalid value: 4: field is immutable"),
        (job(), job(completionMode="Indexed"), 'spec.completionMode: Invalid value: "Indexed": field is immutable'),
        (job(), job(selector={"matchLabels": {"a": "b"}}), "spec.selector: Invalid value: "),
        (job(), job(template={"containers": [{"name": "c", "image": "y"}]}), "spec.template: Invalid value: "),
        (job(), job(template={"unheardOf": 1}), "spec.template: Invalid value: "),
        (job(), job(template={"nodeSelector": {"a": "b"}}), "spec.template: Invalid value: "),
        (job(suspend=True), job(template={"nodeSelector": {"a": "b"}}), ""),
        (job(suspend=True), job(template={"containers": LARGER}), ""),
        (job(suspend=True), job(template={"containers": CLAIMING, "resourceClaims": GPU}), "spec.template: Invalid"),
        (job(completionMode="Indexed"), job(completionMode="Indexed", completions=5, parallelism=5), ""),
        (
            job(completionMode="Indexed"),
            job(completionMode="Indexed", completions=5),
            "spec.completions: Invalid value: 5: can only be modified in tandem with spec.parallelism",
        ),
    ],
    ids=[
        "what may change",
        "completions",
        "completion mode",
        "selector",
        "an image",
        "a field that we do not know",
        "placement",
        "placement of a suspended job",
        "amounts of a suspended job",
        "claims of a suspended job",
        "completions with parallelism of an indexed job",
        "completions alone of an indexed job",
    ],
)
def test_the_pod_template_of_a_job_is_immutable(before: dict[str, Any], after: dict[str, Any], want: str) -> None:
    outcome = update(after, stored(before))
    faults = [str(fault) for fault in outcome.faults] if isinstance(outcome, Refused) else []
    assert len(faults) == bool(want), faults
    assert "".join(faults).startswith(want)


def test_a_job_selects_its_pods_by_its_uid() -> None:
    spec = document_of(stored(job(manualSelector=False)))["spec"]
    uid = spec["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"]
    labels = spec["template"]["metadata"]["labels"]
    assert labels["batch.kubernetes.io/controller-uid"] == uid
    assert labels["batch.kubernetes.io/job-name"] == "j"


def test_a_suspended_job_with_pods_is_immutable() -> None:
    running = update_status({**job(suspend=True), "status": {"active": 1}}, stored(job(suspend=True)))
    assert isinstance(running, Admitted), causes(running)
    placed = job(template={"nodeSelector": {"a": "b"}})
    assert causes(update(placed, running.stored)) == [("Invalid", "spec.template")]


def test_a_namespace_has_a_name_label_and_a_finalizer() -> None:
    namespace = document_of(stored({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "talk"}}))
    assert namespace["metadata"]["labels"] == {"kubernetes.io/metadata.name": "talk"}
    assert namespace["spec"] == {"finalizers": ["kubernetes"]}
    assert namespace["status"] == {"phase": "Active"}


def test_a_new_node_keeps_its_own_status() -> None:
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n"},
        "status": {"allocatable": {"cpu": "8"}, "nodeInfo": {"arch": "x"}},
    }
    assert document_of(stored(node))["status"] == node["status"]


def test_every_kind_is_found_by_kind_and_by_plural() -> None:
    for kind in KINDS:
        for served in kind.versions:
            assert find_kind(kind.api_version(served.version), kind.kind) is kind
    assert find_kind("resource.k8s.io/v1beta1", "DeviceTaintRule") is None


def _core(document: dict[str, Any]) -> UnstructuredObject:
    obj = stored(document)
    assert isinstance(obj, UnstructuredObject)
    return obj
