"""A synthetic trace of a shared GPU cluster: nodes of several models, and pods of many shapes in random order."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

DRIVER: Final = "gpu.example.com"
# Model, devices, cores and GiB of a node, and the share of such nodes.
NODE_KINDS: Final = (
    ("a", 8, 96, 768, 4),
    ("b", 4, 64, 512, 3),
    ("c", 2, 96, 384, 2),
    ("d", 8, 128, 1024, 2),
    ("", 0, 94, 256, 1),
)
# Devices of a pod and thousandths of each, and how often pods request them.
REQUESTS: Final = (
    (0, 0, 13),
    (1, 100, 6),
    (1, 250, 8),
    (1, 500, 14),
    (1, 750, 4),
    (1, 1000, 45),
    (2, 1000, 4),
    (4, 1000, 3),
    (8, 1000, 3),
)
MODELS_SHARE: Final = 0.2

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Shape:
    cores: int
    gib: int
    devices: int
    thousandths: int
    model: str


@dataclass(frozen=True)
class MixedTrace:
    nodes: int
    shapes: int
    seed: int = 1
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_random", random.Random(self.seed))

    def cluster(self) -> Iterator[Document]:
        yield {"kind": "DeviceClass", "metadata": {"name": "gpu", "uid": "gpu", "resourceVersion": "1"}, "spec": {}}
        weights = [kind[-1] for kind in NODE_KINDS]
        for number, kind in enumerate(self._random.choices(NODE_KINDS, weights, k=self.nodes)):
            model, devices, cores, gib, _ = kind
            name = f"node-{number:05}"
            amounts = {"cpu": str(cores), "memory": f"{gib}Gi", "pods": "1000"}
            yield {"kind": "Node", "metadata": {"name": name}, "status": {"allocatable": amounts}}
            if devices:
                yield _slice(name, model, devices)

    def arrivals(self, load: float) -> Iterator[tuple[Document, ...]]:
        """Each pod with its claim, until the pods request `load` times the devices of an average cluster."""
        shapes = [self._shape() for _ in range(self.shapes)]
        popularity = [1 / (rank + 5) for rank in range(self.shapes)]
        total = sum(kind[1] * kind[-1] for kind in NODE_KINDS) / sum(kind[-1] for kind in NODE_KINDS) * self.nodes
        requested, number = 0.0, 0
        while requested < load * total:
            shape = self._random.choices(shapes, popularity)[0]
            requested += shape.devices * shape.thousandths / 1000
            yield tuple(_pod(number, shape))
            number += 1

    def _shape(self) -> _Shape:
        devices, thousandths, _ = self._random.choices(REQUESTS, [each[-1] for each in REQUESTS])[0]
        model = self._random.choice("abcd") if devices and self._random.random() < MODELS_SHARE else ""
        cores = self._random.randint(1, 10) * max(devices, 1)
        return _Shape(cores, cores * self._random.randint(2, 8), devices, thousandths, model)


def _slice(node: str, model: str, devices: int) -> Document:
    capacity = {"share": {"value": "1000", "requestPolicy": {"default": "1000", "validRange": {"min": "1"}}}}
    device = {"allowMultipleAllocations": True, "attributes": {"model": {"string": model}}, "capacity": capacity}
    return {
        "kind": "ResourceSlice",
        "metadata": {"name": node},
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"gpu-{number}", **device} for number in range(devices)],
        },
    }


def _pod(number: int, shape: _Shape) -> Iterator[Document]:
    amounts = {"cpu": str(shape.cores), "memory": f"{shape.gib}Gi"}
    spec: dict[str, Any] = {"containers": [{"name": "main", "resources": {"requests": amounts}}]}
    if shape.devices:
        request: dict[str, Any] = {
            "deviceClassName": "gpu",
            "count": shape.devices,
            "capacity": {"requests": {"share": str(shape.thousandths)}},
        }
        if shape.model:
            request["selectors"] = [{"cel": {"expression": f'device.attributes["{DRIVER}"].model == "{shape.model}"'}}]
        name = f"claim-{number}"
        yield {
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1"},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": request}]}},
        }
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": name}]
    yield {
        "kind": "Pod",
        "metadata": {"name": f"pod-{number}", "namespace": "default", "uid": f"pod-{number}"},
        "spec": spec,
    }
