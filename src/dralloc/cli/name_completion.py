"""Names for the shell: objects, devices, namespaces and contexts, from the cluster that the command would use.

The user waits with a finger on the Tab key. So a server has half a second for its answer, and where there is none in time, for whatever
reason, there are no names and no message. Each function completes one parameter of commands.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from threading import Thread
from typing import Any, Final

import typer

BUDGET_S: Final = 0.5
# Seconds, for those whose server is far away.
BUDGET_VARIABLE: Final = "DRALLOC_COMPLETION_TIMEOUT"
# A server cannot search by the beginning of a name, so all of them are read, up to this number.
NAMES_MAX: Final = "5000"
AS_METADATA: Final = {"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"}
PODS: Final = "pods"
CLAIMS: Final = "resourceclaims.resource.k8s.io"
KINDS_TO_EXPLAIN: Final = {"pod": PODS, "claim": CLAIMS, "podgroup": "podgroups.scheduling.k8s.io"}


def contexts_starting_with(ctx: typer.Context, incomplete: str) -> list[str]:
    """The contexts of the kubeconfig."""
    from dralloc.client.kubeconfig import context_names

    return _within_budget(incomplete, lambda: _matching(context_names(ctx.params.get("kubeconfig")), incomplete))


def namespaces_starting_with(ctx: typer.Context, incomplete: str) -> list[str]:
    return _within_budget(incomplete, lambda: _matching(_Cluster(ctx).names("namespaces"), incomplete))


def nodes_starting_with(ctx: typer.Context, incomplete: str) -> list[str]:
    return _within_budget(incomplete, lambda: _matching(_Cluster(ctx).names("nodes"), incomplete))


def pods_starting_with(ctx: typer.Context, incomplete: str) -> list[str]:
    return _within_budget(incomplete, lambda: _placed_names(_Cluster(ctx), PODS, incomplete))


def claims_starting_with(ctx: typer.Context, incomplete: str) -> list[str]:
    return _within_budget(incomplete, lambda: _placed_names(_Cluster(ctx), CLAIMS, incomplete))


def subjects_starting_with(ctx: typer.Context, incomplete: str) -> list[str]:
    """What `explain` can explain: objects of the kind that is typed already."""
    word = KINDS_TO_EXPLAIN.get(str(ctx.params.get("sort")))
    return _within_budget(incomplete, lambda: _placed_names(_Cluster(ctx), word, incomplete)) if word else []


def objects_starting_with(ctx: typer.Context, incomplete: str) -> list[str]:
    """Objects of the kind that is typed already, without those that are."""
    word, given = str(ctx.params.get("kind") or ""), ctx.params.get("names") or ()
    if not word or "/" in word or "," in word:
        return []
    return [
        name
        for name in _within_budget(incomplete, lambda: _matching(_Cluster(ctx).names(word), incomplete))
        if name not in given
    ]


def kinds_starting_with(ctx: typer.Context, incomplete: str) -> list[str]:
    """The kinds that our own servers have; after KIND/, the objects of this kind."""
    word, slash, name = incomplete.partition("/")
    if slash:
        return _within_budget(
            incomplete, lambda: [f"{word}/{each}" for each in _matching(_Cluster(ctx).names(word), name)]
        )
    from dralloc.kube.registry import KINDS

    *before, last = incomplete.split(",")
    plurals = sorted({kind.plural for kind in KINDS if kind.plural.startswith(last)})
    return [",".join((*before, plural)) for plural in plurals]


def device_ids_starting_with(ctx: typer.Context, incomplete: str) -> list[str]:
    """Devices as DRIVER/POOL/DEVICE."""
    return _within_budget(incomplete, lambda: _matching(map("/".join, _Cluster(ctx).devices()), incomplete))


def devices_starting_with(ctx: typer.Context, incomplete: str) -> list[str]:
    """Devices by name; by DRIVER/POOL/DEVICE for those who have begun with a driver."""

    def ask() -> list[str]:
        ids = _Cluster(ctx).devices()
        full = map("/".join, ids) if incomplete else ()
        return _matching({*full, *(device for *_, device in ids)}, incomplete)

    return _within_budget(incomplete, ask)


def _placed_names(cluster: _Cluster, word: str, incomplete: str) -> list[str]:
    """Names in the namespace that the command would use, or NAMESPACE/NAME of those that the user has begun to type."""
    namespace, slash, name = incomplete.partition("/")
    if slash:
        return [f"{namespace}/{each}" for each in _matching(cluster.names(word, namespace), name)]
    if found := _matching(cluster.names(word), incomplete):
        return found
    return _matching((f"{place}/{each}" for place, each in cluster.objects(word, "")), incomplete) if incomplete else []


def _matching(names: Iterable[str], incomplete: str) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))


def _within_budget(incomplete: str, ask: Callable[[], Sequence[str]]) -> list[str]:
    """What is found in time, or nothing."""
    from msgspec import MsgspecError

    from dralloc.client.discovery import UnknownKind
    from dralloc.client.kubeconfig import BadKubeconfig
    from dralloc.client.transport import TransportError
    from dralloc.primitives.errors import ApiError

    # fish asks twice: first whether there will be anything. Only the second question is worth a request.
    if os.environ.get("_TYPER_COMPLETE_FISH_ACTION") == "is-args":
        return [incomplete]
    found: list[str] = []

    def work() -> None:
        with suppress(ApiError, BadKubeconfig, MsgspecError, OSError, TransportError, UnknownKind):
            found.extend(ask())

    # Resolving a host name or a credential plugin cannot be interrupted; the process ends without them (cli/main.py).
    thread = Thread(target=work, daemon=True)
    thread.start()
    thread.join(_budget_s())
    return list(found)


def _budget_s() -> float:
    try:
        return min(float(os.environ[BUDGET_VARIABLE]), 60.0)
    except (KeyError, ValueError):
        return BUDGET_S


class _Cluster:
    """The cluster that the options before the cursor choose."""

    def __init__(self, ctx: typer.Context) -> None:
        from dralloc.client.kubeconfig import find_connection

        self._connection = find_connection(ctx.params.get("kubeconfig"), context=ctx.params.get("context"))
        is_everywhere = ctx.params.get("all_namespaces")
        self._namespace = "" if is_everywhere else ctx.params.get("namespace") or self._connection.namespace

    def names(self, word: str, namespace: str | None = None) -> list[str]:
        """The names of objects of a kind in a namespace; by default, the one that the command would use."""
        return [name for _, name in self.objects(word, self._namespace if namespace is None else namespace)]

    def objects(self, word: str, namespace: str) -> list[tuple[str, str]]:
        """Namespace and name of the objects of a kind; in all namespaces where none is given."""
        items = self._items(word, namespace, AS_METADATA)
        return [(item["metadata"].get("namespace", ""), item["metadata"]["name"]) for item in items]

    def devices(self) -> list[tuple[str, str, str]]:
        """Driver, pool and name of all devices."""
        return [
            (slice_["spec"]["driver"], slice_["spec"]["pool"]["name"], device["name"])
            for slice_ in self._items("resourceslices.resource.k8s.io", "", {})
            for device in slice_["spec"].get("devices") or ()
        ]

    def _items(self, word: str, namespace: str, headers: dict[str, str]) -> list[Any]:
        import asyncio

        import msgspec

        from dralloc.cli.server_objects import find_resource
        from dralloc.client.discovery import discover
        from dralloc.client.http_transport import HttpTransport
        from dralloc.client.status_errors import send_request

        async def ask() -> bytes:
            transport = HttpTransport(self._connection)
            try:
                resource = find_resource(await discover(transport), word)
                path = resource.path(namespace=namespace if resource.namespaced else "")
                return (await send_request(transport, "GET", path, {"limit": NAMES_MAX}, headers=headers)).body
            finally:
                await transport.close()

        items = msgspec.json.decode(asyncio.run(ask())).get("items")
        return items if isinstance(items, list) else []
