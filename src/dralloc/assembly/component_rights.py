"""The identities of components that run in the server's process, and the roles that they have: those of `deploy/`.

The manifests in `rights/` are the one source: a server in this process gets them at its start, and `deploy/` has copies
for other clusters (a test compares them).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from importlib import resources
from typing import Any, Final

from dralloc.access.service_accounts import service_account_groups, service_account_user_name
from dralloc.access.users import AUTHENTICATED, NODE_PREFIX, NODES, User
from dralloc.api.yaml_reader import read_yaml_stream
from dralloc.client.async_client import AsyncClient

SYSTEM_NAMESPACE: Final = "dralloc-system"


class ComponentAccount(Enum):
    """The service accounts; the value is the name of the manifest."""

    SCHEDULER = "scheduler"
    CONTROLLERS = "controllers"
    SIMULATED_NODES = "simulated-nodes"
    WEB_PAGE = "web-page"

    @property
    def user(self) -> User:
        return User(
            name=service_account_user_name(SYSTEM_NAMESPACE, f"dralloc-{self.value}"),
            groups=(*service_account_groups(SYSTEM_NAMESPACE), AUTHENTICATED),
        )


def node_user(name: str) -> User:
    """The identity of a node: it may touch what belongs to the node, and needs no role for it."""
    return User(name=f"{NODE_PREFIX}{name}", groups=(NODES, AUTHENTICATED))


def component_manifests() -> Iterator[dict[str, Any]]:
    """The namespace of the components, their accounts, roles and bindings."""
    folder = resources.files("dralloc.assembly") / "rights"
    for name in ("namespace", *(account.value for account in ComponentAccount)):
        yield from read_yaml_stream((folder / f"{name}.yaml").read_text())


async def grant_rights(administrator: AsyncClient) -> None:
    """Create the roles of the components, or bring them up to date."""
    for document in component_manifests():
        await administrator.apply(document, force=True)
