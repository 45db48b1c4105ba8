"""Small allocation problems and their answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from dralloc.devices.allocator.features import Features
from dralloc.kube.resource_v1 import (
    NO_EXECUTE,
    Device,
    DeviceCapacity,
    DeviceClass,
    DeviceConstraint,
    DeviceTaint,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
)
from dralloc.testing.builders import (
    DRIVER,
    allocation,
    alternative,
    claim,
    device,
    device_class,
    distinct,
    first_available,
    held,
    match,
    request,
    resource_slice,
    taint,
    taint_rule,
    toleration,
)

ALL_ON = Features()


def attribute(name: str) -> str:
    return f'device.attributes["{DRIVER}"].{name}'


def is_model(name: str) -> str:
    return f'{attribute("model")} == "{name}"'


def gpus(
    count: int,
    *,
    capacity: dict[str, str | DeviceCapacity] | None = None,
    taints: Sequence[DeviceTaint] = (),
    binding_conditions: Sequence[str] = (),
) -> ResourceSlice:
    names = (f"gpu-{number}" for number in range(count))
    made = (device(name, capacity=capacity, taints=taints, binding_conditions=binding_conditions) for name in names)
    return resource_slice("gpus", *made)


def shareable(name: str, memory: str = "4Gi") -> Device:
    return device(name, capacity={"memory": memory}, shareable=True)


def holding(name: str, *held_devices: str) -> ResourceClaim:
    return claim(f"holder-{name}", allocation=allocation(*(held(found) for found in held_devices)))


@dataclass(frozen=True)
class Case:
    """`want` has, for each claim, `request:device` for each result; None where the node cannot serve the claims."""

    id: str
    slices: tuple[ResourceSlice, ...]
    claims: tuple[ResourceClaim, ...]
    want: tuple[tuple[str, ...], ...] | None
    allocated: tuple[ResourceClaim, ...] = ()
    rules: tuple[DeviceTaintRule, ...] = ()
    classes: tuple[DeviceClass, ...] = (device_class(),)
    features: Features = field(default_factory=Features)


NUMA = f"{DRIVER}/numa"

SMALL_AND_LARGE = resource_slice(
    "gpus",
    device("d1", attributes={"model": "x"}),
    device("d2", attributes={"model": "y"}),
    device("d3", attributes={"model": "y"}),
)

PARTITIONS = (
    resource_slice(
        "partitions",
        device("d1", draws={"card": {"memory": "4"}}),
        device("d2", draws={"card": {"memory": "6"}}),
        device("d3", draws={"card": {"memory": "4"}}),
        of=2,
    ),
    resource_slice("counters", counters={"card": {"memory": "8"}}, of=2),
)

TWO_REQUESTS = claim("c", request("r1"), request("r2"))

ON_NUMA = resource_slice(
    "gpus",
    device("d1", attributes={"numa": 0}),
    device("d2", attributes={"numa": 1}),
    device("d3", attributes={"numa": 1}),
)

CASES = [
    Case("no claims need nothing", (), (), ()),
    Case("a claim without requests gets an empty result", (), (claim("c"),), ((),)),
    Case("devices in the published order", (gpus(3),), (claim("c", request("r", count=2)),), (("r:gpu-0", "r:gpu-1"),)),
    Case("too few devices", (gpus(2),), (claim("c", request("r", count=3)),), None),
    Case("a device is allocated once", (gpus(2),), (TWO_REQUESTS,), (("r1:gpu-0", "r2:gpu-1"),)),
    Case(
        "what others hold is passed over",
        (gpus(2),),
        (claim("c", request("r")),),
        (("r:gpu-1",),),
        (holding("h", "gpu-0"),),
    ),
    Case("claims of one pod do not share", (gpus(1),), (claim("a", request("r")), claim("b", request("r"))), None),
    Case(
        "earlier requests step back for later ones",
        (SMALL_AND_LARGE,),
        (claim("c", request("r1", count=2), request("r2", where=is_model("x"))),),
        (("r1:d2", "r1:d3", "r2:d1"),),
    ),
    Case(
        "class and request must both select",
        (SMALL_AND_LARGE,),
        (claim("c", request("r", where=is_model("y"))),),
        None,
        classes=(device_class(where=is_model("x")),),
    ),
    # --- Alternatives in order of preference
    Case(
        "the first alternative that fits",
        (SMALL_AND_LARGE,),
        (
            claim(
                "c", first_available("r", alternative("z", where=is_model("z")), alternative("y", where=is_model("y")))
            ),
        ),
        (("r/y:d2",),),
    ),
    Case(
        "a later request can make an earlier one fall back",
        (resource_slice("gpus", device("big", attributes={"model": "x"}), device("small", attributes={"model": "y"})),),
        (
            claim(
                "c",
                first_available("r1", alternative("x", where=is_model("x")), alternative("y", where=is_model("y"))),
                request("r2", where=is_model("x")),
            ),
        ),
        (("r1/y:small", "r2:big"),),
    ),
    Case(
        "an alternative that would pass the limit is left out",
        (gpus(64),),
        (
            claim(
                "c",
                first_available("r1", alternative("a", count=32), alternative("b", count=16)),
                first_available("r2", alternative("a", count=32), alternative("b", count=16)),
            ),
        ),
        (tuple(f"r1/b:gpu-{n}" for n in range(16)) + tuple(f"r2/b:gpu-{n}" for n in range(16, 32)),),
    ),
    # --- All devices
    Case("all of them", (gpus(3),), (claim("c", request("r", everything=True)),), (("r:gpu-0", "r:gpu-1", "r:gpu-2"),)),
    Case(
        "all means all: one in use is one too few",
        (gpus(2),),
        (claim("c", request("r", everything=True)),),
        None,
        (holding("h", "gpu-1"),),
    ),
    Case("all of none is not served", (), (claim("c", request("r", everything=True)),), None),
    Case(
        "all is only an alternative",
        (gpus(2),),
        (claim("c", first_available("r", alternative("all", everything=True), alternative("one"))),),
        (("r/one:gpu-0",),),
        (holding("h", "gpu-1"),),
    ),
    Case(
        "all with admin access, also those in use",
        (gpus(2),),
        (claim("c", request("r", everything=True, admin=True)),),
        (("r:gpu-0", "r:gpu-1"),),
        (holding("h", "gpu-1"),),
    ),
    # --- Admin access
    Case(
        "admin access reaches devices in use",
        (gpus(1),),
        (claim("c", request("r", admin=True)),),
        (("r:gpu-0",),),
        (holding("h", "gpu-0"),),
    ),
    Case(
        "a device for admin access held by others is free",
        (gpus(1),),
        (claim("c", request("r")),),
        (("r:gpu-0",),),
        (claim("h", allocation=allocation(held("gpu-0", admin=True))),),
    ),
    Case(
        "first the user, then the admin",
        (gpus(1),),
        (claim("a", request("r")), claim("b", request("r", admin=True))),
        (("r:gpu-0",), ("r:gpu-0",)),
    ),
    Case(
        "first the admin, then no other request",
        (gpus(1),),
        (claim("a", request("r", admin=True)), claim("b", request("r"))),
        None,
    ),
    Case(
        "two requests of one claim never share by admin access",
        (gpus(1),),
        (claim("c", request("r1", admin=True), request("r2", admin=True)),),
        None,
    ),
    # --- Constraints
    Case(
        "equal attributes",
        (ON_NUMA,),
        (claim("c", request("r1"), request("r2"), constraints=[match(NUMA)]),),
        (("r1:d2", "r2:d3"),),
    ),
    Case(
        "equal for those that are covered",
        (ON_NUMA,),
        (claim("c", request("r1"), request("r2"), constraints=[match(NUMA, "r1")]),),
        (("r1:d1", "r2:d2"),),
    ),
    Case(
        "distinct attributes",
        (ON_NUMA,),
        (claim("c", request("r", count=2), constraints=[distinct(NUMA)]),),
        (("r:d1", "r:d2"),),
    ),
    Case(
        "too few values to be distinct",
        (ON_NUMA,),
        (claim("c", request("r", count=3), constraints=[distinct(NUMA)]),),
        None,
    ),
    Case("an attribute that no device has", (gpus(2),), (claim("c", request("r"), constraints=[match(NUMA)]),), None),
    Case(
        "both kinds in one constraint: equal is what counts",
        (ON_NUMA,),
        (
            claim(
                "c",
                request("r", count=2),
                constraints=[DeviceConstraint(match_attribute=NUMA, distinct_attribute=NUMA)],
            ),
        ),
        (("r:d2", "r:d3"),),
    ),
    # --- Shares of a device
    Case(
        "shares of one device, until it is used up",
        (resource_slice("gpus", shareable("gpu-0"), shareable("gpu-1")),),
        (claim("c", *(request(f"r{n}", capacity={"memory": "2Gi"}) for n in range(3))),),
        (("r0:gpu-0", "r1:gpu-0", "r2:gpu-1"),),
    ),
    Case(
        "shares of others count",
        (resource_slice("gpus", shareable("gpu-0"), shareable("gpu-1")),),
        (claim("c", request("r", capacity={"memory": "2Gi"})),),
        (("r:gpu-1",),),
        (claim("h", allocation=allocation(held("gpu-0", share_id="s", consumed={"memory": "3Gi"}))),),
    ),
    Case(
        "one request takes no device twice",
        (resource_slice("gpus", shareable("gpu-0")),),
        (claim("c", request("r", count=2, capacity={"memory": "1Gi"})),),
        None,
    ),
    Case("nothing asked takes everything", (resource_slice("gpus", shareable("gpu-0")),), (TWO_REQUESTS,), None),
    Case(
        "without capacity there is no end of shares",
        (resource_slice("gpus", device("gpu-0", shareable=True)),),
        (TWO_REQUESTS,),
        (("r1:gpu-0", "r2:gpu-0"),),
    ),
    Case(
        "a dedicated device only needs to be large enough",
        (gpus(1, capacity={"memory": "4Gi"}),),
        (claim("c", request("r", capacity={"memory": "3Gi"})),),
        (("r:gpu-0",),),
    ),
    Case(
        "a dedicated device that is too small",
        (gpus(1, capacity={"memory": "2Gi"}),),
        (claim("c", request("r", capacity={"memory": "3Gi"})),),
        None,
    ),
    Case("a capacity that no device has", (gpus(1),), (claim("c", request("r", capacity={"memory": "1"})),), None),
    Case(
        "a dedicated device stays so when it becomes shareable",
        (resource_slice("gpus", shareable("gpu-0")),),
        (claim("c", request("r", capacity={"memory": "1Gi"})),),
        None,
        (holding("h", "gpu-0"),),
    ),
    Case(
        "a device that is no longer shareable is allocated whole if its shares leave enough",
        (gpus(1, capacity={"memory": "4Gi"}),),
        (claim("c", request("r", capacity={"memory": "2Gi"})),),
        (("r:gpu-0",),),
        (claim("h", allocation=allocation(held("gpu-0", share_id="s", consumed={"memory": "2Gi"}))),),
    ),
    Case(
        "shares with the feature off keep the device",
        (resource_slice("gpus", shareable("gpu-0"), shareable("gpu-1")),),
        (claim("c", request("r")),),
        (("r:gpu-1",),),
        (claim("h", allocation=allocation(held("gpu-0", share_id="s", consumed={"memory": "1Gi"}))),),
        features=replace(ALL_ON, consumable_capacity=False),
    ),
    Case(
        "distinct means distinct devices of shares",
        (resource_slice("gpus", *(device(f"gpu-{n}", attributes={"numa": n}, shareable=True) for n in range(2))),),
        (claim("c", request("r1"), request("r2"), constraints=[distinct(NUMA)]),),
        (("r1:gpu-0", "r2:gpu-1"),),
    ),
    # --- Partitions
    Case("counters decide who goes together", PARTITIONS, (TWO_REQUESTS,), (("r1:d1", "r2:d3"),)),
    Case("devices in use draw from counters", PARTITIONS, (claim("c", request("r")),), None, (holding("h", "d2"),)),
    Case(
        "admin access pays for counters",
        PARTITIONS,
        (claim("c", request("r", admin=True)),),
        None,
        (holding("h", "d2"),),
    ),
    Case(
        "partitions with the feature off",
        PARTITIONS,
        (claim("c", request("r")),),
        None,
        features=replace(ALL_ON, partitionable_devices=False),
    ),
    Case(
        "a shared partition pays once",
        (
            resource_slice("partitions", device("d1", draws={"card": {"memory": "4"}}, shareable=True), of=2),
            resource_slice("counters", counters={"card": {"memory": "4"}}, of=2),
        ),
        (TWO_REQUESTS,),
        (("r1:d1", "r2:d1"),),
    ),
    Case(
        "an overdrawn counter blocks every device that consumes counters",
        (
            resource_slice(
                "partitions",
                device("d1", draws={"a": {"m": "4"}}),
                device("d2", draws={"b": {"m": "1"}}),
                device("d3"),
                of=2,
            ),
            resource_slice("counters", counters={"a": {"m": "1"}, "b": {"m": "9"}}, of=2),
        ),
        (claim("c", request("r")),),
        (("r:d3",),),
        (holding("h", "d1"),),
    ),
    # --- Taints
    Case(
        "tainted devices are passed over",
        (resource_slice("gpus", device("d1", taints=[taint("k", "v")]), device("d2")),),
        (claim("c", request("r")),),
        (("r:d2",),),
    ),
    Case(
        "tolerated",
        (gpus(1, taints=[taint("k", "v", NO_EXECUTE)]),),
        (claim("c", request("r", tolerations=[toleration("k", "v")])),),
        (("r:gpu-0",),),
    ),
    Case(
        "taints with the feature off",
        (gpus(1, taints=[taint("k", "v")]),),
        (claim("c", request("r")),),
        (("r:gpu-0",),),
        features=replace(ALL_ON, device_taints=False),
    ),
    Case(
        "a rule taints",
        (gpus(2),),
        (claim("c", request("r")),),
        (("r:gpu-1",),),
        rules=(taint_rule("rule", taint("k"), device="gpu-0"),),
    ),
    Case(
        "a tolerated rule",
        (gpus(2),),
        (claim("c", request("r", tolerations=[toleration("k")])),),
        (("r:gpu-0",),),
        rules=(taint_rule("rule", taint("k")),),
    ),
    Case(
        "an alternative has its own tolerations",
        (gpus(1, taints=[taint("k")]),),
        (claim("c", first_available("r", alternative("a"), alternative("b", tolerations=[toleration("k")]))),),
        (("r/b:gpu-0",),),
    ),
    # --- Binding conditions
    Case(
        "devices that must be bound come last",
        (
            resource_slice("a", device("d1", binding_conditions=["ready"]), pool="a"),
            resource_slice("b", device("d2"), pool="b"),
        ),
        (claim("c", request("r", count=2)),),
        (("r:d2", "r:d1"),),
    ),
    Case(
        "devices that must be bound, with the feature off",
        (gpus(1, binding_conditions=["ready"]),),
        (claim("c", request("r")),),
        None,
        features=replace(ALL_ON, binding_conditions=False),
    ),
    # --- Pools that are not ready
    Case(
        "an incomplete pool is passed over",
        (resource_slice("a", device("d1"), of=2), resource_slice("b", device("d2"), pool="b")),
        (claim("c", request("r")),),
        (("r:d2",),),
    ),
]
