"""The identities of components that are started with the server, and the roles that they have: those of `deploy/`.

The manifests in `rights/` are the one source. `deploy/` has copies for other clusters (a test compares them), where components
are service accounts. Here they are users, with the same roles under names of their own, so that manifests of `deploy/` can be applied and
deleted as in any cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from enum import Enum
from importlib import resources
from typing import Any, Final

from dralloc.client.async_client import AsyncClient
from dralloc.client.known_resources import resource_of
from dralloc.client.typed_resource import ObjectKey
from dralloc.kube.yaml_reader import read_yaml_stream
from dralloc.primitives.errors import NotFound
from dralloc.primitives.features import FeatureGates
from dralloc.server.access.users import AUTHENTICATED, COMPONENTS, NODE_PREFIX, NODES, User


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


# Roles that a component needs only with a feature gate: the gate, and the name of the manifest.
GATED: Final[Mapping[ComponentAccount, tuple[str, str]]] = {ComponentAccount.SCHEDULER: ("DRAPreemption", "preemption")}


def component_manifests(account: ComponentAccount, gates: FeatureGates | None = None) -> Iterator[dict[str, Any]]:
    """The roles of a component in this process, and their bindings to it; with those that it needs for these gates."""
    names = [account.value]
    if gates is not None and account in GATED and GATED[account][0] in gates:
        names.append(GATED[account][1])
    for name in names:
        yield from _manifests(name, account)


def _manifests(name: str, account: ComponentAccount) -> Iterator[dict[str, Any]]:
    text = (resources.files("dralloc.testing") / "rights" / f"{name}.yaml").read_text()
    for document in read_yaml_stream(text):
        if document["kind"] == "ServiceAccount":
            continue
        document["metadata"]["name"] = _own_name(document["metadata"]["name"])
        if "subjects" in document:
            document["roleRef"]["name"] = _own_name(document["roleRef"]["name"])
            user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": account.user.name}
            document["subjects"] = [user]
        yield document


async def grant_rights(administrator: AsyncClient, gates: FeatureGates) -> None:
    """Create the roles of the components, or bring them up to date."""
    for account in ComponentAccount:
        for document in component_manifests(account, gates):
            await administrator.apply(document, force=True)
    for account, (gate, name) in GATED.items():
        for document in _manifests(name, account) if gate not in gates else ():
            with suppress(NotFound):
                await administrator.calls.delete(resource_of(document), ObjectKey("", document["metadata"]["name"]))


def _own_name(name: str) -> str:
    return f"{COMPONENTS}:{name.removeprefix('dralloc-')}"
