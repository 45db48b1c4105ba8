"""No gang is half placed for longer than its undo takes: all members that it needs get nodes, or none holds anything.

A gang is torn while it has waiting members and
- some of the members that it needs have nodes, and it never had all of them since the first got one; or
- none has a node, and it holds devices that no other pod may use.

Two gangs that hold half each of what both need would both be torn for ever. What happens to a gang from outside is no tear: a member
goes, the gang is resized, its scheduler is restarted between two bindings. Whether such a gang could run is asked when the cluster is
idle (`liveness`). The checker reads the stored documents itself: it shares no code with the components.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from tests.simulator.change_checker import CLAIMS, PODS, ChangeChecker, put, stored_document
from tests.simulator.documents import Document
from tests.simulator.history import CommittedChange
from tests.simulator.safety_checker import claims_used

GROUPS: Final = "/registry/podgroups.scheduling.k8s.io/"
MIN_COUNT: Final = "dralloc.io/gang-min-count"
# Longer than all retries of a binding and all back-offs, in which nothing disturbs the gang's scheduler.
TORN_MAX_S: Final = 60.0

GangKey = tuple[str, str, str]


@dataclass
class _Gang:
    """What is known of a gang; `pods` has the keys of members."""

    pods: dict[str, None] = field(default_factory=dict)
    was_complete: bool = False
    # Something from outside happened while it was placed in part.
    is_excused: bool = False
    torn_s: float = 0.0


class GangChecker(ChangeChecker):
    """`tick` is to be called again and again, with the time that has passed."""

    def _forget(self) -> None:
        self._pods: dict[str, Document] = {}
        self._claims: dict[str, Document] = {}
        self._groups: dict[str, Document] = {}
        self._gangs: defaultdict[GangKey, _Gang] = defaultdict(_Gang)
        self._gang_of: dict[str, GangKey] = {}

    def reset(self, state: Iterable[CommittedChange]) -> None:
        super().reset(state)
        # The back-up may have been taken while a gang was placed in part.
        for gang in self._gangs.values():
            gang.is_excused = True

    def on_change(self, change: CommittedChange) -> None:
        if change.key.startswith(PODS):
            self._on_pod(change.key, stored_document(change))
        elif change.key.startswith(CLAIMS):
            put(self._claims, change.key, stored_document(change))
        elif change.key.startswith(GROUPS):
            self._on_group(change.key, stored_document(change))

    def _on_pod(self, key: str, pod: Document | None) -> None:
        before = self._pods.get(key)
        put(self._pods, key, pod)
        # A pod stays in its gang, whatever becomes of the claim that names its owner.
        of = self._gang_of.get(key) or self._key_of(pod)
        if of is None:
            return
        self._gang_of[key] = of
        gang = self._gangs[of]
        if pod is None or _is_over(pod):
            gang.pods.pop(key, None)
            del self._gang_of[key]
            if not _is_waiting(before):
                gang.is_excused = True
        else:
            gang.pods[key] = None
        if not gang.pods:
            del self._gangs[of]
            return
        self._count(of, gang)

    def _on_group(self, key: str, group: Document | None) -> None:
        before = self._groups.get(key)
        put(self._groups, key, group)
        of = ("PodGroup", key.split("/")[3], key.split("/")[4])
        if of in self._gangs and _min_count(before) != _min_count(group):
            self._gangs[of].is_excused = True

    def _count(self, key: GangKey, gang: _Gang) -> None:
        bound = len(self._bound(gang))
        if not bound:
            gang.was_complete = gang.is_excused = False
        elif bound >= self._needed(key, gang):
            gang.was_complete = True

    # --- Time -------------------------------------------------------------------------------------------------------

    def restarted(self, scheduler: str) -> None:
        """The scheduler begins anew. It may find that the rest of a gang does not fit any more."""
        for gang in self._gangs.values():
            if self._scheduler(gang) == scheduler:
                gang.torn_s = 0.0
                gang.is_excused = gang.is_excused or bool(self._bound(gang))

    def tick(self, seconds: float, is_undisturbed: Callable[[str], bool]) -> None:
        """`is_undisturbed` says of a scheduler, by its name, that it could work and write all the time."""
        for key, gang in self._gangs.items():
            why = self._tear(key, gang)
            if not why:
                gang.torn_s = 0.0
            elif is_undisturbed(self._scheduler(gang)):
                gang.torn_s += seconds
                if gang.torn_s > TORN_MAX_S:
                    gang.torn_s = 0.0
                    self.violations.append(f"{'/'.join(key)} is half placed for {TORN_MAX_S:g} s: {why}")

    def torn(self) -> Iterator[str]:
        """The gangs that are torn now, in a cluster that rests."""
        for key, gang in self._gangs.items():
            if why := self._tear(key, gang):
                yield f"{'/'.join(key)} is half placed: {why}"

    # --- A gang -----------------------------------------------------------------------------------------------------

    def _tear(self, key: GangKey, gang: _Gang) -> str:
        """What it has of what it needs; empty if that is all or nothing."""
        waiting = [pod for each in gang.pods if _is_waiting(pod := self._pods[each])]
        bound, needed = len(self._bound(gang)), self._needed(key, gang)
        if not waiting or not needed:
            return ""
        if bound:
            is_torn = bound < needed and not gang.was_complete and not gang.is_excused
            return f"{bound} of {needed} members have nodes" if is_torn else ""
        held = [*self._held(key, gang, waiting, is_ready=len(waiting) >= needed)]
        return f"no member has a node, and {', '.join(held)} are allocated" if held else ""

    def _held(self, key: GangKey, gang: _Gang, waiting: list[Document], *, is_ready: bool) -> Iterator[str]:
        """The claims with devices that only waiting members, or the group for them, may use."""
        owners = {pod["metadata"]["uid"] for pod in waiting}
        if is_ready or (key[0] == "PodGroup" and not self._was_scheduled(key)):
            owners.add(self._uid_of(key))
        used = {name for each in gang.pods for name in claims_used(self._pods[each])}
        for name in sorted(used):
            status = self._claims.get(name, {}).get("status", {})
            reserved = {entry["uid"] for entry in status.get("reservedFor", ())}
            if "allocation" in status and reserved and reserved <= owners:
                yield name.removeprefix(CLAIMS)

    def _bound(self, gang: _Gang) -> list[str]:
        return [
            key
            for key in gang.pods
            if self._pods[key]["spec"].get("nodeName") and "deletionTimestamp" not in self._pods[key]["metadata"]
        ]

    def _needed(self, key: GangKey, gang: _Gang) -> int:
        """0 if the gang's PodGroup does not exist."""
        if key[0] == "PodGroup":
            return _min_count(self._groups.get(f"{GROUPS}{key[1]}/{key[2]}"))
        asked = (self._pods[each]["metadata"].get("annotations", {}).get(MIN_COUNT, "1") for each in gang.pods)
        return max((int(text) for text in asked), default=0)

    def _was_scheduled(self, key: GangKey) -> bool:
        conditions = self._groups.get(f"{GROUPS}{key[1]}/{key[2]}", {}).get("status", {}).get("conditions", ())
        return any(each["type"] == "PodGroupInitiallyScheduled" and each["status"] == "True" for each in conditions)

    def _uid_of(self, key: GangKey) -> str:
        if key[0] != "PodGroup":
            return key[2]
        return str(self._groups.get(f"{GROUPS}{key[1]}/{key[2]}", {}).get("metadata", {}).get("uid", ""))

    def _scheduler(self, gang: _Gang) -> str:
        return str(self._pods[next(iter(gang.pods))]["spec"].get("schedulerName", "")) if gang.pods else ""

    def _key_of(self, pod: Document | None) -> GangKey | None:
        """By PodGroup and name, or by the UID of an owner."""
        if pod is None or _is_over(pod):
            return None
        namespace = pod["metadata"]["namespace"]
        if group := pod["spec"].get("schedulingGroup", {}).get("podGroupName"):
            return "PodGroup", namespace, group
        if MIN_COUNT not in pod["metadata"].get("annotations", {}):
            return None
        for entry in pod["spec"].get("resourceClaims", ()):
            claim = self._claims.get(f"{CLAIMS}{namespace}/{entry.get('resourceClaimName')}", {})
            if owner := claim.get("spec", {}).get("reservedFor"):
                return "owner", namespace, owner["uid"]
        return None


def _is_over(pod: Document) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def _is_waiting(pod: Document | None) -> bool:
    return pod is not None and not pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]


def _min_count(group: Document | None) -> int:
    if group is None:
        return 0
    gang = group["spec"]["schedulingPolicy"].get("gang")
    return int(gang["minCount"]) if gang is not None else 1
