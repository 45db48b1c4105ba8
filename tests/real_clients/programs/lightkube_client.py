"""lightkube: typed resources, patch, watch."""

from __future__ import annotations

import sys

import lightkube
from claim import named
from lightkube.resources.resource_v1 import ResourceClaim

KUBECONFIG, NAMESPACE = sys.argv[1:]

client = lightkube.Client(config=lightkube.KubeConfig.from_file(KUBECONFIG), trust_env=False)
client.create(ResourceClaim.from_dict(named("light", NAMESPACE)), namespace=NAMESPACE)
assert [claim.metadata.name for claim in client.list(ResourceClaim, namespace=NAMESPACE)] == ["light"]

patched = client.patch(ResourceClaim, "light", {"metadata": {"annotations": {"a": "b"}}}, namespace=NAMESPACE)
assert patched.metadata.annotations == {"a": "b"}

operation, watched = next(iter(client.watch(ResourceClaim, namespace=NAMESPACE)))
assert (operation, watched.metadata.name) == ("ADDED", "light")

client.delete(ResourceClaim, "light", namespace=NAMESPACE)
assert list(client.list(ResourceClaim, namespace=NAMESPACE)) == []
sys.stdout.write("create list patch watch delete\n")
