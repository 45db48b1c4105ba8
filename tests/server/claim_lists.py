"""Claims that tests list and watch."""

from __future__ import annotations

from typing import Any

from tests.support.local_api import (
    CLAIMS,
    LocalApi,
)
from tests.support.local_api import claim_document as claim


def names(listed: Any) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]


async def create_claims(api: LocalApi, count: int, **labels: str) -> None:
    for number in range(count):
        await api.create(CLAIMS, claim(f"c{number:03}", labels={"n": str(number % 3), **labels}))


async def collect(api: LocalApi, path: str, **query: str) -> list[Any]:
    """All events of a watch with a timeout."""
    return [event async for event in api.watch(path, **query)]
