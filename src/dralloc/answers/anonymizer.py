"""Renames what names people, teams, workloads and machines in a dump, so that all answers stay the same but for the names.

Each word of a name is replaced by one other word everywhere, and what separates words stays: `ml/train-0` becomes `x12/x40-x03`. So
names that are made of other names still match. The new words have one length and sort as the old ones, because names decide
the order of pools, slices, nodes and claims.

Every string is renamed unless its field is listed here, so that a forgotten field does not leak.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from dralloc.answers.node_ranks import RANK_ANNOTATION, hidden_ranks
from dralloc.cel.errors import CelSyntaxError
from dralloc.cel.lexer import STRING, tokenize
from dralloc.primitives.whole_numbers import whole_number
from dralloc.scheduler.decide.strategy_choice import ANNOTATION as STRATEGY
from dralloc.scheduler.published_configuration import FEATURE_GATES, SCHEDULER_NAME
from dralloc.scheduler.settings import SchedulerSettings


def _fields(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


# Terms of the API and of drivers, quantities, times, and identifiers that name nothing.
_KEPT: Final = _fields("""
    apiVersion kind apiGroup resource uid shareID resourceVersion fieldPath time dralloc kubernetes
    creationTimestamp deletionTimestamp startTime startedAt finishedAt completionTime timeAdded allocationTimestamp lastProbeTime lastTransitionTime
    lastHeartbeatTime firstTimestamp lastTimestamp lastObservedTime eventTime
    type status reason phase effect operator protocol hostIP restartPolicy preemptionPolicy schedulerName priorityClassName
    whenUnsatisfiable nodeAffinityPolicy nodeTaintsPolicy completionMode completedIndexes managedBy
    declaredFeatures scopes source action component
    reportingComponent driver device deviceClassName extendedResourceName resourceName counterSet compatibilityGroups
    allocationMode matchAttribute distinctAttribute partitionTypeAttribute bindingConditions bindingFailureConditions
    accessModes volumeMode volumeBindingMode persistentVolumeReclaimPolicy provisioner attacher capacity maximumVolumeSize
    skipNodeOperations capacityKey capacityMultiplier deviceMultiplier perPod perContainer default min max step validValues value
    holder notBefore notAfter signer created what
    devicePreference strategy allowedOnPods typicalPods remainder distinctAttributes requestPolicyName minAvailable maxUnavailable unhealthyPodEvictionPolicy
""")
# A field inside of another one that is treated differently from others of its name.
_KEPT_INSIDE: Final = frozenset(
    {
        ("devices", "name"),
        ("drivers", "name"),
        ("sharedCounters", "name"),
        ("derivedAttributes", "name"),
        ("matchFields", "key"),
        ("deviceClasses", "name"),
    }
)
_QUANTITIES: Final = _fields("""
    capacity allocatable limits requests overhead hard used allocatedResources consumedCapacity counters nodeAllocatableResources
    capacityLimits requestPolicies strategies
""")
# Kinds whose names administrators chose for all users.
_KEPT_NAMES: Final = frozenset({"CSIDriver", "DeviceClass", "PriorityClass"})
_LABEL_MAPS: Final = frozenset({"labels", "annotations", "matchLabels", "nodeSelector"})
_LABEL_KEYS: Final = frozenset({"key", "topologyKey", "matchLabelKeys", "mismatchLabelKeys", "finalizers"})
_TAINTS: Final = frozenset({"taint", "taints", "tolerations"})
# Only drivers and people read these.
_DROPPED: Final = {"parameters": {}, "description": "", "disruptedPods": {}}
# Switches, and numbers, which selectors compare as numbers.
_KEPT_VALUE: Final = re.compile(r"true|false|-?[0-9]+")
_KEPT_DOMAIN: Final = re.compile(r"(.*\.)?(kubernetes\.io|k8s\.io|dralloc\.io)")

_WORD: Final = re.compile(r"\w+")
_COMMENT: Final = re.compile(r"//[^\n]*")
# Functions that look into a string; what they find there must not be renamed.
_LOOKS_INTO: Final = re.compile(
    r"\b(contains|startsWith|endsWith|matches|find|findAll|split|substring|replace|lowerAscii|upperAscii|indexOf|lastIndexOf"
    r"|charAt|size|trim|reverse|join|format)\("
)


class Anonymizer:
    """The renaming of one dump. `words` are the new words by the old ones, `notes` what was left for the answers' sake."""

    def __init__(self, bodies: Sequence[bytes]) -> None:
        names = _Names(bodies)
        self.notes = names.notes
        ordered = sorted(names.words)
        width = len(str(len(ordered)))
        # Nodes that answers add (`new-gpu-0`) come between the others as before.
        self.words = {word: f"{'a' if word < 'new' else 'x'}{number:0{width}}" for number, word in enumerate(ordered)}
        self._bodies = bodies
        self._walk = _Walk(self.renamed, names.quoted, names.drivers)
        self._ranks = hidden_ranks(names.ranks)

    def renamed(self, text: str) -> str:
        return _WORD.sub(lambda found: self.words[found[0]], text)

    def documents(self) -> Iterator[bytes]:
        for body in self._bodies:
            tree = msgspec.json.decode(body)
            changed = self._walk.document(tree)
            if tree["kind"] == "Node":
                rank = str(self._ranks[tree["metadata"]["name"]])
                changed["metadata"]["annotations"] = {
                    **changed["metadata"].get("annotations", {}),
                    RANK_ANNOTATION: rank,
                }
            yield msgspec.json.encode(changed)


class _Names:
    """What is to be renamed in a dump."""

    def __init__(self, bodies: Iterable[bytes]) -> None:
        self.words: set[str] = set()
        self.drivers: set[str] = set()
        self.quoted: set[str] = set()
        self.notes: list[str] = []
        # Of nodes, by name.
        self.ranks: dict[str, int] = {}
        scheduler_rank = SchedulerSettings().rank
        named: set[str] = set()
        expressions: set[str] = set()
        values: dict[str, set[str]] = {}
        walk = _Walk(self._collect, frozenset(), frozenset(), expressions.add)
        for body in bodies:
            tree = msgspec.json.decode(body)
            walk.document(tree)
            spec = tree.get("spec", {})
            if tree["kind"] == "Node":
                name = tree["metadata"]["name"]
                known = whole_number(tree["metadata"].get("annotations", {}).get(RANK_ANNOTATION, ""))
                self.ranks[name] = known if known is not None else scheduler_rank(name)
            match tree["kind"]:
                case "Node" | "Namespace" | "Pod" | "ResourceClaim":
                    named.add(tree["metadata"]["name"])
                case "ResourceSlice":
                    self.drivers.add(spec["driver"])
                    named.add(spec["pool"]["name"])
                    for device in spec.get("devices", ()):
                        for name, attribute in device.get("attributes", {}).items():
                            values.setdefault(name, set()).update(_strings_of(attribute))
        quoting = [each for each in expressions if _LOOKS_INTO.search(each)]
        for name, strings in sorted(values.items()):
            word = re.compile(rf"\b{re.escape(name.rpartition('/')[2])}\b")
            if (found := strings & named) and any(map(word.search, quoting)):
                self.notes.append(f"attribute {name} has {len(found)} names, which stay: a selector looks into them")
                named -= strings
        self.quoted = named & set().union(*values.values())

    def _collect(self, text: str) -> str:
        self.words.update(_WORD.findall(text))
        return text


def _strings_of(attribute: dict[str, Any]) -> list[str]:
    return [*attribute.get("strings", ()), *([attribute["string"]] if "string" in attribute else [])]


class _Walk:
    """Renames the strings of documents by the field that they are in."""

    def __init__(
        self,
        rename: Callable[[str], str],
        quoted: Iterable[str],
        drivers: Iterable[str],
        see_expression: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._rename = rename
        self._quoted = frozenset(quoted)
        self._drivers = drivers
        self._see_expression = see_expression

    def document(self, tree: dict[str, Any]) -> dict[str, Any]:
        changed: dict[str, Any] = self._members(tree, "")
        if tree["kind"] == "ConfigMap":
            # What a scheduler has published: documents as text.
            changed["data"] = {key: self._published(key, text) for key, text in tree["data"].items()}
        if tree["kind"] in _KEPT_NAMES:
            changed["metadata"]["name"] = tree["metadata"]["name"]
        if tree["kind"] == "ClusterDump":
            changed["anonymized"] = True
        return changed

    def _published(self, key: str, text: str) -> str:
        if key in (SCHEDULER_NAME, FEATURE_GATES):
            return text
        tree = msgspec.json.decode(text)
        if tree["kind"] == "List":
            tree["items"] = [self.document(each) for each in tree["items"]]
            return msgspec.json.encode(tree).decode()
        return msgspec.json.encode(self.document(tree)).decode()

    def _members(self, members: dict[str, Any], inside: str) -> dict[str, Any]:
        return {name: self._value(value, name, inside) for name, value in members.items()}

    def _value(self, value: Any, name: str, inside: str) -> Any:
        """The value of the field `name` of an object that is the value of the field `inside`, or an item of it."""
        if name in _DROPPED:
            return _DROPPED[name]
        match value:
            case dict() if name in _LABEL_MAPS and not _is_node_selector(value):
                return {
                    self._label_key(key): text if key == STRATEGY else self._label_value(text)
                    for key, text in value.items()
                }
            case dict() if name == "attributes":
                return {key: self._attribute(attribute) for key, attribute in value.items()}
            case dict() if name in _QUANTITIES:
                return {key: self._members(each, key) if _is_part(key, each) else each for key, each in value.items()}
            case dict():
                return self._members(value, name)
            case list():
                return [
                    self._value(each, name, inside) if isinstance(each, str) else self._item(each, name)
                    for each in value
                ]
            case str():
                return self._text(value, name, inside)
            case _:
                return value

    def _item(self, value: Any, name: str) -> Any:
        return self._members(value, name) if isinstance(value, dict) else value

    def _text(self, text: str, name: str, inside: str) -> str:
        if name in ("note", "why"):
            return self._note(text)
        if name == "expression":
            self._see_expression(text)
            return self._expression(text)
        if (inside, name) in _KEPT_INSIDE:
            return text
        if name in _LABEL_KEYS:
            return self._label_key(text)
        if (name == "value" and inside in _TAINTS) or (name == "values" and inside != "matchFields"):
            return self._label_value(text)
        return text if name in _KEPT else self._rename(text)

    def _label_key(self, key: str) -> str:
        domain = key.rpartition("/")[0]
        return key if domain in self._drivers or _KEPT_DOMAIN.fullmatch(domain) else self._rename(key)

    def _label_value(self, value: str) -> str:
        return value if _KEPT_VALUE.fullmatch(value) else self._rename(value)

    def _attribute(self, attribute: dict[str, Any]) -> dict[str, Any]:
        changed = dict(attribute)
        if "string" in changed:
            changed["string"] = self._quotable(changed["string"])
        if "strings" in changed:
            changed["strings"] = [self._quotable(each) for each in changed["strings"]]
        return changed

    def _quotable(self, text: str) -> str:
        return self._rename(text) if text in self._quoted else text

    def _expression(self, text: str) -> str:
        """The expression without comments and with the names that it quotes renamed."""
        try:
            tokens = tokenize(text)
        except CelSyntaxError:
            return text
        parts, end = [], 0
        for token in tokens:
            parts.append(_COMMENT.sub("", text[end : token.offset]))
            end = token.offset + len(token.text)
            inner = token.text[1:-1]
            quotes = token.kind == STRING and inner in self._quoted
            parts.append(token.text.replace(inner, self._rename(inner)) if quotes else text[token.offset : end])
        return "".join(parts)

    def _note(self, text: str) -> str:
        """Without what a server said, which names the user."""
        before, word, namespace = text.partition(": ")[0].partition("in namespace ")
        name, space, after = namespace.partition(" ")
        return before + word + self._rename(name) + space + after


def _is_part(key: str, value: Any) -> bool:
    """True for a capacity or a counter with its policy; quantities are strings, or, in a claim, a map of them."""
    return isinstance(value, dict) and key != "requests"


def _is_node_selector(value: dict[str, Any]) -> bool:
    """Pods have a map of labels under this name, claims and slices an object."""
    return "nodeSelectorTerms" in value
