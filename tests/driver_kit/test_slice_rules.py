"""The rules for published slices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from dralloc.driver_kit.slice_rules import SliceHistory, are_complete, check_published
from dralloc.kube.meta_v1 import ObjectMeta, OwnerReference
from dralloc.kube.resource_v1 import Device, ResourceSlice
from dralloc.testing.builders import device, resource_slice

NODE = "node-a"

OWNER = OwnerReference(api_version="v1", kind="Node", name=NODE, uid="u", controller=True)


def owned(name: str, *devices: Device, generation: int = 1, of: int = 1, node: str = NODE) -> ResourceSlice:
    made = resource_slice(name, *devices, generation=generation, of=of, node_name=node)
    return replace(made, metadata=ObjectMeta(name=name, owner_references=(OWNER,)))


A, B = device("a"), device("b")


@dataclass(frozen=True)
class SliceCase:
    id: str
    slices: Sequence[ResourceSlice]
    want: list[str]


SLICES = [
    SliceCase(id="complete", slices=[owned("0", A, of=2), owned("1", B, of=2)], want=[]),
    SliceCase(id="an old generation is ignored", slices=[owned("0", A), owned("1", A, generation=2)], want=[]),
    SliceCase(id="one is missing", slices=[owned("0", A, of=2)], want=["only 1 of 2 slices are published"]),
    SliceCase(id="counts differ", slices=[owned("0", A, of=2), owned("1", B, of=1)], want=["announce 1 and 2 slices"]),
    SliceCase(
        id="a device twice", slices=[owned("0", A, of=2), owned("1", A, of=2)], want=["device a is published 2 times"]
    ),
    SliceCase(id="of another node", slices=[owned("0", A, node="node-b")], want=["is for node node-b"]),
    SliceCase(id="without an owner", slices=[resource_slice("0", A)], want=["has no owner reference to its Node"]),
    SliceCase(
        id="counters that the pool does not have",
        slices=[owned("0", device("a", draws={"card": {"memory": "1Gi"}}))],
        want=["consumes counter card/memory"],
    ),
]


@pytest.mark.parametrize("case", SLICES, ids=lambda case: case.id)
def test_check_published(case: SliceCase) -> None:
    findings = list(check_published(case.slices, NODE))
    assert len(findings) == len(case.want)
    assert all(want in finding.text for want, finding in zip(case.want, findings, strict=True))


def test_a_pool_is_complete_when_all_announced_slices_are_there() -> None:
    assert are_complete([owned("0", A, of=2), owned("1", B, of=2)])
    assert not are_complete([owned("0", A, of=2)])
    assert not are_complete([])


@dataclass(frozen=True)
class HistoryCase:
    id: str
    # A slice that is put, or the name of one that is removed.
    events: Sequence[ResourceSlice | str]
    want: str = ""


HISTORIES = [
    HistoryCase(id="one slice changes", events=[owned("0", A), owned("0", B)]),
    HistoryCase(
        id="a new generation",
        events=[owned("0", A), owned("0", A, generation=2, of=2), owned("1", B, generation=2, of=2)],
    ),
    HistoryCase(id="taken away, and begun anew", events=[owned("0", A, generation=5), "0", owned("1", A)]),
    HistoryCase(id="back in time", events=[owned("0", A, generation=2), owned("0", A)], want="from generation 2 to 1"),
    HistoryCase(
        id="an old slice comes late", events=[owned("0", A, generation=2), owned("1", B)], want="already had 2"
    ),
    HistoryCase(
        id="a device moves without a new generation",
        events=[owned("0", A, of=2), owned("1", B, of=2), owned("1", A, B, of=2), owned("0", of=2)],
        want="looked complete but had a twice",
    ),
    HistoryCase(
        id="a device moves with one",
        events=[
            owned("0", A, of=2),
            owned("1", B, of=2),
            owned("1", A, B, of=2, generation=2),
            owned("0", of=2, generation=2),
        ],
    ),
]


@pytest.mark.parametrize("case", HISTORIES, ids=lambda case: case.id)
def test_slice_history(case: HistoryCase) -> None:
    history = SliceHistory()
    for event in case.events:
        if isinstance(event, str):
            history.remove(event)
        else:
            history.put(event)
    assert [case.want in fault.text for fault in history.violations] == ([True] if case.want else [])
