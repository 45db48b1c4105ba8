"""Finds out whether a workload that a claim is reserved for still exists.

A workload can be of any kind, even an unknown one, so it is requested by API group and resource alone. Only a
NotFound for the object itself proves that it is gone; Forbidden, or a server without that kind, proves nothing.
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
    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        # By API group. Groups that are not served are requested again.
        self._versions: dict[str, str] = {"": CORE_VERSION}

    async def is_gone(self, namespace: str, reference: ConsumerReference) -> bool:
        """True if the object with the UID of the reference is known to be gone."""
        version = await self._version(reference.api_group)
        if version is None:
            return False
        prefix = f"/apis/{reference.api_group}/{version}" if reference.api_group else f"/api/{version}"
        path = f"{prefix}/namespaces/{namespace}/{reference.resource}/{reference.name}"
        response = await self._transport.send(ClientRequest(method="GET", path=path))
        if response.status == 200:
            return decode(response.body, ApiObject).metadata.uid != reference.uid
        error = error_of_response(response.status, response.body)
        # An unknown resource is NotFound as well, but then the status names no object.
        return isinstance(error, NotFound) and error.details is not None and error.details.name == reference.name

    async def _version(self, group: str) -> str | None:
        if group not in self._versions:
            response = await self._transport.send(ClientRequest(method="GET", path=f"/apis/{group}"))
            if response.status != 200:
                return None
            self._versions[group] = msgspec.json.decode(response.body, type=_ApiGroup).preferred_version.version
        return self._versions[group]
