"""The most expensive requests of each kind that we found: `hostile_clients` and `loop_steps` send them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
QUOTAS = "/api/v1/namespaces/default/resourcequotas"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
# The user of this token may do what the role `admin` allows; the others may do everything.
TENANT = "tenant"

BODY_MAX = 3 * 1024 * 1024


def request(method: str, target: str, token: str, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "host: localhost", f"authorization: Bearer {token}", *headers]
    if not any(header.startswith("content-type") for header in headers):
        lines.append("content-type: application/json")
    return "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode() + body


def claim(name: str) -> bytes:
    exactly = {"deviceClassName": "gpu", "selectors": [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}]}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    return json.dumps({"metadata": {"name": name, "labels": {"app": "x"}}, "spec": spec}).encode()


def large_pod(name: str = "large", size: int = 1_000_000) -> dict[str, Any]:
    env = [{"name": f"VARIABLE_{number:06}", "value": "x" * 20} for number in range(size // 60)]
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "x", "env": env}]}}


def stored() -> list[tuple[str, dict[str, Any]]]:
    """What the requests need: objects with the paths to create them at."""
    rules = [{"apiGroups": [f"group-{number}"], "resources": ["r"], "verbs": ["get"]} for number in range(10_000)]
    labels = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
    named = [{**rules[0], "apiGroups": [""], "resourceNames": [f"n{number}"]} for number in range(10_000)]
    crowd = [*(("Group", f"group-{number}") for number in range(20_000)), ("User", "one-of-many")]
    limits = {f"count/things-{number}.example.com": "1" for number in range(40_000)}
    return [
        (PODS, large_pod()),
        (PODS, pod_with_many_claims("many-claims")),
        (QUOTAS, {"metadata": {"name": "limits"}, "spec": {"hard": limits}}),
        (f"{RBAC}/clusterroles", {"metadata": {"name": "rules", "labels": labels}, "rules": rules}),
        (f"{RBAC}/clusterroles", {"metadata": {"name": "names"}, "rules": named}),
        (f"{RBAC}/namespaces/default/roles", {"metadata": {"name": "rules"}, "rules": rules}),
        (f"{RBAC}/clusterrolebindings", _binding("admin", ("User", TENANT))),
        (f"{RBAC}/clusterrolebindings", _binding("names", *crowd)),
    ]


def _binding(role: str, *subjects: tuple[str, str]) -> dict[str, Any]:
    group = "rbac.authorization.k8s.io"
    return {
        "metadata": {"name": f"bench-{role}"},
        "subjects": [{"kind": kind, "name": name, "apiGroup": group} for kind, name in subjects],
        "roleRef": {"kind": "ClusterRole", "name": role, "apiGroup": group},
    }


def pod_with_many_claims(name: str) -> dict[str, Any]:
    claims = [{"name": f"c{number}", "resourceClaimName": f"c{number}"} for number in range(30_000)]
    spec = {"nodeName": "n", "containers": [{"name": "c", "image": "x"}], "resourceClaims": claims}
    return {"metadata": {"name": name}, "spec": spec}


def _many_owners() -> bytes:
    """The garbage collector deletes the object: none of its owners exists."""
    owners = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": f"owner-{number}", "uid": str(number)}
        for number in range(30_000)
    ]
    body = {"metadata": {"generateName": "owned-", "ownerReferences": owners}}
    return request("POST", CONFIG_MAPS, "bad", json.dumps(body).encode())


def _with_metadata(**members: Any) -> bytes:
    return request("POST", CONFIG_MAPS, "bad", json.dumps({"metadata": {"name": "x", **members}}).encode())


def _many_controllers() -> bytes:
    owners = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": f"owner-{number}", "uid": str(number), "controller": True}
        for number in range(25_000)
    ]
    return _with_metadata(ownerReferences=owners)


def _unknown_fields_below_a_long_key() -> bytes:
    capacity = {"K" * 1_000_000: {f"unknown-{number}": 1 for number in range(80_000)}}
    spec = {"driver": "d", "nodeName": "n", "pool": {"name": "p", "resourceSliceCount": 1}}
    body = {"metadata": {"name": "x"}, "spec": {**spec, "devices": [{"name": "d", "capacity": capacity}]}}
    return request("POST", SLICES, "bad", json.dumps(body).encode())


def _pod_with_many_resources() -> bytes:
    """In a namespace with quotas, which count extended resources."""
    resources = {"limits": {f"a/{number}": "1" for number in range(180_000)}}
    spec = {"containers": [{"name": "c", "image": "x", "resources": resources}]}
    return request("POST", PODS, "bad", json.dumps({"metadata": {"generateName": "r-"}, "spec": spec}).encode())


def _many_rights() -> bytes:
    names = [f"n{number}" for number in range(300)]
    rule = {"apiGroups": names, "resources": names, "verbs": ["get"]}
    body = {"metadata": {"generateName": "r-"}, "rules": [rule]}
    return request("POST", f"{RBAC}/namespaces/default/roles", TENANT, json.dumps(body).encode())


def _change_of(path: str, token: str = "bad") -> bytes:
    body = {"metadata": {"annotations": {"changed": str(time.time_ns())}}}
    return request("PATCH", path, token, json.dumps(body).encode(), "content-type: application/merge-patch+json")


def _report_of_node() -> bytes:
    body = {"status": {"message": str(time.time_ns())}}
    path = f"{PODS}/many-claims/status"
    return request("PATCH", path, "bad", json.dumps(body).encode(), "content-type: application/merge-patch+json")


def _pod_with_many_claims() -> bytes:
    pod = {**pod_with_many_claims(""), "metadata": {"generateName": "many-"}}
    return request("POST", PODS, "bad", json.dumps(pod).encode())


def _review(attributes: dict[str, Any], groups: int = 0) -> bytes:
    spec = {"user": "one-of-many", "groups": [f"other-{number}" for number in range(groups)]}
    attributes = {"verb": "get", "resource": "r", "namespace": "default", "name": str(time.time_ns()), **attributes}
    return request("POST", REVIEWS, "bad", json.dumps({"spec": {**spec, "resourceAttributes": attributes}}).encode())


def _long_text_of_selector() -> str:
    return ",".join(f"k{number}=v" for number in range(250_000))


def _apply_many_fields() -> bytes:
    fields = {f"field-{number:06}": number for number in range(50_000)}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "applied"},
        "spec": {"containers": [{"name": "c", "image": "x"}], "more": fields},
    }
    return request(
        "PATCH",
        f"{PODS}/applied?fieldManager=me&force=true",
        "bad",
        json.dumps(body).encode(),
        "content-type: application/apply-patch+yaml",
    )


def _expensive_selectors() -> bytes:
    part = 'device.attributes["gpu.example.com"].model.matches("a.*b") && '
    expression = (part * 150)[: 10 * 1024 - 60].rpartition("&&")[0]
    selectors = [{"cel": {"expression": f"{expression} && {number} > 0"}} for number in range(32)]
    requests = [
        {"name": f"r{index}", "exactly": {"deviceClassName": "gpu", "selectors": selectors}} for index in range(8)
    ]
    return request(
        "POST",
        CLAIMS,
        "bad",
        json.dumps({"metadata": {"name": "cel"}, "spec": {"devices": {"requests": requests}}}).encode()[:BODY_MAX],
    )


def _many_faults() -> bytes:
    devices = [{"name": f"NOT/VALID {number}", "attributes": {"Bad Name": {}}} for number in range(45_000)]
    body = {
        "metadata": {"name": "faults"},
        "spec": {"driver": "d", "nodeName": "n", "pool": {"name": "p", "resourceSliceCount": 1}, "devices": devices},
    }
    return request("POST", SLICES, "bad", json.dumps(body).encode()[:BODY_MAX])


def _patch_operations() -> bytes:
    operations: list[Any] = [
        {"op": "test", "path": "/spec/containers/0/env/9", "value": {"name": "VARIABLE_000009", "value": "x" * 20}}
    ]
    operations += [{"op": "move", "from": "/spec/containers/0/env/0", "path": "/spec/containers/0/env/16000"}] * 4999
    operations += [{"op": "copy", "from": "/spec/containers/0/env/0", "path": "/spec/containers/0/env/0"}] * 5000
    return request(
        "PATCH",
        f"{PODS}/large?dryRun=All",
        "bad",
        json.dumps(operations).encode(),
        "content-type: application/json-patch+json",
    )


def _strategic_patch() -> bytes:
    env = [{"name": f"VARIABLE_{number:06}", "value": "y"} for number in range(30_000, 0, -1)]
    body = {"spec": {"containers": [{"name": "c", "env": env}]}}
    return request(
        "PATCH",
        f"{PODS}/large?dryRun=All",
        "bad",
        json.dumps(body).encode(),
        "content-type: application/strategic-merge-patch+json",
    )


def _yaml_body() -> bytes:
    lines = ["metadata: {name: y}", "spec:", "  containers:", "  - name: c", "    image: x", "    env:"]
    lines += [f"    - {{name: V{number:06}, value: x}}" for number in range(80_000)]
    return request(
        "POST", f"{PODS}?dryRun=All", "bad", "\n".join(lines).encode()[:BODY_MAX], "content-type: application/yaml"
    )


def _protobuf_body() -> bytes:
    def member(number: int, content: bytes) -> bytes:
        length, size = bytearray(), len(content)
        while size >= 0x80:
            length.append(size & 0x7F | 0x80)
            size >>= 7
        return bytes([number << 3 | 2, *length, size]) + content

    env = b"".join(member(7, member(1, b"V%06d" % number) + member(2, b"x")) for number in range(200_000))
    content = member(1, member(1, b"p")) + member(2, member(2, member(1, b"c") + member(2, b"x") + env))
    body = b"k8s\0" + member(1, member(1, b"v1") + member(2, b"Pod")) + member(2, content)
    return request(
        "POST", f"{PODS}?dryRun=All", "bad", body[:BODY_MAX], "content-type: application/vnd.kubernetes.protobuf"
    )


def _batch(write: dict[str, Any], count: int) -> bytes:
    return request("POST", "/dralloc/v1/batch", "bad", json.dumps({"requests": [write] * count}).encode()[:BODY_MAX])


def _patch_in_batch(path: str) -> dict[str, Any]:
    return {
        "method": "PATCH",
        "path": path,
        "query": {"dryRun": "All"},
        "contentType": "application/merge-patch+json",
        "body": {"metadata": {"labels": {"a": "b"}}},
    }


def _long_selector() -> str:
    return "labelSelector=" + ",".join(f"!k{number}" for number in range(7000))


def _long_field_selector() -> str:
    return "fieldSelector=" + ",".join(f"metadata.name!=n{number}" for number in range(3000))


def _impersonating() -> bytes:
    extras = [f"impersonate-extra-example.com/{number}: x" for number in range(1300)]
    return request("GET", f"{CLAIMS}/c-00001", "bad", b"", "impersonate-user: x", *extras)


def _claim_with(expressions: list[str]) -> bytes:
    selectors = [{"cel": {"expression": expression}} for expression in expressions]
    devices = {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "selectors": selectors}}]}
    return request(
        "POST", CLAIMS, "bad", json.dumps({"metadata": {"name": "e"}, "spec": {"devices": devices}}).encode()
    )


def _many_patterns() -> bytes:
    """Different ones, in one expression of 10 kB: each class of letters has a thousand instructions."""
    return _claim_with([" && ".join(f"''.matches(r'\\pL{{{number}}}')" for number in range(100, 450))])


def _directives() -> bytes:
    lines = [f"%TAG !t{number}! tag:example.com,2000:" for number in range(80_000)]
    return request("POST", PODS, "bad", "\n".join([*lines, "---", "{}"]).encode(), "content-type: application/yaml")


DOUBLING = [{"op": "add", "path": "/x", "value": ["y"]}, *[{"op": "copy", "from": "/x", "path": "/x/-"}] * 40]

REQUESTS: dict[str, Callable[[], bytes]] = {
    "gets": lambda: request("GET", f"{CLAIMS}/c-00001", "bad"),
    "writes": lambda: request("PATCH", f"{CLAIMS}/c-00001", "bad", json.dumps({"metadata": {"labels": {"a": str(time.time_ns())}}}).encode(), "content-type: application/merge-patch+json"),
    "lists": lambda: request("GET", CLAIMS, "bad"),
    "tables": lambda: request("GET", CLAIMS, "bad", b"", "accept: application/json;as=Table;v=v1;g=meta.k8s.io"),
    "lists in another version": lambda: request("GET", CLAIMS.replace("/v1/", "/v1beta1/"), "bad"),
    "lists with a long selector": lambda: request("GET", f"{CLAIMS}?{_long_selector()}", "bad"),
    "lists with a long field selector": lambda: request("GET", f"{CLAIMS}?{_long_field_selector()}", "bad"),
    "lists with a selector of 60 kB of spaces": lambda: request("GET", f"{CLAIMS}?labelSelector={'+' * 60_000}", "bad"),
    "requests with 6,000 headers": lambda: request("GET", f"{CLAIMS}/c-00001", "bad", b"", *["x: y"] * 6_000),
    "watches with a long selector": lambda: request("GET", f"{CLAIMS}?watch=1&timeoutSeconds=1&{_long_selector()}", "bad"),
    "first events of watches": lambda: request("GET", f"{CLAIMS}?watch=1&timeoutSeconds=1", "bad"),
    "impersonation with 1,300 extras": _impersonating,
    "an Accept header of 8,000 types": lambda: request("GET", f"{CLAIMS}/c-00001", "bad", b"", "accept: " + ",".join(f"a/{number}" for number in range(8000))),
    "a large object as YAML": lambda: request("GET", f"{PODS}/large", "bad", b"", "accept: application/yaml"),
    "a large object as metadata": lambda: request("GET", f"{PODS}/large", "bad", b"", "accept: application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"),
    "watches of a large object as protobuf": lambda: request("GET", f"{PODS}?watch=1&timeoutSeconds=1", "bad", b"", "accept: application/vnd.kubernetes.protobuf;stream=watch"),
    "lists of large objects with a field selector": lambda: request("GET", f"{PODS}?fieldSelector=spec.nodeName%3Dn", "bad"),
    "bindings of a large object": lambda: request("POST", f"{PODS}/large/binding?dryRun=All", "bad", b'{"target":{"kind":"Node","name":"n"}}'),
    "a large object as a table": lambda: request("GET", f"{PODS}/large", "bad", b"", "accept: application/json;as=Table;v=v1;g=meta.k8s.io"),
    "a list as YAML": lambda: request("GET", f"{CLAIMS}?limit=500", "bad", b"", "accept: application/yaml"),
    "3 MB of [": lambda: request("POST", CLAIMS, "bad", b"[" * BODY_MAX),
    "3 MB of [ as YAML": lambda: request("POST", CLAIMS, "bad", b"[" * BODY_MAX, "content-type: application/yaml"),
    "balanced brackets": lambda: request("POST", CLAIMS, "bad", b"[" * (BODY_MAX // 2) + b"]" * (BODY_MAX // 2)),
    "a million empty objects": lambda: request("POST", PODS, "bad", b'{"spec":[' + b"{}," * (BODY_MAX // 3 - 10) + b"{}]}"),
    "a million numbers": lambda: request("POST", PODS, "bad", b'{"spec":[' + b"1.5," * (BODY_MAX // 4 - 10) + b"1]}"),
    "a large JSON object": lambda: request("POST", f"{PODS}?dryRun=All", "bad", json.dumps(large_pod("j", 2_900_000)).encode()[:BODY_MAX]),
    "a large YAML object": _yaml_body,
    "a large protobuf object": _protobuf_body,
    "80,000 directives of YAML": _directives,
    "apply of 50,000 fields": _apply_many_fields,
    "a JSON patch of 10,000 operations": _patch_operations,
    "a JSON patch that doubles a list": lambda: request("PATCH", f"{CLAIMS}/c-00001", "bad", json.dumps(DOUBLING).encode(), "content-type: application/json-patch+json"),
    "objects with 30,000 owners": _many_owners,
    "objects with 25,000 controllers": _many_controllers,
    "80,000 unknown fields below a long key": _unknown_fields_below_a_long_key,
    "pods with 180,000 extended resources": _pod_with_many_resources,
    "a name of 2.8 MB": lambda: _with_metadata(name="a." * 1_400_000 + "_"),
    "a label key of 2.8 MB": lambda: _with_metadata(labels={"a." * 1_400_000 + "/x": "a"}),
    "an annotation key of 2.8 MB": lambda: _with_metadata(annotations={"a." * 1_400_000 + "/x": "a"}),
    "a finalizer of 2.8 MB": lambda: _with_metadata(finalizers=["a." * 1_400_000 + "/x"]),
    "rules of 90,000 rights": _many_rights,
    "changes of a role that is aggregated": lambda: _change_of(f"{RBAC}/clusterroles/rules"),
    "changes of a large role by a tenant": lambda: _change_of(f"{RBAC}/namespaces/default/roles/rules", TENANT),
    "changes of a quota of 40,000 limits": lambda: _change_of(f"{QUOTAS}/limits"),
    "pods with 30,000 claims": _pod_with_many_claims,
    "reports about a pod with 30,000 claims": _report_of_node,
    "reviews of a long label selector": lambda: _review({"labelSelector": {"rawSelector": _long_text_of_selector()}}),
    "reviews of a long field selector": lambda: _review({"fieldSelector": {"rawSelector": _long_text_of_selector()}}),
    "reviews of 100,000 groups and 20,000 subjects": lambda: _review({}, 100_000),
    "wrong tokens": lambda: request("GET", CLAIMS, "e30." * 200),
    "a strategic merge patch": _strategic_patch,
    "expensive selectors": _expensive_selectors,
    "32 selectors with a class of letters": lambda: _claim_with([f"''.matches(r'\\pL{{{100 + number}}}')" for number in range(32)]),
    "350 regular expressions in a selector": _many_patterns,
    "many faults": _many_faults,
    "batches of 128 writes": lambda: _batch(_patch_in_batch(f"{CLAIMS}/c-00001"), 128),
    "batches of 128 writes of a large object": lambda: _batch(_patch_in_batch(f"{PODS}/large"), 128),
    "a batch of 80,000 writes": lambda: _batch({"method": "", "path": "", "query": {}}, 80_000),
}  # fmt: skip
