"""kr8s: objects with methods."""

from __future__ import annotations

import sys

import kr8s
from claim import named
from kr8s.objects import new_class

KUBECONFIG, NAMESPACE = sys.argv[1:]

api = kr8s.api(kubeconfig=KUBECONFIG)
Claim = new_class(kind="ResourceClaim", version="resource.k8s.io/v1", namespaced=True, plural="resourceclaims")
claim = Claim(named("krate", NAMESPACE), namespace=NAMESPACE, api=api)
claim.create()
assert [item.name for item in api.get("resourceclaims.resource.k8s.io", namespace=NAMESPACE)] == ["krate"]

claim.patch({"metadata": {"labels": {"patched": "yes"}}})
claim.refresh()
assert claim.labels["patched"] == "yes"

event, watched = next(iter(api.watch("resourceclaims.resource.k8s.io", namespace=NAMESPACE)))
assert (event, watched.name) == ("ADDED", "krate")

claim.delete()
assert not claim.exists()
sys.stdout.write("create list patch watch delete\n")
