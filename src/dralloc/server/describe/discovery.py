"""Discovery documents: groups, versions, resources and the server's version.

Older clients read one list per group and version; newer ones read one aggregated document.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from dralloc.kube.kind import Kind
from dralloc.kube.review_kinds import REVIEW_KINDS, ReviewKind
from dralloc.server.documents.json_documents import Document

VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")

# The category of `kubectl get all`.
_CATEGORIES: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("", "pods"): ("all",),
    ("batch", "jobs"): ("all",),
    ("apps", "deployments"): ("all",),
    ("apps", "daemonsets"): ("all",),
    ("apps", "replicasets"): ("all",),
    ("apps", "statefulsets"): ("all",),
    ("", "replicationcontrollers"): ("all",),
    ("", "services"): ("all",),
    ("batch", "cronjobs"): ("all",),
    ("autoscaling", "horizontalpodautoscalers"): ("all",),
}


@dataclass(frozen=True, slots=True)
class Subresource:
    verbs: tuple[str, ...]
    # The kind of its body, if it is not the object's.
    kind: str = ""
    group: str = ""
    version: str = ""


SUBRESOURCES: Final[Mapping[str, Subresource]] = {
    "binding": Subresource(("create",), "Binding", "", "v1"),
    "ephemeralcontainers": Subresource(("get", "patch", "update")),
    "eviction": Subresource(("create",), "Eviction", "policy", "v1"),
    "finalize": Subresource(("update",)),
    "log": Subresource(("get",)),
    "scale": Subresource(("get", "patch", "update"), "Scale", "autoscaling", "v1"),
    "status": Subresource(("get", "patch", "update")),
    "token": Subresource(("create",), "TokenRequest", "authentication.k8s.io", "v1"),
}


def api_versions(server_address: str) -> Document:
    """The document at `/api`: versions of the core group."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}],
    }


def api_group_list(kinds: Sequence[Kind]) -> Document:
    """The document at `/apis`."""
    groups = [_group(kinds, group) for group in _groups(kinds)]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def api_group(kinds: Sequence[Kind], group: str) -> Document | None:
    """The document at `/apis/GROUP`, or `None` if the group is not served."""
    if group not in _groups(kinds):
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(kinds, group)}


def api_resource_list(kinds: Sequence[Kind], group: str, version: str) -> Document | None:
    """The document at `/apis/GROUP/VERSION`, or `None` if the version is not served."""
    served, reviews = _served(kinds, group, version), reviews_of(group, version)
    if not served and not reviews:
        return None
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": _group_version(group, version),
        "resources": [*(entry for kind in served for entry in _resource_entries(kind)), *map(_review_entry, reviews)],
    }


def aggregated_discovery(kinds: Sequence[Kind], *, core: bool, version: str) -> Document:
    """The aggregated document at `/apis`, or at `/api` for the core group."""
    groups = [""] if core else _groups(kinds)
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": [_aggregated_group(kinds, group) for group in groups],
    }


def version_information(kubernetes: str, product: str) -> Document:
    """The document at `/version`: the emulated Kubernetes release, and this product."""
    major, minor, _ = kubernetes.split(".")
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"v{kubernetes}+{product}",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "",
    }


def group_versions(kinds: Sequence[Kind]) -> list[tuple[str, str]]:
    """Every served group and version."""
    return [(group, version) for group in ["", *_groups(kinds)] for version in _versions(kinds, group)]


def _groups(kinds: Iterable[Kind]) -> list[str]:
    """The named groups, sorted."""
    return sorted({kind.group for kind in kinds} - {""} | {review.group for review in REVIEW_KINDS})


def _versions(kinds: Iterable[Kind], group: str) -> list[str]:
    found = {served.version for kind in kinds if kind.group == group for served in kind.versions}
    return sorted(found | {review.version for review in REVIEW_KINDS if review.group == group}, key=_preference)


def _preference(version: str) -> tuple[int, int, int]:
    """A sort key: stable before beta before alpha, newer before older."""
    match = re.fullmatch(r"v([0-9]+)(?:(alpha|beta)([0-9]+))?", version)
    assert match is not None, f"not a Kubernetes version: {version}"
    stage = {None: 0, "beta": 1, "alpha": 2}[match[2]]
    return (stage, -int(match[1]), -int(match[3] or 0))


def _served(kinds: Iterable[Kind], group: str, version: str) -> list[Kind]:
    found = [kind for kind in kinds if kind.group == group and kind.served(version)]
    return sorted(found, key=lambda kind: kind.plural)


def reviews_of(group: str, version: str) -> list[ReviewKind]:
    """The reviews of a group and version."""
    return [review for review in REVIEW_KINDS if (review.group, review.version) == (group, version)]


def _review_entry(review: ReviewKind) -> Document:
    return {
        "name": review.plural,
        "singularName": review.singular,
        "namespaced": review.namespaced,
        "kind": review.kind,
        "verbs": ["create"],
    }


def _aggregated_review(review: ReviewKind) -> Document:
    return {
        "resource": review.plural,
        "responseKind": {"group": review.group, "version": review.version, "kind": review.kind},
        "scope": "Namespaced" if review.namespaced else "Cluster",
        "singularResource": review.singular,
        "verbs": ["create"],
    }


def _group_version(group: str, version: str) -> str:
    return f"{group}/{version}" if group else version


def _group(kinds: Sequence[Kind], group: str) -> Document:
    versions = [
        {"groupVersion": _group_version(group, version), "version": version} for version in _versions(kinds, group)
    ]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def _resource_entries(kind: Kind) -> Iterable[Document]:
    entry: Document = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(VERBS),
        "storageVersionHash": _storage_hash(kind),
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if categories := _CATEGORIES.get((kind.group, kind.plural)):
        entry["categories"] = list(categories)
    yield entry
    for name in sorted(kind.subresources):
        yield _subresource_entry(kind, name)


def _subresource_entry(kind: Kind, name: str) -> Document:
    part = SUBRESOURCES[name]
    entry: Document = {"name": f"{kind.plural}/{name}", "singularName": "", "namespaced": kind.namespaced}
    if part.kind and part.group:
        entry |= {"group": part.group, "version": part.version}
    return {**entry, "kind": part.kind or kind.kind, "verbs": list(part.verbs)}


def _storage_hash(kind: Kind) -> str:
    """A hash that changes with the stored version, as storage migrators expect."""
    stored = f"{kind.group}/{kind.hub_version}/{kind.kind}"
    return b64encode(sha256(stored.encode()).digest()[:8]).decode()


def _aggregated_group(kinds: Sequence[Kind], group: str) -> Document:
    return {
        "metadata": {"name": group} if group else {},
        "versions": [
            {
                "version": version,
                "resources": [
                    *(_aggregated_resource(kind, version) for kind in _served(kinds, group, version)),
                    *map(_aggregated_review, reviews_of(group, version)),
                ],
                "freshness": "Current",
            }
            for version in _versions(kinds, group)
        ],
    }


def _aggregated_resource(kind: Kind, version: str) -> Document:
    entry: Document = {
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": version, "kind": kind.kind},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": list(VERBS),
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if categories := _CATEGORIES.get((kind.group, kind.plural)):
        entry["categories"] = list(categories)
    if kind.subresources:
        entry["subresources"] = [_aggregated_subresource(kind, version, name) for name in sorted(kind.subresources)]
    return entry


def _aggregated_subresource(kind: Kind, version: str, name: str) -> Document:
    part = SUBRESOURCES[name]
    answer = {"group": kind.group, "version": version, "kind": kind.kind}
    if part.kind:
        answer = {"group": part.group, "version": part.version, "kind": part.kind}
    return {"subresource": name, "responseKind": answer, "verbs": list(part.verbs)}
