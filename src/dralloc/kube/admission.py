"""The admission of an object as one function of values: from the object that a client sent to the one that is stored.

Decoding comes before and storing after. The server checks for write conflicts and authorizes the caller.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import chain
from typing import Final, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dralloc.kube import resource_v1
from dralloc.kube.canonical_form import canonicalize, with_canonical_times
from dralloc.kube.conversion import V1BETA1, to_hub
from dralloc.kube.kind import Kind
from dralloc.kube.meta_v1 import ApiObject, ObjectMeta
from dralloc.kube.strategy import AdmissionContext, StatusStrategy, Strategy
from dralloc.kube.timestamps import BadTimestamp, print_timestamp
from dralloc.kube.unstructured_object import UnstructuredObject
from dralloc.kube.validation.formats import validate_qualified_name
from dralloc.kube.validation.metadata import validate_managed_fields
from dralloc.primitives.errors import BadRequest
from dralloc.primitives.field_errors import FieldError, FieldPath, distinct, invalid

ObjectT = TypeVar("ObjectT", bound=ApiObject)

# Leaves room for the generated suffix within the name limit of all kinds.
GENERATED_PREFIX_LENGTH_MAX: Final = 58


class Verb(Enum):
    CREATE = "create"
    UPDATE = "update"


class WriteRequest(Struct, frozen=True, kw_only=True, gc=False):
    """A write as a client requests it. `name` and `namespace` are those of the URL; a create has no name there."""

    verb: Verb
    kind: Kind
    version: str
    new: ApiObject
    old: ApiObject | None = None
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    # The JSON that was sent, for warnings about values that decoding drops.
    body: bytes = b""
    # The handlers of an API server clear some metadata before and after the strategies; recorded answers of the
    # strategies alone keep it.
    is_handled: bool = True


class Admitted(Struct, frozen=True, gc=False):
    """The object to be stored, in the hub's shape, and warnings for the client."""

    stored: ApiObject
    warnings: tuple[str, ...] = ()


class Refused(Struct, frozen=True, gc=False):
    """The field errors of the object that a user is told. `name` is the name that it would have had."""

    name: str
    faults: tuple[FieldError, ...]


def admit(request: WriteRequest, context: AdmissionContext) -> Admitted | Refused:
    """Decides on a write. Raises `BadRequest` if the object does not match the URL."""
    strategy: Strategy[ApiObject] = request.kind.strategy(context, flattened=request.version == V1BETA1)
    new = strategy.default(_read(request))
    _check_place(request, new.metadata)
    new, faults = _prepare_and_validate(request, new, strategy)
    if told := tuple(distinct(faults)):
        return Refused(new.metadata.name, told)
    return Admitted(canonicalize(new), tuple(_warn(request, new, strategy)))


def _read(request: WriteRequest) -> ApiObject:
    kind = request.kind
    try:
        new = with_canonical_times(to_hub(_in_stored_form(request)))
    except BadTimestamp as error:
        raise BadRequest(
            f'{kind.kind} in version "{request.version}" cannot be handled as a {kind.kind}: {error}'
        ) from None
    api_version = kind.api_version(kind.hub_version)
    if (new.api_version, new.kind) == (api_version, kind.kind):
        return new
    return replace(new, api_version=api_version, kind=kind.kind)


def _in_stored_form(request: WriteRequest) -> ApiObject:
    served = request.kind.served(request.version)
    if served is None or served.forms is None or not isinstance(request.new, UnstructuredObject):
        return request.new
    return replace(request.new, content=served.forms.to_stored(request.new.content))


def _check_place(request: WriteRequest, metadata: ObjectMeta) -> None:
    if request.name and metadata.name and metadata.name != request.name:
        raise BadRequest(
            f"the name of the object ({metadata.name}) does not match the name on the URL ({request.name})"
        )
    if request.kind.namespaced and metadata.namespace and metadata.namespace != request.namespace:
        raise BadRequest("the namespace of the provided object does not match the namespace sent on the request")


def _prepare_and_validate(
    request: WriteRequest, new: ApiObject, strategy: Strategy[ApiObject]
) -> tuple[ApiObject, Iterable[FieldError]]:
    """Returns the object as it would be stored, and its field errors, which are looked for while they are read."""
    if request.verb is Verb.CREATE:
        new = strategy.prepare_create(_with_new_metadata(request, new, strategy.admission))
        return new, chain(_faults_without_handlers(request, new), strategy.validate_create(new))
    assert request.old is not None, "an update has an object to update"
    old = request.old
    faults = chain(_validate_resource_version(request, new.metadata), _faults_without_handlers(request, new))
    if request.subresource == "status":
        assert isinstance(strategy, StatusStrategy), f"{request.kind.kind} has no status"
        finalizers = strategy.finalizers_with_status(new, old)
        new = strategy.prepare_status(_with_metadata_of_status(request, new, old, finalizers), old)
        return new, chain(faults, strategy.validate_status(new, old))
    new = strategy.prepare_update(_with_updated_metadata(request, new, old), old)
    if request.subresource in strategy.parts:
        return new, chain(faults, strategy.validate_part(request.subresource, new, old))
    return new, chain(faults, strategy.validate_update(new, old))


def _faults_without_handlers(request: WriteRequest, new: ApiObject) -> Iterable[FieldError]:
    return () if request.is_handled else validate_managed_fields(new.metadata.managed_fields)


def _validate_resource_version(request: WriteRequest, metadata: ObjectMeta) -> Iterator[FieldError]:
    served = request.kind.served(request.version)
    if not metadata.resource_version and served is not None and not served.unconditional_update:
        yield invalid(FieldPath.of("metadata", "resourceVersion"), "", "must be specified for an update")


def _with_new_metadata(request: WriteRequest, new: ObjectT, context: AdmissionContext) -> ObjectT:
    metadata = new.metadata
    prefix = metadata.generate_name
    name = metadata.name or (generated_name(prefix, context.name_suffix) if prefix else "")
    return replace(
        new,
        metadata=replace(
            metadata,
            name=name,
            namespace=(metadata.namespace or request.namespace) if request.kind.namespaced else "",
            uid=context.uid,
            creation_timestamp=print_timestamp(context.now),
            resource_version="",
            self_link="",
            deletion_timestamp=None,
            deletion_grace_period_seconds=None if request.is_handled else metadata.deletion_grace_period_seconds,
        ),
    )


def generated_name(prefix: str, suffix: str) -> str:
    """The name that the server gives to an object with this `generateName`."""
    kept = prefix.encode()[:GENERATED_PREFIX_LENGTH_MAX].decode(errors="ignore")
    return f"{kept}{suffix}"


def _with_updated_metadata(request: WriteRequest, new: ObjectT, old: ObjectT) -> ObjectT:
    """Restores the server-managed metadata. What is left of the client's, validation compares with the stored one."""
    metadata, before = new.metadata, old.metadata
    return replace(
        new,
        metadata=replace(
            metadata,
            name=metadata.name or before.name,
            namespace=(metadata.namespace or before.namespace) if request.kind.namespaced else "",
            uid=metadata.uid or before.uid,
            generation=before.generation,
            creation_timestamp=before.creation_timestamp or metadata.creation_timestamp,
            deletion_timestamp=before.deletion_timestamp or metadata.deletion_timestamp,
            deletion_grace_period_seconds=_grace_period(metadata, before),
            resource_version="",
            self_link="",
        ),
    )


def _with_metadata_of_status(request: WriteRequest, new: ObjectT, old: ObjectT, finalizers: tuple[str, ...]) -> ObjectT:
    """A write of the status changes no metadata but `managedFields` and what its kind allows; validation finds a changed identity."""
    metadata, before = new.metadata, old.metadata
    return replace(
        new,
        metadata=replace(
            before,
            name=metadata.name or before.name,
            namespace=(metadata.namespace or before.namespace) if request.kind.namespaced else "",
            uid=metadata.uid or before.uid,
            deletion_grace_period_seconds=_grace_period(metadata, before),
            finalizers=finalizers,
            managed_fields=metadata.managed_fields,
        ),
    )


def _grace_period(metadata: ObjectMeta, before: ObjectMeta) -> int | None:
    given = metadata.deletion_grace_period_seconds
    return before.deletion_grace_period_seconds if given is None else given


def _warn(request: WriteRequest, new: ApiObject, strategy: Strategy[ApiObject]) -> Iterator[str]:
    deprecation = request.kind.deprecation_warning(request.version)
    if deprecation is not None:
        yield deprecation
    yield from strategy.warnings(new)
    if request.body:
        yield from warn_of_zero_counts(request.body)


# --- Admission warnings ---------------------------------------------------------------------------------------------
# Warnings about values that Kubernetes accepts but that are probably mistakes.


TOLERATIONS_COUNT_MAX: Final = 16

_ZERO_COUNT: Final = re.compile(rb'"count"\s*:\s*-?0\s*[,}]')


def warn_of_slice(spec: resource_v1.ResourceSliceSpec) -> Iterator[str]:
    if spec.driver != spec.driver.lower():
        yield f"spec.driver: driver names should use only lower case characters: {spec.driver!r}"
    for position, device in enumerate(spec.devices or ()):
        for name, capacity in device.capacity.items():
            if capacity.request_policy is not None or capacity.value.nanos < 0:
                yield from _warn_of_capacity(capacity, f"spec.devices[{position}].capacity[{name}]")


def _warn_of_capacity(capacity: resource_v1.DeviceCapacity, path: str) -> Iterator[str]:
    policy = capacity.request_policy
    if capacity.value.nanos < 0:
        yield f"{path}.value: {capacity.value} is negative, so the device serves no request"
    if policy is None:
        return
    where, default, allowed = f"{path}.requestPolicy", policy.default, policy.valid_range
    if policy == resource_v1.CapacityRequestPolicy():
        yield f"{where}: an empty policy has no effect"
    if default is not None and default.sign < 0:
        yield f"{where}.default: {default} is negative, so the device serves no request without an amount of its own"
    elif default is not None and default > capacity.value:
        yield f"{where}.default: {default} is more than the capacity {capacity.value}"
    if allowed is not None and allowed.min is not None and allowed.min.sign < 0:
        yield f"{where}.validRange.min: {allowed.min} is negative"


def warn_of_claim_spec(spec: resource_v1.ResourceClaimSpec, prefix: str) -> Iterator[str]:
    for position, constraint in enumerate(spec.devices.constraints):
        yield from _warn_of_constraint(constraint, f"{prefix}.devices.constraints[{position}]")
    for position, request in enumerate(spec.devices.requests or ()):
        path = f"{prefix}.devices.requests[{position}]"
        if request.exactly is not None:
            yield from _warn_of_ask(request.exactly, f"{path}.exactly")
        for index, alternative in enumerate(request.first_available):
            yield from _warn_of_ask(alternative, f"{path}.firstAvailable[{index}]")


def _warn_of_constraint(constraint: resource_v1.DeviceConstraint, path: str) -> Iterator[str]:
    match, distinct = constraint.match_attribute, constraint.distinct_attribute
    if match is not None and distinct is not None:
        yield f"{path}: a constraint has both matchAttribute and distinctAttribute; use two constraints instead"
    for field, name in (("matchAttribute", match), ("distinctAttribute", distinct)):
        if name is not None and name.count("/") > 1:
            yield f"{path}.{field}: {name!r} has more than one '/', so no device has an attribute of that name"


def _warn_of_ask(ask: resource_v1.ExactDeviceRequest | resource_v1.DeviceSubRequest, path: str) -> Iterator[str]:
    if len(ask.tolerations) > TOLERATIONS_COUNT_MAX:
        yield f"{path}.tolerations: more than {TOLERATIONS_COUNT_MAX} tolerations are not supported"
    for name, amount in ask.capacity.requests.items() if ask.capacity else ():
        where = f"{path}.capacity.requests[{name}]"
        if name.count("/") > 1 or any(validate_qualified_name(name, FieldPath.of("requests"))):
            yield f"{where}: no device has a capacity of that name"
        if amount.sign < 0:
            yield f"{where}: {amount} is negative"


def warn_of_zero_counts(body: bytes) -> Iterator[str]:
    """A count of 0 means the default, 1. Only the JSON that was sent shows the difference from an absent count."""
    if _ZERO_COUNT.search(body) is None:
        return
    pending: list[tuple[str, object]] = [("", msgspec.json.decode(body))]
    for path, node in pending:
        if isinstance(node, dict):
            if (
                node.get("count") == 0
                and node.get("allocationMode", "ExactCount") == "ExactCount"
                and "deviceClassName" in node
            ):
                yield f"{path.removeprefix('.')}.count: 0 is treated as 1"
            pending.extend((f"{path}.{key}", value) for key, value in node.items())
        elif isinstance(node, list):
            pending.extend((f"{path}[{position}]", value) for position, value in enumerate(node))
