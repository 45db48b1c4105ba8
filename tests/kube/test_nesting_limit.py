"""The nesting limit counts real levels, not brackets inside strings."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralloc.kube.nesting_limit import LEVELS_MAX, is_nested_too_deeply


@pytest.mark.parametrize(
    ("body", "want"),
    [
        (b"", False),
        (b"{}", False),
        (b"[" * LEVELS_MAX + b"]" * LEVELS_MAX, False),
        (b"[" * 2 * LEVELS_MAX + b"]" * 2 * LEVELS_MAX, True),
        (b'{"a":[' * 2 * LEVELS_MAX + b"]}" * 2 * LEVELS_MAX, True),
        (b"[" * 1_000_000, True),
        (b"[" + b"{}," * 100_000 + b"]", False),
        (b'["' + b"[" * 1_000_000 + b'"]', False),
        (b'["\\"' + b"{[" * 1000 + b'", {"a": "]"}]', False),
        (b"]" * 1000 + b"[" * 1000, True),
        (b'"' + b'\\"' * 300_000 + b"[" * 1000, False),
    ],
)
def test_nesting_levels_are_counted(body: bytes, want: bool) -> None:
    assert is_nested_too_deeply(body) is want


trees = st.recursive(
    st.text(alphabet='[]{}"\\a', max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet="[}", max_size=3), inner),
)


@given(trees)
def test_ordinary_values_are_accepted(tree: object) -> None:
    assert not is_nested_too_deeply(json.dumps(tree).encode())
