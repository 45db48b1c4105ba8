"""The write strategy of a kind, and the context it needs: the interface that `resource_strategies` and
`core_strategies` implement.

Order matters: defaults come first, then fields that the caller may not set are restored, then fields of disabled
features are dropped; validation sees the rest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import ClassVar, Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from dralloc.kube.authorization import StatusRequester
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.validation.context import ValidationContext
from dralloc.primitives.features import FeatureGates
from dralloc.primitives.field_errors import FieldError

ObjectT = TypeVar("ObjectT", bound=ApiObject)


class AdmissionContext(Struct, frozen=True, kw_only=True, gc=False):
    """What admission needs besides the request, and must not generate itself."""

    gates: FeatureGates
    now: datetime
    # Labels of the object's namespace; None if it could not be read.
    namespace_labels: Mapping[str, str] | None = None
    # Who writes; without one, the write needs no permissions beyond those that were checked before.
    requester: StatusRequester | None = None
    # For a new object.
    uid: str = ""
    name_suffix: str = ""


class Strategy(ABC, Generic[ObjectT]):
    """The rules of one kind, for one request. `flattened`: it was sent as v1beta1."""

    __slots__ = ("admission", "context")

    # Subresources that write fields of the spec that an update may not change.
    parts: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, admission: AdmissionContext, *, flattened: bool = False) -> None:
        self.admission = admission
        self.context = ValidationContext(gates=admission.gates, flattened=flattened)

    def default(self, obj: ObjectT) -> ObjectT:
        return obj

    @abstractmethod
    def prepare_create(self, new: ObjectT) -> ObjectT:
        """Returns the new object as it is validated."""

    @abstractmethod
    def validate_create(self, new: ObjectT) -> Iterator[FieldError]: ...

    @abstractmethod
    def prepare_update(self, new: ObjectT, old: ObjectT) -> ObjectT:
        """Returns the updated object as it is validated."""

    @abstractmethod
    def validate_update(self, new: ObjectT, old: ObjectT) -> Iterator[FieldError]: ...

    def validate_part(self, part: str, new: ObjectT, old: ObjectT) -> Iterator[FieldError]:  # noqa: ARG002
        """Yields the errors of a write of one of `parts`."""
        raise AssertionError(f"no part of this kind: {part}")

    def warnings(self, new: ObjectT) -> Iterator[str]:  # noqa: ARG002
        """Yields warnings about values that are accepted but probably mistakes."""
        yield from ()


class StatusStrategy(Strategy[ObjectT]):
    """The rules of a kind whose status is written separately."""

    __slots__ = ()

    @abstractmethod
    def prepare_status(self, new: ObjectT, old: ObjectT) -> ObjectT:
        """Returns the object with the updated status as it is validated."""

    @abstractmethod
    def validate_status(self, new: ObjectT, old: ObjectT) -> Iterator[FieldError]: ...

    def finalizers_with_status(self, new: ObjectT, old: ObjectT) -> tuple[str, ...]:  # noqa: ARG002
        """Returns the finalizers after a write of the status; `new` is the object as it was sent."""
        return old.metadata.finalizers


def with_generation(obj: ObjectT, generation: int) -> ObjectT:
    if obj.metadata.generation == generation:
        return obj
    return replace(obj, metadata=replace(obj.metadata, generation=generation))
