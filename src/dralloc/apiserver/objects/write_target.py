"""What a client writes, who the client is, and the options of the write."""

from __future__ import annotations

from msgspec import Struct

from dralloc.access.authorizer import AccessRequest
from dralloc.access.users import User
from dralloc.api.kind import Kind
from dralloc.apiserver.objects.api_resources import ApiResource, key_of


class WriteTarget(Struct, frozen=True, kw_only=True, gc=False):
    """The object that a client writes, the client, and the options of the write."""

    resource: ApiResource
    user: User
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    # As authorization names it: create, update or patch.
    verb: str = "update"
    # The owner of the fields that are written.
    manager: str
    # The client named itself, so its fields are recorded from the create on.
    manager_named: bool = False
    dry_run: bool = False

    @property
    def kind(self) -> Kind:
        return self.resource.kind

    @property
    def key(self) -> str:
        return key_of(self.kind, self.namespace, self.name)

    def asks(self, verb: str, *, namespace: str, name: str, subresource: str = "") -> AccessRequest:
        """A request of the same user for more access to the resource than the request itself needed."""
        return AccessRequest(
            user=self.user,
            verb=verb,
            group=self.kind.group,
            version=self.resource.version,
            resource=self.kind.plural,
            subresource=subresource,
            namespace=namespace,
            name=name,
        )
