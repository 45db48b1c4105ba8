"""Tables as kubectl prints them: columns as wide as their widest cell, three spaces between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dralloc.devices.identity import ClaimId, DeviceId
from dralloc.kube.resource_v1 import ResourceClaim


@dataclass(frozen=True, slots=True)
class TableLayout:
    """How wide the columns are: rows that come later are set below those that came first."""

    widths: tuple[int, ...]

    @classmethod
    def of(cls, rows: Sequence[Sequence[str]]) -> TableLayout:
        return cls(tuple(max(map(len, column)) for column in zip(*rows, strict=True)))

    def line(self, row: Sequence[str]) -> str:
        return "   ".join(cell.ljust(width) for cell, width in zip(row, self.widths, strict=True)).rstrip()


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table; the last column is not padded."""
    everything = (header, *rows)
    return list(map(TableLayout.of(everything).line, everything))


# --- Allocation rows ------------------------------------------------------------------------------------------------
# Allocated claims as rows of tables.


def allocation_rows(claim: ResourceClaim, node: str) -> Iterator[tuple[str, ...]]:
    """Claim, request, node, device, consumed capacity and share ID of each device that the claim has."""
    claim_id = str(ClaimId.of(claim))
    assert claim.status.allocation is not None, "the claim is allocated"
    results = claim.status.allocation.devices.results
    for result in results:
        device = str(DeviceId.of(result))
        consumed = ",".join(f"{name}={amount}" for name, amount in result.consumed_capacity.items())
        share = consumed or ("a share" if result.share_id else "")
        yield claim_id, result.request, node, device, share or "-", result.share_id or "-"
    if not results:
        yield claim_id, "-", node, "-", "-", "-"
