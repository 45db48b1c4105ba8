"""Where a command's cluster objects come from: files, the cluster of a kubeconfig, or a cluster with files added to it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dralloc.answers.cluster_objects import (
    ASSUMED_NODE,
    PLACEMENT_NEEDED,
    ClusterObjects,
    ReadKind,
    StatedScheduler,
    UnknownObject,
)
from dralloc.answers.dump import ClusterDump, find_headers
from dralloc.answers.manifest_cluster import UnusableManifest, add_manifests
from dralloc.answers.missing_kinds import missing_kinds
from dralloc.cli.manifest_records import read_records
from dralloc.cli.output import FINDINGS, fail, say
from dralloc.kube.apps_v1 import DaemonSet, Deployment
from dralloc.kube.batch_v1 import Job
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.timestamps import parse_timestamp
from dralloc.primitives.features import FeatureGates

NAME_FILES: Final = "name files with -f"
# From the namespace of names that come without one to a field selector.
SelectEvents = Callable[[str], str]


def all_events(_: str) -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSource:
    files: list[str] | None = None
    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str | None = None
    # What options say about the scheduler.
    stated: StatedScheduler = field(default_factory=StatedScheduler)

    @property
    def has_cluster(self) -> bool:
        return not self.files or self.kubeconfig is not None or self.context is not None

    def load(
        self,
        feature_gates: FeatureGates,
        *,
        needed: Collection[type[ApiObject]] = PLACEMENT_NEEDED,
        useful: Collection[type[ApiObject]] = (),
        events: SelectEvents = all_events,
    ) -> ClusterObjects:
        """Reads the files, and of a cluster the needed and useful kinds; of events those that `events` selects.

        Ends the command if a file, or a needed kind of a cluster, cannot be read.
        """
        objects, read = self.read(feature_gates, frozenset((*needed, *useful)), events=events)
        for object_type, found in read.items():
            if found.is_missing and object_type in needed:
                fail(f"{objects.place}: {found.note}")
        if not self.has_cluster:
            objects.notes += missing_kinds(objects, {*needed, *useful} - read.keys())
        print_notes(objects)
        if not objects.objects:
            fail(f"{', '.join(self.files or ()) or objects.place}: no devices, claims, pods or nodes found")
        return objects

    def read(
        self,
        feature_gates: FeatureGates,
        kinds: Collection[type[ApiObject]],
        *,
        with_workload_pods: bool = True,
        with_writes: bool = False,
        events: SelectEvents = all_events,
    ) -> tuple[ClusterObjects, dict[type[ApiObject], ReadKind]]:
        """The objects, and what is known of the kinds of a cluster or a dump. Ends the command if a file cannot be read.

        `with_writes`: with the last write of slices and claims.
        """
        objects = ClusterObjects(feature_gates, namespace=self.namespace or "default")
        objects.stated = self.stated
        records = read_records(self.files) if self.files else []
        try:
            headers = find_headers(records)
            if self.has_cluster:
                read = self._add_cluster(objects, kinds, events, with_writes=with_writes)
            else:
                read = _add_headers(objects, headers, kinds)
            if headers and not self.has_cluster:
                objects.namespace = self.namespace or next(iter(headers.values())).namespace
            # A dump takes the place of a server: the kinds that would be read there.
            dumped = [record for record in records if record.file in headers]
            others = [record for record in records if record.file not in headers]
            add_manifests(objects, dumped, kinds, with_writes=with_writes)
            add_manifests(objects, others, with_writes=with_writes)
            if with_workload_pods and any(objects.all(kind) for kind in (Job, Deployment, DaemonSet)):
                from dralloc.answers.workload_pods import add_workload_pods

                add_workload_pods(objects)
        except UnusableManifest as error:
            fail(str(error))
        return objects, read

    def _add_cluster(
        self, objects: ClusterObjects, kinds: Collection[type[ApiObject]], events: SelectEvents, *, with_writes: bool
    ) -> dict[type[ApiObject], ReadKind]:
        from dralloc.answers.live_cluster import read_cluster
        from dralloc.cli.server_connection import ask_server, find_server

        connection = find_server(self.kubeconfig, self.context, otherwise=NAME_FILES)
        objects.place = f"the cluster {connection.server}"
        objects.namespace = self.namespace or connection.namespace
        read = ask_server(
            connection,
            lambda transport: read_cluster(
                transport, objects.namespace, kinds, events=events(objects.namespace), with_writes=with_writes
            ),
            doing=f"reading {objects.place}",
            otherwise=NAME_FILES,
        )
        for found in read.values():
            objects.add_read(found)
        return read


def _add_headers(
    objects: ClusterObjects, headers: Mapping[str, ClusterDump], kinds: Collection[type[ApiObject]]
) -> dict[type[ApiObject], ReadKind]:
    """Takes over what the headers of dumps say about the cluster."""
    read: dict[type[ApiObject], ReadKind] = {}
    for file, header in headers.items():
        objects.place, objects.facts = f"the dump {file}", header.facts
        objects.server_version, objects.now = header.kubernetes, parse_timestamp(header.time)
        if objects.gates == FeatureGates.defaults():
            objects.gates = header.gates
        read.update(header.read_kinds())
    objects.notes += [found.note for kind, found in read.items() if found.note and kind in kinds]
    return read


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
