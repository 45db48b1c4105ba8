"""Everything that checks read, as values: the objects of a cluster, and facts that no object has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from dralloc.answers.cluster_objects import ClusterObjects, ReadKind, relevant_kinds
from dralloc.answers.reduced_objects import last_write
from dralloc.answers.side_facts import ComponentGates, SideFacts
from dralloc.driver.checkpoint import decode_record
from dralloc.kube.meta_v1 import ApiObject, ObjectMeta
from dralloc.kube.timestamps import stated_time
from dralloc.node.checkpoint import decode_checkpoint


class Fact(StrEnum):
    """What checks read beside objects."""

    CERTIFICATES = "certificates"
    REQUESTS = "certificatesigningrequests"
    GATES = "feature gates"


OLDER_THAN: Final = timedelta(minutes=10)
EXPIRES_WITHIN: Final = timedelta(days=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """`read` says which kinds could not be read, or in one namespace only.

    A fault counts if it has lasted for `older_than`, a certificate if it expires within `expires_within`.
    """

    objects: ClusterObjects
    read: Mapping[type[ApiObject], ReadKind] = field(default_factory=dict)
    older_than: timedelta = OLDER_THAN
    expires_within: timedelta = EXPIRES_WITHIN
    components: tuple[ComponentGates, ...] = ()
    checkpoints: tuple[CheckpointRecords, ...] = ()

    @property
    def now(self) -> datetime:
        return self.objects.now

    @property
    def beside(self) -> SideFacts:
        """What is known beside objects."""
        return self.objects.facts or SideFacts()

    def unread(self, fact: Fact) -> Unchecked | None:
        """Why nothing is known of something beside objects; None if something is."""
        if self.objects.facts is None:
            return Unchecked(f"{fact}: not in {self.objects.place}; dralloc dump writes them, from a cluster", True)
        found = (each for each in self.objects.facts.unread if each.what == fact)
        return next((Unchecked(each.why, each.expected) for each in found), None)

    def why_unknown(self, kind: type[ApiObject]) -> str:
        """Why nothing is known of the kind; empty if something is. Objects prove that the kind was read."""
        known = self.read.get(kind)
        if known is not None and known.is_missing:
            return known.note or f"{_plural(kind)} are not served"
        if known is None and not self.objects.all(kind):
            return (
                f"there are no {_plural(kind)} in {self.objects.place}, and it does not say that the cluster has none"
            )
        return ""

    def knows(self, kind: type[ApiObject], namespace: str = "") -> bool:
        """True if an object of the kind that is not here does not exist; `namespace` is where it would be."""
        known = self.read.get(kind)
        if self.why_unknown(kind):
            return False
        return known is None or (known.namespace in ("", namespace) and not known.is_incomplete)

    def is_lasting(self, since: datetime | None) -> bool:
        """True if something that has held since then has lasted. What has no time may be new."""
        return since is not None and self.now - since >= self.older_than

    def ago(self, moment: datetime) -> str:
        """A time, and how long ago it was."""
        return f"{moment:%Y-%m-%dT%H:%M:%SZ} ({span(self.now - moment)} ago)"


def _plural(kind: type[ApiObject]) -> str:
    return next(each.plural for object_type, each in relevant_kinds() if object_type is kind)


def span(time: timedelta) -> str:
    """A time in its two largest units, such as 3d4h."""
    left = max(int(time.total_seconds()), 0)
    parts = []
    for unit, seconds in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, seconds)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2]) or "0s"


def written_at(metadata: ObjectMeta) -> datetime | None:
    """When the object was last written; when it was created, if it does not record its writes."""
    last = last_write(metadata)
    return stated_time(last.time if last is not None else metadata.creation_timestamp)


def write_of(facts: ClusterFacts, metadata: ObjectMeta) -> str:
    """The last write of the object, as evidence."""
    last = last_write(metadata)
    if last is not None and (time := stated_time(last.time)) is not None:
        return f"last written {facts.ago(time)}" + (f" by {last.manager}" if last.manager else "")
    created = stated_time(metadata.creation_timestamp)
    return f"created {facts.ago(created)}" if created is not None else "without a time of its creation"


# --- Unchecked ------------------------------------------------------------------------------------------------------
# What a check could not look at, and why.


@dataclass(frozen=True, slots=True)
class Unchecked:
    """`is_expected`: the input cannot have it, or no user named it, so that its absence is no failure."""

    reason: str
    is_expected: bool = False


# --- Checkpoints ----------------------------------------------------------------------------------------------------
# Checkpoint files as values: of kubelets and node agents, and of drivers.


class CheckpointForm(StrEnum):
    # One file for all claims of a node: a kubelet, or `dralloc node`.
    NODE = "node"
    # One file for each claim: a driver of the SDK.
    DRIVER = "driver"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedClaim:
    """A claim that is prepared on a node, or being prepared. `pods` are the UIDs of its pods, if the file says."""

    namespace: str
    name: str
    uid: str
    pods: frozenset[str] = frozenset()
    drivers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRecords:
    """What one file has."""

    file: str
    form: CheckpointForm
    claims: tuple[PreparedClaim, ...]
    # When the file was last written.
    written: datetime | None = None


def read_records(file: str, content: bytes, written: datetime | None = None) -> CheckpointRecords:
    """The records of a file in either form; ValueError says why it cannot be used."""
    try:
        records = decode_checkpoint(content)
    except ValueError as node_error:
        try:
            record = decode_record(content)
        except ValueError as driver_error:
            raise ValueError(
                f"neither the checkpoint of a kubelet or node agent ({node_error}), nor of a driver ({driver_error})"
            ) from None
        metadata = record.claim.metadata
        allocation = record.claim.status.allocation
        results = allocation.devices.results if allocation is not None else ()
        claim = PreparedClaim(
            namespace=metadata.namespace,
            name=metadata.name,
            uid=metadata.uid,
            drivers=tuple(dict.fromkeys(result.driver for result in results)),
        )
        return CheckpointRecords(file=file, form=CheckpointForm.DRIVER, claims=(claim,), written=written)
    claims = (
        PreparedClaim(
            namespace=each.namespace, name=each.name, uid=each.uid, pods=each.pods, drivers=tuple(each.drivers)
        )
        for each in records
    )
    return CheckpointRecords(file=file, form=CheckpointForm.NODE, claims=tuple(claims), written=written)
