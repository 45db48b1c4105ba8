"""The identities of components that run in the server's process, and the roles that they have: those of `deploy/`.

The manifests in `rights/` are the one source. `deploy/` has copies for other clusters (a test compares them), where components
are service accounts. Here they are users, with the same roles under names of their own, so that manifests of `deploy/` can be applied and
deleted as in any cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from importlib import resources
from typing import Any, Final

from dralloc.access.users import AUTHENTICATED, NODE_PREFIX, NODES, User
from dralloc.api.yaml_reader import read_yaml_stream
from dralloc.client.async_client import AsyncClient

# The group of all components in this process, and the beginning of their names.
COMPONENTS: Final = "system:dralloc"


class ComponentAccount(Enum):
    """The components; the value is the name of the manifest."""

    SCHEDULER = "scheduler"
    CONTROLLERS = "controllers"
    SIMULATED_NODES = "simulated-nodes"
    WEB_PAGE = "web-page"

    @property
    def user(self) -> User:
        return User(name=f"{COMPONENTS}:{self.value}", groups=(COMPONENTS, AUTHENTICATED))


def node_user(name: str) -> User:
    """The identity of a node: it may touch what belongs to the node, and needs no role for it."""
    return User(name=f"{NODE_PREFIX}{name}", groups=(NODES, AUTHENTICATED))


def component_manifests(account: ComponentAccount) -> Iterator[dict[str, Any]]:
    """The roles of a component in this process, and their bindings to it."""
    text = (resources.files("dralloc.assembly") / "rights" / f"{account.value}.yaml").read_text()
    for document in read_yaml_stream(text):
        if document["kind"] == "ServiceAccount":
            continue
        document["metadata"]["name"] = _own_name(document["metadata"]["name"])
        if "subjects" in document:
            document["roleRef"]["name"] = _own_name(document["roleRef"]["name"])
            user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": account.user.name}
            document["subjects"] = [user]
        yield document


async def grant_rights(administrator: AsyncClient) -> None:
    """Create the roles of the components, or bring them up to date."""
    for account in ComponentAccount:
        for document in component_manifests(account):
            await administrator.apply(document, force=True)


def _own_name(name: str) -> str:
    return f"{COMPONENTS}:{name.removeprefix('dralloc-')}"
