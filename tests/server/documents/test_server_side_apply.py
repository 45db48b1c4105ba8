"""Server-side apply: owners of fields, conflicts, and properties of apply."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralloc.primitives.errors import BadRequest, Conflict
from dralloc.server.documents.json_documents import Document
from dralloc.server.documents.merge_rules import merge_rule
from dralloc.server.documents.server_side_apply import (
    LAST_APPLIED,
    UPDATING_MANAGERS_MAX,
    Authorship,
    apply,
    is_noop_update,
    manager_of_user_agent,
    managers_of,
    record_update,
)

CLAIM = merge_rule("resource.k8s.io", "ResourceClaim")
POD = merge_rule("", "Pod")
V1 = "resource.k8s.io/v1"
EMPTY: Document = {"metadata": {}, "spec": {"devices": {"requests": None}}, "status": {}}


def write(manager: str, *, at: int = 0, version: str = V1, subresource: str = "") -> Authorship:
    return Authorship(manager=manager, api_version=version, time=f"2026-01-01T00:00:{at:02}Z", subresource=subresource)


def claim(
    labels: dict[str, str] | None = None, *, requests: tuple[str, ...] = (), version: str = V1, **metadata: Any
) -> Document:
    document: Document = {"apiVersion": version, "kind": "ResourceClaim", "metadata": {"name": "c", **metadata}}
    if labels is not None:
        document["metadata"]["labels"] = labels
    if requests:
        document["spec"] = {"devices": {"requests": [{"name": name} for name in requests]}}
    return document


def applied(live: Document | None, document: Document, manager: str, *, force: bool = False, at: int = 0) -> Document:
    by = write(manager, at=at, version=document["apiVersion"])
    return apply(live, document, by, CLAIM, empty=EMPTY, force=force)


def owners(document: Document) -> dict[str, Any]:
    """Fields by manager, `*` marking those that apply."""
    return {
        name + ("*" if operation == "Apply" else "") + (f"/{subresource}" if subresource else ""): owned.fields
        for (name, operation, _, subresource), owned in managers_of(document).items()
    }


def labels(*names: str) -> Any:
    return {"f:metadata": {"f:labels": {f"f:{name}": {} for name in names}}}


# --- applying -----------------------------------------------------------------------------------------------


def test_the_applier_owns_applied_fields_but_not_type_and_name() -> None:
    live = applied(None, claim({"a": "1"}, requests=("gpu",)), "one")
    assert owners(live) == {"one*": {**labels("a"), "f:spec": {"f:devices": {"f:requests": {}}}}}
    assert live["metadata"]["managedFields"] == [
        {
            "manager": "one",
            "operation": "Apply",
            "apiVersion": V1,
            "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {**labels("a"), "f:spec": {"f:devices": {"f:requests": {}}}},
        }
    ]


def test_a_conflict_names_the_manager_and_the_fields() -> None:
    live = applied(None, claim({"a": "1"}, requests=("gpu",)), "one")
    with pytest.raises(Conflict) as refusal:
        applied(live, claim({"a": "2"}, requests=("nic",)), "two")
    assert refusal.value.message == (
        'Apply failed with 2 conflicts: conflicts with "one":\n- .metadata.labels.a\n- .spec.devices.requests'
    )
    assert refusal.value.details is not None
    assert [(cause.reason, cause.message, cause.field) for cause in refusal.value.details.causes] == [
        ("FieldManagerConflict", 'conflict with "one"', ".metadata.labels.a"),
        ("FieldManagerConflict", 'conflict with "one"', ".spec.devices.requests"),
    ]


def test_a_single_conflict_has_a_one_line_message() -> None:
    live = applied(None, claim({"a": "1"}), "one")
    with pytest.raises(Conflict, match=r'^Apply failed with 1 conflict: conflict with "one": \.metadata\.labels\.a$'):
        applied(live, claim({"a": "2"}), "two")


def test_conflicts_are_grouped_by_manager() -> None:
    live = applied(applied(None, claim({"a": "1"}), "one"), claim({"b": "1"}), "other")
    live = record_update(
        live, {**live, "status": {"reservedFor": [{"uid": "u"}]}}, write("s", subresource="status"), CLAIM, empty=EMPTY
    )
    with pytest.raises(Conflict) as refusal:
        applied(live, claim({"a": "2", "b": "2"}), "two")
    assert refusal.value.message == (
        'Apply failed with 2 conflicts: conflicts with "one":\n- .metadata.labels.a\nconflicts with "other":\n- .metadata.labels.b'
    )


def test_a_conflict_with_an_updater_names_version_and_subresource() -> None:
    live = record_update(None, claim({"a": "1"}), write("edit"), CLAIM, empty=EMPTY)
    with pytest.raises(Conflict, match=r'conflict with "edit" using resource\.k8s\.io/v1: \.metadata\.labels\.a'):
        applied(live, claim({"a": "2"}), "two")
    stored = {**live, "status": {"reservedFor": [{"uid": "u", "name": "p"}]}}
    live = record_update(live, stored, write("node", subresource="status"), CLAIM, empty=EMPTY)
    change = {**claim(), "status": {"reservedFor": [{"uid": "u", "name": "q"}]}}
    with pytest.raises(Conflict, match='conflict with "node" with subresource "status" using'):
        apply(live, change, write("two", subresource="status"), CLAIM, empty=EMPTY)


def test_the_same_value_is_shared_without_a_conflict() -> None:
    live = applied(applied(None, claim({"a": "1"}), "one"), claim({"a": "1"}), "two")
    assert owners(live) == {"one*": labels("a"), "two*": labels("a")}


def test_force_takes_the_field_from_all_others() -> None:
    live = applied(applied(None, claim({"a": "1", "b": "1"}), "one"), claim({"a": "1"}), "two")
    live = applied(live, claim({"a": "2"}), "three", force=True)
    assert live["metadata"]["labels"] == {"a": "2", "b": "1"}
    assert owners(live) == {"one*": labels("b"), "three*": labels("a")}


def test_fields_that_are_no_longer_applied_are_removed() -> None:
    live = applied(None, claim({"a": "1", "b": "1"}), "one")
    live = applied(live, claim({"b": "1"}), "one")
    assert live["metadata"]["labels"] == {"b": "1"}
    assert owners(live) == {"one*": labels("b")}


def test_fields_with_another_owner_stay() -> None:
    live = applied(applied(None, claim({"a": "1", "b": "1"}), "one"), claim({"a": "1"}), "two")
    live = applied(live, claim({}), "one")
    assert live["metadata"]["labels"] == {"a": "1"}
    assert owners(live) == {"two*": labels("a"), "one*": {"f:metadata": {"f:labels": {}}}}


def test_fields_without_an_owner_stay() -> None:
    def with_devices(**devices: Any) -> Document:
        return {**claim(), "spec": {"devices": devices}}

    live = applied(None, with_devices(requests=[{"name": "a"}], config=[{}]), "one")
    live["spec"]["devices"]["byServer"] = 1
    assert applied(live, with_devices(config=[{}]), "one")["spec"] == {"devices": {"config": [{}], "byServer": 1}}
    assert "spec" not in applied(live, claim(), "one")


def test_an_object_without_fields_left_is_removed() -> None:
    live = applied(None, claim({"a": "1"}, annotations={"k": "v"}), "one")
    live = applied(live, claim({"a": "1"}), "one")
    assert live["metadata"].keys() == {"name", "labels", "managedFields"}


def test_list_elements_are_added_and_removed_by_key() -> None:
    def consumers(*uids: str) -> Document:
        return {**claim(), "status": {"reservedFor": [{"uid": uid, "name": f"p{uid}"} for uid in uids]}}

    def on_status(live: Document | None, document: Document, manager: str) -> Document:
        return apply(live, document, write(manager, subresource="status"), CLAIM, empty=EMPTY)

    live = on_status(None, consumers("1", "2"), "one")
    live = on_status(live, consumers("3"), "two")
    assert [entry["uid"] for entry in live["status"]["reservedFor"]] == ["1", "2", "3"]
    live = on_status(live, consumers("2"), "one")
    assert [entry["uid"] for entry in live["status"]["reservedFor"]] == ["2", "3"]
    with pytest.raises(Conflict, match=r'\.status\.reservedFor\[uid="3"\]\.name'):
        on_status(live, {**claim(), "status": {"reservedFor": [{"uid": "3", "name": "other"}]}}, "one")


def test_the_main_resource_cannot_own_the_status() -> None:
    with_status = {**claim({"a": "1"}), "status": {"reservedFor": [{"uid": "u"}]}}
    live = applied(None, with_status, "one")
    assert owners(live) == {"one*": labels("a")}
    assert live["status"] == with_status["status"], "its kind says what becomes of it"
    live = applied(applied(None, claim(), "one"), with_status, "one")
    assert owners(live) == {"one*": labels("a")}
    assert "status" not in live


def test_the_status_cannot_own_metadata_and_spec() -> None:
    live = applied(None, claim({"a": "1"}, requests=("gpu",)), "one")
    document = {**claim({"a": "2"}, requests=("nic",)), "status": {"reservedFor": [{"uid": "u"}]}}
    live = apply(live, document, write("two", subresource="status"), CLAIM, empty=EMPTY)
    assert live["metadata"]["labels"] == {"a": "1"}
    assert owners(live)["two*/status"] == {"f:status": {"f:reservedFor": {'k:{"uid":"u"}': {".": {}, "f:uid": {}}}}}


def test_a_manager_that_applies_is_the_same_in_every_version() -> None:
    live = applied(None, claim({"a": "1", "b": "1"}, version="resource.k8s.io/v1beta1"), "one")
    live = applied(live, claim({"a": "1"}), "one")
    assert live["metadata"]["labels"] == {"a": "1"}
    assert [entry["apiVersion"] for entry in live["metadata"]["managedFields"]] == [V1]


def test_the_first_apply_conflicts_with_earlier_fields() -> None:
    live = claim({"a": "1"}, requests=("gpu",))
    with pytest.raises(Conflict, match='conflict with "before-first-apply" using'):
        applied(live, claim({"a": "2"}), "one")
    live = applied(live, claim({"b": "1"}), "one")
    assert owners(live) == {
        "before-first-apply": {
            "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
            "f:spec": {"f:devices": {"f:requests": {}}},
        },
        "one*": labels("b"),
    }


def test_kubectl_takes_over_what_it_applied_from_the_client_side() -> None:
    last = '{"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","metadata":{"labels":{"a":"1","b":"1"}}}'
    stored = claim({"a": "1", "b": "9"}, annotations={LAST_APPLIED: last})
    live = record_update(None, stored, write("kubectl-client-side-apply"), CLAIM, empty=EMPTY)
    with pytest.raises(Conflict):
        applied(live, claim({"a": "2"}), "other")
    with pytest.raises(Conflict, match=r"1 conflict: .*\.metadata\.labels\.b$"):
        applied(live, claim({"a": "2", "b": "2"}), "kubectl")
    taken = applied(live, claim({"a": "2"}), "kubectl")
    assert taken["metadata"]["labels"] == {"a": "2", "b": "9"}
    assert '"labels":{"a":"2"}' in taken["metadata"]["annotations"][LAST_APPLIED]


@pytest.mark.parametrize("last", ["{", '{"a":' + "[" * 40_000])
def test_what_kubectl_cannot_have_applied_is_ignored(last: str) -> None:
    live = claim({"a": "1"}, annotations={LAST_APPLIED: last})
    assert applied(live, claim({"b": "2"}), "kubectl")["metadata"]["labels"] == {"a": "1", "b": "2"}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        pytest.param(claim(version="resource.k8s.io/v1beta1"), "incorrect version", id="another version"),
        pytest.param(claim(managedFields=[{"manager": "x"}]), "managedFields must be nil", id="managers of its own"),
        pytest.param({"apiVersion": V1, "metadata": 1}, "metadata must be an object", id="no metadata"),
    ],
)
def test_invalid_apply_patches_are_refused(document: Document, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        apply(None, document, write("one"), CLAIM, empty=EMPTY)


# --- updating -----------------------------------------------------------------------------------------------


def test_the_creator_owns_everything() -> None:
    live = record_update(None, claim({"a": "1"}, requests=("gpu",)), write("create"), CLAIM, empty=EMPTY)
    assert owners(live) == {
        "create": {"f:metadata": {"f:labels": {".": {}, "f:a": {}}}, "f:spec": {"f:devices": {"f:requests": {}}}}
    }


def test_an_update_takes_what_it_changes_and_only_that() -> None:
    live = applied(None, claim({"a": "1", "b": "1"}), "one")
    live = record_update(
        live,
        {**live, "metadata": {**live["metadata"], "labels": {"a": "2", "b": "1", "c": "3"}}},
        write("edit"),
        CLAIM,
        empty=EMPTY,
    )
    assert owners(live) == {"one*": labels("b"), "edit": labels("a", "c")}


def test_removed_fields_have_no_owner() -> None:
    live = applied(None, claim({"a": "1", "b": "1"}), "one")
    live = record_update(
        live, {**live, "metadata": {**live["metadata"], "labels": {"b": "1"}}}, write("edit"), CLAIM, empty=EMPTY
    )
    assert owners(live) == {"one*": labels("b")}


def test_an_update_that_changes_nothing_leaves_the_managers_alone() -> None:
    live = record_update(None, claim({"a": "1"}), write("one", at=1), CLAIM, empty=EMPTY)
    assert record_update(live, live, write("two", at=2), CLAIM, empty=EMPTY) == live
    assert record_update(live, live, write("one", at=2), CLAIM, empty=EMPTY) == live


def test_an_update_without_managers_keeps_them() -> None:
    live = applied(None, claim({"a": "1"}), "one")
    for managed in (
        [],
        [{"manager": "x", "operation": "Frob"}],
        [{"operation": "Apply", "fieldsType": "FieldsV1", "apiVersion": V1, "fieldsV1": {"k:{": {}}}],
    ):
        new = {**live, "metadata": {**live["metadata"], "managedFields": managed}}
        assert owners(record_update(live, new, write("edit"), CLAIM, empty=EMPTY)) == {"one*": labels("a")}


def test_a_client_can_set_the_managers() -> None:
    live = applied(None, claim({"a": "1"}), "one")
    entries = [{**live["metadata"]["managedFields"][0], "manager": "renamed"}]
    new = {**live, "metadata": {**live["metadata"], "managedFields": entries}}
    assert owners(record_update(live, new, write("edit"), CLAIM, empty=EMPTY)) == {"renamed*": labels("a")}
    by_status = record_update(live, new, write("edit", subresource="status"), CLAIM, empty=EMPTY)
    assert owners(by_status) == {"one*": labels("a")}


def test_one_empty_entry_removes_the_managers() -> None:
    live = applied(None, claim({"a": "1"}), "one")
    new = {**live, "metadata": {**live["metadata"], "managedFields": [{}]}}
    forgotten = record_update(live, new, write("edit"), CLAIM, empty=EMPTY)
    assert "managedFields" not in forgotten["metadata"]
    changed = record_update(forgotten, claim({"a": "2"}), write("edit"), CLAIM, empty=EMPTY)
    assert "managedFields" not in changed["metadata"]


def test_the_oldest_updaters_are_merged() -> None:
    live = record_update(None, claim({"l0": "1"}), write("m0"), CLAIM, empty=EMPTY)
    for number in range(1, UPDATING_MANAGERS_MAX + 3):
        named = {f"l{other}": "1" for other in range(number + 1)}
        live = record_update(
            live,
            {**live, "metadata": {**live["metadata"], "labels": named}},
            write(f"m{number}", at=number),
            CLAIM,
            empty=EMPTY,
        )
    found = owners(live)
    assert len(found) == UPDATING_MANAGERS_MAX
    assert found["ancient-changes"]["f:metadata"]["f:labels"].keys() == {".", "f:l0", "f:l1", "f:l2", "f:l3"}


def test_a_new_timestamp_alone_is_a_noop() -> None:
    live = applied(None, claim({"a": "1"}), "one", at=1)
    again = applied(live, claim({"a": "1"}), "one", at=2)
    assert is_noop_update(live, again)
    other = applied(live, claim({"a": "2"}), "one", at=2)
    assert not is_noop_update(live, other)


@pytest.mark.parametrize(
    ("agent", "want"),
    [("kubectl/v1.32.4 (linux/amd64)", "kubectl"), ("", "unknown"), ("x" * 300, "x" * 128), ("a\x00b/1", "ab")],
)
def test_the_manager_of_a_write_without_one_is_the_program(agent: str, want: str) -> None:
    assert manager_of_user_agent(agent) == want


# --- laws ---------------------------------------------------------------------------------------------------


def pod(labels: dict[str, str], containers: dict[str, dict[str, int]], priority: int | None) -> Document:
    document: Document = {"apiVersion": "v1", "metadata": {}, "spec": {}}
    if labels:
        document["metadata"]["labels"] = labels
    if containers:
        document["spec"]["containers"] = [{"name": name, **rest} for name, rest in containers.items()]
    if priority is not None:
        document["spec"]["priority"] = priority
    return document


def pods_with(names: str, priorities: tuple[int, ...]) -> st.SearchStrategy[Document]:
    name = st.sampled_from(names)
    return st.builds(
        pod,
        labels=st.dictionaries(name, st.sampled_from("12"), max_size=2),
        containers=st.dictionaries(
            name, st.dictionaries(st.sampled_from(["image", "tty"]), st.integers(0, 1)), max_size=2
        ),
        priority=st.sampled_from((None, *priorities)),
    )


pods = pods_with("abc", priorities=(0, 1))


def apply_pod(live: Document | None, document: Document, manager: str, *, force: bool = True) -> Document:
    return apply(live, document, write(manager, version="v1"), POD, empty={}, force=force)


def unordered(document: Document) -> Document:
    """The document with its containers as a mapping, without empty values."""
    found = copy.deepcopy(document)
    found["spec"] = {
        **found.get("spec", {}),
        "containers": {c["name"]: c for c in found.get("spec", {}).get("containers", ())},
    }
    found["metadata"] = {name: value for name, value in found["metadata"].items() if value and name != "managedFields"}
    return found


@pytest.mark.slow
@given(pods, pods)
def test_applying_twice_changes_nothing(first: Document, second: Document) -> None:
    live = apply_pod(apply_pod(None, first, "one"), second, "two")
    assert apply_pod(live, second, "two") == live


@pytest.mark.slow
@given(pods, pods)
def test_forced_fields_have_one_owner_where_values_differed(first: Document, second: Document) -> None:
    live = apply_pod(apply_pod(None, first, "one"), second, "two")
    again = apply_pod(live, second, "two", force=False)
    assert again == live
    for name, value in second["metadata"].get("labels", {}).items():
        sharers = [
            owner
            for owner, fields in owners(live).items()
            if f"f:{name}" in fields.get("f:metadata", {}).get("f:labels", {})
        ]
        shared = first["metadata"].get("labels", {}).get(name) == value
        assert sorted(sharers) == (["one*", "two*"] if shared else ["two*"])


@pytest.mark.slow
@given(pods, pods_with("xyz", priorities=()))
def test_disjoint_managers_commute(first: Document, second: Document) -> None:
    one_way = apply_pod(apply_pod(None, first, "one", force=False), second, "two", force=False)
    other_way = apply_pod(apply_pod(None, second, "two", force=False), first, "one", force=False)
    assert unordered(one_way) == unordered(other_way)
    assert owners(one_way) == owners(other_way)


@pytest.mark.slow
@given(pods, pods)
def test_the_result_of_a_single_applier_is_its_last_apply(first: Document, second: Document) -> None:
    live = apply_pod(apply_pod(None, first, "one"), second, "one")
    assert unordered(live) == unordered({"spec": {}, **second} if "spec" in live else {**second, "spec": {}})
