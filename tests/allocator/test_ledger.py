"""A rollback restores the ledger exactly."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dralloc.devices.allocator.ledger import Ledger

puts = st.lists(
    st.tuples(st.sampled_from(("taken", "free", "recorded")), st.integers(0, 3), st.integers(0, 9)), max_size=12
)


def contents(ledger: Ledger) -> list[dict[int, object]]:
    return [dict(ledger.taken), dict(ledger.free), dict(ledger.recorded)]


def put_all(ledger: Ledger, entries: list[tuple[str, int, int]]) -> None:
    for table, key, value in entries:
        ledger.put(getattr(ledger, table), key, value)


@given(kept=puts, tried=puts, more=puts)
def test_rollback_restores_the_ledger_exactly(
    kept: list[tuple[str, int, int]], tried: list[tuple[str, int, int]], more: list[tuple[str, int, int]]
) -> None:
    ledger = Ledger()
    put_all(ledger, kept)
    before, outer = contents(ledger), ledger.mark()
    put_all(ledger, tried)
    between, inner = contents(ledger), ledger.mark()
    put_all(ledger, more)
    ledger.rollback(inner)
    assert contents(ledger) == between
    ledger.rollback(outer)
    assert contents(ledger) == before
    ledger.rollback(0)
    assert contents(ledger) == [{}, {}, {}]
