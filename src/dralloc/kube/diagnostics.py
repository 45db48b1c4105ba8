"""Reports every error and warning of every object in a manifest, with its position in the text.

Each object is validated as if it were created now and its status written right after, on an otherwise unknown cluster.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from dralloc.cel.compiler import compile_selector_expression
from dralloc.cel.errors import CelCompileError
from dralloc.kube import gated_fields
from dralloc.kube.admin_access import ADMIN_ACCESS_LABEL
from dralloc.kube.admission import Admitted, Refused, Verb, WriteRequest, admit
from dralloc.kube.codec import DecodeError, encode
from dralloc.kube.conversion import V1BETA1, to_hub
from dralloc.kube.core_strategies import GATED_MEMBERS, without_gated_members
from dralloc.kube.gated_fields import GatedFields
from dralloc.kube.inventory import Inventory, find_unknown_names, take_inventory
from dralloc.kube.kind import Kind
from dralloc.kube.manifests import Document, Manifest, read_manifest
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.positions import Position, Steps, nearest
from dralloc.kube.registry import KINDS, find_in_other_versions, find_kind, read_object, whole_type
from dralloc.kube.resource_v1 import DeviceClass, ResourceClaim, ResourceClaimSpec, ResourceClaimTemplate, ResourceSlice
from dralloc.kube.scheduling_v1beta1 import PodGroup, Workload
from dralloc.kube.schema import MismatchKind, find_mismatches
from dralloc.kube.strategy import AdmissionContext
from dralloc.kube.unstructured_object import UnstructuredObject
from dralloc.primitives.errors import BadRequest
from dralloc.primitives.features import FeatureGates
from dralloc.primitives.field_errors import FieldPath
from dralloc.primitives.names import SUFFIX_LENGTH
from dralloc.primitives.removals import removed_kind


class Severity(Enum):
    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One error or warning. Path, kind and name are empty if the text itself cannot be parsed."""

    position: Position
    severity: Severity
    message: str
    path: str = ""
    kind: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class ManifestDiagnosis:
    """The number of objects in a manifest, the valid ones as they would be stored, and all diagnostics."""

    object_count: int
    stored: tuple[ApiObject, ...]
    diagnostics: tuple[Diagnostic, ...]


def diagnose_manifest(source: bytes, context: AdmissionContext) -> ManifestDiagnosis:
    """Returns all diagnostics of the objects in the bytes of a file."""
    manifest = read_manifest(source)
    context = replace(context, namespace_labels=_LABELLED, name_suffix=_SUFFIX)
    stored: list[ApiObject] = []
    findings: list[_Finding] = []
    for document in manifest.documents:
        found, admitted = _diagnose_document(document, context)
        findings.extend(found)
        stored.extend(admitted)
    diagnostics = list(_located(manifest, findings))
    if manifest.error is not None:
        diagnostics.append(Diagnostic(manifest.error.position, Severity.ERROR, str(manifest.error)))
    diagnostics.sort(key=lambda diagnostic: diagnostic.position)
    return ManifestDiagnosis(len(manifest.documents), tuple(stored), tuple(diagnostics))


# --- One object --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Finding:
    """A diagnostic whose position is not looked up yet."""

    document: Document
    severity: Severity
    message: str
    path: str = ""
    steps: Steps = ()


# The labels of namespaces are unknown here: an object that needs one is accepted with a warning.
_LABELLED: Final = {ADMIN_ACCESS_LABEL: "true"}
# Stands for what a server appends to a `generateName`.
_SUFFIX: Final = "x" * SUFFIX_LENGTH


def _diagnose_document(document: Document, context: AdmissionContext) -> tuple[list[_Finding], tuple[ApiObject, ...]]:
    kind = find_kind(document.api_version, document.kind)
    if kind is None:
        return [_unknown_kind(document)], ()
    version = document.api_version.rpartition("/")[2]
    mismatches = find_mismatches(document.tree, whole_type(kind, version))
    findings = [
        _Finding(document, Severity.ERROR, mismatch.message, str(mismatch.path or ""), mismatch.steps)
        for mismatch in mismatches
    ]
    unreadable = [mismatch.steps for mismatch in mismatches if mismatch.kind is MismatchKind.WRONG_TYPE]
    try:
        sent = read_object(kind, version, _without(document, unreadable))
        creation = _creation(document, kind, version, sent)
        outcome = _write(document, creation, context)
    except DecodeError as error:
        return findings or [_Finding(document, Severity.ERROR, str(error))], ()
    except BadRequest as error:
        return [*findings, _Finding(document, Severity.ERROR, str(error))], ()
    findings.extend(_warning(document, text) for text in warn_of_dropped_fields(to_hub(sent), context.gates))
    if isinstance(outcome, Refused):
        faults = _faults(document, outcome, Severity.ERROR)
        return [*findings, *(fault for fault in faults if not _is_about(fault.steps, unreadable))], ()
    if unreadable:
        return findings, ()
    warnings = (_warning(document, text) for text in outcome.warnings)
    stored = outcome.stored
    # The name is up to the server, which generates another one each time.
    stored = replace(stored, metadata=replace(stored.metadata, name=sent.metadata.name))
    return [*findings, *warnings, *_label_warnings(document, creation, context)], (stored,)


def _creation(document: Document, kind: Kind, version: str, sent: ApiObject) -> WriteRequest:
    return WriteRequest(
        verb=Verb.CREATE,
        kind=kind,
        version=version,
        new=sent,
        namespace=(sent.metadata.namespace or "default") if kind.namespaced else "",
        body=document.body,
    )


def _write(document: Document, creation: WriteRequest, context: AdmissionContext) -> Admitted | Refused:
    """Creates the object, and writes its status if it has one."""
    created = admit(creation, context)
    if isinstance(created, Refused) or "status" not in creation.kind.subresources or not document.tree.get("status"):
        return created
    # As it is read before the status is written: with what the server gave it, such as the UID.
    read = replace(creation.new, metadata=replace(created.stored.metadata, resource_version="1"))
    update = replace(creation, verb=Verb.UPDATE, new=read, old=created.stored, subresource="status", body=b"")
    written = admit(update, context)
    return written if isinstance(written, Refused) else Admitted(written.stored, created.warnings)


def _label_warnings(document: Document, creation: WriteRequest, context: AdmissionContext) -> Iterator[_Finding]:
    if b'"adminAccess"' in document.body:
        outcome = admit(creation, replace(context, namespace_labels={}))
        if isinstance(outcome, Refused):
            yield from _faults(document, outcome, Severity.WARNING)


def _without(document: Document, unreadable: list[Steps]) -> bytes:
    """Returns the object without the values of the wrong type, so that the rest can be validated."""
    if not unreadable or () in unreadable:
        return document.body
    tree = msgspec.json.decode(document.body)
    for *way, last in unreadable:
        container = tree
        for step in way:
            container = container[step]
        container[last] = None
    return msgspec.json.encode(tree)


def _is_about(steps: Steps, unreadable: list[Steps]) -> bool:
    """True if an error is only a consequence of removed values: it is inside one, or inside an object that contains
    one.
    """
    return any(steps == way[: len(steps)] or way == steps[: len(way)] for way in unreadable)


def _faults(document: Document, refused: Refused, severity: Severity) -> Iterator[_Finding]:
    for fault in refused.faults:
        yield _Finding(document, severity, fault.message, str(fault.path), fault.path.steps)


_PATH_OF_WARNING: Final = re.compile(r"((?:spec|status|metadata)[^:\s]*): (.*)", re.DOTALL)
_STEP: Final = re.compile(r"\[([^\]]*)\]|([^.\[]+)")


def _warning(document: Document, text: str) -> _Finding:
    match = _PATH_OF_WARNING.fullmatch(text)
    if match is None:
        return _Finding(document, Severity.WARNING, text, steps=("apiVersion",))
    steps = tuple(
        int(bracketed) if bracketed.isdecimal() else bracketed or name for bracketed, name in _STEP.findall(match[1])
    )
    return _Finding(document, Severity.WARNING, match[2], match[1], steps)


# --- Unknown kinds -----------------------------------------------------------------------------------------------


def _unknown_kind(document: Document) -> _Finding:
    if not isinstance(document.tree, dict):
        return _Finding(document, Severity.ERROR, "expected an object with apiVersion and kind")
    missing = [name for name in ("apiVersion", "kind") if not document.tree.get(name)]
    if missing:
        return _Finding(document, Severity.ERROR, f"missing {' and '.join(missing)}")
    if (known := find_in_other_versions(document.api_version, document.kind)) is not None:
        return _Finding(document, Severity.ERROR, known.lacks(document.api_version), steps=("apiVersion",))
    group = document.api_version.rpartition("/")[0]
    if gone := removed_kind(group, document.kind):
        return _Finding(document, Severity.WARNING, f"not checked: {gone}", steps=("kind",))
    close = difflib.get_close_matches(document.kind, [kind.kind for kind in KINDS if kind.group == group], n=1)
    if close:
        message = f'there is no kind "{document.kind}" in {document.api_version}, did you mean "{close[0]}"?'
        return _Finding(document, Severity.ERROR, message, steps=("kind",))
    message = f"not checked: dralloc does not know the kind {document.kind} of {document.api_version}"
    return _Finding(document, Severity.WARNING, message, steps=("kind",))


# --- Positions ---------------------------------------------------------------------------------------------------


def _located(manifest: Manifest, findings: Iterable[_Finding]) -> Iterator[Diagnostic]:
    findings = list(findings)
    positions = manifest.locate(finding.document for finding in findings)
    for finding in findings:
        document = finding.document
        written = _as_written(positions[document.index], document, finding.steps)
        metadata = document.tree.get("metadata") if isinstance(document.tree, dict) else None
        name = metadata.get("name") if isinstance(metadata, dict) else None
        yield Diagnostic(
            nearest(positions[document.index], written),
            finding.severity,
            finding.message,
            finding.path,
            document.kind,
            name if isinstance(name, str) else "",
        )


def _as_written(positions: dict[Steps, Position], document: Document, steps: Steps) -> Steps:
    """Returns the steps to the position of an error in the text: errors of v1beta1 objects are reported in v1's shape."""
    written = (*document.prefix, *steps)
    if document.api_version.endswith(f"/{V1BETA1}"):
        written = tuple(step for step in written if step != "exactly")
        device = len(document.prefix) + 3
        if (
            steps[:2] == ("spec", "devices")
            and (*written[:device], "basic") in positions
            and written[device : device + 1] != ("basic",)
        ):
            written = (*written[:device], "basic", *written[device:])
    return written


# --- Gate warnings --------------------------------------------------------------------------------------------------
# Warnings about fields that a server drops, because their feature gate is off. The server itself drops them
# silently.


# The fields of a device that have names of the user's for keys.
_IS_MAP: Final = re.compile(r"spec\.devices\[\d+\]\.(capacity|requestPolicies)$")


def warn_of_dropped_fields(obj: ApiObject, gates: FeatureGates) -> Iterator[str]:
    """Yields a warning for each field of the object, in the hub's shape, that a creation drops."""
    match obj:
        case ResourceSlice():
            yield from _warn(gated_fields.SLICE_FEATURES, obj.spec, "spec", gates)
        case DeviceClass():
            yield from _warn(gated_fields.CLASS_FEATURES, obj.spec, "spec", gates)
        case ResourceClaim():
            yield from _warn_of_claim(obj.spec, "spec", gates)
        case ResourceClaimTemplate():
            yield from _warn_of_claim(obj.spec.spec, "spec.spec", gates)
        case PodGroup() | Workload() if "GenericWorkload" not in gates:
            yield f"{obj.kind}: not served by a server without the feature gate GenericWorkload"
        case UnstructuredObject(kind="Pod"):
            spec = obj.member("spec")
            kept = without_gated_members(spec, {}, gates)
            for name in spec.keys() - kept.keys():
                yield f"spec.{name}: dropped by a server without the feature gate {GATED_MEMBERS[name]}"
        case _:
            return


def _warn_of_claim(spec: ResourceClaimSpec, path: str, gates: FeatureGates) -> Iterator[str]:
    yield from _warn(gated_fields.CLAIM_SPEC_FEATURES, spec, path, gates)
    if gated_fields.uses_aggregated_capacity(spec) and "DRAAggregatedCapacity" not in gates:
        yield f"{path}.devices.requests: mode AggregatedCapacity is refused by a server without the feature gate DRAAggregatedCapacity"


def _warn(features: tuple[GatedFields[Any], ...], part: Any, path: str, gates: FeatureGates) -> Iterator[str]:
    warned: set[str] = set()
    for feature in features:
        off = [gate for gate in feature.gates if gate not in gates]
        if not off or not feature.in_use(part):
            continue
        for field in _lost(_tree(part), _tree(feature.cleared(part)), path):
            # A field of a field that another gate drops.
            if not any(field.startswith(outer) for outer in warned):
                warned.add(field)
                yield f"{field}: dropped by a server without the feature gate {' and '.join(off)}"


def _tree(part: Any) -> Any:
    return msgspec.json.decode(encode(part))


def _lost(before: Any, after: Any, path: str) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name, value in before.items():
            where = f"{path}[{name}]" if _IS_MAP.search(path) else f"{path}.{name}"
            if name not in after:
                yield where
            else:
                yield from _lost(value, after[name], where)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for position, (value, kept) in enumerate(zip(before, after, strict=True)):
            yield from _lost(value, kept, f"{path}[{position}]")
    elif before != after:
        yield path


# --- Selector warnings ----------------------------------------------------------------------------------------------
# Warnings that depend on several objects: selectors for names that no device has.


def warn_about_unknown_names(manifests: Sequence[Manifest]) -> Iterator[tuple[int, Diagnostic]]:
    """Yields warnings about selectors, with the index of their manifest. Silent if no manifest has a device."""
    inventory = take_inventory(found for manifest in manifests for found in _slices(manifest))
    if not inventory.device_count:
        return
    for index, manifest in enumerate(manifests):
        for diagnostic in _warnings(manifest, inventory):
            yield index, diagnostic


def _slices(manifest: Manifest) -> Iterator[ResourceSlice]:
    for document in manifest.documents:
        kind = find_kind(document.api_version, document.kind)
        if kind is None or kind.hub is not ResourceSlice:
            continue
        try:
            found = to_hub(read_object(kind, document.api_version.rpartition("/")[2], document.body))
        except DecodeError:
            # The decode error is reported separately.
            continue
        assert isinstance(found, ResourceSlice)
        yield found


def _warnings(manifest: Manifest, inventory: Inventory) -> Iterator[Diagnostic]:
    found = [
        (document, steps, str(unknown))
        for document in manifest.documents
        for steps, expression in _expressions(document.tree)
        for unknown in _unknown_names(expression, inventory)
    ]
    positions = manifest.locate(document for document, _, _ in found)
    for document, steps, message in found:
        position = nearest(positions[document.index], (*document.prefix, *steps))
        yield Diagnostic(position, Severity.WARNING, message, _shown(steps), document.kind, _name(document))


def _unknown_names(expression: str, inventory: Inventory) -> Sequence[object]:
    try:
        return find_unknown_names(compile_selector_expression(expression).reads, inventory)
    except CelCompileError:
        return ()


def _expressions(tree: Any) -> Iterator[tuple[Steps, str]]:
    """Yields every `cel.expression` in an object of any kind and version."""
    pending: list[tuple[Steps, Any]] = [((), tree)]
    while pending:
        steps, part = pending.pop()
        if isinstance(part, list):
            pending.extend(((*steps, index), part[index]) for index in reversed(range(len(part))))
        elif isinstance(part, dict):
            pending.extend(((*steps, name), part[name]) for name in reversed(part))
        elif isinstance(part, str) and steps[-2:] == ("cel", "expression"):
            yield steps, part


def _shown(steps: Steps) -> str:
    path: FieldPath | None = None
    for step in steps:
        path = FieldPath(path, step)
    return str(path)


def _name(document: Document) -> str:
    metadata = document.tree.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else ""
