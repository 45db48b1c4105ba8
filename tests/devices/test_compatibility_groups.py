"""Which devices may draw from one counter set at the same time."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralloc.devices.counters import Groups, admit


def admitted(devices: Iterable[str]) -> Groups | None:
    """The common groups of devices, whose groups are given as letters; None if they exclude each other."""
    common: Groups | None = None
    for number, letters in enumerate(devices):
        common = admit(None if number == 0 else common, frozenset(letters))
        if common is None:
            return None
    return common


@pytest.mark.parametrize(
    ("devices", "want"),
    [
        pytest.param(["ab"], {"a", "b"}, id="one device brings its groups"),
        pytest.param(["ab", "bc"], {"b"}, id="the common group remains"),
        pytest.param(["ab", "cd"], None, id="without a common group devices exclude each other"),
        pytest.param(["", ""], set(), id="devices without groups are compatible with each other"),
        pytest.param(["", "a"], None, id="a device with groups does not join devices without"),
        pytest.param(["ab", "bc", "ac"], None, id="the group must be common to all devices"),
    ],
)
def test_admit(devices: list[str], want: set[str] | None) -> None:
    assert admitted(devices) == want


@given(st.lists(st.sets(st.sampled_from("abc")).map("".join), min_size=1, max_size=4))
def test_admit_agrees_with_the_definition(devices: list[str]) -> None:
    common = frozenset(devices[0]).intersection(*devices)
    is_compatible = bool(common) or not any(devices)
    assert admitted(devices) == (common if is_compatible else None)
