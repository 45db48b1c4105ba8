"""The rules of deletion: an object is removed at once, after its grace period, or when it has no finalizers left.

An object that cannot be removed yet is marked with a `deletionTimestamp`. The finalizers `orphan` and `foregroundDeletion` say
what happens to dependents; the garbage collector removes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final

import msgspec

from dralloc.kube.timestamps import parse_timestamp, print_timestamp
from dralloc.primitives.errors import BadRequest
from dralloc.primitives.field_errors import FieldError, FieldPath, invalid, not_supported
from dralloc.server.documents.json_documents import Document
from dralloc.server.http.statuses import conflict, invalid_options

ORPHAN_FINALIZER: Final = "orphan"
FOREGROUND_FINALIZER: Final = "foregroundDeletion"

# Kubernetes' default for pods.
POD_GRACE_S: Final = 30


class Propagation(Enum):
    """What happens to an object's dependents."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOptions:
    grace_period_s: int | None = None
    propagation: Propagation | None = None
    uid: str | None = None
    resource_version: str | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Removed:
    """The object is removed; the document is its last state."""

    document: Document


@dataclass(frozen=True, slots=True)
class Marked:
    """The object stays, with this content, until it is released."""

    document: Document


@dataclass(frozen=True, slots=True)
class AlreadyMarked:
    """The object is being deleted already; nothing is written."""

    document: Document


Decision = Removed | Marked | AlreadyMarked


def decide_deletion(kind: str, document: Document, options: DeleteOptions, now: datetime) -> Decision:
    """The decision on an object that a client deletes. `document` has its type and resourceVersion."""
    check_preconditions(kind, document, options)
    held = _with_finalizers(document, _finalizers(kind, document, options))
    if kind == "Pod":
        decision = _decide_pod(held, options, now)
        return AlreadyMarked(document) if isinstance(decision, AlreadyMarked) else decision
    if not _is_held(held):
        return Removed(document)
    marked = held if held["metadata"].get("deletionTimestamp") else _marked(held, 0, now)
    if kind == "Namespace":
        marked = {**marked, "status": {**(marked.get("status") or {}), "phase": "Terminating"}}
    return AlreadyMarked(document) if marked == document else Marked(marked)


def is_released(document: Document) -> bool:
    """True if the object is being deleted, its grace period is over and it has no finalizers."""
    metadata = document["metadata"]
    return (
        bool(metadata.get("deletionTimestamp"))
        and not metadata.get("deletionGracePeriodSeconds")
        and not _is_held(document)
    )


def check_preconditions(kind: str, document: Document, options: DeleteOptions) -> None:
    """Refuse to delete another object than the client states."""
    metadata = document["metadata"]
    for name, stated, stored, cause in (
        ("UID", options.uid, metadata.get("uid"), "deleted and then recreated"),
        ("ResourceVersion", options.resource_version, metadata.get("resourceVersion"), "modified"),
    ):
        if stated is not None and stated != stored:
            raise conflict(
                document["apiVersion"].rpartition("/")[0],
                kind,
                metadata["name"],
                f"the {name} in the precondition ({stated}) does not match the {name} in record ({stored}). "
                f"The object might have been {cause}",
            )


def read_delete_options(body: Any, query: Mapping[str, str]) -> DeleteOptions:
    """The options of a request: its body, or its query parameters if it has no body."""
    stated = body or {
        name: [query[name]] if name == "dryRun" else query[name] for name in _PARAMETERS if query.get(name)
    }
    try:
        # Query parameters are strings.
        options = msgspec.convert(stated, _WireOptions, strict=bool(body))
    except msgspec.ValidationError as error:
        raise BadRequest(f"invalid DeleteOptions: {error}") from None
    if options.kind not in (None, "DeleteOptions"):
        raise BadRequest(f"the body of a delete must be DeleteOptions, not {options.kind}")
    if faults := list(_faults(options)):
        raise invalid_options("DeleteOptions", faults)
    preconditions = options.preconditions or _Preconditions()
    return DeleteOptions(
        grace_period_s=options.grace_period_seconds,
        propagation=_propagation(options),
        uid=preconditions.uid,
        resource_version=preconditions.resource_version,
        dry_run=bool(options.dry_run),
    )


# --- marking ------------------------------------------------------------------------------------------------


def _decide_pod(pod: Document, options: DeleteOptions, now: datetime) -> Decision:
    """A pod gets a grace period, which later deletions can only shorten."""
    metadata = pod["metadata"]
    if not metadata.get("deletionTimestamp"):
        grace_s = _grace_period_s(pod, options)
        marked = _marked(pod, grace_s, now)
    else:
        left_s = metadata.get("deletionGracePeriodSeconds") or 0
        if options.grace_period_s is None or options.grace_period_s >= left_s:
            return AlreadyMarked(pod)
        grace_s = options.grace_period_s
        end = parse_timestamp(metadata["deletionTimestamp"]) - timedelta(seconds=left_s - grace_s)
        earlier = {"deletionTimestamp": print_timestamp(max(end, now)), "deletionGracePeriodSeconds": grace_s}
        marked = {**pod, "metadata": {**metadata, **earlier}}
    return Marked(marked) if grace_s or _is_held(marked) else Removed(marked)


def _grace_period_s(pod: Document, options: DeleteOptions) -> int:
    spec = pod.get("spec") or {}
    is_finished = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    if not spec.get("nodeName") or is_finished:
        return 0
    asked_s = options.grace_period_s
    period_s: int = spec.get("terminationGracePeriodSeconds", POD_GRACE_S) if asked_s is None else asked_s
    # Kubernetes takes a negative period for one second.
    return 1 if period_s < 0 else period_s


def _marked(document: Document, grace_s: int, now: datetime) -> Document:
    metadata = dict(document["metadata"])
    metadata["deletionTimestamp"] = print_timestamp(now + timedelta(seconds=grace_s))
    metadata["deletionGracePeriodSeconds"] = grace_s
    if metadata.get("generation"):
        metadata["generation"] += 1
    return {**document, "metadata": metadata}


def _is_held(document: Document) -> bool:
    """True if the object has finalizers; namespaces have them in their spec, too."""
    in_spec = (document.get("spec") or {}).get("finalizers") if document.get("kind") == "Namespace" else None
    return bool(document["metadata"].get("finalizers") or in_spec)


def _with_finalizers(document: Document, finalizers: list[str]) -> Document:
    metadata = dict(document["metadata"])
    if finalizers == (metadata.get("finalizers") or []):
        return document
    metadata["finalizers"] = finalizers
    return {**document, "metadata": metadata}


def _finalizers(kind: str, document: Document, options: DeleteOptions) -> list[str]:
    """The object's finalizers, with the propagation policy of this deletion."""
    existing = document["metadata"].get("finalizers") or []
    others = [name for name in existing if name not in (ORPHAN_FINALIZER, FOREGROUND_FINALIZER)]
    match options.propagation:
        case Propagation.ORPHAN:
            return [*others, ORPHAN_FINALIZER]
        case Propagation.FOREGROUND:
            return [*others, FOREGROUND_FINALIZER]
        case Propagation.BACKGROUND:
            return others
        case None:
            # Keep the earlier policy; Jobs default to orphan (legacy).
            is_job = kind == "Job" and not document["metadata"].get("deletionTimestamp")
            return [*existing, ORPHAN_FINALIZER] if is_job and existing == others else existing


# --- options ------------------------------------------------------------------------------------------------

_PARAMETERS: Final = ("gracePeriodSeconds", "propagationPolicy", "orphanDependents", "dryRun")


class _Preconditions(msgspec.Struct, rename="camel"):
    uid: str | None = None
    resource_version: str | None = None


class _WireOptions(msgspec.Struct, rename="camel"):
    kind: str | None = None
    grace_period_seconds: int | None = None
    propagation_policy: str | None = None
    orphan_dependents: bool | None = None
    dry_run: list[str] | None = None
    preconditions: _Preconditions | None = None


def _faults(options: _WireOptions) -> Iterator[FieldError]:
    policy, known = options.propagation_policy, tuple(propagation.value for propagation in Propagation)
    if policy is not None and policy not in known:
        yield not_supported(FieldPath.of("propagationPolicy"), policy, known)
    if policy is not None and options.orphan_dependents is not None:
        detail = "orphanDependents and deletionPropagation cannot be both set"
        yield invalid(FieldPath.of("propagationPolicy"), policy, detail)
    if unknown := [stage for stage in options.dry_run or () if stage != "All"]:
        yield not_supported(FieldPath.of("dryRun"), unknown, ("All",))


def _propagation(options: _WireOptions) -> Propagation | None:
    if options.orphan_dependents is not None:
        return Propagation.ORPHAN if options.orphan_dependents else Propagation.BACKGROUND
    return Propagation(options.propagation_policy) if options.propagation_policy else None
