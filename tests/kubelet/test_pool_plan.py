"""Plans for the slices of a pool: minimal writes, and no mixture of two states that looks complete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dralloc.driver.devices import Pool, device, taint
from dralloc.driver.publisher import DroppedFields
from dralloc.driver.slices import slices_of
from dralloc.kube.meta_v1 import ObjectMeta, OwnerReference
from dralloc.kube.resource_v1 import Device, DeviceTaint, ResourceSlice, ResourceSliceSpec
from dralloc.node.kubelet.pool_plan import (
    CreateSlice,
    DeleteSlice,
    SliceAction,
    UpdateSlice,
    WantedPool,
    is_as_wanted,
    plan_pool,
)

DRIVER = "gpu.example.com"
OWNER = OwnerReference(api_version="v1", kind="Node", name="node-a", uid="u", controller=True)
STORED_TIME = "2026-01-01T00:00:00Z"


class Server:
    """A server for slices that generates names and dates taints."""

    def __init__(self, slices: Iterable[ResourceSlice] = ()) -> None:
        self.slices = {item.metadata.name: item for item in slices}
        self._suffixes = count()

    def apply(self, action: SliceAction) -> None:
        match action:
            case DeleteSlice(item):
                del self.slices[item.metadata.name]
            case UpdateSlice(_, item):
                assert item.metadata.name in self.slices
                self.slices[item.metadata.name] = _with_taint_times(item)
            case CreateSlice(_, item):
                name = f"{item.metadata.generate_name}{next(self._suffixes):05}"
                self.slices[name] = replace(_with_taint_times(item), metadata=replace(item.metadata, name=name))

    def all(self) -> tuple[ResourceSlice, ...]:
        return tuple(self.slices.values())

    def complete_devices(self) -> tuple[Device, ...] | None:
        """The devices of the newest generation; None while it is incomplete."""
        newest = max((item.spec.pool.generation for item in self.all()), default=0)
        current = [item for _, item in sorted(self.slices.items()) if item.spec.pool.generation == newest]
        if not current or any(item.spec.pool.resource_slice_count != len(current) for item in current):
            return None
        return tuple(found for item in current for found in item.spec.devices or ())


def _with_taint_times(item: ResourceSlice) -> ResourceSlice:
    def timed(found: Device) -> Device:
        taints = tuple(replace(mark, time_added=mark.time_added or STORED_TIME) for mark in found.taints)
        return replace(found, taints=taints)

    devices = None if item.spec.devices is None else tuple(map(timed, item.spec.devices))
    return replace(item, spec=replace(item.spec, devices=devices))


def wanted(*slices: Sequence[Device], generation: int = 0) -> WantedPool:
    """Each argument is one slice."""
    frame = slices_of(Pool(name="p"), DRIVER, "node-a")[0]
    specs = tuple(replace(frame, devices=tuple(devices) or None) for devices in slices)
    return WantedPool(slices=specs, owner=OWNER, generation=generation)


def published(*slices: Sequence[Device]) -> Server:
    server = Server()
    for action in plan_pool(wanted(*slices), ()):
        server.apply(action)
    return server


A, B, C = device("a"), device("b"), device("c")
A_TAINTED = device("a", taints=[taint("broken")])


def shown(actions: Sequence[SliceAction]) -> list[str]:
    """`update 1 @2 of 3: b`: index, generation, count, devices."""
    lines = []
    for action in actions:
        if isinstance(action, DeleteSlice):
            lines.append(f"delete {action.slice.metadata.name.partition('-')[0]}")
        else:
            verb = "update" if isinstance(action, UpdateSlice) else "create"
            spec = action.slice.spec
            names = ",".join(found.name for found in spec.devices or ())
            lines.append(f"{verb} {action.index} @{spec.pool.generation} of {spec.pool.resource_slice_count}: {names}")
    return lines


@dataclass(frozen=True)
class Case:
    id: str
    before: tuple[Sequence[Device], ...]
    after: tuple[Sequence[Device], ...]
    want: list[str] = field(default_factory=list)
    generation: int = 0


CASES = [
    Case(id="the first time", before=(), after=([A], [B]), want=["create 0 @1 of 2: a", "create 1 @1 of 2: b"]),
    Case(id="a pool without devices is published too", before=(), after=([],), want=["create 0 @1 of 1: "]),
    Case(id="nothing changed", before=([A], [B]), after=([A], [B])),
    Case(
        id="one slice changed: its generation stays",
        before=([A], [B]),
        after=([A], [B, C]),
        want=["update 1 @1 of 2: b,c"],
    ),
    Case(id="another order is a change", before=([A, B],), after=([B, A],), want=["update 0 @1 of 1: b,a"]),
    Case(
        id="two slices changed: all are written with a new generation",
        before=([A], [B], [C]),
        after=([B], [A], [C]),
        want=["update 0 @2 of 3: b", "update 1 @2 of 3: a", "update 2 @2 of 3: c"],
    ),
    Case(
        id="one slice more: all say the new count",
        before=([A],),
        after=([A], [B]),
        want=["update 0 @2 of 2: a", "create 1 @2 of 2: b"],
    ),
    Case(
        id="one slice less of two: gone first, then one write",
        before=([A], [B]),
        after=([A],),
        want=["delete 00001", "update 0 @1 of 1: a"],
    ),
    Case(
        id="one slice less of three",
        before=([A], [B], [C]),
        after=([A], [B]),
        want=["delete 00002", "update 0 @2 of 2: a", "update 1 @2 of 2: b"],
    ),
    Case(id="a pool that is gone", before=([A], [B]), after=(), want=["delete 00000", "delete 00001"]),
    Case(
        id="the driver insists on a generation", before=([A],), after=([A],), generation=7, want=["update 0 @7 of 1: a"]
    ),
    Case(id="an old generation of the driver counts for nothing", before=([A],), after=([A],), generation=1),
    Case(id="a taint has a time now: no change", before=([A_TAINTED],), after=([A_TAINTED],)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_plan_pool(case: Case) -> None:
    server = published(*case.before)
    assert shown(plan_pool(wanted(*case.after, generation=case.generation), server.all())) == case.want


def test_slices_that_fit_no_index_are_deleted() -> None:
    """Old generations, names without an index, a duplicate index, an index that is too high."""
    server = published([A])
    (mine,) = server.all()
    old = replace(mine.spec, pool=replace(mine.spec.pool, generation=0))
    strays: Mapping[str, ResourceSliceSpec] = {
        "00000-old": old,
        "node-a-gpu-x7k2p": mine.spec,
        "000-short": mine.spec,
        "00000-twice": mine.spec,
        "00009-far": mine.spec,
    }
    for name, spec in strays.items():
        server.slices[name] = ResourceSlice(metadata=ObjectMeta(name=name), spec=spec)
    actions = plan_pool(wanted([A]), server.all())
    deleted = {action.slice.metadata.name for action in actions if isinstance(action, DeleteSlice)}
    assert deleted == {*strays}
    for action in actions:
        server.apply(action)
    assert server.complete_devices() == (A,)


def test_names_have_index_driver_and_node() -> None:
    names = [
        action.slice.metadata.generate_name
        for action in plan_pool(wanted([A], [B]), ())
        if isinstance(action, CreateSlice)
    ]
    assert names == ["00000-gpu.example.com-node-a-", "00001-gpu.example.com-node-a-"]
    without_owner = plan_pool(WantedPool(slices=wanted([A]).slices), ())
    assert isinstance(without_owner[0], CreateSlice)
    assert without_owner[0].slice.metadata.generate_name == "00000-gpu.example.com-"
    assert without_owner[0].slice.metadata.owner_references == ()


def test_slices_with_names_of_their_own_are_found_by_name_and_take_labels_and_owner() -> None:
    specs = wanted([A], [B]).slices
    metadata = tuple(
        ObjectMeta(name=name, labels={"profile": "gpu"}, owner_references=(OWNER,)) for name in ("one", "two")
    )
    creates = plan_pool(WantedPool(slices=specs, metadata=metadata), ())
    assert [(type(action), action.slice.metadata) for action in creates] == [(CreateSlice, each) for each in metadata]
    stored = [replace(action.slice, metadata=ObjectMeta(name=action.slice.metadata.name)) for action in creates]
    assert plan_pool(WantedPool(slices=specs, metadata=metadata), stored) == ()
    (delete, update) = plan_pool(WantedPool(slices=specs[:1], metadata=metadata[:1]), stored)
    assert (delete, type(update), update.slice.metadata) == (DeleteSlice(stored[1]), UpdateSlice, metadata[0])


def test_a_taint_keeps_its_time_while_other_things_change() -> None:
    server = published([A_TAINTED])
    moved = replace(A_TAINTED, attributes=device("x", attributes={"n": 1}).attributes)
    (update,) = plan_pool(wanted([moved]), server.all())
    assert isinstance(update, UpdateSlice)
    assert [mark.time_added for found in update.slice.spec.devices or () for mark in found.taints] == [STORED_TIME]


def test_a_taint_with_a_time_of_its_own_is_a_change() -> None:
    server = published([A_TAINTED])
    dated = device(
        "a", taints=[DeviceTaint(key="broken", effect="NoSchedule", time_added="2026-02-03T04:05:06.7+01:00")]
    )
    (update,) = plan_pool(wanted([dated]), server.all())
    server.apply(update)
    assert plan_pool(wanted([dated]), server.all()) == ()
    assert [mark.time_added for item in server.all() for found in item.spec.devices or () for mark in found.taints] == [
        "2026-02-03T03:05:06Z"
    ]


# --- Laws ---------------------------------------------------------------------------------------------------------

devices_of_slice = st.lists(st.sampled_from([A, B, C, A_TAINTED]), max_size=2, unique_by=lambda found: found.name)
pools = st.lists(devices_of_slice, max_size=4)


@pytest.mark.slow
@given(history=st.lists(st.tuples(pools, st.integers(0, 8)), max_size=4), last=pools)
def test_a_plan_completes_after_interrupted_plans(
    history: list[tuple[list[list[Device]], int]], last: list[list[Device]]
) -> None:
    """After any interrupted plans, the next one publishes what it wants, and a second run is a no-op."""
    server = Server()
    for slices, writes in history:
        for action in plan_pool(wanted(*slices), server.all())[:writes]:
            server.apply(action)
    for action in plan_pool(wanted(*last), server.all()):
        server.apply(action)
    assert plan_pool(wanted(*last), server.all()) == ()
    names = tuple(found.name for found in server.complete_devices() or ())
    assert names == tuple(found.name for slice_devices in last for found in slice_devices)


@pytest.mark.slow
@given(before=pools, after=pools)
def test_a_complete_pool_is_the_old_one_or_the_new_one(before: list[list[Device]], after: list[list[Device]]) -> None:
    server = published(*before)
    old = server.complete_devices()
    actions = plan_pool(wanted(*after), server.all())
    seen = []
    for action in actions:
        server.apply(action)
        seen.append(server.complete_devices())
    new = server.complete_devices()
    assert all(state in (None, old, new) for state in seen)
    changes = sum(not isinstance(action, DeleteSlice) for action in actions)
    generations = {item.spec.pool.generation for item in server.all()}
    assert generations <= ({1} if not before or changes <= 1 else {2})


# --- Fields that a server drops -----------------------------------------------------------------------------------


def test_dropped_fields_are_named_with_their_gates() -> None:
    shared = replace(A_TAINTED, allow_multiple_allocations=True)
    (create,) = plan_pool(wanted([shared]), ())
    assert isinstance(create, CreateSlice)
    written = create.slice.spec
    stored = replace(written, devices=(A,))
    assert is_as_wanted(written, written)
    assert not is_as_wanted(written, stored)
    dropped = DroppedFields("p", 0, written, stored)
    assert dropped.fields == ("devices[].taints", "devices[].allowMultipleAllocations")
    assert dropped.gates == ("DRADeviceTaints", "DRAConsumableCapacity")
    assert "probably disabled: DRADeviceTaints, DRAConsumableCapacity" in str(dropped)
