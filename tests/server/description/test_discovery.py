"""Discovery: equal to the recorded conversation, and the same in both forms."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from dralloc.kube.registry import KINDS, served_kinds
from dralloc.kube.review_kinds import REVIEW_KINDS
from dralloc.primitives.features import FeatureGates
from dralloc.server.describe.discovery import (
    SUBRESOURCES,
    aggregated_discovery,
    api_group,
    api_group_list,
    api_resource_list,
    api_versions,
    group_versions,
    version_information,
)
from dralloc.server.http.negotiation import discovery_content_type

CONVERSATION = Path(__file__).parents[2] / "vectors" / "http.jsonl.gz"


# The recording has a version that is not served.
NOT_BY_DEFAULT = {"groupVersion": "resource.k8s.io/v1alpha3", "version": "v1alpha3"}


def recorded(path: str) -> Any:
    with gzip.open(CONVERSATION, "rt") as lines:
        return next(step["response"] for step in map(json.loads, lines) if step["path"] == path)


def test_the_group_equals_the_recording() -> None:
    want = recorded("/apis/resource.k8s.io")
    assert api_group(KINDS, "resource.k8s.io") == want
    want["versions"].remove(NOT_BY_DEFAULT)
    assert api_group(served_kinds(FeatureGates.defaults()), "resource.k8s.io") == want


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_resources_equal_the_recording(version: str) -> None:
    found = api_resource_list(KINDS, "resource.k8s.io", version)
    assert found is not None
    for entry in found["resources"]:
        if "storageVersionHash" in entry:
            assert len(entry["storageVersionHash"]) == 12
            entry["storageVersionHash"] = "<any>"
    assert found == recorded(f"/apis/resource.k8s.io/{version}")


def test_groups_and_versions_that_are_not_served_have_no_document() -> None:
    assert api_group(KINDS, "nope.example.com") is None
    assert api_resource_list(KINDS, "resource.k8s.io", "v9") is None
    assert api_resource_list(KINDS, "nope.example.com", "v1") is None


def test_the_group_list_contains_each_group() -> None:
    groups = api_group_list(KINDS)["groups"]
    served = {kind.group for kind in KINDS} - {""} | {review.group for review in REVIEW_KINDS}
    assert [group["name"] for group in groups] == sorted(served)
    assert all({"kind": "APIGroup", "apiVersion": "v1", **group} == api_group(KINDS, group["name"]) for group in groups)


@pytest.mark.parametrize("version", ["v2", "v2beta1"])
def test_aggregated_discovery_agrees_with_the_lists(version: str) -> None:
    documents = [aggregated_discovery(KINDS, core=core, version=version) for core in (True, False)]
    assert {document["apiVersion"] for document in documents} == {f"apidiscovery.k8s.io/{version}"}
    found = {
        (group["metadata"].get("name", ""), served["version"]): {
            resource["resource"]: resource for resource in served["resources"]
        }
        for document in documents
        for group in document["items"]
        for served in group["versions"]
    }
    assert list(found) == group_versions(KINDS)
    for (group, served), resources in found.items():
        listed = api_resource_list(KINDS, group, served)
        assert listed is not None
        for entry in listed["resources"]:
            name, _, part = entry["name"].partition("/")
            resource = resources[name]
            if part:
                (resource,) = [below for below in resource["subresources"] if below["subresource"] == part]
            assert (entry["verbs"], entry["kind"]) == (resource["verbs"], resource["responseKind"]["kind"])


def test_every_subresource_of_a_kind_is_known() -> None:
    assert {name for kind in KINDS for name in kind.subresources} <= SUBRESOURCES.keys()


def test_the_core_versions_and_the_address() -> None:
    assert api_versions("127.0.0.1:6443") == {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:6443"}],
    }


def test_the_version_names_kubernetes_and_dralloc() -> None:
    version = version_information("1.37.0", "dralloc-0.1.0")
    assert (version["major"], version["minor"], version["gitVersion"]) == ("1", "37", "v1.37.0+dralloc-0.1.0")


def test_the_content_type_of_aggregated_discovery_equals_the_recording() -> None:
    with gzip.open(CONVERSATION, "rt") as lines:
        (want,) = [step["contentType"] for step in map(json.loads, lines) if step["name"] == "aggregated discovery"]
    assert discovery_content_type("v2") == want
