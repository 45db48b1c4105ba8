"""What a node's identity may write."""

from __future__ import annotations

from typing import Any

from dralloc.access.users import User
from tests.support.local_api import (
    CLAIMS,
    RESOURCE,
    LocalApi,
    refusal,
    with_api,
)
from tests.support.local_api import claim_document as claim


@with_api
async def test_a_node_writes_only_its_own_slices_and_no_allocations(api: LocalApi) -> None:
    node = LocalApi(api.server, User(name="system:node:n1", groups=("system:nodes",)))
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}

    def slice_of(name: str) -> dict[str, Any]:
        return {"metadata": {"name": name}, "spec": {"driver": "d.example.com", "nodeName": name, "pool": pool}}

    slices = f"{RESOURCE}/resourceslices"
    await node.create(slices, slice_of("n1"))
    assert (await refusal(node.create(slices, slice_of("n2")))).code == 403
    await api.create(slices, slice_of("n2"))
    assert (await refusal(node.delete(f"{slices}/n2"))).code == 403
    assert (await refusal(node.delete(slices))).code == 403
    await api.create(CLAIMS, claim())
    result = {"request": "gpu", "driver": "d.example.com", "pool": "p", "device": "gpu-0"}
    allocation = {"status": {"allocation": {"devices": {"results": [result]}}}}
    refused = await refusal(node.patch(f"{CLAIMS}/c/status", allocation))
    assert refused.causes == [("FieldValueForbidden", "status.allocation")]
