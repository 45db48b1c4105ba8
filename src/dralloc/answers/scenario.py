"""Changes of a cluster that a question assumes: nodes that are gone, taints on nodes and devices, nodes that are added."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from dralloc.answers.cluster_objects import ASSUMED_NODE, ClusterObjects
from dralloc.answers.planner import BadShape, CandidateShape, Growths, add_classes
from dralloc.kube.core_v1 import Node, Taint
from dralloc.kube.meta_v1 import ObjectMeta
from dralloc.kube.resource_v1 import (
    NO_EXECUTE,
    NO_SCHEDULE,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    DeviceTaintSelector,
)

# The effects that matter for a pod that is to be placed.
EFFECTS: Final = (NO_SCHEDULE, NO_EXECUTE)
ANY: Final = "*"


class BadTarget(ValueError):
    """A taint, a device or a number of nodes that cannot be read; the message says what is expected."""


@dataclass(frozen=True, slots=True)
class AssumedTaint:
    """A taint, on a node or on the devices that the selector selects."""

    taint: DeviceTaint
    node: str = ""
    devices: DeviceTaintSelector | None = None

    @classmethod
    def parse(cls, text: str) -> AssumedTaint:
        """Reads `KEY[=VALUE]:EFFECT@node/NAME` or `KEY[=VALUE]:EFFECT@DRIVER[/POOL/DEVICE]`. Raises BadTarget."""
        stated, at, target = text.partition("@")
        key_value, colon, effect = stated.rpartition(":")
        key, _, value = key_value.partition("=")
        if not at or not colon or not key or not target:
            raise BadTarget(f"{text}: expected KEY[=VALUE]:EFFECT@node/NAME or KEY[=VALUE]:EFFECT@DRIVER/POOL/DEVICE")
        if effect not in EFFECTS:
            raise BadTarget(f"{text}: unknown effect {effect}; known: {', '.join(EFFECTS)}")
        taint = DeviceTaint(key=key, value=value, effect=effect)
        first, _, rest = target.partition("/")
        if first == "node" and rest and "/" not in rest:
            return cls(taint, node=rest)
        return cls(taint, devices=read_devices(target))


def read_devices(text: str) -> DeviceTaintSelector:
    """Reads `DRIVER/POOL/DEVICE`; `*` stands for any pool or device, and a driver alone for all its devices.

    Raises BadTarget. A pool's name may have slashes.
    """
    driver, slash, rest = text.partition("/")
    pool, inner, device = rest.rpartition("/")
    if not driver or (slash and not (inner and pool and device)):
        raise BadTarget(f"{text}: expected DRIVER/POOL/DEVICE, with * for any pool or device, or a driver")
    return DeviceTaintSelector(
        driver=driver, pool=None if pool in ("", ANY) else pool, device=None if device in ("", ANY) else device
    )


@dataclass(frozen=True, slots=True)
class Scenario:
    """`added` are shapes whose `nodes_max` is the number of nodes to add."""

    without_nodes: Sequence[str] = ()
    taints: Sequence[AssumedTaint] = ()
    added: Sequence[CandidateShape] = ()

    @classmethod
    def parse(cls, without_nodes: Iterable[str], taints: Iterable[str], added: Iterable[str]) -> Scenario:
        """Raises BadTarget and BadShape."""
        shapes = list(added)
        for text in shapes:
            if "=" not in text:
                raise BadShape(f"{text}: say how many nodes: {text}=1")
        return cls(
            tuple(without_nodes), tuple(map(AssumedTaint.parse, taints)), tuple(map(CandidateShape.parse, shapes))
        )

    def apply(self, objects: ClusterObjects) -> tuple[Node, ...]:
        """Changes the objects; returns the nodes that there would be. Raises UnknownObject."""
        gone = {objects.find_node(name).metadata.name for name in self.without_nodes}
        on_nodes = [(objects.find_node(each.node).metadata.name, each.taint) for each in self.taints if each.node]
        nodes = [_tainted(node, on_nodes) for node in objects.nodes if node.metadata.name not in gone]
        if self.added and [node.metadata.name for node in nodes] == [ASSUMED_NODE]:
            nodes = []
        for number, each in enumerate(self.taints):
            if each.devices is not None:
                objects.add(taint_rule(f"assumed-{number}", each.taint, each.devices))
        add_classes(objects, list(self.added))
        for shape in self.added:
            grow = Growths(shape, objects.now)
            for growth in map(grow, range(shape.growths_max)):
                nodes += growth.nodes
                for item in growth.slices:
                    objects.add(item)
            made = shape.growths_max * shape.unit
            if made != shape.nodes_max:
                objects.notes.append(f"{shape.name}: {made} nodes are added; they come in groups of {shape.unit}")
        return tuple(nodes)


def taint_rule(name: str, taint: DeviceTaint, devices: DeviceTaintSelector) -> DeviceTaintRule:
    spec = DeviceTaintRuleSpec(device_selector=devices, taint=taint)
    return DeviceTaintRule(metadata=ObjectMeta(name=name), spec=spec)


def _tainted(node: Node, taints: Iterable[tuple[str, DeviceTaint]]) -> Node:
    new = tuple(
        Taint(key=taint.key, value=taint.value or "", effect=taint.effect)
        for name, taint in taints
        if name == node.metadata.name
    )
    return replace(node, spec=replace(node.spec, taints=(*node.spec.taints, *new))) if new else node
