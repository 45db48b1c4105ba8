"""The default roles and bindings: as Kubernetes has them after its start."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from dralloc.kube.rbac_v1 import ClusterRole
from dralloc.primitives.features import FeatureGates
from dralloc.server.access.default_policy import (
    AUTO_UPDATE,
    default_documents,
    default_policy,
    documents_with,
    read_policy_object,
    reconciled,
    with_aggregated_rules,
)

RECORDED = Path(__file__).parents[1] / "vectors" / "rbac-defaults.json.gz"
READ = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}


def test_the_policy_is_the_recorded_one_once_it_is_aggregated() -> None:
    recorded = [read_policy_object(document) for document in json.loads(gzip.decompress(RECORDED.read_bytes()))]
    policy = default_policy()
    roles = {
        role.metadata.name: role for role in with_aggregated_rules(r for r in policy if isinstance(r, ClusterRole))
    }
    assert recorded == [roles[item.metadata.name] if isinstance(item, ClusterRole) else item for item in policy]


def document(name: str) -> dict[str, Any]:
    return next(each for each in default_documents() if each["metadata"]["name"] == name)


def test_objects_that_are_up_to_date_are_not_changed() -> None:
    assert all(reconciled(each, each) == each for each in default_documents())


def test_missing_rights_are_added_and_others_kept() -> None:
    default = {"metadata": {}, "rules": [READ]}
    stored = {"metadata": {"labels": {"a": "b"}}, "rules": [{**READ, "verbs": ["get", "delete"]}]}
    assert reconciled(stored, default) == {
        "metadata": {"labels": {"a": "b"}, "annotations": {}},
        "rules": [*stored["rules"], {**READ, "verbs": ["list"]}],
    }


def test_missing_subjects_and_selectors_are_added() -> None:
    binding = document("system:discovery")
    default = next(each for each in default_documents() if each["kind"] == "ClusterRoleBinding" and each["subjects"])
    extra = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "x"}
    assert reconciled({**default, "subjects": [extra]}, default)["subjects"] == [extra, *default["subjects"]]
    other = {**default["roleRef"], "name": "other"}
    assert reconciled({**default, "roleRef": other, "subjects": [extra]}, default) == default
    view = document("view")
    selector = {"matchLabels": {"mine": "yes"}}
    stored = {**view, "aggregationRule": {"clusterRoleSelectors": [selector]}}
    wanted = [selector, *view["aggregationRule"]["clusterRoleSelectors"]]
    assert reconciled(stored, view)["aggregationRule"]["clusterRoleSelectors"] == wanted
    assert "aggregationRule" not in reconciled({**binding, "aggregationRule": {"clusterRoleSelectors": []}}, binding)


def test_objects_of_the_administrators_are_left_alone() -> None:
    stored = {"metadata": {"annotations": {AUTO_UPDATE: "false"}}, "rules": []}
    assert reconciled(stored, {"metadata": {"labels": {"a": "b"}}, "rules": [READ]}) is stored


def test_gates_add_the_rights_that_their_kinds_need() -> None:
    """As Kubernetes 1.37 has them; the recorded policy is that of a server with the default gates."""
    assert documents_with(FeatureGates.defaults()) == default_documents()
    gates = "GenericWorkload=true,DRAWorkloadResourceClaims=true,WorkloadWithJob=true,DRAResourcePoolStatus=true"
    documents = documents_with(FeatureGates.parse(gates))
    assert all(reconciled(each, each) == each for each in documents)
    roles = [item for item in map(read_policy_object, documents) if isinstance(item, ClusterRole)]
    rights = {
        role.metadata.name: {
            f"{verb} {resource}"
            for rule in role.rules
            if "scheduling.k8s.io" in rule.api_groups
            for verb in rule.verbs
            for resource in rule.resources
        }
        for role in with_aggregated_rules(roles)
    }
    assert {"get podgroups", "watch workloads", "list podgroups/status"} <= rights["view"]
    assert not {right for right in rights["view"] if right.split()[0] not in ("get", "list", "watch")}
    assert {"create podgroups", "deletecollection workloads"} <= rights["edit"]
    assert "update podgroups/status" not in rights["edit"]
    assert "patch podgroups/status" in rights["system:kube-scheduler"]
    assert "create workloads" in rights["system:controller:job-controller"]
    bound = {each["roleRef"]["name"] for each in documents if each["kind"] == "ClusterRoleBinding"}
    assert "system:controller:podgroup-protection-controller" in bound
    assert "system:controller:resourcepoolstatusrequest-controller" in bound
