"""Turns an HTTP request into the request for access that authorization decides, and a refusal into an error."""

from __future__ import annotations

from typing import Final

from dralloc.access.access_request import AccessRequest
from dralloc.access.authorizer import Decision
from dralloc.apiserver.http.messages import HttpRequest
from dralloc.apiserver.http.query_options import wants_watch
from dralloc.apiserver.http.statuses import forbidden
from dralloc.apiserver.http.url_paths import Path, ResourcePath
from dralloc.primitives.errors import Forbidden

_VERBS: Final = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def access_request(request: HttpRequest, path: Path | None) -> AccessRequest:
    """The access that the request needs. Every path outside of the resources is asked for as it is."""
    if not isinstance(path, ResourcePath):
        return AccessRequest(user=request.user, verb=request.method.lower(), path=request.path)
    return AccessRequest(
        user=request.user,
        verb=_verb(request, path),
        group=path.group,
        version=path.version,
        resource=path.resource,
        subresource=path.subresource,
        namespace=_namespace(path),
        name=path.name,
    )


def refusal(asked: AccessRequest, decision: Decision) -> Forbidden:
    """The error of a request that no authorizer allows, in Kubernetes' words."""
    why = f": {decision.reason}" if decision.reason else ""
    if asked.path:
        return Forbidden(f'forbidden: User "{asked.user.name}" cannot {asked.verb} path "{asked.path}"{why}')
    scope = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
    what = f'resource "{asked.full_resource}" in API group "{asked.group}" {scope}'
    message = f'User "{asked.user.name}" cannot {asked.verb} {what}{why}'
    return forbidden(asked.group, asked.resource, asked.name, message)


def _namespace(path: ResourcePath) -> str:
    """A namespace object is in itself: a role in it can grant access to it."""
    is_namespace = path.resource == "namespaces" and not path.group
    return path.name if is_namespace else path.namespace


def _verb(request: HttpRequest, path: ResourcePath) -> str:
    verb = _VERBS.get(request.method, request.method.lower())
    if path.name:
        return verb
    if verb == "get":
        return "watch" if wants_watch(request.query) else "list"
    return "deletecollection" if verb == "delete" else verb
