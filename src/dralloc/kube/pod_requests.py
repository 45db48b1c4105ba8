"""What a pod requests of each resource: all of its containers together, as Kubernetes counts it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from dralloc.kube.pod_v1 import Container, PodSpec
from dralloc.primitives.quantity import Quantity

CPU: Final = "cpu"
MEMORY: Final = "memory"
# Resources that a pod may request for all its containers together.
_POD_LEVEL: Final = (CPU, MEMORY)
NOTHING: Final[Mapping[str, int]] = MappingProxyType({})


def peak_requests(spec: PodSpec, unstated: Mapping[str, int] = NOTHING) -> dict[str, int]:
    """The peak of the pod's requests in nanos: while its containers run, or while an init container runs.

    `unstated` is what a container counts for that requests nothing of it.
    """
    running: dict[str, int] = {}
    for container in spec.containers:
        _add(running, _requests(container, unstated))
    if not spec.init_containers and spec.resources is None and not spec.overhead:
        return running
    sidecars: dict[str, int] = {}
    starting: dict[str, int] = {}
    for container in spec.init_containers:
        asked = _requests(container, unstated)
        # Of what it does not ask for, as much is used as before.
        beside = {name: nanos + sidecars.get(name, 0) for name, nanos in asked.items()}
        if is_sidecar(container):
            _add(running, asked)
            sidecars.update(beside)
        _raise_to(starting, beside)
    _raise_to(running, starting)
    if spec.resources is not None:
        stated = _nanos(spec.resources.requests)
        running.update({name: nanos for name, nanos in stated.items() if _is_pod_level(name)})
    _add(running, _nanos(spec.overhead))
    return running


def _is_pod_level(name: str) -> bool:
    return name in _POD_LEVEL or name.startswith("hugepages-")


def _requests(container: Container, unstated: Mapping[str, int]) -> dict[str, int]:
    return {**unstated, **_nanos(container.resources.requests)} if container.resources.requests else {**unstated}


def _nanos(amounts: Mapping[str, Quantity]) -> dict[str, int]:
    return {name: amount.nanos for name, amount in amounts.items()}


def _add(total: dict[str, int], amounts: Mapping[str, int]) -> None:
    for name, nanos in amounts.items():
        total[name] = total.get(name, 0) + nanos


def _raise_to(total: dict[str, int], amounts: Mapping[str, int]) -> None:
    for name, nanos in amounts.items():
        total[name] = max(total.get(name, 0), nanos)


def is_sidecar(container: Container) -> bool:
    return container.restart_policy == "Always"
