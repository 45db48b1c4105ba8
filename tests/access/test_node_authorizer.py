"""The node authorizer as a function: users, requests and relations in, decisions out."""

from __future__ import annotations

import pytest

from dralloc.server.access.authorizer import ALLOWED, NO_OPINION, AccessRequest, Opinion, SelectorRequirement
from dralloc.server.access.node_authorizer import NodeAuthorizer
from dralloc.server.access.users import NODES, User

OWN = {
    ("pods", "ns", "p"),
    ("secrets", "ns", "s"),
    ("resourceclaims", "ns", "c"),
    ("resourceslices", "", "x"),
    ("serviceaccounts", "ns", "a"),
}
SELF = SelectorRequirement("spec.nodeName", "In", ("n1",))


class Relations:
    def is_related(self, node: str, resource: str, namespace: str, name: str) -> bool:
        return node == "n1" and (resource, namespace, name) in OWN


NODE = NodeAuthorizer(Relations())
N1 = User(name="system:node:n1", groups=(NODES,))


def ask(
    verb: str, resource: str, name: str = "", namespace: str = "", user: User = N1, *selector: SelectorRequirement
) -> str:
    """`yes`, or the reason, or nothing."""
    group, _, plural = resource.rpartition(":")
    plural, _, subresource = plural.partition("/")
    asked = AccessRequest(
        user=user,
        verb=verb,
        group=group,
        resource=plural,
        subresource=subresource,
        namespace=namespace,
        name=name,
        field_selector=selector,
    )
    decision = NODE.decide(asked)
    assert decision.opinion is not Opinion.DENY
    return "yes" if decision.allowed else decision.reason.removeprefix("node: ")


SLICES, CLAIMS, LEASES = (
    "resource.k8s.io:resourceslices",
    "resource.k8s.io:resourceclaims",
    "coordination.k8s.io:leases",
)


@pytest.mark.parametrize(
    ("verb", "resource", "name", "namespace", "answer"),
    [
        ("get", "pods", "p", "ns", "yes"),
        ("get", "pods", "p", "other", "no relationship found between node 'n1' and this object"),
        ("patch", "pods/status", "q", "ns", "yes"),
        ("patch", "pods", "p", "ns", ""),
        ("create", "pods/binding", "p", "ns", ""),
        ("get", "secrets", "s", "ns", "yes"),
        ("list", "secrets", "s", "ns", "yes"),
        ("watch", "secrets", "", "ns", "No Object name found"),
        ("list", "secrets", "s", "", "can only read namespaced object of this type"),
        ("update", "secrets", "s", "ns", "can only read resources of this type"),
        ("get", CLAIMS, "c", "ns", "yes"),
        ("get", f"{CLAIMS}/status", "c", "ns", "cannot get subresource"),
        ("get", f"{CLAIMS}/binding", "c", "ns", "cannot get subresource"),
        ("associated-node:patch", f"{CLAIMS}/driver", "d", "ns", "can only get individual resources of this type"),
        ("update", SLICES, "x", "", "yes"),
        ("delete", SLICES, "y", "", "no relationship found between node 'n1' and this object"),
        ("create", SLICES, "", "", "yes"),
        ("get", "serviceaccounts", "a", "ns", "yes"),
        ("create", "serviceaccounts/token", "a", "ns", "yes"),
        ("create", "serviceaccounts", "", "ns", "can only create tokens for individual service accounts"),
        ("create", "serviceaccounts/token", "b", "ns", "no relationship found between node 'n1' and this object"),
        ("patch", LEASES, "n1", "kube-node-lease", "yes"),
        ("patch", LEASES, "n1", "kube-system", 'can only access leases in the "kube-node-lease" system namespace'),
        (
            "patch",
            LEASES,
            "n2",
            "kube-node-lease",
            "can only access node lease with the same name as the requesting node",
        ),
        ("list", LEASES, "", "kube-node-lease", "can only get, create, update, patch, or delete a node lease"),
        ("get", "nodes", "n1", "", "yes"),
        ("delete", "nodes", "n1", "", ""),
        ("list", "nodes", "", "", "node 'n1' cannot read all nodes, only its own Node object"),
        ("create", "events", "", "ns", "yes"),
        ("list", "events", "", "ns", ""),
        ("*", "services", "", "", ""),
        ("create", "rbac.authorization.k8s.io:clusterroles", "", "", ""),
        ("impersonate", "users", "admin", "", ""),
    ],
)
def test_what_a_node_may_do(verb: str, resource: str, name: str, namespace: str, answer: str) -> None:
    assert ask(verb, resource, name, namespace) == answer


@pytest.mark.parametrize("verb", ["list", "watch", "deletecollection"])
def test_only_a_selector_of_the_own_node_opens_collections(verb: str) -> None:
    other = SelectorRequirement("spec.driver", "In", ("d",))
    assert ask(verb, SLICES, "", "", N1, other, SELF) == "yes"
    for term in (
        SelectorRequirement("spec.nodeName", "In", ("n1", "n2")),
        SelectorRequirement("spec.nodeName", "NotIn", ("n1",)),
        SelectorRequirement("spec.nodeName", "Exists"),
        SelectorRequirement("spec.NodeName", "In", ("n1",)),
        SelectorRequirement("spec.nodeName", "In", ("",)),
    ):
        assert "nodeName field selector" in ask(verb, SLICES, "", "", N1, term)


def test_there_is_no_opinion_on_others_and_on_paths() -> None:
    for user in (User(name="system:node:n1"), User(name="n1", groups=(NODES,)), User(name="admin")):
        asked = AccessRequest(user=user, verb="create", group="resource.k8s.io", resource="resourceslices")
        assert NODE.decide(asked) == NO_OPINION
    assert NODE.decide(AccessRequest(user=N1, verb="get", path="/metrics")) == NO_OPINION
    assert (
        NODE.decide(AccessRequest(user=N1, verb="create", group="resource.k8s.io", resource="resourceslices"))
        == ALLOWED
    )
