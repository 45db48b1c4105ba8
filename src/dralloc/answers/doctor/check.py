"""A check, and what it finds."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from dralloc.answers.doctor.cluster_facts import ClusterFacts, Fact, Unchecked
from dralloc.kube.diagnostics import Severity
from dralloc.kube.meta_v1 import ApiObject, ObjectMeta


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A fault. `commands` are for a shell, in their order; `advice` says what to know before they are run.

    Of an error, devices are lost, pods cannot run, or something has stopped. A warning may be meant so, or does no harm yet.
    """

    subject: str
    severity: Severity
    message: str
    evidence: tuple[str, ...]
    advice: str
    commands: tuple[str, ...]


Observation = Finding | Unchecked


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheck:
    """A check: `look` yields what it observes. Without the kinds in `needs` it cannot look at all, without those in `uses` at less."""

    id: str
    title: str
    # Why the fault matters.
    why: str
    look: Callable[[ClusterFacts], Iterator[Observation]]
    needs: tuple[type[ApiObject], ...] = ()
    uses: tuple[type[ApiObject], ...] = ()
    # What it reads beside objects.
    facts: tuple[Fact, ...] = ()


# --- Shell ----------------------------------------------------------------------------------------------------------
# Commands for a shell, as findings propose them.


def kubectl(*words: str, namespace: str = "") -> str:
    """A kubectl command. Words are quoted as far as the shell needs it."""
    return shlex.join(["kubectl", *words, *(["-n", namespace] if namespace else [])])


def json_patch(kind: str, metadata: ObjectMeta, steps: Sequence[Mapping[str, Any]], *, status: bool = False) -> str:
    """A JSON patch of an object, or of its status. It begins with a test of the UID, so that it cannot hit another object."""
    tested = [{"op": "test", "path": "/metadata/uid", "value": metadata.uid}] if metadata.uid else []
    text = msgspec.json.encode([*tested, *steps]).decode()
    words = ["patch", kind, metadata.name, "--type=json", *(["--subresource=status"] if status else []), "-p", text]
    return kubectl(*words, namespace=metadata.namespace)


def delete(kind: str, names: Iterable[str], *options: str, namespace: str = "") -> str:
    return kubectl("delete", kind, *names, *options, namespace=namespace)


def apply(manifest: Mapping[str, Any]) -> str:
    """A command that applies the manifest."""
    return f"kubectl apply -f - <<'END'\n{msgspec.json.encode(manifest).decode()}\nEND"
