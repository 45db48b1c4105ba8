"""Query parameters of lists and watches that are refused."""

from __future__ import annotations

import pytest

from tests.support.local_api import (
    CLAIMS,
    LocalApi,
    with_api,
)


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"continue": "nonsense"}, 400),
        ({"continue": "e30"}, 400),
        ({"limit": "many"}, 400),
        ({"resourceVersionMatch": "Exact"}, 422),
        ({"resourceVersion": "1", "resourceVersionMatch": "Roughly"}, 422),
        ({"resourceVersion": "0", "resourceVersionMatch": "Exact"}, 422),
        ({"sendInitialEvents": "true"}, 422),
        ({"resourceVersion": "-1"}, 400),
        ({"resourceVersion": "9" * 5000}, 400),
        ({"watch": "1", "resourceVersion": "9" * 5000}, 400),
        ({"watch": "1", "resourceVersionMatch": "Exact"}, 422),
        ({"watch": "1", "sendInitialEvents": "true"}, 422),
        ({"watch": "1", "resourceVersion": "x"}, 400),
        ({"labelSelector": "a=b,"}, 400),
        ({"fieldSelector": "spec.nope=1"}, 400),
    ],
)
@with_api
async def test_invalid_options_are_refused(api: LocalApi, query: dict[str, str], code: int) -> None:
    assert (await api.call("GET", CLAIMS, **query)).code == code
