"""The rules of volumes on random clusters: equal to a plain model, which has no index and no cache."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from dralloc.kube.volume_claims import BIND_COMPLETED, SELECTED_NODE
from dralloc.scheduler.contract import Placement
from tests.scheduler.decide.volume_model import VolumeModel
from tests.scheduler.volume_cluster import decide, reasons, view_of
from tests.support.scheduled_cluster import node, our_pod
from tests.support.volumes import (
    HOSTNAME,
    attachment,
    csi,
    csi_driver,
    csi_node,
    storage_capacity,
    storage_class,
    using,
    volume,
    volume_claim,
)
from tests.support.workloads import Document

ZONE = "topology.kubernetes.io/zone"
NAMES = ("a", "b", "c", "d")


class RandomVolumes:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def maybe(self, chance: float, value: Any) -> Any:
        return value if self.random.random() < chance else {}

    def one_of(self, *values: Any) -> Any:
        return self.random.choice(values)

    def some(self, *values: Any) -> list[Any]:
        return self.random.sample(values, self.random.randint(1, len(values)))

    def objects(self) -> list[Document]:
        random = self.random
        nodes = [node(name, labels=self.maybe(0.7, {ZONE: self.one_of("z1", "z2")})) for name in NAMES]
        allowed = [{"matchLabelExpressions": [{"key": ZONE, "values": self.some("z1", "z2")}]}]
        remote = storage_class("remote", "d.io", **self.maybe(0.4, {"allowedTopologies": allowed}))
        drivers = [
            csi_driver(name, storageCapacity=random.random() < 0.5, preventPodSchedulingIfMissing=random.random() < 0.3)
            for name in ("d.io", "e.io")
        ]
        limits = [self.one_of(None, 0, 1, 2) for _ in NAMES]
        csi_nodes = [csi_node(name, d_io=limit) for name, limit in zip(NAMES, limits, strict=True)]
        space = [
            storage_capacity(f"in-{zone}", "remote", self.one_of("1Gi", "9Gi"), {ZONE: zone}) for zone in ("z1", "z2")
        ]
        volumes = [self.volume(f"v{number}") for number in range(random.randint(2, 8))]
        claims = [self.claim(f"c{number}", len(volumes)) for number in range(5)]
        placed = [
            using(our_pod(f"placed{number}"), *self.some("c0", "c1", "c2")) for number in range(random.randint(0, 3))
        ]
        for each in placed:
            each["spec"]["nodeName"] = self.one_of(*NAMES)
        attached = [attachment("old", self.one_of(*NAMES), "d.io", "v0")]
        made: list[Document] = [
            *nodes,
            storage_class(),
            remote,
            storage_class("soon", "e.io", mode="Immediate"),
            *drivers,
        ]
        return [*made, *self.some(*csi_nodes), *self.some(*space), *volumes, *claims, *placed, *attached]

    def volume(self, name: str) -> Document:
        def term() -> Document:
            required = {"key": HOSTNAME, "operator": self.one_of("In", "In", "NotIn"), "values": self.some(*NAMES)}
            return {"matchExpressions": [required]}

        terms = [term() for _ in range(self.random.randint(1, 2))]
        return volume(
            name,
            self.one_of("2Gi", "5Gi", "9Gi"),
            storage_class=self.one_of("local", "local", "remote"),
            phase=self.one_of("Available", "Available", "Available", "Released"),
            modes=self.some("ReadWriteOnce", "ReadOnlyMany"),
            labels={**self.maybe(0.2, {ZONE: self.one_of("z1", "z2", "z1__z3")}), **self.maybe(0.3, {"tier": "x"})},
            **self.maybe(0.6, {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}),
            **self.maybe(0.4, {"csi": csi(self.one_of("d.io", "e.io"), name)}),
            **self.maybe(0.15, {"claimRef": {"namespace": "default", "name": f"c{self.random.randint(0, 4)}"}}),
        )

    def claim(self, name: str, volumes: int) -> Document:
        bound = self.maybe(0.35, {"volumeName": f"v{self.random.randint(0, volumes)}"})
        completed = self.maybe(0.9, {BIND_COMPLETED: "yes"}) if bound else {}
        return volume_claim(
            name,
            self.one_of("1Gi", "4Gi", "8Gi"),
            storage_class=self.one_of(*["local", "remote"] * 8, "soon", "gone"),
            modes=[self.one_of(*["ReadWriteOnce"] * 6, "ReadOnlyMany", "ReadWriteOncePod")],
            annotations={**completed, **({} if bound else self.maybe(0.2, {SELECTED_NODE: self.one_of(*NAMES)}))},
            **bound,
            **self.maybe(0.2, {"selector": {"matchLabels": {"tier": "x"}}}),
        )


@pytest.mark.parametrize("seed", range(0, 600, 50))
def test_random_clusters(seed: int) -> None:
    for number in range(seed, seed + 50):
        world = RandomVolumes(number)
        model = VolumeModel(world.objects())
        pod = using(our_pod("p"), *world.some("c0", "c1", "c2", "c3", "c4")[:3])
        state = view_of(model.objects)
        told = reasons(state, pod)
        assert bool(told) == model.is_ready(pod), number
        if not told:
            continue
        nodes = {each["metadata"]["name"]: each for each in model.objects if each["kind"] == "Node"}
        assert {name: not reason for name, reason in told.items()} == {
            name: model.allows(pod, each) for name, each in nodes.items()
        }, number
        decision = decide(state, pod)
        assert isinstance(decision, Placement) == (not all(told.values())), number
        if isinstance(decision, Placement) and decision.volumes is not None:
            chosen = {key.name: name for key, name in decision.volumes.chosen.items()}
            assert (chosen, {key.name for key in decision.volumes.provisioned}) == model.choice(
                pod, nodes[decision.node]
            ), number
