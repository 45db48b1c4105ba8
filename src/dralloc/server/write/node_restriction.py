"""Checks the writes of nodes with what is stored: `dralloc.server.access.node_restriction` has the rules."""

from __future__ import annotations

from dralloc.kube.authentication_v1 import TokenRequestSpec
from dralloc.kube.kind import Kind
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.pod_references import token_audiences
from dralloc.kube.registry import NODE, POD, SERVICE_ACCOUNT
from dralloc.kube.unstructured_object import UnstructuredObject
from dralloc.primitives.errors import Forbidden
from dralloc.server.access.authorizer import AccessRequest
from dralloc.server.access.node_restriction import (
    ObjectWrite,
    eviction_refusal,
    mirror_pod_refusal,
    token_refusal,
    write_refusal,
)
from dralloc.server.access.users import User, node_of
from dralloc.server.http.statuses import forbidden, not_found
from dralloc.server.read.access_control import AccessControl
from dralloc.server.read.api_resources import key_of
from dralloc.server.read.stored_form import from_stored, read_metadata
from dralloc.server.store.interface import Store


class NodeRestriction:
    """Refuses writes of nodes with `Forbidden`; lets all other users pass."""

    def __init__(self, store: Store, access: AccessControl) -> None:
        self._store = store
        self._access = access

    def check_write(
        self,
        user: User,
        operation: str,
        kind: Kind,
        *,
        subresource: str = "",
        namespace: str = "",
        name: str = "",
        new: ApiObject | None = None,
        old: ApiObject | None = None,
    ) -> None:
        shown = name or _name_of_new(new)
        node = _node_of(user, kind, shown)
        if node is None:
            return
        write = ObjectWrite(
            node=node,
            operation=operation,
            group=kind.group,
            resource=kind.plural,
            subresource=subresource,
            namespace=namespace,
            name=name or (new.metadata.name if new is not None else ""),
            new=new,
            old=old,
        )
        if why := write_refusal(write):
            raise forbidden(kind.group, kind.plural, shown, why)

    async def check_eviction(self, user: User, namespace: str, name: str) -> str:
        """The UID of the pod that a node evicts; empty for other users, which may evict any pod."""
        node = _node_of(user, POD, name)
        if node is None:
            return ""
        record = await self._store.get(key_of(POD, namespace, name))
        if record is None:
            # Kubernetes looks the pod up under its singular name.
            raise not_found(POD.group, POD.singular, name)
        pod = from_stored(POD, record.value)
        if why := eviction_refusal(node, pod):
            raise forbidden(POD.group, POD.plural, name, why)
        return pod.metadata.uid

    async def check_token_request(self, user: User, namespace: str, account: str, spec: TokenRequestSpec) -> None:
        """Refuse a node a token that is not for a pod on it, or for an audience that the pod does not ask for."""
        node = _node_of(user, SERVICE_ACCOUNT, account)
        if node is None:
            return
        bound = spec.bound_object_ref
        if bound is None or (bound.api_version, bound.kind) != ("v1", "Pod") or not bound.name:
            raise _forbidden_account(account, "node requested token not bound to a pod")
        if not bound.uid:
            raise _forbidden_account(account, "node requested token with a pod binding without a uid")
        record = await self._store.get(key_of(POD, namespace, bound.name))
        if record is None:
            raise not_found(POD.group, POD.singular, bound.name)
        pod = from_stored(POD, record.value)
        assert isinstance(pod, UnstructuredObject), "pods are modelled in part"
        audiences = spec.audiences
        if why := token_refusal(node, pod, bound.uid, audiences):
            raise _forbidden_account(account, why)
        audience = audiences[0] if audiences else ""
        if audience not in token_audiences(pod.member("spec")):
            await self._check_audience(user, namespace, account, audience)

    async def _check_audience(self, user: User, namespace: str, account: str, audience: str) -> None:
        """A role may allow tokens for audiences that no pod asks for."""
        decision = await self._access.decide(
            AccessRequest(
                user=user,
                verb="request-serviceaccounts-token-audience",
                version="v1",
                resource=audience,
                namespace=namespace,
                name=account,
            )
        )
        if not decision.allowed:
            why = f'{user.name} is not authorized to request tokens for audience "{audience}"'
            raise _forbidden_account(account, why)

    async def check_new_pod(self, user: User, pod: ApiObject) -> None:
        """Check what `check_write` cannot: the pod's owner must be the stored node."""
        node = _node_of(user, POD, _name_of_new(pod))
        if node is None:
            return
        record = await self._store.get(key_of(NODE, "", node))
        if record is None:
            raise not_found(NODE.group, NODE.singular, node)
        if why := mirror_pod_refusal(node, pod, read_metadata(record.value).uid):
            raise forbidden(POD.group, POD.plural, _name_of_new(pod), why)


def _node_of(user: User, kind: Kind, name: str) -> str | None:
    """The node that the user is, or `None`. A node without a name may write nothing."""
    node = node_of(user)
    if node == "":
        raise forbidden(kind.group, kind.plural, name, f'could not determine node from user "{user.name}"')
    return node


def _forbidden_account(account: str, why: str) -> Forbidden:
    return forbidden(SERVICE_ACCOUNT.group, SERVICE_ACCOUNT.plural, account, why)


def _name_of_new(new: ApiObject | None) -> str:
    """The name of a new object before it is generated, as Kubernetes shows it."""
    if new is None:
        return "Unknown"
    return new.metadata.name or new.metadata.generate_name or "Unknown"
