"""Admission: which fields are set, kept, dropped, counted and warned about."""

from __future__ import annotations

import copy
import gzip
import json
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralloc.kube.admission import Admitted, Refused, Verb, WriteRequest, admit
from dralloc.kube.codec import decode, encode
from dralloc.kube.conversion import from_hub
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.registry import KINDS, find_kind
from dralloc.primitives.errors import BadRequest
from tests.support.admission import (
    NOW,
    NOW_TEXT,
    admission_context,
    causes,
    create,
    document_of,
    stored,
    update,
    update_status,
)
from tests.support.wire_objects import wire_objects

VECTORS: Final = Path(__file__).parents[1] / "vectors" / "api.jsonl.gz"

SLICE: Final[dict[str, Any]] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": {"name": "s"},
    "spec": {
        "driver": "d.example.com",
        "nodeName": "n",
        "pool": {"name": "p", "resourceSliceCount": 1},
        "devices": [{"name": "x", "taints": [{"key": "k", "effect": "NoSchedule"}]}],
    },
}
CLAIM: Final[dict[str, Any]] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"name": "c"},
    "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}},
}
RULE: Final[dict[str, Any]] = {
    "apiVersion": "resource.k8s.io/v1beta2",
    "kind": "DeviceTaintRule",
    "metadata": {"name": "r"},
    "spec": {"taint": {"key": "k", "effect": "NoSchedule"}},
}


def changed(document: dict[str, Any], *way: Any, value: Any) -> dict[str, Any]:
    document = copy.deepcopy(document)
    node = document
    for step in way[:-1]:
        node = node.setdefault(step, {}) if isinstance(node, dict) else node[step]
    node[way[-1]] = value
    return document


def updated(document: dict[str, Any], old: ApiObject, gates: str = "") -> ApiObject:
    outcome = update(document, old, admission_context(gates))
    assert isinstance(outcome, Admitted), causes(outcome)
    return outcome.stored


# --- Metadata --------------------------------------------------------------------------------------------------


def test_the_server_sets_uid_namespace_and_creation_time() -> None:
    sent = changed(
        CLAIM,
        "metadata",
        value={"name": "c", "uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z", "selfLink": "/x"},
    )
    assert document_of(stored(sent))["metadata"] == {
        "name": "c",
        "namespace": "default",
        "uid": "uid-1",
        "creationTimestamp": NOW_TEXT,
    }


def test_a_generated_name_leaves_room_for_its_suffix() -> None:
    assert stored(changed(CLAIM, "metadata", value={"generateName": "gen-"})).metadata.name == "gen-x7k2p"
    assert stored(changed(CLAIM, "metadata", value={"generateName": "a" * 80})).metadata.name == "a" * 58 + "x7k2p"


def test_an_update_keeps_server_managed_metadata() -> None:
    old = stored(SLICE)
    document = changed(
        document_of(old), "metadata", value={"name": "s", "creationTimestamp": "2001-01-01T00:00:00Z", "generation": 9}
    )
    assert updated(document, old).metadata == old.metadata


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"name": "other"}, "does not match the name on the URL"),
        ({"namespace": "other"}, "does not match the namespace"),
    ],
)
def test_an_object_that_does_not_match_the_url_is_rejected(metadata: dict[str, str], words: str) -> None:
    old = stored(CLAIM)
    with pytest.raises(BadRequest, match=words):
        update(changed(CLAIM, "metadata", value=metadata), old)


def test_the_namespace_of_a_cluster_scoped_object_is_cleared() -> None:
    sent = changed(SLICE, "metadata", value={"name": "s", "namespace": "default"})
    assert stored(sent).metadata.namespace == ""
    assert updated(sent, stored(SLICE)).metadata.namespace == ""


@pytest.mark.parametrize(
    ("metadata", "cause"),
    [
        ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, ("Invalid", "metadata.deletionTimestamp")),
        ({"deletionGracePeriodSeconds": 5}, ("Invalid", "metadata.deletionGracePeriodSeconds")),
        ({"finalizers": ["keep"]}, ("Invalid", "metadata.finalizers[0]")),
        ({"labels": {"a b": ""}}, ("Invalid", "metadata.labels")),
    ],
)
@pytest.mark.parametrize("document", [SLICE, CLAIM, RULE])
def test_an_update_cannot_make_metadata_invalid(
    document: dict[str, Any], metadata: dict[str, Any], cause: tuple[str, str]
) -> None:
    old = stored(document)
    sent = document_of(old)
    sent["metadata"].update(metadata, resourceVersion="1")
    assert causes(update(sent, old)) == [cause]


@pytest.mark.parametrize(
    ("reference", "cause"),
    [
        ({"apiVersion": ""}, ("Required", "metadata.ownerReferences[1].apiVersion")),
        ({"apiVersion": "a/b/c"}, ("Invalid", "metadata.ownerReferences[1].apiVersion")),
        ({"apiVersion": "apps/"}, ("Invalid", "metadata.ownerReferences[1].apiVersion")),
        ({"kind": ""}, ("Required", "metadata.ownerReferences[1].kind")),
        ({"name": ""}, ("Required", "metadata.ownerReferences[1].name")),
        ({"uid": ""}, ("Required", "metadata.ownerReferences[1].uid")),
        ({"kind": "Event"}, ("Invalid", "metadata.ownerReferences[1]")),
        ({"controller": True}, ("Invalid", "metadata.ownerReferences")),
    ],
)
def test_owner_references_are_complete(reference: dict[str, Any], cause: tuple[str, str]) -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}
    owners = [{**owner, "controller": True}, {**owner, **reference}]
    assert causes(create(changed(SLICE, "metadata", "ownerReferences", value=owners))) == [cause]


def owned_by_pods(count: int) -> Refused:
    """The answer to a claim with so many controllers."""
    owners = [
        {"apiVersion": "v1", "kind": "Pod", "name": f"p{number}", "uid": f"{number}", "controller": True}
        for number in range(count)
    ]
    outcome = create({**CLAIM, "metadata": {"name": "c", "ownerReferences": owners}})
    assert isinstance(outcome, Refused)
    return outcome


def test_an_object_has_one_controller() -> None:
    """In Kubernetes' words: each further controller is a fault that shows all references."""
    shown = ",".join(
        f'{{"apiVersion":"v1","kind":"Pod","name":"p{number}","uid":"{number}","controller":true}}'
        for number in range(3)
    )
    assert [str(fault) for fault in owned_by_pods(3).faults] == [
        f"metadata.ownerReferences: Invalid value: [{shown}]: Only one reference can have Controller set to true. "
        f'Found "true" in references for Pod/p0 and Pod/{further}'
        for further in ("p1", "p2")
    ]


def test_repeated_faults_are_told_once() -> None:
    outcome = create({**CLAIM, "metadata": {"name": "c", "finalizers": ["a/_"] * 20}})
    assert isinstance(outcome, Refused)
    assert len(outcome.faults) == 1


def test_a_status_write_cannot_change_the_identity() -> None:
    old = stored(CLAIM)
    sent = document_of(old)
    sent["metadata"]["uid"] = "another"
    assert causes(update_status(sent, old)) == [("Invalid", "metadata.uid")]


def test_an_invalid_timestamp_is_rejected() -> None:
    with pytest.raises(BadRequest, match="2026-02-30"):
        create(changed(RULE, "spec", "taint", "timeAdded", value="2026-02-30T00:00:00Z"))


# --- Generations -----------------------------------------------------------------------------------------------


def test_generations_count_changes_of_the_spec() -> None:
    old = stored(SLICE)
    assert old.metadata.generation == 1
    same = updated(document_of(old), old)
    assert same.metadata.generation == 1
    more = updated(changed(document_of(old), "spec", "pool", "generation", value=2), old)
    assert more.metadata.generation == 2


def test_equal_quantities_in_another_notation_are_no_change() -> None:
    old = stored(changed(SLICE, "spec", "devices", 0, "capacity", value={"memory": {"value": "1Ki"}}))
    again = updated(changed(document_of(old), "spec", "devices", 0, "capacity", "memory", "value", value="1024"), old)
    assert again.metadata.generation == 1


def test_a_change_that_is_dropped_counts_for_a_slice_but_not_for_a_class() -> None:
    old = stored(SLICE)
    dropped = updated(changed(document_of(old), "spec", "skipNodeOperations", value=["*"]), old)
    assert dropped.metadata.generation == 2
    assert document_of(dropped)["spec"] == document_of(old)["spec"]
    class_document = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "c"}, "spec": {}}
    device_class = stored(class_document)
    gates = "DRAExtendedResource=false"
    assert (
        updated(
            changed(class_document, "spec", "extendedResourceName", value="a.b/c"), device_class, gates
        ).metadata.generation
        == 1
    )


def test_claims_have_no_generation_of_their_own() -> None:
    old = stored(CLAIM)
    assert old.metadata.generation == 0
    assert updated(changed(document_of(old), "metadata", "labels", value={"a": "b"}), old).metadata.generation == 0


def test_a_rule_with_a_new_effect_gets_a_new_time() -> None:
    old = stored(RULE)
    later = admission_context()
    later = type(later)(gates=later.gates, now=NOW + timedelta(hours=1), namespace_labels={})
    same_effect = update(
        changed(document_of(old) | {"apiVersion": RULE["apiVersion"]}, "spec", "taint", "key", value="other"),
        old,
        later,
    )
    new_effect = update(
        changed(document_of(old) | {"apiVersion": RULE["apiVersion"]}, "spec", "taint", "effect", value="NoExecute"),
        old,
        later,
    )
    assert isinstance(same_effect, Admitted)
    assert isinstance(new_effect, Admitted)
    assert document_of(same_effect.stored)["spec"]["taint"]["timeAdded"] == NOW_TEXT
    assert document_of(new_effect.stored)["spec"]["taint"]["timeAdded"] == "2026-07-01T13:00:00Z"
    assert (same_effect.stored.metadata.generation, new_effect.stored.metadata.generation) == (2, 2)


# --- Status ----------------------------------------------------------------------------------------------------

ALLOCATED: Final[dict[str, Any]] = {
    "allocation": {"devices": {"results": [{"request": "gpu", "driver": "d", "pool": "p", "device": "x"}]}},
    "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
    "devices": [{"driver": "d", "pool": "p", "device": "x"}],
}


def allocated_claim() -> ApiObject:
    old = stored(CLAIM)
    outcome = update_status({**document_of(old), "status": ALLOCATED}, old)
    assert isinstance(outcome, Admitted), causes(outcome)
    return outcome.stored


def test_a_new_claim_has_an_empty_status() -> None:
    assert document_of(stored({**CLAIM, "status": ALLOCATED}))["status"] == {}


def test_spec_and_status_are_written_separately() -> None:
    claim = allocated_claim()
    relabelled = updated({**document_of(claim), "metadata": {"name": "c", "labels": {"a": "b"}}, "status": {}}, claim)
    assert document_of(relabelled)["status"] == document_of(claim)["status"]
    sent = {
        **document_of(claim),
        "metadata": {"name": "c", "labels": {"x": "y"}},
        "spec": {},
        "status": {**ALLOCATED, "reservedFor": []},
    }
    outcome = update_status(sent, claim)
    assert isinstance(outcome, Admitted)
    assert document_of(outcome.stored)["spec"] == document_of(claim)["spec"]
    assert outcome.stored.metadata == claim.metadata


def test_deallocation_removes_the_status_of_the_devices() -> None:
    claim = allocated_claim()
    outcome = update_status({**document_of(claim), "status": {"devices": ALLOCATED["devices"]}}, claim)
    assert isinstance(outcome, Admitted)
    assert document_of(outcome.stored)["status"] == {}


def test_null_lists_print_as_in_kubernetes() -> None:
    assert document_of(stored(changed(CLAIM, "spec", "devices", "requests", value=[])))["spec"] == {
        "devices": {"requests": None}
    }
    assert document_of(allocated_claim())["status"]["devices"][0]["conditions"] is None


# --- Warnings --------------------------------------------------------------------------------------------------


def warnings_of(document: dict[str, Any]) -> tuple[str, ...]:
    outcome = create(document)
    assert isinstance(outcome, Admitted), causes(outcome)
    return outcome.warnings


def test_probable_mistakes_are_accepted_with_a_warning() -> None:
    document = changed(
        CLAIM,
        "spec",
        "devices",
        value={
            "requests": [
                {"name": "a", "exactly": {"deviceClassName": "x", "capacity": {"requests": {"mem-ory": "-1"}}}},
                {"name": "b", "firstAvailable": [{"name": "s", "deviceClassName": "x", "count": 0}]},
            ],
            "constraints": [{"matchAttribute": "a.b/c", "distinctAttribute": "a/b/c"}],
        },
    )
    warnings = warnings_of(document)
    assert len(warnings) == 5
    for words in (
        "use two constraints",
        "more than one '/'",
        "no device has a capacity",
        "is negative",
        "0 is treated as 1",
    ):
        assert any(words in warning for warning in warnings), words


@pytest.mark.parametrize(
    ("capacity", "words"),
    [
        ({"value": "4", "requestPolicy": {}}, "an empty policy has no effect"),
        ({"value": "4", "requestPolicy": {"default": "-1"}}, "default: -1 is negative"),
        ({"value": "4", "requestPolicy": {"default": "5"}}, "default: 5 is more than the capacity 4"),
        ({"value": "4", "requestPolicy": {"default": "1", "validRange": {"min": "-1"}}}, "min: -1 is negative"),
        ({"value": "-4"}, "value: -4 is negative"),
    ],
)
def test_a_capacity_that_serves_nothing_is_accepted_with_a_warning(capacity: dict[str, Any], words: str) -> None:
    devices = [{"name": "x", "allowMultipleAllocations": True, "capacity": {"memory": capacity}}]
    (warning,) = warnings_of(changed(SLICE, "spec", "devices", value=devices))
    assert words in warning


def test_old_versions_and_upper_case_drivers_cause_warnings() -> None:
    old_version = {**CLAIM, "apiVersion": "resource.k8s.io/v1beta1", "spec": {}}
    assert warnings_of(old_version) == (
        "resource.k8s.io/v1beta1 ResourceClaim is deprecated in v1.35+, unavailable in v1.38+",
    )
    assert warnings_of(changed(SLICE, "spec", "driver", value="GPU.example.com")) != ()
    assert warnings_of(CLAIM) == ()


# --- Whatever is sent ------------------------------------------------------------------------------------------


@st.composite
def writes(draw: st.DrawFn) -> WriteRequest:
    kind = draw(st.sampled_from([kind for kind in KINDS if kind.group == "resource.k8s.io"]))
    served = draw(st.sampled_from(kind.versions))
    new = draw(wire_objects(served.wire_type))
    old = draw(st.none() | wire_objects(kind.hub))
    subresource = draw(st.sampled_from(["", *kind.subresources])) if old is not None else ""
    verb = Verb.CREATE if old is None else Verb.UPDATE
    return WriteRequest(
        verb=verb,
        kind=kind,
        version=served.version,
        new=new,
        old=old,
        subresource=subresource,
        namespace=new.metadata.namespace,
    )


ALL_ON: Final = "AllAlpha=true,DRAFractionalCapacityRange=true"


@pytest.mark.slow
@pytest.mark.fuzz
@given(request=writes(), gates=st.sampled_from(["", ALL_ON, "DRAConsumableCapacity=false,DRAPrioritizedList=false"]))
def test_any_object_is_either_admitted_or_refused(request: WriteRequest, gates: str) -> None:
    try:
        outcome = admit(request, admission_context(gates))
    except BadRequest:
        return
    if isinstance(outcome, Refused):
        assert outcome.faults
        assert all(str(fault) for fault in outcome.faults)
    else:
        assert decode(encode(outcome.stored), request.kind.hub) == outcome.stored


@pytest.mark.slow
def test_writing_back_what_was_read_changes_nothing_in_any_version() -> None:
    """Uses every object that Kubernetes accepted in the recorded answers."""
    count = 0
    with gzip.open(VECTORS) as lines:
        for line in map(json.loads, lines):
            if line["method"] != "POST" or line["code"] != 201:
                continue
            kind = find_kind(line["body"]["apiVersion"], line["body"]["kind"])
            assert kind is not None
            first = stored(line["body"])
            for served in kind.versions:
                read_back = decode(encode(from_hub(first, served.version)), served.wire_type)
                request = WriteRequest(
                    verb=Verb.UPDATE,
                    kind=kind,
                    version=served.version,
                    new=type(read_back)(**{**_fields(read_back), "metadata": _with_resource_version(read_back)}),
                    old=first,
                    namespace=first.metadata.namespace,
                    name=first.metadata.name,
                )
                outcome = admit(request, admission_context())
                assert isinstance(outcome, Admitted), (line["name"], causes(outcome))
                assert outcome.stored == first, line["name"]
            count += 1
    assert count > 500


def _fields(obj: ApiObject) -> dict[str, Any]:
    return {field: getattr(obj, field) for field in obj.__struct_fields__}


def _with_resource_version(obj: ApiObject) -> Any:
    return type(obj.metadata)(
        **{**{field: getattr(obj.metadata, field) for field in obj.metadata.__struct_fields__}, "resource_version": "7"}
    )
