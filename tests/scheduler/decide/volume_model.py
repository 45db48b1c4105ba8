"""Kubernetes' rules for persistent volumes, written down once more from documents alone: no index, no sharing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dralloc.kube.volume_claims import BIND_COMPLETED, SELECTED_NODE
from tests.support.workloads import Document

SIZES = {"Gi": 2**30, "Mi": 2**20}
ZONES = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


@dataclass(frozen=True)
class VolumeModel:
    objects: Sequence[Document]

    def named(self, kind: str) -> dict[str, Document]:
        return {each["metadata"]["name"]: each for each in self.objects if each["kind"] == kind}

    @cached_property
    def volumes(self) -> dict[str, Document]:
        return self.named("PersistentVolume")

    @cached_property
    def claims(self) -> dict[str, Document]:
        return self.named("PersistentVolumeClaim")

    @cached_property
    def classes(self) -> dict[str, Document]:
        return self.named("StorageClass")

    # --- Before any node --------------------------------------------------------------------------------------------

    def is_ready(self, pod: Document) -> bool:
        """True if nodes are judged for the pod."""
        for name in claims_of(pod):
            claim = self.claims.get(name)
            if claim is None or "deletionTimestamp" in claim["metadata"]:
                return False
            if is_bound(claim):
                if claim["spec"]["volumeName"] not in self.volumes:
                    return False
            elif claim["spec"].get("volumeName") or not self._waits(claim):
                return False
        return True

    def _waits(self, claim: Document) -> bool:
        made = self.classes.get(claim["spec"].get("storageClassName", ""))
        return made is not None and made["volumeBindingMode"] == "WaitForFirstConsumer"

    # --- One node ---------------------------------------------------------------------------------------------------

    def allows(self, pod: Document, node: Document) -> bool:
        return (
            not self._is_held(pod)
            and self._within_limits(pod, node)
            and self.choice(pod, node) is not None
            and self._in_zone(pod, node)
        )

    def _is_held(self, pod: Document) -> bool:
        used = {name for other in self._placed() for name in claims_of(other)}
        only_one = {name for name in claims_of(pod) if "ReadWriteOncePod" in self.claims[name]["spec"]["accessModes"]}
        return bool(only_one & used)

    def _placed(self, node: str = "") -> Iterator[Document]:
        for each in self.objects:
            if each["kind"] == "Pod" and (each["spec"]["nodeName"] == node or not node):
                yield each

    def _within_limits(self, pod: Document, node: Document) -> bool:
        name = node["metadata"]["name"]
        drivers = self.named("CSINode").get(name, {"spec": {"drivers": []}})["spec"]["drivers"]
        new = set(self._volumes_of(pod))
        for driver in {driver for driver, _ in new} - {each["name"] for each in drivers}:
            if self.named("CSIDriver").get(driver, {"spec": {}})["spec"].get("preventPodSchedulingIfMissing"):
                return False
        used = {each for other in self._placed(name) for each in self._volumes_of(other)}
        attached = used | {
            (
                each["spec"]["attacher"],
                self.volumes[each["spec"]["source"]["persistentVolumeName"]]["spec"]["csi"]["volumeHandle"],
            )
            for each in self.named("VolumeAttachment").values()
            if each["spec"]["nodeName"] == name
            and "csi" in self.volumes[each["spec"]["source"]["persistentVolumeName"]]["spec"]
        }
        for each in drivers:
            driver, limit = each["name"], each.get("allocatable", {}).get("count")
            added = [one for one in new - used if one[0] == driver]
            if limit is not None and added and len([one for one in attached if one[0] == driver]) + len(added) > limit:
                return False
        return True

    def _volumes_of(self, pod: Document) -> Iterator[tuple[str, str]]:
        for name in claims_of(pod):
            claim = self.claims.get(name)
            if claim is None:
                continue
            volume = self.volumes.get(claim["spec"].get("volumeName", ""))
            if volume is not None:
                if "csi" in volume["spec"]:
                    yield volume["spec"]["csi"]["driver"], volume["spec"]["csi"]["volumeHandle"]
            elif (made := self.classes.get(claim["spec"].get("storageClassName", ""))) is not None:
                yield made["provisioner"], f"claim {name}"

    def choice(self, pod: Document, node: Document) -> tuple[dict[str, str], set[str]] | None:
        """The volumes that unbound claims get, and the claims whose volumes are made; None if the node cannot have the pod."""
        unbound = []
        for name in dict.fromkeys(claims_of(pod)):
            claim = self.claims[name]
            if not is_bound(claim):
                unbound.append(claim)
            elif not reaches(self.volumes[claim["spec"]["volumeName"]], node):
                return None
        chosen: dict[str, str] = {}
        made: set[str] = set()
        for claim in sorted(unbound, key=asked):
            name, selected = claim["metadata"]["name"], claim["metadata"]["annotations"].get(SELECTED_NODE)
            if selected not in (None, node["metadata"]["name"]):
                return None
            volume = self._smallest(claim, node, set(chosen.values())) if selected is None else None
            if volume is not None:
                chosen[name] = volume
            elif self._can_make(claim, node):
                made.add(name)
            else:
                return None
        return chosen, made

    def _smallest(self, claim: Document, node: Document, taken: set[str]) -> str | None:
        fitting: list[tuple[int, str]] = []
        for name, volume in sorted(self.volumes.items()):
            spec, wanted = volume["spec"], claim["spec"]
            reference = spec.get("claimRef")
            if name in taken or size(spec["capacity"]["storage"]) < asked(claim):
                continue
            if wanted["storageClassName"] != spec["storageClassName"]:
                continue
            if reference is not None:
                if reference["name"] == claim["metadata"]["name"]:
                    return name if reaches(volume, node) else None
                continue
            labels = wanted.get("selector", {}).get("matchLabels", {})
            if (
                volume["status"]["phase"] == "Available"
                and labels.items() <= volume["metadata"]["labels"].items()
                and set(wanted["accessModes"]) <= set(spec["accessModes"])
                and reaches(volume, node)
            ):
                fitting.append((size(spec["capacity"]["storage"]), name))
        return min(fitting)[1] if fitting else None

    def _can_make(self, claim: Document, node: Document) -> bool:
        made, labels = self.classes[claim["spec"]["storageClassName"]], node["metadata"]["labels"]
        if made["provisioner"] == "kubernetes.io/no-provisioner":
            return False
        allowed = made.get("allowedTopologies")
        if allowed and not any(
            all(labels.get(each["key"]) in each["values"] for each in term["matchLabelExpressions"]) for term in allowed
        ):
            return False
        if not self.named("CSIDriver").get(made["provisioner"], {"spec": {}})["spec"].get("storageCapacity"):
            return True
        return any(
            each["storageClassName"] == made["metadata"]["name"]
            and size(each.get("maximumVolumeSize") or each["capacity"]) >= asked(claim)
            and each["nodeTopology"]["matchLabels"].items() <= labels.items()
            for each in self.named("CSIStorageCapacity").values()
        )

    def _in_zone(self, pod: Document, node: Document) -> bool:
        labels = node["metadata"]["labels"]
        if not any(key in labels for key in ZONES):
            return True
        for name in claims_of(pod):
            volume = self.volumes.get(self.claims[name]["spec"].get("volumeName", ""))
            for key, value in (volume["metadata"]["labels"] if volume is not None else {}).items():
                if key in ZONES and labels.get(key) not in value.split("__"):
                    return False
        return True


def claims_of(pod: Document) -> list[str]:
    return [each["persistentVolumeClaim"]["claimName"] for each in pod["spec"].get("volumes", [])]


def is_bound(claim: Document) -> bool:
    return bool(claim["spec"].get("volumeName")) and BIND_COMPLETED in claim["metadata"]["annotations"]


def size(text: str) -> int:
    return int(text[:-2]) * SIZES[text[-2:]]


def asked(claim: Document) -> int:
    return size(claim["spec"]["resources"]["requests"]["storage"])


def reaches(volume: Document, node: Document) -> bool:
    required: Any = volume["spec"].get("nodeAffinity", {}).get("required")
    if required is None:
        return True
    labels = node["metadata"]["labels"]
    return any(
        all(
            (labels.get(each["key"]) in each["values"]) == (each["operator"] == "In")
            for each in term["matchExpressions"]
        )
        for term in required["nodeSelectorTerms"]
    )
