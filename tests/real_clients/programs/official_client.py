"""The official client: typed API in two versions, watch, errors, and the dynamic client's apply."""

from __future__ import annotations

import sys

import kubernetes.client
import kubernetes.config
import kubernetes.dynamic
import kubernetes.watch
import pytest
from claim import named

KUBECONFIG, NAMESPACE = sys.argv[1:]

api_client = kubernetes.config.new_client_from_config(KUBECONFIG)
api = kubernetes.client.ResourceV1Api(api_client)

created = api.create_namespaced_resource_claim(NAMESPACE, named("official", NAMESPACE))
assert created.spec.devices.requests[0].exactly.capacity.requests == {"bandwidth": "1G"}

listed = api.list_namespaced_resource_claim(NAMESPACE, label_selector="team=net").items
assert [item.metadata.name for item in listed] == ["official"]

patched = api.patch_namespaced_resource_claim("official", NAMESPACE, {"metadata": {"labels": {"patched": "yes"}}})
assert patched.metadata.labels == {"team": "net", "patched": "yes"}

# The library does not find the name of its own model for this kind, so events come as plain documents.
stream = kubernetes.watch.Watch(return_type="object").stream(
    api.list_namespaced_resource_claim, NAMESPACE, timeout_seconds=1
)
assert [event["object"]["metadata"]["name"] for event in stream] == ["official"]

beta = kubernetes.client.ResourceV1beta1Api(api_client).read_namespaced_resource_claim("official", NAMESPACE)
assert beta.spec.devices.requests[0].device_class_name == "nic.example.com"

with pytest.raises(kubernetes.client.ApiException, match="422"):
    api.create_namespaced_resource_claim(NAMESPACE, named("Not A Name", NAMESPACE))

claims = kubernetes.dynamic.DynamicClient(api_client).resources.get(
    api_version="resource.k8s.io/v1", kind="ResourceClaim"
)
applied = claims.server_side_apply(
    body=named("dynamic", NAMESPACE), name="dynamic", namespace=NAMESPACE, field_manager="test"
)
assert applied.metadata.name == "dynamic"
claims.delete(name="dynamic", namespace=NAMESPACE)

api.delete_namespaced_resource_claim("official", NAMESPACE)
assert api.list_namespaced_resource_claim(NAMESPACE).items == []
sys.stdout.write("create list patch watch convert refuse apply delete\n")
