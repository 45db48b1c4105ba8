"""Random clusters and pods for differential tests: small, crowded, with everything that can keep a pod from running."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count
from random import Random
from typing import Any

from msgspec.structs import replace

from dralloc.kube import device_parts as parts
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.resource_v1 import ResourceSlice
from dralloc.testing import builders as build
from tests.support.workloads import Document, claim_template, existing, pod, quota, template

DRIVER = "gpu.example.com"
MODELS = ("a100", "h100")


class RandomCluster:
    """The objects of a cluster, and pods for it. A seed determines everything."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._chance = self._random.random
        self._pick = self._random.choice
        self.nodes = [f"node-{index}" for index in range(self._random.randint(1, 4))]
        # Every device has a number, so that a claim can ask for this one.
        self._ids = count()
        self._templates: list[str] = []
        self._claims: list[str] = []

    # --- The cluster --------------------------------------------------------------------------------------------------

    def objects(self) -> Iterator[ApiObject | Document]:
        """Everything but pods, in the order of creation."""
        yield build.device_class("gpu", f'device.driver == "{DRIVER}"')
        yield build.device_class("large", "device.allowMultipleAllocations")
        yield {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "urgent"},
            "value": 1000,
        }
        for name in self.nodes:
            yield self._node(name)
            yield from self._pool(name)
        if self._chance() < 0.25:
            devices = [self._device(f"fabric-{index}", "mixed") for index in range(2)]
            some = build.node_selector(zone="z1") if self._chance() < 0.5 else None
            published = partial(build.resource_slice, driver=DRIVER, pool="fabric", node_selector=some)
            yield published("fabric", *devices, all_nodes=None if some is not None else True)
        if self._chance() < 0.3:
            rule_taint = build.taint("broken", effect=self._pick(("NoSchedule", "None")))
            yield build.taint_rule("rule", rule_taint, driver=DRIVER, device=self._pick(("dev-0", "dev-1")))
        if self._chance() < 0.4:
            hard = {"gpu.deviceclass.resource.k8s.io/devices": str(self._random.randint(0, 4))}
            if self._chance() < 0.5:
                hard = {"count/resourceclaims.resource.k8s.io": str(self._random.randint(1, 5))}
            yield quota("limits", hard)
        for index in range(3):
            self._templates.append(f"template-{index}")
            made = claim_template(f"template-{index}", self._request())
            self._constrain(made["spec"]["spec"]["devices"])
            yield made
        for index in range(2):
            self._claims.append(f"shared-{index}")
            yield build.claim(f"shared-{index}", self._request())

    def _node(self, name: str) -> Document:
        amounts = {
            "cpu": self._pick(("2", "4", "8")),
            "memory": "32Gi",
            "pods": self._pick(("2", "4", "110")),
        }
        taints = [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}] if self._chance() < 0.15 else []
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"zone": self._pick(("z1", "z2"))}},
            "spec": {"taints": taints, "unschedulable": self._chance() < 0.1},
            "status": {"capacity": amounts, "allocatable": amounts},
        }

    def _pool(self, node: str) -> Iterator[ApiObject]:
        kind = self._pick(("whole", "shared", "shared", "partitions", "mixed", "none"))
        if kind == "none":
            return
        devices = [self._device(f"dev-{index}", kind) for index in range(self._random.randint(1, 4))]
        counters = {"card": {"memory": self._pick(("4", "6"))}} if kind == "partitions" else None
        announced = 2 if counters else 1
        if self._chance() < 0.1:
            announced += 1
        published = partial(build.resource_slice, driver=DRIVER, pool=node, node_name=node, of=announced)
        yield published(f"{node}-devices", *devices)
        if counters:
            yield published(f"{node}-counters", counters=counters)

    def _device(self, name: str, kind: str) -> Any:
        is_shareable = kind == "shared" or (kind == "mixed" and self._chance() < 0.5)
        memory = parts.capacity(self._pick(("8", "10")), default="2", minimum="1", step="1")
        return build.device(
            name,
            attributes={"model": self._pick(MODELS), "id": next(self._ids)},
            capacity={"memory": memory} if is_shareable else {"memory": "8"},
            shareable=True if is_shareable else None,
            draws={"card": {"memory": self._pick(("2", "4"))}} if kind == "partitions" else None,
            taints=[build.taint("broken")] if self._chance() < 0.1 else (),
        )

    # --- Requests and pods --------------------------------------------------------------------------------------------

    def _request(self) -> Any:
        model = self._pick(MODELS)
        where = self._pick(((), (), f'device.attributes["{DRIVER}"].model == "{model}"'))
        if self._chance() < 0.2:
            first = build.alternative("first", device_class=self._pick(("large", "gpu")), count=2)
            return build.first_available("device", first, build.alternative("second", device_class="gpu"))
        return build.request(
            "device",
            device_class=self._pick(("gpu",) * 8 + ("large", "missing")),
            count=self._pick((1, 1, 1, 2)),
            where=where,
            capacity=self._pick((None, None, {"memory": "3"}, {"memory": "9"})),
        )

    def _constrain(self, devices: Document) -> None:
        if self._chance() < 0.2:
            kind = self._pick(("matchAttribute", "distinctAttribute"))
            devices["constraints"] = [{kind: f"{DRIVER}/model"}]
        exactly = devices["requests"][0].get("exactly")
        if exactly is not None and self._chance() < 0.1:
            exactly["allocationMode"] = "All"
            exactly.pop("count", None)
        if exactly is not None and self._chance() < 0.1:
            exactly["tolerations"] = [{"operator": "Exists"}]

    def deleted(self, pods: Sequence[str]) -> Sequence[str]:
        """The pods to delete: sometimes one of them."""
        return [self._pick(pods)] if pods and self._chance() < 0.15 else []

    def republished(self, resource_slice: ResourceSlice) -> ResourceSlice:
        """The slice in which devices become shareable, or can no longer be shared."""
        devices = tuple(
            replace(device, allow_multiple_allocations=None if device.allow_multiple_allocations else True)
            if self._chance() < 0.03
            else device
            for device in resource_slice.spec.devices or ()
        )
        return replace(resource_slice, spec=replace(resource_slice.spec, devices=devices))

    def pod(self, index: int) -> Document:
        claims: dict[str, Document] = {}
        if self._chance() < 0.7:
            names = (
                (*self._templates, *self._templates, "no-such-template") if self._chance() < 0.2 else self._templates
            )
            claims["own"] = template(self._pick(names))
        if self._chance() < 0.35:
            claims["shared"] = existing(self._pick((*self._claims, "no-such-claim")))
        made = pod(f"pod-{index}", claims, requests={"cpu": self._pick(("100m", "1", "3"))})
        spec = made["spec"]
        if self._chance() < 0.05:
            spec["schedulingGates"] = [{"name": "example.com/hold"}]
        if self._chance() < 0.05:
            spec["schedulerName"] = "another-scheduler"
        if self._chance() < 0.05:
            spec["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
        if self._chance() < 0.15:
            spec["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8080}]
        if self._chance() < 0.2:
            spec["nodeSelector"] = {"zone": self._pick(("z1", "z2", "z3"))}
        if self._chance() < 0.15:
            spec["priorityClassName"] = self._pick(("urgent", "urgent", "no-such-class"))
        return made
