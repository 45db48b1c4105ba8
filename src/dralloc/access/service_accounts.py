"""Names of service accounts as users: `system:serviceaccount:NAMESPACE:NAME`."""

from __future__ import annotations

from typing import Final

from dralloc.access.users import User
from dralloc.primitives import names

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
