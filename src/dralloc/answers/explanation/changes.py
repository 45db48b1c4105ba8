"""Single changes that could help a pod, as changes of objects and as an instruction.

Changes that users can make themselves rank before changes of the cluster. Whether a change helps is not known here
(`remedies`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dralloc.answers.object_changes import EnableFeatureGate, ObjectChange, ObjectEditor, SetField
from dralloc.devices.allocator.diagnosis.claim_edits import Slot
from dralloc.devices.identity import ClaimId, DeviceId, PoolId
from dralloc.devices.taints import text_of_taint
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.request_name import RequestName
from dralloc.kube.resource_v1 import (
    EQUAL,
    EXACT_COUNT,
    DeviceClass,
    DeviceTaint,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from dralloc.primitives.phrases import counted, first_few, shortened
from dralloc.primitives.quantity import Quantity


@dataclass(frozen=True, slots=True)
class Change:
    """One change, with its text as an instruction. The smaller its `distance`, the likelier it is the remedy."""

    # The name in JSON output.
    kind: str
    # From corrections that cost nothing to changes that only others can make.
    rank: int
    text: str
    objects: tuple[ObjectChange, ...]
    # How much is changed, to compare changes of the same rank.
    size: Fraction = Fraction(0)

    @property
    def distance(self) -> tuple[int, Fraction]:
        return self.rank, self.size

    @property
    def place(self) -> tuple[str, ...]:
        """The field that a correction sets."""
        first = self.objects[0]
        assert isinstance(first, SetField), "a correction sets a field"
        return first.kind, first.namespace, first.name, first.path


class ClaimEditor:
    """Edits a claim where it is written: in the claim if it exists, and in the template that it is made from."""

    def __init__(self, claim: ResourceClaim, template: ResourceClaimTemplate | None, *, exists: bool) -> None:
        self.claim_id = ClaimId.of(claim)
        self._editors: list[tuple[ObjectEditor, tuple[str, ...]]] = []
        if template is not None:
            self._editors.append((ObjectEditor(template), ("spec", "spec", "devices")))
        if exists or template is None:
            self._editors.append((ObjectEditor(claim), ("spec", "devices")))

    def change(self, *edits: tuple[Any, Sequence[str | int]]) -> tuple[ObjectChange, ...]:
        """Sets values, by their steps below `devices`; None removes one."""
        return tuple(
            editor.remove(*root, *steps) if value is None else editor.set(value, *root, *steps)
            for editor, root in self._editors
            for value, steps in edits
        )

    @property
    def devices(self) -> Any:
        editor, root = self._editors[0]
        found = editor.body
        for step in root:
            found = found[step]
        return found


@dataclass(frozen=True, slots=True)
class RequestEditor:
    """Edits a request, or an alternative of it. `name` is how texts call it."""

    claim: ClaimEditor
    slot: Slot
    name: str

    def steps(self, *steps: str | int) -> tuple[str | int, ...]:
        position = ("exactly",) if self.slot.alternative is None else ("firstAvailable", self.slot.alternative)
        return ("requests", self.slot.request, *position, *steps)

    def set(self, value: Any, *steps: str | int) -> tuple[ObjectChange, ...]:
        return self.claim.change((value, self.steps(*steps)))

    @property
    def body(self) -> Any:
        found = self.claim.devices
        for step in self.steps():
            found = found[step]
        return found


# --- Corrections ----------------------------------------------------------------------------------------------------------


def use_class(request: RequestEditor, name: str, was: str) -> Change:
    """Uses a class that exists in place of one that does not. Existing classes are chosen on purpose and are kept."""
    text = f"use class {name} instead of {was} in request {request.name}"
    return Change("UseClass", 0, text, request.set(name, "deviceClassName"))


def rename_capacity(request: RequestEditor, name: str, was: str) -> Change:
    edits = [
        ({(name if each == was else each): amount for each, amount in amounts.items()}, request.steps("capacity", kind))
        for kind, amounts in request.body["capacity"].items()
        if was in amounts
    ]
    text = f"request the capacity {name} instead of {was} in request {request.name}"
    return Change("RenameCapacity", 0, text, request.claim.change(*edits))


def correct_selector(request: RequestEditor, position: int, what: str, expression: str, size: int) -> Change:
    text = f"{what} in the selector of request {request.name}"
    return Change("CorrectSelector", 0, text, _set_selector(request, position, expression), Fraction(size))


def correct_class_selector(device_class: DeviceClass, position: int, what: str, expression: str, size: int) -> Change:
    text = f"{what} in the selector of class {device_class.metadata.name}"
    objects = _set_class_selector(device_class, position, expression)
    return Change("CorrectClassSelector", 0, text, objects, Fraction(size))


def correct_constraint(claim: ClaimEditor, steps: Sequence[str | int], name: str, was: str) -> Change:
    text = f"use the attribute {name} instead of {was} in a constraint of claim {claim.claim_id}"
    return Change("CorrectConstraint", 0, text, claim.change((name, ("constraints", *steps))))


def together(corrections: Sequence[Change]) -> Change:
    text = " and ".join(each.text for each in corrections)
    objects = tuple(each for correction in corrections for each in correction.objects)
    return Change("CorrectAll", 0, text, objects, Fraction(len(corrections)))


def guard_selector(request: RequestEditor, position: int, expression: str) -> Change:
    """Makes a selector read an attribute only if the device has it."""
    text = f"change the selector of request {request.name} to {expression}"
    return Change("GuardSelector", 1, text, _set_selector(request, position, expression))


def guard_class_selector(device_class: DeviceClass, position: int, expression: str) -> Change:
    text = f"change the selector of class {device_class.metadata.name} to {expression}"
    return Change("GuardClassSelector", 13, text, _set_class_selector(device_class, position, expression))


def _set_selector(request: RequestEditor, position: int, expression: str) -> tuple[ObjectChange, ...]:
    return request.set(expression, "selectors", position, "cel", "expression")


def _set_class_selector(device_class: DeviceClass, position: int, expression: str) -> tuple[ObjectChange, ...]:
    return (ObjectEditor(device_class).set(expression, "spec", "selectors", position, "cel", "expression"),)


# --- Requests for less ----------------------------------------------------------------------------------------------------


def tolerate(request: RequestEditor, taints: tuple[DeviceTaint, ...]) -> Change:
    first = len(request.body.get("tolerations", ()))
    edits: list[tuple[Any, Sequence[str | int]]] = [
        (
            {"key": taint.key, "operator": EQUAL, "value": taint.value, "effect": taint.effect},
            request.steps("tolerations", first + number),
        )
        for number, taint in enumerate(taints)
    ]
    if not first:
        edits = [([toleration for toleration, _ in edits], request.steps("tolerations"))]
    listed = " and ".join(map(text_of_taint, taints))
    text = f"tolerate the taint{'s' if len(taints) > 1 else ''} {listed} in request {request.name}"
    return Change("Tolerate", 2, text, request.claim.change(*edits), Fraction(len(taints)))


def request_less(request: RequestEditor, capacity: str, amount: Quantity, was: Quantity | None) -> Change:
    """`was` is None if nothing was requested, so that a default or all of it was consumed."""
    instead = f"{amount} of {capacity} instead of {was}" if was is not None else f"at most {amount} of {capacity}"
    size = 1 - Fraction(amount.nanos, was.nanos) if was else Fraction(1)
    objects = request.set(str(amount), "capacity", "requests", capacity)
    return Change("RequestLess", 3, f"request {instead} in request {request.name}", objects, size)


def omit_capacity(request: RequestEditor, capacity: str, default: Quantity | None = None) -> Change:
    """`default` is the amount that is consumed then, if devices agree on it."""
    applies = f" (the default, {default}, applies)" if default is not None else ""
    text = f"omit {capacity} in request {request.name}{applies}"
    return Change("OmitCapacity", 7, text, request.set(None, *_steps_to(request, "requests", capacity)))


def omit_limit(request: RequestEditor, capacity: str, limit: Quantity) -> Change:
    text = f"omit the limit {limit} of {capacity} in request {request.name}"
    return Change("OmitLimit", 7, text, request.set(None, *_steps_to(request, "limits", capacity)))


def _steps_to(request: RequestEditor, kind: str, capacity: str) -> tuple[str, ...]:
    """Where an amount stands; with nothing beside it, the whole stanza."""
    amounts = [name for each in ("requests", "limits") for name in request.body["capacity"].get(each) or ()]
    return ("capacity",) if len(amounts) == 1 else ("capacity", kind, capacity)


def request_fewer(request: RequestEditor, count: int, was: int | None) -> Change:
    """`was` is None for mode All."""
    edits: list[tuple[Any, Sequence[str | int]]] = [(count, request.steps("count"))]
    if was is None:
        edits.insert(0, (EXACT_COUNT, request.steps("allocationMode")))
    text = f"request {counted(count, 'device')} instead of {'all' if was is None else was} in request {request.name}"
    size = 1 - Fraction(count, was) if was else Fraction(1)
    return Change("RequestFewer", 4, text, request.claim.change(*edits), size)


def allow_more(request: RequestEditor, count: int, was: int) -> Change:
    """Lets more devices give a capacity together."""
    text = f"allow {counted(count, 'device')} instead of {was} in request {request.name}"
    return Change("AllowMore", 4, text, request.set(count, "count"), Fraction(count - was, count))


def remove_allocations(request: RequestEditor) -> Change:
    text = f"remove the condition on allocations from request {request.name}"
    return Change("RemoveAllocations", 5, text, request.set(None, "allocations"))


def loosen_selector(request: RequestEditor, position: int, condition: str, rest: str = "") -> Change:
    """Removes a condition from a selector; the whole selector if `rest` is empty."""
    size = Fraction(len(condition), len(condition) + len(rest))
    text = f"remove the {'condition' if rest else 'selector'} {shortened(condition)} from request {request.name}"
    objects = _set_selector(request, position, rest) if rest else request.set(None, "selectors", position)
    return Change("LoosenSelector", 5, text, objects, size)


def remove_constraint(claim: ClaimEditor, position: int, attribute: str) -> Change:
    text = f"remove the constraint on {attribute} from claim {claim.claim_id}"
    return Change("RemoveConstraint", 6, text, claim.change((None, ("constraints", position))))


def remove_request(claim: ClaimEditor, position: int, name: str) -> Change:
    """Removes the request, and what constraints and configuration say about it."""
    edits: list[tuple[Any, Sequence[str | int]]] = [(None, ("requests", position))]
    for member in ("constraints", "config"):
        entries = claim.devices.get(member, [])
        narrowed = [kept for entry in entries if (kept := _without_request(entry, name)) is not None]
        if narrowed != entries:
            edits.append((narrowed, (member,)))
    return Change("RemoveRequest", 8, f"remove request {name} from claim {claim.claim_id}", claim.change(*edits))


def _without_request(entry: dict[str, Any], name: str) -> dict[str, Any] | None:
    """The entry for the other requests; None if it is for this one alone."""
    covered = entry.get("requests")
    if not covered:
        return entry
    others = [each for each in covered if RequestName.parse(each).main != name]
    return {**entry, "requests": others} if others else None


# --- Changes of the cluster -----------------------------------------------------------------------------------------------


def release_claim(claim: ResourceClaim, pods: Sequence[Pod], *, is_made_for_one: bool) -> Change:
    """Frees a claim's devices: the pods that use it are deleted, and the claim with the pod that it was made for."""
    editor = ObjectEditor(claim)
    deleted = tuple(ObjectEditor(pod).delete() for pod in pods)
    names = first_few((f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in pods), "pod")
    noun = "pod" if len(pods) == 1 else "pods"
    text = f"release claim {ClaimId.of(claim)}" + (f" (delete {noun} {names})" if pods else "")
    return Change(
        "ReleaseClaim",
        9,
        text,
        (*deleted, editor.delete() if is_made_for_one else editor.release()),
        Fraction(len(pods)),
    )


def add_devices(resource_slice: ResourceSlice, device_id: DeviceId, count: int) -> Change:
    """Adds free devices like an existing one to its slice."""
    editor = ObjectEditor(resource_slice)
    devices = editor.body["spec"]["devices"]
    model = next(each for each in devices if each["name"] == device_id.device)
    names = (f"{device_id.device}-added-{number}" for number in range(count))
    added = tuple(editor.set({**model, "name": name}, "spec", "devices", len(devices)) for name in names)
    return Change("AddDevices", 10, f"add {counted(count, 'device')} like {device_id}", added, Fraction(count))


def complete_pool(pool_id: PoolId, slices: Sequence[ResourceSlice]) -> Change:
    """The driver finishes publishing a pool, with the devices that it has published."""
    objects = tuple(ObjectEditor(each).set(len(slices), "spec", "pool", "resourceSliceCount") for each in slices)
    return Change("CompletePool", 11, f"wait until all slices of pool {pool_id} are published", objects)


def enable_feature_gate(name: str) -> Change:
    return Change("EnableFeatureGate", 12, f"enable the feature gate {name}", (EnableFeatureGate(feature_gate=name),))
