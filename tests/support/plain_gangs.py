"""Gangs in their simplest form: random problems, and an exhaustive solver that says whether a gang fits.

The problem is a value of plain numbers. `objects_of` makes the API objects that say the same; the solver never sees them, and
shares no code with what it checks. It tries every node, every alternative and every choice of devices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import combinations
from random import Random

GPU_CLASSES = ("any", "a", "b")


@dataclass(frozen=True)
class PlainDevice:
    """`nodes` reach it. A device with `memory` can be shared. It takes `units` of the counter set `card` of its pool."""

    name: str
    pool: str
    nodes: frozenset[str]
    model: str = "a"
    numa: int | None = 0
    memory: int | None = None
    card: str | None = None
    units: int = 0


@dataclass(frozen=True)
class PlainWish:
    count: int = 1
    model: str = "any"
    memory: int | None = None

    def matches(self, device: PlainDevice) -> bool:
        if self.model not in ("any", device.model):
            return False
        return self.memory is None or (device.memory is not None and self.memory <= device.memory)


@dataclass(frozen=True)
class PlainClaim:
    """Requests of one or more alternatives. The devices of all of them have equal or distinct NUMA nodes, if asked."""

    name: str
    requests: tuple[tuple[PlainWish, ...], ...]
    numa: str | None = None


@dataclass(frozen=True)
class PlainPod:
    """`extended` is one of its claims that it does not name: its container asks for an extended resource instead."""

    name: str
    cpu: int
    claims: tuple[str, ...]
    zone: str | None = None
    extended: str | None = None


@dataclass(frozen=True)
class PlainGang:
    nodes: dict[str, tuple[int, str]]
    devices: tuple[PlainDevice, ...]
    cards: dict[tuple[str, str], int]
    claims: dict[str, PlainClaim]
    pods: tuple[PlainPod, ...]
    needed: int
    topology: bool = False


@dataclass
class _State:
    cpu: dict[str, int]
    # Devices in use: None if taken whole, else what is left of its memory.
    used: dict[str, int | None] = field(default_factory=dict)
    cards: dict[tuple[str, str], int] = field(default_factory=dict)
    # The nodes that reach the devices of a claim.
    reach: dict[str, frozenset[str]] = field(default_factory=dict)

    def copy(self) -> _State:
        return _State(dict(self.cpu), dict(self.used), dict(self.cards), dict(self.reach))

    def key(self) -> object:
        parts = (self.cpu, self.used, self.cards, self.reach)
        return tuple(tuple(sorted(each.items(), key=repr)) for each in parts)


@dataclass
class GangStart:
    """What other pods have: cpu of nodes, devices (as in `_State`) and units of cards."""

    cpu: dict[str, int] = field(default_factory=dict)
    used: dict[str, int | None] = field(default_factory=dict)
    cards: dict[tuple[str, str], int] = field(default_factory=dict)

    def take(self, device: PlainDevice, memory: int | None) -> None:
        if device.card is not None and device.name not in self.used:
            key = (device.pool, device.card)
            self.cards[key] = self.cards.get(key, 0) + device.units
        left = self.used.get(device.name, device.memory)
        self.used[device.name] = None if left is None or memory is None else left - memory


class TooLarge(Exception):
    """The exhaustive search takes too long."""


class GangSolver:
    def __init__(self, gang: PlainGang, steps_max: int = 200_000) -> None:
        self._gang = gang
        self._left = steps_max

    def fits(self, start: GangStart | None = None) -> bool:
        """True if `needed` of the pods can be placed together, beside other pods."""
        gang, start = self._gang, start or GangStart()
        cpu = {name: cpu - start.cpu.get(name, 0) for name, (cpu, _) in gang.nodes.items()}
        cards = {key: gang.cards[key] - units for key, units in start.cards.items()}
        zones = {zone for _, zone in gang.nodes.values()} if gang.topology else {None}
        for zone in sorted(zones, key=str):
            nodes = [name for name, (_, at) in gang.nodes.items() if zone in (None, at)]
            for chosen in combinations(gang.pods, gang.needed):
                self._dead: set[object] = set()
                if self._place(chosen, nodes, _State(dict(cpu), dict(start.used), dict(cards))):
                    return True
        return False

    def _place(self, pods: tuple[PlainPod, ...], nodes: list[str], state: _State) -> bool:
        if not pods:
            return True
        key = (len(pods), state.key())
        if key in self._dead:
            return False
        pod = pods[0]
        for node in nodes:
            if state.cpu[node] < pod.cpu or pod.zone not in (None, self._gang.nodes[node][1]):
                continue
            with_cpu = state.copy()
            with_cpu.cpu[node] -= pod.cpu
            for after in self._claims(pod.claims, node, with_cpu):
                if self._place(pods[1:], nodes, after):
                    return True
        self._dead.add(key)
        return False

    def _claims(self, names: tuple[str, ...], node: str, state: _State) -> Iterator[_State]:
        if not names:
            yield state
            return
        name, rest = names[0], names[1:]
        if name in state.reach:
            if node in state.reach[name]:
                yield from self._claims(rest, node, state)
            return
        claim = self._gang.claims[name]
        for after, devices in self._requests(claim.requests, node, state, ()):
            numas = [device.numa for device in devices]
            if claim.numa is not None and None in numas:
                continue
            if claim.numa == "match" and len(set(numas)) > 1:
                continue
            if claim.numa == "distinct" and len(set(numas)) < len(numas):
                continue
            reached = frozenset(self._gang.nodes)
            for device in devices:
                reached &= device.nodes
            done = after.copy()
            done.reach[name] = reached
            yield from self._claims(rest, node, done)

    def _requests(
        self,
        requests: tuple[tuple[PlainWish, ...], ...],
        node: str,
        state: _State,
        taken: tuple[PlainDevice, ...],
    ) -> Iterator[tuple[_State, tuple[PlainDevice, ...]]]:
        if not requests:
            yield state, taken
            return
        for wish in requests[0]:
            seen = [each for each in self._gang.devices if node in each.nodes and wish.matches(each)]
            for devices in combinations(seen, wish.count):
                self._left -= 1
                if self._left < 0:
                    raise TooLarge
                after = self._take(devices, wish, state)
                if after is not None:
                    yield from self._requests(requests[1:], node, after, (*taken, *devices))

    def _take(self, devices: tuple[PlainDevice, ...], wish: PlainWish, state: _State) -> _State | None:
        after = state.copy()
        for device in devices:
            is_new = device.name not in after.used
            if device.memory is None:
                if not is_new:
                    return None
                after.used[device.name] = None
            else:
                left = device.memory if is_new else after.used[device.name]
                assert left is not None
                # A share without a request for memory takes all of it.
                amount = wish.memory if wish.memory is not None else device.memory
                if left < amount:
                    return None
                after.used[device.name] = left - amount
            if device.card is not None and is_new:
                key = (device.pool, device.card)
                after.cards[key] = after.cards.get(key, self._gang.cards[key]) - device.units
                if after.cards[key] < 0:
                    return None
        return after


def random_gang(seed: int) -> PlainGang:
    """A small gang on a crowded cluster: at most 6 pods, 4 nodes, 12 devices."""
    random = Random(seed)
    chance = random.random
    names = [f"node-{number}" for number in range(random.randint(1, 4))]
    nodes = {name: (random.randint(2, 5), random.choice(("east", "west"))) for name in names}
    devices = tuple(_devices(random, names, nodes))
    cards = {(each.pool, each.card): random.randint(1, 4) for each in devices if each.card is not None}
    claims: dict[str, PlainClaim] = {}
    shared = [f"shared-{number}" for number in range(random.choice((0, 0, 1, 1, 2)))]
    shapes = [_claim(random, "shape") for _ in range(random.choice((1, 1, 2, 3)))]
    for name in shared:
        claims[name] = PlainClaim(name, *_parts(random.choice(shapes)))
    pods: list[PlainPod] = []
    for number in range(random.randint(1, 6)):
        own: list[str] = []
        for index in range(random.choice((0, 1, 1, 1, 2)) if shared else random.choice((1, 1, 1, 2))):
            name = f"claim-{number}-{index}"
            claims[name] = PlainClaim(name, *_parts(random.choice(shapes)))
            own.append(name)
        own += [name for name in shared if chance() < 0.6]
        zone = random.choice(("east", "west")) if chance() < 0.1 else None
        pods.append(PlainPod(f"pod-{number}", random.choice((0, 1, 1, 2)), tuple(own), zone))
    used = {name for pod in pods for name in pod.claims}
    pods = _with_extended(Random(f"extended resources {seed}"), pods, claims)
    needed = len(pods) if chance() < 0.75 else random.randint(1, len(pods))
    return PlainGang(
        nodes,
        devices,
        cards,
        {name: claim for name, claim in claims.items() if name in used},
        tuple(pods),
        needed,
        topology=chance() < 0.15,
    )


def _with_extended(random: Random, pods: list[PlainPod], claims: dict[str, PlainClaim]) -> list[PlainPod]:
    """In one of four gangs, members whose own claim asks for whole devices and no more ask for an extended resource."""
    if random.random() > 0.25:
        return pods
    changed: list[PlainPod] = []
    for pod in pods:
        own = [name for name in pod.claims if name.startswith("claim-") and _is_countable(claims[name])]
        # The claim for extended resources is the last of the pod's.
        extended = own[-1] if own and random.random() < 0.7 else None
        rest = tuple(name for name in pod.claims if name != extended)
        changed.append(replace(pod, claims=(*rest, extended), extended=extended) if extended else pod)
    return changed


def _is_countable(claim: PlainClaim) -> bool:
    return claim.numa is None and len(claim.requests) == 1 == len(claim.requests[0]) and not claim.requests[0][0].memory


def _parts(claim: PlainClaim) -> tuple[tuple[tuple[PlainWish, ...], ...], str | None]:
    return claim.requests, claim.numa


def _devices(random: Random, names: list[str], nodes: dict[str, tuple[int, str]]) -> Iterator[PlainDevice]:
    left = 12
    is_sharing, is_drawing = random.random() < 0.5, random.random() < 0.4
    pools: list[tuple[str, frozenset[str]]] = [(f"pool-{name}", frozenset({name})) for name in names]
    if random.random() < 0.35:
        pools.append(("pool-everywhere", frozenset(names)))
    if random.random() < 0.2:
        pools.append(("pool-zone-east", frozenset(name for name in names if nodes[name][1] == "east")))
    for pool, reach in pools:
        for number in range(min(left, random.randint(1, 4))):
            left -= 1
            is_counting = is_drawing and random.random() < 0.7
            yield PlainDevice(
                f"{pool}-{number}",
                pool,
                reach,
                model=random.choice("ab"),
                numa=random.choice((0, 0, 1, 1, 1, None)),
                memory=random.randint(2, 6) if is_sharing and random.random() < 0.7 else None,
                card=random.choice(("card-0", "card-1")) if is_counting else None,
                units=random.choice((1, 1, 2)) if is_counting else 0,
            )


def _claim(random: Random, name: str) -> PlainClaim:
    def wish() -> PlainWish:
        return PlainWish(
            count=random.choice((1, 1, 1, 1, 1, 2)),
            model=random.choice(("any", "any", "any", "a", "b")),
            memory=random.choice((None, None, 1, 2, 3)),
        )

    requests = tuple(
        tuple(wish() for _ in range(random.choice((1, 1, 1, 2)))) for _ in range(random.choice((1, 1, 1, 2)))
    )
    return PlainClaim(name, requests, random.choice((None, None, None, None, "match", "distinct")))
