"""Lines of a stream do not depend on the pieces in which they arrive."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralloc.client.transport import split_lines


async def lines_of(pieces: Sequence[bytes]) -> list[bytes]:
    async def arriving() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    return [line async for lines in split_lines(arriving()) for line in lines]


@pytest.mark.slow
@given(st.lists(st.sampled_from((b"a", b"bc", b"\n", b"\n\n", b"d\ne", b"")), max_size=12))
def test_lines_do_not_depend_on_pieces(pieces: list[bytes]) -> None:
    *whole, _ = b"".join(pieces).split(b"\n")
    with pytest.raises(StopIteration) as ended:
        # It never waits, and an event loop for each example takes longer.
        lines_of(pieces).send(None)
    assert ended.value.value == [line for line in whole if line]
