"""Whether the workload that holds a claim is gone, where we may look.

A workload can be of any kind, also of one that we know nothing about, so it is asked for by its group and resource
alone. Only an answer that says so proves that it is gone: not being allowed to look proves nothing, and neither does
a server that does not serve the kind.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dralloc.api.codec import decode
from dralloc.api.meta_v1 import ApiObject
from dralloc.api.resource_v1 import ConsumerReference
from dralloc.client.status_errors import error_of_response
from dralloc.client.transport import ClientRequest, Transport
from dralloc.primitives.errors import NotFound

CORE_VERSION: Final = "v1"


class _GroupVersion(msgspec.Struct):
    version: str = ""


class _ApiGroup(msgspec.Struct, rename="camel"):
    preferred_version: _GroupVersion = msgspec.field(default_factory=_GroupVersion)


class WorkloadLookup:
    """Looks for workloads on the server."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        # By group; those that are not served are asked for again.
        self._versions: dict[str, str] = {"": CORE_VERSION}

    async def is_gone(self, namespace: str, reference: ConsumerReference) -> bool:
        """Whether the very object that the reference means is proven to be gone."""
        version = await self._version(reference.api_group)
        if version is None:
            return False
        prefix = f"/apis/{reference.api_group}/{version}" if reference.api_group else f"/api/{version}"
        path = f"{prefix}/namespaces/{namespace}/{reference.resource}/{reference.name}"
        response = await self._transport.send(ClientRequest(method="GET", path=path))
        if response.status == 200:
            return decode(response.body, ApiObject).metadata.uid != reference.uid
        error = error_of_response(response.status, response.body)
        # An unknown resource is "not found" as well, but then the answer names no object.
        return isinstance(error, NotFound) and error.details is not None and error.details.name == reference.name

    async def _version(self, group: str) -> str | None:
        if group not in self._versions:
            response = await self._transport.send(ClientRequest(method="GET", path=f"/apis/{group}"))
            if response.status != 200:
                return None
            self._versions[group] = msgspec.json.decode(response.body, type=_ApiGroup).preferred_version.version
        return self._versions[group]
