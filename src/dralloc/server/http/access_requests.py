"""Turns an HTTP request into the request for access that authorization decides, and a refusal into an error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from msgspec import Struct

from dralloc.cel.library.text_format import go_quoted
from dralloc.primitives.errors import BadRequest, Forbidden
from dralloc.server.access.authorizer import AccessRequest, Decision, SelectorRequirement
from dralloc.server.http.messages import HttpRequest
from dralloc.server.http.query_options import wants_watch
from dralloc.server.http.statuses import forbidden
from dralloc.server.http.url_paths import Path, ResourcePath

_VERBS: Final = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_NO_HTML: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_ON_COLLECTIONS: Final = frozenset({"list", "watch", "deletecollection"})


def access_request(request: HttpRequest, path: Path) -> AccessRequest:
    """The access that the request needs. Every path outside of the resources is asked for as it is."""
    if not isinstance(path, ResourcePath):
        return AccessRequest(user=request.user, verb=request.method.lower(), path=request.path)
    verb, name, selector = _verb(request, path), path.name, request.query.get("fieldSelector", "")
    terms = _requirements(selector) if selector and verb in _ON_COLLECTIONS else ()
    if terms and not name and verb != "deletecollection":
        name = _selected_name(terms)
    return AccessRequest(
        user=request.user,
        verb=verb,
        group=path.group,
        version=path.version,
        resource=path.resource,
        subresource=path.subresource,
        namespace=_namespace(path),
        name=name,
        field_selector=terms,
    )


def refusal(asked: AccessRequest, decision: Decision) -> Forbidden:
    """The error of a request that no authorizer allows, in Kubernetes' words."""
    if asked.path:
        what = f"path {go_quoted(asked.path)}"
    else:
        scope = f"in the namespace {go_quoted(asked.namespace)}" if asked.namespace else "at the cluster scope"
        what = f"resource {go_quoted(asked.full_resource)} in API group {go_quoted(asked.group)} {scope}"
    # Requests choose parts of the text: it must not look like HTML.
    message = f"User {go_quoted(asked.user.name)} cannot {asked.verb} {what}".translate(_NO_HTML)
    why = f": {decision.reason}" if decision.reason else ""
    return forbidden(asked.group, asked.resource, asked.name, message + why)


def verb_of_method(method: str) -> str:
    """The verb on one object; empty for methods without one."""
    return _VERBS.get(method, "")


def _namespace(path: ResourcePath) -> str:
    """A namespace object is in itself: a role in it can grant access to it."""
    return path.name if path.resource == "namespaces" and not path.namespace else path.namespace


def _verb(request: HttpRequest, path: ResourcePath) -> str:
    verb = path.verb or verb_of_method(request.method)
    if path.name:
        return verb
    if verb == "get":
        return "watch" if wants_watch(request.query) else "list"
    return "deletecollection" if verb == "delete" else verb


# A request is described more than once, and a selector may have thousands of terms.
@lru_cache(maxsize=64)
def _requirements(selector: str) -> tuple[SelectorRequirement, ...]:
    """The terms of a field selector; none if it cannot be read: the request is refused later, for that reason."""
    try:
        terms = tuple(read_field_terms(selector))
    except BadRequest:
        return ()
    return tuple(SelectorRequirement(term.field, "NotIn" if term.negated else "In", (term.value,)) for term in terms)


def _selected_name(terms: tuple[SelectorRequirement, ...]) -> str:
    """The name that a selector limits a list or watch to, if it can be the name of an object."""
    for term in terms:
        if term.key == "metadata.name" and term.operator == "In":
            (name,) = term.values
            return "" if name in (".", "..") or "/" in name or "%" in name else name
    return ""


# --- Field terms ----------------------------------------------------------------------------------------------------
# The terms of a field selector, read once for authorization and for the query, so that both mean the same.


# One term: a field, an operator and a value, with separators escaped by `\`.
_TERM: Final = re.compile(r"(?P<field>(?:[^\\,=!]|\\.)*)(?P<operator>!=|==|=)(?P<value>(?:[^\\,=]|\\[\\,=])*)")


class FieldTerm(Struct, frozen=True, gc=False):
    """A field that must, or must not, have a value."""

    field: str
    value: str
    negated: bool


def read_field_terms(selector: str) -> Iterator[FieldTerm]:
    """Yields the terms of a selector such as `spec.nodeName=n1,status.phase!=Failed`; raises BadRequest."""
    place = 0
    while place < len(selector):
        match = _TERM.match(selector, place)
        if match is None or match.end() not in (len(selector), selector.find(",", match.end())):
            raise BadRequest(f"invalid selector: '{selector}'; can't understand '{selector[place:]}'")
        yield FieldTerm(match["field"].strip(), _unescape(match["value"]), match["operator"] == "!=")
        place = match.end() + 1


def escape_value(value: str) -> str:
    """The value as it is written in a selector."""
    return re.sub(r"([\\,=])", r"\\\1", value)


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text) if "\\" in text else text
