"""Blocks of keys behave like one sorted list."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralloc.server.store.revisioned_map import OrderedKeys, end_of_prefix

keys = st.text(alphabet="ab/\U0010ffff", max_size=4)
steps = st.lists(st.tuples(st.sampled_from(["add", "remove", "read"]), keys), max_size=80)


@pytest.mark.slow
@given(initial=st.frozensets(keys), steps=steps, start=keys, end=st.none() | keys)
def test_ordered_keys_agree_with_a_sorted_list(
    initial: frozenset[str], steps: list[tuple[str, str]], start: str, end: str | None
) -> None:
    ordered, model = OrderedKeys(initial, block_length_max=16), set(initial)
    for action, key in steps:
        if action == "add" and key not in model:
            ordered.add(key)
            model.add(key)
        elif action == "remove" and key in model:
            ordered.remove(key)
            model.remove(key)
        elif action == "read":
            assert list(ordered.between(key, None)) == sorted(each for each in model if each >= key)
    want = sorted(each for each in model if each >= start and (end is None or each < end))
    assert list(ordered.between(start, end)) == want
    assert ordered.count_between(start, end) == len(want)


@given(prefix=keys, key=keys)
def test_the_end_of_a_prefix_is_its_least_upper_bound(prefix: str, key: str) -> None:
    end = end_of_prefix(prefix)
    assert (prefix <= key and (end is None or key < end)) == key.startswith(prefix)
