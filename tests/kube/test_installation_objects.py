"""Objects that install programs: kept as written, and validated."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.admission import Causes, causes, create, document_of, stored, update

RBAC = "rbac.authorization.k8s.io"


def workload(kind: str = "Deployment", /, **spec: Any) -> dict[str, Any]:
    template = {
        "metadata": {"labels": {"app": "x"}},
        "spec": {"containers": [{"name": "c", "image": "i", "livenessProbe": {"httpGet": {"port": 80}}}]},
    }
    plain = {"selector": {"matchLabels": {"app": "x"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "w"}, "spec": {**plain, **spec}}


def role(kind: str = "ClusterRole", /, **rule: Any) -> dict[str, Any]:
    plain = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], **rule}
    rules = [{name: value for name, value in plain.items() if value is not None}]
    return {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": {"name": "system:r"}, "rules": rules}


def binding(kind: str = "ClusterRoleBinding", /, **members: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": kind,
        "metadata": {"name": "b"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "r"},
        "subjects": [{"kind": "ServiceAccount", "name": "a", "namespace": "n"}],
        **members,
    }


CASES: list[tuple[dict[str, Any], Causes]] = [
    (workload(), []),
    (workload("DaemonSet"), []),
    (workload(replicas=-1), [("Invalid", "spec.replicas")]),
    (workload(selector=None), [("Required", "spec.selector")]),
    (workload(selector={"matchLabels": {"app": "y"}}), [("Invalid", "spec.template.metadata.labels")]),
    (workload(selector={"matchExpressions": [{"key": "app", "operator": "In", "values": ["x"]}]}), []),
    (
        workload(selector={"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}),
        [("Invalid", "spec.template.metadata.labels")],
    ),
    (
        workload(template={"metadata": {"labels": {"app": "x"}}, "spec": {"containers": []}}),
        [("Required", "spec.template.spec.containers")],
    ),
    (role(), []),
    (role("Role"), []),
    (role(verbs=None), [("Required", "rules[0].verbs")]),
    (role(resources=None), [("Required", "rules[0].resources")]),
    (role(apiGroups=None), [("Required", "rules[0].apiGroups")]),
    (role(apiGroups=None, resources=None, nonResourceURLs=["/metrics"]), []),
    (role(nonResourceURLs=["/metrics"]), [("Invalid", "rules[0].nonResourceURLs")]),
    (
        role("Role", apiGroups=None, resources=None, nonResourceURLs=["/metrics"]),
        [("Invalid", "rules[0].nonResourceURLs")],
    ),
    (binding(), []),
    (binding("RoleBinding", roleRef={"apiGroup": RBAC, "kind": "Role", "name": "r"}), []),
    (binding(roleRef={"apiGroup": RBAC, "kind": "Role", "name": "r"}), [("NotSupported", "roleRef.kind")]),
    (binding(subjects=[{"kind": "ServiceAccount", "name": "a"}]), [("Required", "subjects[0].namespace")]),
    (binding(subjects=[{"kind": "Robot", "name": "a"}]), [("NotSupported", "subjects[0].kind")]),
    (binding(metadata={"name": "a/b"}), [("Invalid", "metadata.name")]),
    ({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}}, []),
]


@pytest.mark.parametrize(("document", "want"), CASES)
def test_invalid_installation_objects_are_rejected(document: dict[str, Any], want: Causes) -> None:
    assert causes(create(document)) == want


def test_unknown_fields_are_kept() -> None:
    kept = document_of(stored(workload(strategy={"type": "Recreate"})))["spec"]
    assert kept["strategy"] == {"type": "Recreate"}
    assert kept["replicas"] == 1
    assert kept["template"]["spec"]["containers"][0]["livenessProbe"] == {"httpGet": {"port": 80}}


def test_subjects_of_a_binding_may_change_and_its_role_may_not() -> None:
    before = stored(binding())
    assert causes(update(binding(subjects=[]), before)) == []
    other = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "other"}
    assert causes(update(binding(roleRef=other), before)) == [("Invalid", "roleRef")]


def test_the_selector_of_a_workload_is_immutable() -> None:
    changed = workload(selector={"matchExpressions": [{"key": "app", "operator": "Exists"}]})
    assert causes(update(changed, stored(workload()))) == [("Invalid", "spec.selector")]
