"""Where a command's cluster objects come from: files, the cluster of a kubeconfig, or a cluster with files added to it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dralloc.api.apps_v1 import DaemonSet, Deployment
from dralloc.api.batch_v1 import Job
from dralloc.api.core_v1 import Node
from dralloc.api.meta_v1 import ApiObject
from dralloc.api.pod_v1 import Pod
from dralloc.api.resource_v1 import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from dralloc.cli.manifest_records import read_records
from dralloc.cli.output import FINDINGS, fail, say
from dralloc.primitives.features import FeatureGates
from dralloc.whatif.cluster_objects import ASSUMED_NODE, ClusterObjects, UnknownObject
from dralloc.whatif.manifest_cluster import UnusableManifest, add_manifests

OR_FILES: Final = "; or name files with -f"

# What placing pods depends on. Without the first ones there is no answer.
PLACEMENT_NEEDED: Final[frozenset[type[ApiObject]]] = frozenset({ResourceSlice, DeviceClass, ResourceClaim})
PLACEMENT_USEFUL: Final[frozenset[type[ApiObject]]] = frozenset({Node, Pod, ResourceClaimTemplate, DeviceTaintRule})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSource:
    files: list[str] | None = None
    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str | None = None

    @property
    def has_cluster(self) -> bool:
        return not self.files or self.kubeconfig is not None or self.context is not None

    def load(
        self,
        feature_gates: FeatureGates,
        *,
        needed: Collection[type[ApiObject]] = PLACEMENT_NEEDED,
        useful: Collection[type[ApiObject]] = (),
    ) -> ClusterObjects:
        """Reads the files, and of a cluster the needed and useful kinds.

        Ends the command if a file, or a needed kind of a cluster, cannot be read.
        """
        objects = ClusterObjects(feature_gates, namespace=self.namespace or "default")
        if self.has_cluster:
            self._add_cluster(objects, needed, useful)
        try:
            add_manifests(objects, read_records(self.files) if self.files else ())
            if any(objects.all(kind) for kind in (Job, Deployment, DaemonSet)):
                from dralloc.whatif.workload_pods import add_workload_pods

                add_workload_pods(objects)
        except UnusableManifest as error:
            fail(str(error))
        print_notes(objects)
        if not objects.objects:
            fail(f"{', '.join(self.files or ()) or objects.place}: no devices, claims, pods or nodes found")
        return objects

    def _add_cluster(
        self, objects: ClusterObjects, needed: Collection[type[ApiObject]], useful: Collection[type[ApiObject]]
    ) -> None:
        from dralloc.cli.server_connection import ask_server, find_server
        from dralloc.whatif.live_cluster import read_cluster

        connection = find_server(self.kubeconfig, self.context, otherwise=OR_FILES)
        objects.place = f"the cluster {connection.server}"
        objects.namespace = self.namespace or connection.namespace
        read = ask_server(
            connection,
            lambda transport: read_cluster(transport, objects.namespace, frozenset((*needed, *useful))),
            doing=f"reading {objects.place}",
            otherwise=OR_FILES,
        )
        for object_type, found in read.items():
            if found.is_missing and object_type in needed:
                fail(f"{connection.server}: {found.note}")
            if found.note:
                objects.notes.append(found.note)
            for obj in found.objects:
                objects.add(obj)


def print_notes(objects: ClusterObjects) -> None:
    """Prints what the user should know, once."""
    for note in objects.notes:
        say(note, err=True, prefix="note: ")
    objects.notes.clear()


def print_assumed_nodes(objects: ClusterObjects) -> None:
    if objects.has_nodes:
        return
    if [node.metadata.name for node in objects.nodes] == [ASSUMED_NODE]:
        assumed = f"assuming one without labels, {ASSUMED_NODE}; --kubeconfig or --context adds the files to a cluster"
    else:
        assumed = f"assuming the {len(objects.nodes)} that slices and pods name, without labels"
    say(f"no Node objects in {objects.place}: {assumed}", err=True, prefix="note: ")


@contextmanager
def unknown_names_fail() -> Iterator[None]:
    """Ends the command if a name that the user gave is unknown."""
    try:
        yield
    except UnknownObject as error:
        fail(str(error), FINDINGS)
