"""The API objects of a `PlainGang`, in a cluster state; and a check of a placement against the plain rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count
from typing import Any

from msgspec.structs import replace

from dralloc.devices.identity import ClaimId
from dralloc.kube.codec import decode, encode
from dralloc.kube.core_v1 import Node
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import Device, DeviceRequest, ResourceClaim, ResourceSlice
from dralloc.scheduler.decide.gang_cycle import GangPlacement
from dralloc.scheduler.state.cluster_state import ClusterState
from dralloc.testing import builders as build
from tests.support.plain_gangs import PlainClaim, PlainDevice, PlainGang, PlainPod, PlainWish

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ZONE = "zone"
NUMA = f"{build.DRIVER}/numa"


class ShareIds:
    def __init__(self) -> None:
        self._numbers = count()

    def __call__(self) -> str:
        return f"00000000-0000-0000-0000-{next(self._numbers):012}"


def cluster_of(gang: PlainGang) -> ClusterState:
    state = ClusterState()
    for name, (cpu, zone) in gang.nodes.items():
        document = {
            "metadata": {"name": name, "labels": {ZONE: zone}},
            "status": {"allocatable": {"cpu": str(cpu), "memory": "1Ti", "pods": "110"}},
        }
        state.node_changed(None, decode(encode(document), Node))
    for each in _slices(gang):
        state.slice_changed(None, each)
    for name in ("any", "a", "b"):
        where = f'device.attributes["{build.DRIVER}"].model == "{name}"' if name != "any" else ()
        state.class_changed(None, build.device_class(name, where, extended=f"example.com/{name}"))
    made_by_scheduler = {pod.extended for pod in gang.pods}
    for number, claim in enumerate(gang.claims.values()):
        if claim.name not in made_by_scheduler:
            state.claim_changed(None, _claim(claim, number))
    return state


def pods_of(gang: PlainGang) -> tuple[Pod, ...]:
    return tuple(
        decode(
            encode(
                {
                    "metadata": {"name": pod.name, "namespace": "default", "uid": f"uid-{pod.name}"},
                    "spec": {
                        "containers": [{"name": "main", "resources": {"requests": _amounts(gang, pod)}}],
                        "resourceClaims": [
                            {"name": name, "resourceClaimName": name} for name in pod.claims if name != pod.extended
                        ],
                        **({"nodeSelector": {ZONE: pod.zone}} if pod.zone else {}),
                    },
                }
            ),
            Pod,
        )
        for pod in gang.pods
    )


def _amounts(gang: PlainGang, pod: PlainPod) -> dict[str, str]:
    amounts = {"cpu": str(pod.cpu)}
    if pod.extended is not None:
        ((wish,),) = gang.claims[pod.extended].requests
        amounts[f"example.com/{wish.model}"] = str(wish.count)
    return amounts


def _slices(gang: PlainGang) -> Iterator[ResourceSlice]:
    for pool in dict.fromkeys(device.pool for device in gang.devices):
        devices = [device for device in gang.devices if device.pool == pool]
        cards = {card: {"units": str(units)} for (at, card), units in gang.cards.items() if at == pool}
        node = next(iter(devices[0].nodes)) if len(devices[0].nodes) == 1 else None
        placed: dict[str, Any] = {"node_name": node}
        if pool == "pool-everywhere":
            placed = {"all_nodes": True}
        elif pool == "pool-zone-east":
            placed = {"node_selector": build.node_selector(zone="east")}
        of = 2 if cards else 1
        yield build.resource_slice(pool, *map(_device, devices), pool=pool, of=of, **placed)
        if cards:
            yield build.resource_slice(f"{pool}-counters", pool=pool, of=of, counters=cards, **placed)


def _device(device: PlainDevice) -> Device:
    numa = {NUMA: device.numa} if device.numa is not None else {}
    return build.device(
        device.name,
        attributes={"model": device.model, **numa},
        capacity={"memory": str(device.memory)} if device.memory is not None else None,
        shareable=True if device.memory is not None else None,
        draws={device.card: {"units": str(device.units)}} if device.card is not None else None,
    )


def _claim(claim: PlainClaim, number: int) -> ResourceClaim:
    requests = [_request(f"r{index}", wishes) for index, wishes in enumerate(claim.requests)]
    rules = {"match": build.match, "distinct": build.distinct}
    constraints = [rules[claim.numa](NUMA)] if claim.numa is not None else []
    made = build.claim(claim.name, *requests, constraints=constraints)
    return replace(made, metadata=replace(made.metadata, uid=f"uid-{claim.name}", resource_version=str(number + 1)))


def _request(name: str, wishes: tuple[PlainWish, ...]) -> DeviceRequest:
    def wanted(wish: PlainWish) -> dict[str, object]:
        capacity = {"memory": str(wish.memory)} if wish.memory is not None else None
        return {"device_class": wish.model, "count": wish.count, "capacity": capacity}

    if len(wishes) == 1:
        return build.request(name, **wanted(wishes[0]))  # type: ignore[arg-type]
    alternatives = [build.alternative(f"s{index}", **wanted(wish)) for index, wish in enumerate(wishes)]  # type: ignore[arg-type]
    return build.first_available(name, *alternatives)


def check_placement(gang: PlainGang, decision: GangPlacement, state: ClusterState, seed: int) -> None:
    """Every placed pod has space and reaches its devices, nothing is used twice, and claims have what they request."""
    context = f"seed {seed}"
    pods = {pod.name: pod for pod in gang.pods}
    devices = {device.name: device for device in gang.devices}
    assert len(decision.placed) >= gang.needed, context
    cpu: Counter[str] = Counter()
    given: dict[str, list[str]] = {}
    memory: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    for pod, place in decision.placed:
        plain = pods[pod.metadata.name]
        cpu[place.node] += plain.cpu
        assert plain.zone in (None, gang.nodes[place.node][1]), context
        for name in plain.claims:
            if name == plain.extended:
                assert place.extended is not None, context
                results = place.allocations[place.extended.claim_id].devices.results
            else:
                claim = state.find_claim(ClaimId("default", name))
                assert claim is not None
                assert claim.status.allocation is not None, context
                results = claim.status.allocation.devices.results
            assert all(place.node in devices[each.device].nodes for each in results), context
            if name in given:
                continue
            given[name] = [each.device for each in results]
            for each in results:
                if each.share_id is None:
                    whole[each.device] += 1
                memory[each.device] += int(each.consumed_capacity["memory"].nanos // 10**9) if each.share_id else 0
    assert all(used <= gang.nodes[node][0] for node, used in cpu.items()), context
    assert all(times == 1 for times in whole.values()), context
    assert all(used <= (devices[name].memory or 0) for name, used in memory.items()), context
    if gang.topology:
        assert len({gang.nodes[place.node][1] for _, place in decision.placed}) == 1, context
    cards: Counter[tuple[str, str]] = Counter()
    for name in {each for found in given.values() for each in found}:
        device = devices[name]
        if device.card is not None:
            cards[device.pool, device.card] += device.units
    assert all(used <= gang.cards[key] for key, used in cards.items()), context
    for name, found in given.items():
        numas = [devices[each].numa for each in found]
        wanted = gang.claims[name].numa
        assert wanted != "match" or len(set(numas)) == 1, context
        assert wanted != "distinct" or len(set(numas)) == len(numas), context
