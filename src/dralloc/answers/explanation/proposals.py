"""Which changes are worth trying, according to the devices that the funnels of the requests lose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from dralloc.answers.cluster_objects import ClusterObjects
from dralloc.answers.device_report import Holding
from dralloc.answers.explanation import changes
from dralloc.answers.explanation.changes import Change, ClaimEditor, RequestEditor
from dralloc.answers.explanation.misspellings import Vocabulary, likely_names
from dralloc.answers.explanation.selector_parts import compiled, conditions, guarded, joined
from dralloc.answers.explanation.situation import Situation
from dralloc.cel.errors import CelError
from dralloc.devices.allocator.candidate_devices import MatchStage, matches_of
from dralloc.devices.allocator.consumable_capacity import default_amount
from dralloc.devices.allocator.diagnosis.claim_edits import Slot, slots
from dralloc.devices.allocator.diagnosis.device_funnel import Funnel, Hurdle, Spot, spots
from dralloc.devices.allocator.diagnosis.device_survey import Survey
from dralloc.devices.allocator.diagnosis.obstacles import gift_of
from dralloc.devices.allocator.headroom import Room
from dralloc.devices.allocator.outcome import RESULTS_MAX
from dralloc.devices.allocator.requests import Alternative, attributes_of
from dralloc.devices.identity import ClaimId, DeviceId
from dralloc.devices.pools import PoolState
from dralloc.devices.share_terms import (
    NAMED_POLICIES_GATE,
    REMAINDER_GATE,
    STRATEGIES_GATE,
    ZERO_CONSUMPTION_GATE,
    capacities_of,
)
from dralloc.devices.slices import DeviceShape, newest_indexed
from dralloc.kube.inventory import QualifiedName, split_name
from dralloc.kube.pod_claims import claims_of, controller_of
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import DeviceTaint, ResourceClaim, ResourceClaimTemplate
from dralloc.primitives.quantity import Quantity, quantity_like

# The limit for each kind of change of one request.
PROPOSALS_MAX: Final = 6
ADDED_MAX: Final = 8

# Feature gates that are on by default, by the feature of the allocator.
_GATES: Final[Mapping[str, str]] = {
    "admin_access": "DRAAdminAccess",
    "prioritized_list": "DRAPrioritizedList",
    "consumable_capacity": "DRAConsumableCapacity",
    "partitionable_devices": "DRAPartitionableDevices",
    "binding_conditions": "DRADeviceBindingConditions",
    "aggregated_capacity": "DRAAggregatedCapacity",
    "device_preference": "DRADevicePreference",
    "distinct_attributes": "DRADistinctAttributes",
    "capacity_limits": "DRACapacityLimits",
    "capacity_strategies": STRATEGIES_GATE,
    "named_request_policies": NAMED_POLICIES_GATE,
    "zero_consumption": ZERO_CONSUMPTION_GATE,
    "capacity_remainder": REMAINDER_GATE,
}

# Changes of one kind, the smallest first: if one of them helps, those after it help, too.
Ladder = Sequence[Change]


@dataclass(frozen=True)
class ChangeableObjects:
    """The objects that changes are made to, and the pod that they are to help, with its claims."""

    objects: ClusterObjects
    pod: Pod
    vocabulary: Vocabulary
    # The claims that have devices.
    held: Mapping[DeviceId, Sequence[Holding]]

    def claim_editor(self, claim: ResourceClaim) -> ClaimEditor:
        exists = (claim.metadata.namespace, claim.metadata.name) in self.objects.all(ResourceClaim)
        return ClaimEditor(claim, self._template_of(claim), exists=exists)

    def _template_of(self, claim: ResourceClaim) -> ResourceClaimTemplate | None:
        names = {use.entry: use.claim for use in claims_of(self.pod)}
        for entry in self.pod.spec.resource_claims:
            if entry.resource_claim_template_name and names.get(entry.name) == claim.metadata.name:
                key = claim.metadata.namespace, entry.resource_claim_template_name
                template = self.objects.all(ResourceClaimTemplate).get(key)
                # A template that was replaced since has other requests.
                return template if template is not None and template.spec.spec == claim.spec else None
        return None

    @cached_property
    def users(self) -> Mapping[ClaimId, Sequence[Pod]]:
        """The pods that use claims, but for the one that is to be helped."""
        found: dict[ClaimId, list[Pod]] = {}
        key = self.pod.metadata.namespace, self.pod.metadata.name
        for other, pod in self.objects.all(Pod).items():
            for use in claims_of(pod) if other != key and not pod.is_finished else ():
                found.setdefault(ClaimId(pod.metadata.namespace, use.claim), []).append(pod)
        return found


def proposals(situation: Situation, changeable: ChangeableObjects) -> Iterator[Ladder]:
    """Ladders of changes, the likeliest first."""
    proposer = _Proposer(situation, changeable)
    for propose in (
        proposer.corrections,
        proposer.guards,
        proposer.tolerations,
        proposer.less_capacity,
        proposer.fewer_devices,
        proposer.looser_selectors,
        proposer.no_condition_on_allocations,
        proposer.fewer_constraints,
        proposer.no_capacity,
        proposer.fewer_requests,
        proposer.releases,
        proposer.more_devices,
        proposer.complete_pools,
        proposer.features,
    ):
        yield from propose()


class _Proposer:
    def __init__(self, situation: Situation, changeable: ChangeableObjects) -> None:
        self._situation = situation
        self._changeable = changeable
        self._demand = situation.demand
        self._survey = Survey(self._demand, situation.snapshot)
        self._view = self._survey.view(situation.node)
        self._claims = [changeable.claim_editor(claim) for claim in situation.claims]
        self._requests = [
            (self._editor(slot, alternative), alternative, self._survey.funnel(situation.node, alternative))
            for slot, alternative in slots(self._demand)
            if not alternative.fault
        ]

    def _editor(self, slot: Slot, alternative: Alternative) -> RequestEditor:
        claim = self._claims[slot.claim]
        name = f"{alternative.name} of claim {claim.claim_id}" if len(self._claims) > 1 else str(alternative.name)
        return RequestEditor(claim, slot, name)

    # --- Corrections ----------------------------------------------------------------------------------------------------

    def corrections(self) -> Iterator[Ladder]:
        """Each misspelling by itself, and all of them together."""
        found = [*self._known_classes(), *self._known_constraints()]
        for request, alternative, funnel in self._requests:
            found += [
                *self._known_selectors(request, alternative),
                *self._known_capacities(request, alternative, funnel),
            ]
        yield from ([change] for change in found)
        # The first suggestion for each place.
        places = {change.place: change for change in reversed(found)}
        if len(places) > 1:
            yield [changes.together(list(reversed(places.values())))]

    def _known_classes(self) -> Iterator[Change]:
        for slot, alternative in slots(self._demand):
            wanted = slot.read(self._situation.claims).device_class_name
            if wanted and wanted not in self._situation.classes:
                for name in likely_names(wanted, self._situation.classes):
                    yield changes.use_class(self._editor(slot, alternative), name, wanted)

    def _known_constraints(self) -> Iterator[Change]:
        for editor, claim in zip(self._claims, self._situation.claims, strict=True):
            for position, constraint in enumerate(claim.spec.devices.constraints):
                stated: list[tuple[str | None, tuple[str | int, ...]]] = [
                    (constraint.match_attribute, ("matchAttribute",)),
                    (constraint.distinct_attribute, ("distinctAttribute",)),
                    *((name, ("distinctAttributes", at)) for at, name in enumerate(constraint.distinct_attributes)),
                ]
                for name, steps in stated:
                    meant = self._changeable.vocabulary.attribute_for(split_name(name, "")) if name else None
                    if name and meant is not None:
                        yield changes.correct_constraint(editor, (position, *steps), "/".join(meant), name)

    def _known_selectors(self, request: RequestEditor, alternative: Alternative) -> Iterator[Change]:
        vocabulary = self._changeable.vocabulary
        for position, expression in enumerate(alternative.criteria.request_selectors):
            for found in vocabulary.corrections(expression):
                yield changes.correct_selector(request, position, found.what, found.expression, found.is_of_values)
        for position, expression in enumerate(alternative.criteria.class_selectors):
            for found in vocabulary.corrections(expression):
                yield changes.correct_class_selector(
                    alternative.device_class, position, found.what, found.expression, found.is_of_values
                )

    def _known_capacities(self, request: RequestEditor, alternative: Alternative, funnel: Funnel) -> Iterator[Change]:
        asked = alternative.criteria.asked or {}
        known = {name for spot in _lost_at(funnel, Hurdle.SIZE) for name in spot.device.capacity}
        for name in asked:
            for other in likely_names(name, known - asked.keys()) if name not in known else ():
                yield changes.rename_capacity(request, other, name)

    def guards(self) -> Iterator[Ladder]:
        """Selectors that fail on devices without an attribute, with a guard against that."""
        for request, alternative, _ in self._requests:
            criteria, here = alternative.criteria, [strip.slice for strip in self._view.strips]
            failing = {
                (fault.stage, fault.position)
                for indexed in here
                for fault in matches_of(indexed, criteria).faults.values()
                if fault.stage is not MatchStage.CAPACITY
            }
            for stage, position in sorted(failing, key=lambda found: (found[0].value, found[1])):
                is_class = stage is MatchStage.CLASS_SELECTOR
                expression = (criteria.class_selectors if is_class else criteria.request_selectors)[position]
                better = _guarded(expression, self._failing(alternative, stage, position))
                if better is not None and is_class:
                    yield [changes.guard_class_selector(alternative.device_class, position, better)]
                elif better is not None:
                    yield [changes.guard_selector(request, position, better)]

    def _failing(self, alternative: Alternative, stage: MatchStage, position: int) -> Iterator[DeviceShape]:
        """The devices of all nodes on which a selector fails: each may lack another attribute, and all nodes count."""
        for pool in self._situation.snapshot.pools.values():
            for indexed in pool.slices:
                for bit, fault in matches_of(indexed, alternative.criteria).faults.items():
                    if (fault.stage, fault.position) == (stage, position):
                        yield indexed.shape(bit)

    # --- Less -----------------------------------------------------------------------------------------------------------

    def tolerations(self) -> Iterator[Ladder]:
        for request, alternative, funnel in self._requests:
            sets: Counter[tuple[DeviceTaint, ...]] = Counter(
                tuple(dict.fromkeys(self._survey.repelling(spot, alternative)))
                for spot in _lost_at(funnel, Hurdle.TAINT)
            )
            for taints, _ in sorted(sets.items(), key=lambda entry: (len(entry[0]), -entry[1]))[:PROPOSALS_MAX]:
                yield [changes.tolerate(request, taints)]

    def less_capacity(self) -> Iterator[Ladder]:
        if not self._demand.features.consumable_capacity:
            return
        for request, alternative, funnel in self._requests:
            candidates = list(_sized(funnel))
            asked = alternative.criteria.asked or {}
            for name in dict.fromkeys((*asked, *(name for spot in candidates for name in spot.device.capacity))):
                was = asked.get(name)
                amounts = {amount for spot in candidates for amount in self._amounts(spot, alternative, name) if amount}
                if alternative.is_aggregated and was is not None:
                    gives = sorted((gift_of(self._survey, each, name) for each in spots(funnel.left)), reverse=True)
                    amounts.add(quantity_like(was, sum(gives[: alternative.count])))
                less = sorted((each for each in amounts if each and (was is None or each < was)), reverse=True)
                yield [changes.request_less(request, name, amount, was) for amount in less]

    def _amounts(self, spot: Spot, alternative: Alternative, name: str) -> Iterator[Quantity]:
        """The largest amounts that could be requested of the device, if none, one or all of the other requests use it, too."""
        if name not in spot.device.capacity:
            return
        room = Room.of(spot.device, self._survey.usage(spot), self._demand.features)
        count = len(spot.device.capacity)
        free = tuple(room.state[:count])
        others = [
            charge.nanos
            for other in self._demand.alternatives
            if other is not alternative
            and (charge := matches_of(spot.slice, other.criteria).charges.get(spot.bit)) is not None
        ]
        together = tuple(map(sum, zip(*others, strict=True))) if others else ()
        for taken in {(0,) * len(free), *others, *((together,) if together else ())}:
            left = tuple(have - take for have, take in zip(free, taken, strict=True))
            rest = Room(room.capacities, (*left, *room.state[count:]), room.terms, room.fractional_ranges)
            if (amount := rest.largest_request(name)) is not None:
                yield amount

    def fewer_devices(self) -> Iterator[Ladder]:
        for request, alternative, funnel in self._requests:
            if alternative.is_aggregated:
                counts = range(alternative.count + 1, min(RESULTS_MAX, funnel.left_count) + 1)
                yield [changes.allow_more(request, count, alternative.count) for count in counts]
                continue
            was = None if alternative.takes_all else alternative.count
            most = min(RESULTS_MAX, funnel.left_count if was is None else was - 1)
            yield [changes.request_fewer(request, count, was) for count in range(most, 0, -1)]

    def looser_selectors(self) -> Iterator[Ladder]:
        for request, alternative, _ in self._requests:
            for position, expression in enumerate(alternative.criteria.request_selectors):
                parts = conditions(expression)
                for index, part in enumerate(parts if len(parts) > 1 else ()):
                    rest = joined((*parts[:index], *parts[index + 1 :]))
                    yield [changes.loosen_selector(request, position, part, rest)]
                yield [changes.loosen_selector(request, position, expression)]

    def no_condition_on_allocations(self) -> Iterator[Ladder]:
        for request, alternative, _ in self._requests:
            if alternative.allocations is not None:
                yield [changes.remove_allocations(request)]

    def fewer_constraints(self) -> Iterator[Ladder]:
        for editor, claim in zip(self._claims, self._demand.claims, strict=True):
            for position, constraint in enumerate(claim.devices.constraints):
                attributes = ", ".join(attributes_of(constraint)) or "nothing"
                yield [changes.remove_constraint(editor, position, attributes)]

    def no_capacity(self) -> Iterator[Ladder]:
        for request, alternative, _ in self._requests:
            for name in alternative.criteria.asked or ():
                if name not in alternative.criteria.limits:
                    yield [changes.omit_capacity(request, name, self._default(alternative, name))]
            for name, limit in alternative.criteria.limits.items():
                yield [changes.omit_limit(request, name, limit)]

    def _default(self, alternative: Alternative, name: str) -> Quantity | None:
        """What is consumed of the capacity if a request omits it; None if that is not the same for all matching devices."""
        funnel = self._survey.funnel(self._situation.node, alternative)
        if any(spot.bit in spot.slice.terms for spot in _sized(funnel)):
            return None
        found = {
            default_amount(capacities_of(spot.device)[name]) for spot in _sized(funnel) if name in spot.device.capacity
        }
        return found.pop() if len(found) == 1 else None

    def fewer_requests(self) -> Iterator[Ladder]:
        for editor, claim in zip(self._claims, self._demand.claims, strict=True):
            if len(claim.requests) > 1:
                for position, request in enumerate(claim.requests[:PROPOSALS_MAX]):
                    yield [changes.remove_request(editor, position, request.name.main)]

    # --- More -----------------------------------------------------------------------------------------------------------

    def releases(self) -> Iterator[Ladder]:
        """Claims that have the devices in question, those of the same namespace first."""
        in_the_way = {
            holding.claim_id
            for spot in self._contested()
            for holding in self._changeable.held.get(spot.device_id, ())
            if not holding.is_admin
        }
        own = {claim_id.namespace for claim_id in self._situation.claim_ids}
        for claim_id in sorted(in_the_way, key=lambda found: (found.namespace not in own, found))[: 2 * PROPOSALS_MAX]:
            claim = self._changeable.objects.all(ResourceClaim).get((claim_id.namespace, claim_id.name))
            if claim is None:
                # Another member of the pod's group is going to have it.
                continue
            pods = self._changeable.users.get(claim_id, ())
            owner = controller_of(claim.metadata)
            is_made_for_one = owner is not None and owner.uid in {pod.metadata.uid for pod in pods}
            yield [changes.release_claim(claim, pods, is_made_for_one=is_made_for_one)]

    def _contested(self) -> Iterator[Spot]:
        for _, _, funnel in self._requests:
            yield from _lost_at(funnel, Hurdle.IN_USE)
            yield from _lost_at(funnel, Hurdle.CAPACITY)
            short = {spot.slice.pool_id for spot in _lost_at(funnel, Hurdle.COUNTERS)}
            for strip in self._view.strips:
                if strip.slice.pool_id in short:
                    yield from (Spot(strip.slice, bit) for bit in range(len(strip.slice.devices)))
            yield from spots(funnel.left)

    def more_devices(self) -> Iterator[Ladder]:
        for _, _, funnel in self._requests:
            model = next((spot for spot in _worth_adding(funnel)), None)
            if model is not None:
                most = min(funnel.wanted, ADDED_MAX)
                source = model.slice.source
                yield [changes.add_devices(source, model.device_id, count) for count in range(1, most + 1)]

    def complete_pools(self) -> Iterator[Ladder]:
        for pool in self._view.pools:
            if pool.layout.status is PoolState.INCOMPLETE:
                newest = newest_indexed(self._situation.snapshot.pools[pool.pool_id].slices)
                yield [changes.complete_pool(pool.pool_id, [indexed.source for indexed in newest])]

    def features(self) -> Iterator[Ladder]:
        for feature, gate in _GATES.items():
            if not getattr(self._demand.features, feature):
                yield [changes.enable_feature_gate(gate)]


def _sized(funnel: Funnel) -> Iterator[Spot]:
    """The devices that would fit the request with another amount."""
    yield from spots(funnel.left)
    yield from _lost_at(funnel, Hurdle.CAPACITY)
    yield from _lost_at(funnel, Hurdle.SIZE)


def _lost_at(funnel: Funnel, hurdle: Hurdle) -> Iterator[Spot]:
    return (spot for drop in funnel.drops if drop.hurdle is hurdle for spot in spots(drop.devices))


def _worth_adding(funnel: Funnel) -> Iterator[Spot]:
    """Devices that would fit the request if they were free."""
    yield from _lost_at(funnel, Hurdle.IN_USE)
    yield from _lost_at(funnel, Hurdle.CAPACITY)
    yield from spots(funnel.left)


def _guarded(expression: str, shapes: Iterable[DeviceShape]) -> str | None:
    """The expression with a guard for every attribute and capacity that it reads and that one of the devices lacks."""
    selector = compiled(expression)
    if selector is None:
        return None
    reads = selector.checked.reads
    wanted, lacking = (set(reads.attributes), set(reads.capacity)), (set[QualifiedName](), set[QualifiedName]())
    try:
        for shape in shapes:
            for names, has, lacks in zip(wanted, (shape.view.attributes, shape.view.capacity), lacking, strict=True):
                lacks.update((domain, name) for domain, name in names if name not in has.get(domain, {}))
            if lacking == wanted:
                break
    except CelError:
        return None
    return guarded(expression, *map(sorted, lacking)) if any(lacking) else None
