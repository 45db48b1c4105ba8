"""Identities: the user behind a request, as authentication proves it or impersonation replaces it."""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

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
