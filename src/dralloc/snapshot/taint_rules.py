"""DeviceTaintRules laid over the taints that slices bring.

Rules are filed by the driver and pool they name, so that a pool finds those that may concern it without looking at the
others. A rule with an empty selector taints every device, one without a selector none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from dralloc.api.resource_v1 import DeviceTaint, DeviceTaintRule
from dralloc.snapshot.identity import PoolId
from dralloc.snapshot.persistent import PersistentMap
from dralloc.snapshot.slices import IndexedSlice


class TaintFromRule(NamedTuple):
    """A taint on one device of a pool, or on all of them."""

    device: str | None
    taint: DeviceTaint


_Scope = tuple[str | None, str | None]


@dataclass(frozen=True, slots=True, eq=False)
class TaintRules:
    by_name: PersistentMap[str, DeviceTaintRule] = field(default_factory=PersistentMap)
    by_scope: PersistentMap[_Scope, PersistentMap[str, TaintFromRule]] = field(default_factory=PersistentMap)

    def with_rule(self, rule: DeviceTaintRule) -> TaintRules:
        name = rule.metadata.name or ""
        cleared = self.without_rule(name)
        selector = rule.spec.device_selector
        if selector is None:
            return TaintRules(cleared.by_name.set(name, rule), cleared.by_scope)
        scope = (selector.driver, selector.pool)
        filed = cleared.by_scope.get(scope, PersistentMap()).set(name, TaintFromRule(selector.device, rule.spec.taint))
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

    def taints_of(self, pool_id: PoolId) -> Iterator[TaintFromRule]:
        """What rules say about devices of the pool, by the name of the rule."""
        if not self.by_scope:
            return
        driver, pool = pool_id.driver, pool_id.pool
        scopes = ((driver, pool), (driver, None), (None, pool), (None, None))
        named = [entry for scope in scopes if (filed := self.by_scope.get(scope)) for entry in filed.items()]
        yield from (taint for _, taint in sorted(named, key=lambda entry: entry[0]))

    def masks(self, indexed: IndexedSlice) -> Iterator[tuple[int, DeviceTaint]]:
        """Which devices of the slice each rule taints."""
        for device, taint in self.taints_of(indexed.pool_id):
            if device is None:
                yield indexed.everything, taint
            elif (bit := indexed.bit_of.get(device)) is not None:
                yield 1 << bit, taint


def text_of_taint(taint: DeviceTaint) -> str:
    """As people write it: `key=value:effect`."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"
