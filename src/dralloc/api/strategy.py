"""What the rules of a kind consist of, and what they must know: the frame that `strategies` and `core_strategies` fill.

Order matters: defaults come first, then what the caller may not set is put back, then fields of features that are
off are dropped; validation sees the rest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from dralloc.api.authorization import Permission, permit_everything
from dralloc.api.expression_checker import CEL, ExpressionChecker
from dralloc.api.meta_v1 import ApiObject
from dralloc.api.validation.context import ValidationContext
from dralloc.primitives.features import FeatureGates
from dralloc.primitives.field_errors import FieldError

ObjectT = TypeVar("ObjectT", bound=ApiObject)


class AdmissionContext(Struct, frozen=True, kw_only=True, gc=False):
    """What admission must know besides the request, and what it may not make up itself."""

    gates: FeatureGates
    now: datetime
    expressions: ExpressionChecker = CEL
    # Labels of the namespace that the object is in; None where it could not be read.
    namespace_labels: Mapping[str, str] | None = None
    # Whether the caller may do this; asked where a write needs more than the right to write.
    permits: Callable[[Permission], bool] = permit_everything
    # Given to a new object.
    uid: str = ""
    name_suffix: str = ""


class Strategy(ABC, Generic[ObjectT]):
    """The rules of one kind, for one request. `flattened`: it came as v1beta1."""

    __slots__ = ("admission", "context")

    def __init__(self, admission: AdmissionContext, *, flattened: bool = False) -> None:
        self.admission = admission
        self.context = ValidationContext(gates=admission.gates, expressions=admission.expressions, flattened=flattened)

    def default(self, obj: ObjectT) -> ObjectT:
        return obj

    @abstractmethod
    def prepare_create(self, new: ObjectT) -> ObjectT:
        """What a new object is before it is judged."""

    @abstractmethod
    def validate_create(self, new: ObjectT) -> Iterator[FieldError]: ...

    @abstractmethod
    def prepare_update(self, new: ObjectT, old: ObjectT) -> ObjectT:
        """What an update makes of the object, before it is judged."""

    @abstractmethod
    def validate_update(self, new: ObjectT, old: ObjectT) -> Iterator[FieldError]: ...

    def warnings(self, new: ObjectT) -> Iterator[str]:  # noqa: ARG002
        """What is accepted and hardly meant."""
        yield from ()


class StatusStrategy(Strategy[ObjectT]):
    """The rules of a kind with a status that is written apart from the rest."""

    __slots__ = ()

    @abstractmethod
    def prepare_status(self, new: ObjectT, old: ObjectT) -> ObjectT:
        """What a write to the status makes of the object, before it is judged."""

    @abstractmethod
    def validate_status(self, new: ObjectT, old: ObjectT) -> Iterator[FieldError]: ...


def with_generation(obj: ObjectT, generation: int) -> ObjectT:
    if obj.metadata.generation == generation:
        return obj
    return replace(obj, metadata=replace(obj.metadata, generation=generation))
