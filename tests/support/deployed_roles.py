"""The roles that `deploy/` and the example drivers have for their accounts, and a server that restricts these accounts to them."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path

import yaml

from dralloc.primitives.clock import Clock
from tests.support.rights import (
    Document,
    Grant,
    GuardedApplication,
    account_name,
    grants_of,
    guarded_server,
)

DEPLOY = Path(__file__).parents[2] / "deploy"
SCHEDULER, CONTROLLERS, NODE, FAKE_NODES, SIMULATED_NODES, PAGE, READER = (
    account_name("dralloc-system", f"dralloc-{name}")
    for name in ("scheduler", "controllers", "node", "fake-nodes", "simulated-nodes", "web-page", "read-only")
)
DRIVERS = DEPLOY.parent / "examples" / "drivers"


def manifests(user: str) -> tuple[Document, ...]:
    """The manifests with the roles of a user: ours, or those of an example driver."""
    *_, namespace, name = user.split(":")
    is_ours = namespace == "dralloc-system"
    folder = DEPLOY / name.removeprefix("dralloc-") if is_ours else DRIVERS / name / "manifests"
    names = ("rbac.yaml", "pool-leases.yaml") if is_ours else ("driver.yaml",)
    files = [folder / each for each in names if (folder / each).exists()]
    if user == SCHEDULER:
        files.append(DEPLOY / "preemption" / "rbac.yaml")
    return tuple(document for file in files for document in read_all(file))


def read_all(file: Path) -> tuple[Document, ...]:
    return tuple(yaml.safe_load_all(file.read_text()))


def granted(user: str) -> frozenset[Grant]:
    return grants_of(user, manifests(user))


def guarded(clock: Clock, *users: str) -> AbstractAsyncContextManager[GuardedApplication]:
    """A server that restricts these users to their roles."""
    return guarded_server(clock, {user: manifests(user) for user in users})
