"""What a delete does to an object: it goes at once, or it is marked and goes when nobody holds it any more.

Finalizers hold any object. A pod that runs on a node is also given time to end, and a namespace stays until it
is empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeVar

from msgspec.structs import replace

from dralloc.api.core_object import CoreObject, view
from dralloc.api.core_v1 import Pod
from dralloc.api.meta_v1 import ApiObject
from dralloc.api.timestamps import parse_timestamp, print_timestamp

ObjectT = TypeVar("ObjectT", bound=ApiObject)

POD: Final = "Pod"
NAMESPACE: Final = "Namespace"
GRACE_PERIOD_DEFAULT_S: Final = 30


@dataclass(frozen=True, slots=True)
class Gone:
    """The object is removed from the store."""


@dataclass(frozen=True, slots=True)
class Marked:
    """The object stays for now, as this. It may be the very object that is stored already."""

    stored: ApiObject


def delete_object(obj: ApiObject, now: datetime, grace_period_s: int | None = None) -> Gone | Marked:
    """What becomes of the object when it is deleted; a client may ask for a period of grace, or for none (0)."""
    period_s = _grace_period_s(obj, grace_period_s)
    if period_s == 0 and not is_held(obj):
        return Gone()
    metadata = obj.metadata
    if metadata.deletion_timestamp is None:
        ends = print_timestamp(now + timedelta(seconds=period_s))
        return Marked(_with_deletion(obj, ends, period_s, generation_step=1))
    if period_s >= (metadata.deletion_grace_period_seconds or 0):
        return Marked(obj)
    # Time can be taken away from an object that is on its way, and not given.
    before_s = metadata.deletion_grace_period_seconds or 0
    ends = print_timestamp(parse_timestamp(metadata.deletion_timestamp) - timedelta(seconds=before_s - period_s))
    return Marked(_with_deletion(obj, ends, period_s, generation_step=0))


def is_held(obj: ApiObject) -> bool:
    """Whether somebody has to do something before the object may go."""
    if obj.metadata.finalizers:
        return True
    return isinstance(obj, CoreObject) and obj.kind == NAMESPACE and bool(obj.member("spec").get("finalizers"))


def may_go(obj: ApiObject) -> bool:
    """Whether an object that was just written is to be removed: it is deleted, and nothing holds it any more."""
    metadata = obj.metadata
    return metadata.deletion_timestamp is not None and not metadata.deletion_grace_period_seconds and not is_held(obj)


def _grace_period_s(obj: ApiObject, asked_s: int | None) -> int:
    if obj.kind != POD or not isinstance(obj, CoreObject):
        return 0
    pod = view(obj, Pod)
    if not pod.spec.node_name or pod.is_finished:
        return 0
    if asked_s is None:
        own_s = pod.spec.termination_grace_period_seconds
        asked_s = GRACE_PERIOD_DEFAULT_S if own_s is None else own_s
    # A negative period means: as short as can be.
    return 1 if asked_s < 0 else asked_s


def _with_deletion(obj: ObjectT, ends: str, period_s: int, *, generation_step: int) -> ObjectT:
    metadata = obj.metadata
    generation = metadata.generation + generation_step if metadata.generation else 0
    marked = replace(
        obj,
        metadata=replace(
            metadata, deletion_timestamp=ends, deletion_grace_period_seconds=period_s, generation=generation
        ),
    )
    if isinstance(marked, CoreObject) and marked.kind == NAMESPACE:
        content = {**marked.content, "status": {**marked.member("status"), "phase": "Terminating"}}
        return replace(marked, content=content)
    return marked
