"""Bipartite flow agrees with brute force."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from dralloc.devices.allocator.bipartite_flow import can_meet
from dralloc.devices.slices import bits_of


def can_meet_by_trying(needs: dict[int, int], stock: list[int]) -> bool:
    """Tries every device for every unit of every need."""
    units = [mask for mask, need in needs.items() for _ in range(need)]
    return any(
        all(chosen.count(place) <= stock[place] for place in chosen)
        for chosen in product(*(list(bits_of(mask)) for mask in units))
    )


@given(
    needs=st.dictionaries(st.integers(0, 15), st.integers(1, 2), max_size=4),
    stock=st.lists(st.integers(0, 2), min_size=4, max_size=4),
)
def test_agrees_with_brute_force(needs: dict[int, int], stock: list[int]) -> None:
    assert can_meet(needs, lambda group: sum(stock[place] for place in bits_of(group))) == can_meet_by_trying(
        needs, stock
    )


def test_no_needs_are_always_met() -> None:
    assert can_meet({}, int.bit_count)


def test_flow_is_rerouted() -> None:
    # A chain: each need has two places, and the last one only the first.
    assert can_meet({0b00011: 1, 0b00110: 1, 0b01100: 1, 0b11000: 1, 0b00001: 1}, int.bit_count)
    assert not can_meet({0b0011: 1, 0b0110: 1, 0b1100: 1, 0b1001: 1, 0b0001: 1}, int.bit_count)
