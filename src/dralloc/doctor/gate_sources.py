"""Where the feature gates of components are known from: their metrics, the options that pods start them with, what schedulers publish."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

from dralloc.api.core_v1 import ConfigMap
from dralloc.primitives.features import GATES, FeatureGates, UnknownGate, parse_settings
from dralloc.scheduler.published_configuration import FEATURE_GATES, SCHEDULER_NAME
from dralloc.whatif.side_facts import ComponentGates

# Programs whose gates are worth comparing. The gates of the API server are those in its metrics.
_PROGRAMS: Final = ("kube-scheduler", "kube-controller-manager")
_OPTION: Final = "--feature-gates"
# The release whose defaults we know.
_RELEASE: Final = "v1.37."


def published_gates(objects: Iterable[ConfigMap]) -> Iterator[ComponentGates]:
    """What schedulers of ours have published."""
    for each in objects:
        if (text := each.data.get(FEATURE_GATES)) is not None and (name := each.data.get(SCHEDULER_NAME)):
            where = f"configmap {each.metadata.namespace}/{each.metadata.name}"
            yield ComponentGates(component=f"scheduler {name}", known_from=where, gates=_settings(text))


def gates_of_pods(pods: Iterable[Mapping[str, Any]], server_version: str) -> Iterator[ComponentGates]:
    """The gates of components of Kubernetes that run as pods. Those that no option sets have the defaults of their release."""
    defaults = FeatureGates.defaults() if server_version.startswith(_RELEASE) else None
    known = {} if defaults is None else {name: name in defaults for name in GATES}
    for pod in pods:
        name = (pod.get("metadata") or {}).get("name", "")
        for container in (pod.get("spec") or {}).get("containers") or ():
            words = [str(word) for word in (*(container.get("command") or ()), *(container.get("args") or ()))]
            program = next((each for each in _PROGRAMS if any(_is_program(word, each) for word in words[:2])), None)
            if program is not None:
                where = f"the options of pod {name}"
                yield ComponentGates(
                    component=f"{program} {name}", known_from=where, gates={**known, **_settings(_option(words))}
                )


def _is_program(word: str, program: str) -> bool:
    return word.rpartition("/")[2] == program


def _option(words: list[str]) -> str:
    """The value of the option; it may be given several times."""
    values = [word.partition("=")[2] for word in words if word.startswith(f"{_OPTION}=")]
    values += [after for word, after in pairwise(words) if word == _OPTION]
    return ",".join(values)


def _settings(text: str) -> dict[str, bool]:
    try:
        return parse_settings(text)
    except UnknownGate:
        return {}
