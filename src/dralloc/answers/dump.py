"""Dumps: everything that an answer depends on, in one file.

A dump begins with a header: when and from what it was made, and which kinds it contains. Its objects are `reduced`, so
that it gives the answers that the live cluster gave at that time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec import field
from msgspec.structs import replace

from dralloc.answers.cluster_objects import ClusterObjects, ReadKind, relevant_kinds
from dralloc.answers.manifest_cluster import ManifestObject, UnusableManifest
from dralloc.answers.side_facts import SideFacts
from dralloc.kube.codec import DecodeError, decode, encode
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.timestamps import BadTimestamp, parse_timestamp, print_timestamp
from dralloc.kube.wire import Int64, Time, Wire, printed
from dralloc.primitives.features import GATES, FeatureGates, UnknownGate

API_VERSION: Final = "dralloc.io/v1alpha1"
KIND: Final = "ClusterDump"


class DumpedKind(Wire):
    """A kind that the dump contains, or why it does not; `note` also says what is incomplete."""

    kind: str = printed("")
    count: Int64 = printed(0)
    missing: bool = False
    note: str = ""
    # The only namespace that could be read.
    namespace: str = ""
    incomplete: bool = False


class ClusterDump(ApiObject):
    """The header of a dump."""

    time: Time = printed("")
    dralloc: str = ""
    kubernetes: str = ""
    # Those that differ from their defaults.
    feature_gates: dict[str, bool] = field(default_factory=dict)
    # The namespace of names that come without one.
    namespace: str = printed("")
    anonymized: bool = False
    kinds: tuple[DumpedKind, ...] = printed(())
    facts: SideFacts | None = None

    @property
    def gates(self) -> FeatureGates:
        return FeatureGates.defaults().override(self.feature_gates)

    def read_kinds(self) -> dict[type[ApiObject], ReadKind]:
        """What is known of each kind, as if it was read from the cluster now; without the objects."""
        types = {kind.kind: object_type for object_type, kind in relevant_kinds()}
        return {
            types[each.kind]: ReadKind(
                note=each.note, is_missing=each.missing, namespace=each.namespace, is_incomplete=each.incomplete
            )
            for each in self.kinds
            if each.kind in types
        }


def header_of(objects: ClusterObjects, read: Mapping[type[ApiObject], ReadKind], *, dralloc: str) -> ClusterDump:
    """`read` has what is known of the kinds; a kind that it lacks and that has no objects is unknown, and not listed."""
    kinds = []
    for object_type, kind in relevant_kinds():
        count = len(objects.all(object_type))
        known = read.get(object_type, ReadKind())
        if count or object_type in read:
            dumped = DumpedKind(
                kind=kind.kind,
                count=count,
                missing=known.is_missing,
                note=known.note,
                namespace=known.namespace,
                incomplete=known.is_incomplete,
            )
            kinds.append(dumped)
    return ClusterDump(
        api_version=API_VERSION,
        kind=KIND,
        time=print_timestamp(objects.now),
        dralloc=dralloc,
        kubernetes=objects.server_version,
        feature_gates={
            name: name in objects.gates for name, gate in GATES.items() if gate.default != (name in objects.gates)
        },
        namespace=objects.namespace,
        kinds=tuple(kinds),
        facts=objects.facts,
    )


def documents(header: ClusterDump, objects: ClusterObjects) -> Iterator[bytes]:
    """The header, then the objects by kind, in the order of the server, as JSON."""
    yield encode(header)
    for object_type, kind in relevant_kinds():
        for obj in objects.all(object_type).values():
            # Items of the lists of a server lack both.
            yield encode(replace(obj, api_version=kind.api_version(kind.hub_version), kind=kind.kind))


def find_headers(manifests: Iterable[ManifestObject]) -> dict[str, ClusterDump]:
    """The headers by file. Raises UnusableManifest."""
    return {
        manifest.file: _header(manifest)
        for manifest in manifests
        if manifest.kind == KIND and manifest.api_version.startswith("dralloc.io/")
    }


def _header(manifest: ManifestObject) -> ClusterDump:
    if manifest.api_version != API_VERSION:
        raise UnusableManifest(
            f"{manifest.file}: a dump of version {manifest.api_version}; this dralloc reads {API_VERSION}"
        )
    try:
        header = decode(manifest.body, ClusterDump)
        parse_timestamp(header.time)
        _ = header.gates
    except (DecodeError, BadTimestamp, UnknownGate) as error:
        raise UnusableManifest(f"{manifest.file}: {KIND}: {error}") from None
    return header
