"""Audit policies: which rule decides, and which files are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dralloc.access.access_request import AccessRequest
from dralloc.access.users import AUTHENTICATED, User
from dralloc.apiserver.audit.audit_policy import (
    AuditChooser,
    AuditLevel,
    AuditStage,
    BadAuditPolicy,
    load_policy,
    read_policy,
)

ALICE = User(name="alice", groups=("team-a", AUTHENTICATED))
HEAD = "apiVersion: audit.k8s.io/v1\nkind: Policy\n"


def get_pod(**changes: Any) -> AccessRequest:
    return AccessRequest(
        **{"user": ALICE, "verb": "get", "version": "v1", "resource": "pods", "namespace": "a", "name": "p", **changes}
    )


def get_path(path: str) -> AccessRequest:
    return AccessRequest(user=ALICE, verb="get", path=path)


def is_logged(rule: str, asked: AccessRequest, *, is_authenticated: bool = True) -> bool:
    policy = read_policy(f"{HEAD}rules: [{{level: Metadata, {rule}}}]")
    return AuditChooser(policy).choose(asked, is_authenticated=is_authenticated).level is AuditLevel.METADATA


@pytest.mark.parametrize(
    ("rule", "asked", "expected"),
    [
        ("", get_pod(), True),
        ("", get_path("/healthz"), True),
        ("users: [alice]", get_pod(), True),
        ("users: [bob]", get_pod(), False),
        ("userGroups: [team-b, team-a]", get_pod(), True),
        ("userGroups: [team-b]", get_pod(), False),
        ("verbs: [get, list]", get_pod(), True),
        ("verbs: [list]", get_pod(), False),
        ("namespaces: [a]", get_pod(), True),
        ("namespaces: [b]", get_pod(), False),
        # The empty string is the cluster scope; a path is in no namespace.
        ('namespaces: [""]', get_pod(resource="nodes", namespace=""), True),
        ('namespaces: [""]', get_path("/healthz"), False),
        ('resources: [{group: ""}]', get_pod(), True),
        ("resources: [{group: apps}]", get_pod(), False),
        ("resources: [{resources: [pods]}]", get_pod(), True),
        ("resources: [{resources: [pods]}]", get_pod(subresource="status"), False),
        ("resources: [{resources: [pods/status]}]", get_pod(subresource="status"), True),
        ("resources: [{resources: [pods/*]}]", get_pod(subresource="status"), True),
        ("resources: [{resources: [pods/*]}]", get_pod(), True),
        ("resources: [{resources: ['*/status']}]", get_pod(subresource="status"), True),
        ("resources: [{resources: ['*/status']}]", get_pod(), False),
        ("resources: [{resources: ['*']}]", get_pod(subresource="status"), True),
        ("resources: [{resources: [pods], resourceNames: [p]}]", get_pod(), True),
        ("resources: [{resources: [pods], resourceNames: [q]}]", get_pod(), False),
        ("resources: [{resources: [pods]}]", get_path("/pods"), False),
        ("nonResourceURLs: ['/healthz*']", get_path("/healthz/etcd"), True),
        ("nonResourceURLs: [/healthz]", get_path("/healthz/etcd"), False),
        ("nonResourceURLs: ['*']", get_path("/metrics"), True),
        ("nonResourceURLs: ['*']", get_pod(), False),
    ],
)
def test_a_rule_matches_as_in_kubernetes(rule: str, asked: AccessRequest, expected: bool) -> None:
    assert is_logged(rule, asked) is expected


def test_a_user_without_a_credential_is_in_no_list_of_users() -> None:
    assert not is_logged("users: [alice]", get_pod(), is_authenticated=False)
    assert not is_logged("userGroups: [team-a]", get_pod(), is_authenticated=False)
    assert is_logged("verbs: [get]", get_pod(), is_authenticated=False)


def test_the_first_rule_that_matches_decides() -> None:
    chooser = AuditChooser(
        read_policy(f"{HEAD}rules: [{{level: None, users: [alice]}}, {{level: Request, verbs: [get]}}]")
    )
    assert chooser.choose(get_pod()).level is AuditLevel.NONE
    assert chooser.choose(get_pod(user=User(name="bob"))).level is AuditLevel.REQUEST
    assert chooser.choose(get_pod(user=User(name="bob"), verb="list")).level is AuditLevel.NONE


def test_stages_of_the_policy_and_of_the_rule_are_omitted() -> None:
    text = f"{HEAD}omitStages: [RequestReceived]\nrules: [{{level: Metadata, omitStages: [ResponseStarted]}}]"
    stages = AuditChooser(read_policy(text)).choose(get_pod()).stages
    assert stages == {AuditStage.RESPONSE_COMPLETE, AuditStage.PANIC}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it has 0 documents instead of one Policy"),
        (f"{HEAD}rules: []", "it has no rules"),
        ("apiVersion: audit.k8s.io/v1beta1\nkind: Policy\nrules: [{level: None}]", "Policy of audit.k8s.io/v1beta1"),
        (f"{HEAD}rules: [{{level: Everything}}]", "policy.rules[0].level"),
        (f"{HEAD}rules: [{{users: [a]}}]", "missing required field `level`"),
        (f"{HEAD}rules: [{{level: None, user: [a]}}]", "unknown field `user`"),
        (f"{HEAD}rules: [{{level: None, omitStages: [Later]}}]", "omitStages"),
        (f"{HEAD}rules: [{{level: None, users: alice}}]", "Expected `array`, got `str`"),
        (
            f"{HEAD}rules: [{{level: None, nonResourceURLs: [healthz]}}]",
            "rules[0].nonResourceURLs: 'healthz' must begin",
        ),
        (f"{HEAD}rules: [{{level: None, nonResourceURLs: ['/a*b']}}]", "must be its last character"),
        (f"{HEAD}rules: [{{level: None, nonResourceURLs: [/a], namespaces: [b]}}]", "both regular resources and"),
        (f"{HEAD}rules: [{{level: None, resources: [{{resourceNames: [a]}}]}}]", "require at least one resource"),
        (f"{HEAD}rules: [{{level: None, resources: [{{group: '*'}}]}}]", "is not the name of an API group"),
        ("rules: [", "line"),
        ("[]", "Expected `object`, got `array`"),
    ],
)
def test_a_bad_policy_is_refused_with_what_is_wrong(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    with pytest.raises(BadAuditPolicy) as refused:
        load_policy(file)
    assert said in str(refused.value)
    assert str(file) in str(refused.value)


def test_a_missing_policy_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadAuditPolicy, match="No such file"):
        load_policy(tmp_path / "none.yaml")
