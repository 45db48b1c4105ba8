"""Device taints: their text form, and which tolerations cover them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from dralloc.devices.identity import DeviceId, PoolId
from dralloc.kube.core_v1 import Taint
from dralloc.kube.resource_v1 import (
    EQUAL,
    NO_EXECUTE,
    NO_SCHEDULE,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintSelector,
    DeviceToleration,
)
from dralloc.primitives.persistent_map import PersistentMap


def repels(taint: DeviceTaint, tolerations: Iterable[DeviceToleration]) -> bool:
    """True if the taint prevents allocation and no toleration covers it."""
    if taint.effect not in (NO_SCHEDULE, NO_EXECUTE):
        return False
    return not any(tolerates(toleration, taint) for toleration in tolerations)


def tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    """True if the toleration covers the taint. A toleration without a key or an effect covers all of them."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator or EQUAL:
        case "Exists":
            return True
        case "Equal":
            return toleration.value == taint.value
        case _:
            return False


def text_of_taint(taint: DeviceTaint | Taint) -> str:
    """The taint as `key=value:effect`."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


# --- Taint rules ----------------------------------------------------------------------------------------------------
# Which devices a DeviceTaintRule taints, and an index of rules.
#
# An empty selector selects every device, an absent selector none. `selects` decides for one rule and one device;
# `TaintRules` files rules by the driver and pool that they name, so that a lookup for a pool ignores all other
# rules.


def selects(selector: DeviceTaintSelector | None, device: DeviceId) -> bool:
    """True if a rule with this selector taints the device."""
    if selector is None:
        return False
    parts = ((selector.driver, device.driver), (selector.pool, device.pool), (selector.device, device.device))
    return all(wanted is None or wanted == actual for wanted, actual in parts)


class TaintFromRule(NamedTuple):
    """A taint on one device of a pool, or on all of them if `device` is None."""

    device: str | None
    taint: DeviceTaint
    rule: str


_Scope = tuple[str | None, str | None]


@dataclass(frozen=True, slots=True, eq=False)
class TaintRules:
    """Immutable; a change returns a new index that shares the rest with this one."""

    by_name: PersistentMap[str, DeviceTaintRule] = field(default_factory=PersistentMap)
    by_scope: PersistentMap[_Scope, PersistentMap[str, TaintFromRule]] = field(default_factory=PersistentMap)

    def __bool__(self) -> bool:
        return bool(self.by_name)

    def with_rule(self, rule: DeviceTaintRule) -> TaintRules:
        """With the rule added, or in place of the rule of the same name."""
        name = rule.metadata.name or ""
        cleared = self.without_rule(name)
        selector = rule.spec.device_selector
        if selector is None:
            return TaintRules(cleared.by_name.set(name, rule), cleared.by_scope)
        scope, entry = (selector.driver, selector.pool), TaintFromRule(selector.device, rule.spec.taint, name)
        filed = cleared.by_scope.get(scope, PersistentMap()).set(name, entry)
        return TaintRules(cleared.by_name.set(name, rule), cleared.by_scope.set(scope, filed))

    def without_rule(self, name: str) -> TaintRules:
        rule = self.by_name.get(name)
        if rule is None:
            return self
        by_scope = self.by_scope
        if (selector := rule.spec.device_selector) is not None:
            scope = (selector.driver, selector.pool)
            filed = by_scope[scope].remove(name)
            by_scope = by_scope.set(scope, filed) if filed else by_scope.remove(scope)
        return TaintRules(self.by_name.remove(name), by_scope)

    def taints_in_pool(self, pool_id: PoolId) -> Iterator[TaintFromRule]:
        """The taints that rules put on devices of the pool, in the order of the rules' names."""
        if not self.by_scope:
            return
        driver, pool = pool_id.driver, pool_id.pool
        scopes = ((driver, pool), (driver, None), (None, pool), (None, None))
        found = [entry for scope in scopes if (filed := self.by_scope.get(scope)) for entry in filed.values()]
        yield from sorted(found, key=lambda entry: entry.rule)

    def taints_of(self, device: DeviceId) -> Iterator[TaintFromRule]:
        """The taints that rules put on the device, in the order of the rules' names."""
        return (entry for entry in self.taints_in_pool(device.pool_id) if entry.device in (None, device.device))
