"""The forms of a read: long lists in pieces, tables and YAML."""

from __future__ import annotations

import pytest

from tests.server.claim_lists import create_claims, names
from tests.support.local_api import (
    AS_TABLE,
    CLAIMS,
    RESOURCE,
    LocalApi,
    with_api,
)

EVERYWHERE = f"{RESOURCE}/resourceclaims"


@pytest.mark.slow
@with_api
async def test_a_long_list_in_pieces_is_complete(api: LocalApi) -> None:
    await create_claims(api, 1203)
    assert len(names(await api.get(EVERYWHERE))) == 1203
    table = await api.call("GET", EVERYWHERE, accept=AS_TABLE)
    assert [row["cells"][0] for row in table.document["rows"]] == sorted(f"c{number:03}" for number in range(1203))
    metadata = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
    partial = (await api.call("GET", EVERYWHERE, accept=metadata)).document
    assert (partial["kind"], len(partial["items"]), "spec" in partial["items"][0]) == (
        "PartialObjectMetadataList",
        1203,
        False,
    )


@with_api
async def test_rows_include_the_requested_part_of_the_object(api: LocalApi) -> None:
    await create_claims(api, 1)
    for include, want in (("", "PartialObjectMetadata"), ("Object", "ResourceClaim"), ("None", None)):
        table = (await api.call("GET", CLAIMS, accept=AS_TABLE, includeObject=include)).document
        assert (table["rows"][0].get("object") or {}).get("kind") == want
    assert (await api.call("GET", CLAIMS, accept=AS_TABLE, includeObject="Half")).code == 400
    assert (await api.call("GET", CLAIMS, accept="image/png")).code == 406


@with_api
async def test_yaml_responses(api: LocalApi) -> None:
    await create_claims(api, 1)
    shown = await api.call("GET", f"{CLAIMS}/c000", accept="application/yaml")
    assert shown.document.startswith("kind: ResourceClaim\napiVersion: resource.k8s.io/v1\n")
    assert "kind: Status" in (await api.call("GET", f"{CLAIMS}/nope", accept="application/yaml")).document
    both = "application/json, application/yaml"
    assert (await api.call("GET", f"{CLAIMS}/c000", accept=both)).document["kind"] == "ResourceClaim"
