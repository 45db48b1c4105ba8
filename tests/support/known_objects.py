"""Objects that an API server may accept: recorded ones, and one of each other kind."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any, Final

_CONTAINER: Final = {"name": "c", "image": "x", "resources": {"claims": [{"name": "gpu"}], "limits": {"cpu": "1"}}}
_POD_SPEC: Final = {
    "containers": [_CONTAINER],
    "resourceClaims": [{"name": "gpu", "resourceClaimName": "a"}],
    "tolerations": [{"operator": "Exists"}],
}
_TEMPLATE: Final = {"metadata": {"labels": {"app": "x"}}, "spec": {**_POD_SPEC, "restartPolicy": "Never"}}
_WORKLOAD: Final = {
    "selector": {"matchLabels": {"app": "x"}},
    "template": {"metadata": {"labels": {"app": "x"}}, "spec": _POD_SPEC},
}
_RULES: Final = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
_ROLE_REF: Final = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "a"}
_SUBJECTS: Final = [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "x"}]
_KNOWN: Final[dict[tuple[str, str], Any]] = {
    ("v1", "Pod"): {"spec": _POD_SPEC},
    ("v1", "Node"): {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}, "status": {"capacity": {"cpu": "4"}}},
    ("v1", "Namespace"): {"metadata": {"labels": {"a": "b"}}},
    ("v1", "Event"): {"involvedObject": {"kind": "Pod", "namespace": "default", "name": "a"}, "reason": "x", "type": "Normal"},
    ("v1", "ResourceQuota"): {"spec": {"hard": {"pods": "3", "count/resourceclaims.resource.k8s.io": "4"}}},
    ("v1", "ServiceAccount"): {},
    ("coordination.k8s.io/v1", "Lease"): {"spec": {"holderIdentity": "x", "leaseDurationSeconds": 15}},
    ("batch/v1", "Job"): {"spec": {"completions": 2, "parallelism": 1, "template": _TEMPLATE}},
    ("scheduling.k8s.io/v1", "PriorityClass"): {"value": 5},
    ("apps/v1", "Deployment"): {"spec": _WORKLOAD},
    ("apps/v1", "DaemonSet"): {"spec": _WORKLOAD},
    ("rbac.authorization.k8s.io/v1", "Role"): {"rules": _RULES},
    ("rbac.authorization.k8s.io/v1", "ClusterRole"): {"rules": _RULES},
    ("rbac.authorization.k8s.io/v1", "RoleBinding"): {"roleRef": _ROLE_REF, "subjects": _SUBJECTS},
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"): {"roleRef": _ROLE_REF, "subjects": _SUBJECTS},
}  # fmt: skip


@cache
def known_objects() -> dict[tuple[str, str], list[Any]]:
    """By API version and kind."""
    known: dict[tuple[str, str], list[Any]] = {type_: [document] for type_, document in _KNOWN.items()}
    with gzip.open(Path(__file__).parents[1] / "vectors" / "api.jsonl.gz") as lines:
        for line in lines:
            if isinstance(body := json.loads(line)["body"], dict):
                known.setdefault((str(body.get("apiVersion")), str(body.get("kind"))), []).append(body)
    return known
