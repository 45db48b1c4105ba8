"""Identities: the user behind a request, as authentication proves it or impersonation replaces it."""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from dralloc.primitives import names

# May do everything; no rule is asked.
ADMINS: Final = "system:masters"
AUTHENTICATED: Final = "system:authenticated"
UNAUTHENTICATED: Final = "system:unauthenticated"
NODES: Final = "system:nodes"
NODE_PREFIX: Final = "system:node:"
# The components that were started with the server.
COMPONENTS: Final = "system:dralloc"


class User(Struct, frozen=True):
    """The identity behind a request. `extra` has facts that the credential carries, such as the node of a bound token."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


ANONYMOUS: Final = User(name="system:anonymous", groups=(UNAUTHENTICATED,))
ADMINISTRATOR: Final = User(name="dralloc-admin", groups=(ADMINS, AUTHENTICATED))


def authenticated(user: User) -> User:
    """The user in the group of all authenticated users."""
    return user if AUTHENTICATED in user.groups else replace(user, groups=(*user.groups, AUTHENTICATED))


def node_of(user: User) -> str | None:
    """The node that the user is, or `None`."""
    is_node = NODES in user.groups and user.name.startswith(NODE_PREFIX)
    return user.name.removeprefix(NODE_PREFIX) if is_node else None


# --- Service accounts -----------------------------------------------------------------------------------------------
# Names of service accounts as users: `system:serviceaccount:NAMESPACE:NAME`.


SERVICE_ACCOUNT_PREFIX: Final = "system:serviceaccount:"
SERVICE_ACCOUNTS: Final = "system:serviceaccounts"

# Facts of a token that is bound to an object, in the extra of its user.
CREDENTIAL_ID: Final = "authentication.kubernetes.io/credential-id"
POD_NAME: Final = "authentication.kubernetes.io/pod-name"
POD_UID: Final = "authentication.kubernetes.io/pod-uid"
NODE_NAME: Final = "authentication.kubernetes.io/node-name"
NODE_UID: Final = "authentication.kubernetes.io/node-uid"


def service_account_user_name(namespace: str, name: str) -> str:
    return f"{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}"


def service_account_groups(namespace: str) -> tuple[str, ...]:
    """The groups of every service account of the namespace."""
    return (SERVICE_ACCOUNTS, f"{SERVICE_ACCOUNTS}:{namespace}")


def split_service_account(user_name: str) -> tuple[str, str] | None:
    """The namespace and the name of the service account, or `None` for other users."""
    if not user_name.startswith(SERVICE_ACCOUNT_PREFIX):
        return None
    parts = user_name.removeprefix(SERVICE_ACCOUNT_PREFIX).split(":")
    if len(parts) != 2 or names.dns_label(parts[0]) or names.dns_subdomain(parts[1]):
        return None
    return parts[0], parts[1]


def bound_node(user: User) -> str:
    """The node that the token of a service account is bound to; empty for other users and for tokens without one."""
    if split_service_account(user.name) is None:
        return ""
    nodes = dict(user.extra).get(NODE_NAME, ())
    return nodes[0] if len(nodes) == 1 and not names.dns_subdomain(nodes[0]) else ""
