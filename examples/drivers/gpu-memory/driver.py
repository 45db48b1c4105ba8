"""Shares the memory of GPUs: several pods on one card, each with the memory that it requests.

The cards are listed in a file (`GPU_MEMORY_CARDS`), so the driver runs on any machine. The file is read again when it changes: a
card that is marked as broken is reported unhealthy, and tainted so that pods leave it.
"""

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from dralloc.driver import (
    AllocatedClaim,
    AllocatedDevice,
    BadConfig,
    Device,
    DeviceHealth,
    DeviceNode,
    Driver,
    Health,
    Plugin,
    PreparedDevice,
    capacity,
    device,
    run,
    taint,
)

LOOK_AGAIN_S = 1.0


class Card(msgspec.Struct):
    """A card in the file."""

    name: str
    uuid: str
    model: str
    memory: str
    numa: int = 0
    device_node: str = ""
    is_healthy: bool = True


class Parameters(msgspec.Struct, forbid_unknown_fields=True):
    """The opaque configuration of a claim."""

    priority: Literal["low", "normal", "high"] = "normal"


class GpuMemoryDriver(Driver):
    name = "gpu.example.com"

    def __init__(self, cards_file: Path) -> None:
        self._cards_file = cards_file

    def devices(self) -> Iterable[Device]:
        return [
            device(
                card.name,
                attributes={"uuid": card.uuid, "model": card.model, "numa": card.numa},
                capacity={"memory": capacity(card.memory, default="1Gi", minimum="1Gi", step="1Gi")},
                shareable=True,
                taints=[] if card.is_healthy else [taint("gpu.example.com/broken", effect="NoExecute")],
            )
            for card in self._cards()
        ]

    def prepare(self, claim: AllocatedClaim) -> Iterable[PreparedDevice]:
        cards = {card.name: card for card in self._cards()}
        return [self._prepare_share(share, cards) for share in claim.devices]

    def health(self) -> Iterable[DeviceHealth]:
        return [
            DeviceHealth(device=card.name, health=Health.HEALTHY if card.is_healthy else Health.UNHEALTHY)
            for card in self._cards()
        ]

    async def monitor(self, plugin: Plugin) -> None:
        seen = self._cards_file.stat().st_mtime_ns
        while True:
            await asyncio.sleep(LOOK_AGAIN_S)
            changed = self._cards_file.stat().st_mtime_ns
            if changed != seen:
                seen = changed
                plugin.check_health()
                await plugin.republish()

    def _prepare_share(self, share: AllocatedDevice, cards: dict[str, Card]) -> PreparedDevice:
        card = cards.get(share.name)
        if card is None:
            raise BadConfig(f"card {share.name} is no longer in this machine")
        parameters = share.config(Parameters) or Parameters()
        memory = share.consumed["memory"].value
        # A container may have several shares of one card; the share ID keeps their variables apart.
        name = f"GPU_SHARE_{(share.share_id or card.name)[:8].upper()}"
        return share.prepared(
            env={name: f"uuid={card.uuid},memory={memory},priority={parameters.priority}"},
            device_nodes=[DeviceNode(path=card.device_node)] if card.device_node else [],
            data={"card": card.uuid, "memoryBytes": memory},
        )

    def _cards(self) -> list[Card]:
        return msgspec.json.decode(self._cards_file.read_bytes(), type=list[Card])


if __name__ == "__main__":
    run(GpuMemoryDriver(Path(os.environ.get("GPU_MEMORY_CARDS", "/etc/gpu-memory/cards.json"))))
