"""A bounded log of changes that affect placement, from which cached verdicts learn what is stale."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from dralloc.devices.identity import PoolId
from dralloc.scheduler.state.numbered_log import NumberedLog

ENTRIES_MAX: Final = 20_000


class NodeChanged(Struct, frozen=True, gc=False):
    """The node's properties, its pods or the devices it can use changed."""

    name: str


class NodeLoaded(Struct, frozen=True, gc=False):
    """A pod was placed on the node. A pod that did not fit before still does not fit, and no score is better."""

    name: str


class PoolTaken(Struct, frozen=True, gc=False):
    """Devices of the pool were allocated. A claim that did not fit before still does not fit."""

    pool_id: PoolId


class PoolFreed(Struct, frozen=True, gc=False):
    """Devices of the pool were deallocated."""

    pool_id: PoolId


class EverythingChanged(Struct, frozen=True, gc=False):
    """Devices changed that any node may be able to use."""


Change = NodeChanged | NodeLoaded | PoolTaken | PoolFreed | EverythingChanged


class ChangeLog(NumberedLog[Change]):
    def __init__(self) -> None:
        super().__init__(ENTRIES_MAX)
