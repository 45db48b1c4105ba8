"""The persistent map behaves like a dictionary whose every version is kept."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dralloc.primitives.persistent_map import PersistentMap


class Colliding:
    """A key whose hash says nothing: all of them must share one leaf."""

    def __init__(self, name: int) -> None:
        self.name = name

    def __hash__(self) -> int:
        return 7

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Colliding) and other.name == self.name


keys = st.one_of(st.integers(-(2**70), 2**70), st.text(max_size=3), st.builds(Colliding, st.integers(0, 30)))
changes = st.lists(st.tuples(keys, st.one_of(st.none(), st.integers())), max_size=200)


@given(changes)
def test_every_version_equals_the_dictionary_of_that_time(changes: list[tuple[object, int | None]]) -> None:
    versions = []
    model: dict[object, int] = {}
    persistent: PersistentMap[object, int] = PersistentMap()
    for key, value in changes:
        versions.append((persistent, dict(model)))
        if value is None:
            persistent = persistent.remove(key)
            model.pop(key, None)
        else:
            persistent = persistent.set(key, value)
            model[key] = value
    for version, then in [*versions, (persistent, model)]:
        assert dict(version.items()) == then
        assert len(version) == len(then)
        assert all(version.get(key) == then.get(key) and (key in version) == (key in then) for key, _ in changes)


def test_large_maps_share_unchanged_parts() -> None:
    numbers = PersistentMap((number, -number) for number in range(5_000))
    changed = numbers.set(17, 0)
    assert (numbers[17], changed[17]) == (-17, 0)
    assert all(changed[number] == -number for number in range(5_000) if number != 17)
    assert numbers.remove(99_999) is numbers


def test_removal_undoes_an_addition() -> None:
    numbers = PersistentMap((number, number) for number in range(100))
    assert numbers.set(-1, 1).remove(-1) == numbers
    assert numbers.set(-1, 1) != numbers
