"""The index of dependents answers as if it searched all objects."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dralloc.server.background.garbage_collector import DependentIndex, OwnerId

OWNERS = [OwnerId(key, uid) for key in ("a", "b") for uid in ("1", "2")]

owners_of_an_object = st.dictionaries(st.sampled_from(OWNERS), st.booleans())
changes = st.lists(st.tuples(st.sampled_from("xyz"), owners_of_an_object), max_size=20)


@given(changes)
def test_the_index_equals_a_search_of_all_objects(made: list[tuple[str, dict[OwnerId, bool]]]) -> None:
    index, objects = DependentIndex(), dict[str, dict[OwnerId, bool]]()
    for key, owners in made:
        blocked = {owner for owner in OWNERS if index.is_blocked(owner)}
        unblocked = index.put(key, owners.items())
        objects[key] = owners
        for owner in OWNERS:
            assert set(index.of(owner)) == {each for each, theirs in objects.items() if owner in theirs}
            assert index.is_blocked(owner) == any(theirs.get(owner, False) for theirs in objects.values())
        assert set(unblocked) == {owner for owner in blocked if not index.is_blocked(owner)}
    assert bool(index) == any(objects.values())
