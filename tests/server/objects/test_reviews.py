"""Reviews: questions about identities and access. Recorded answers are in `tests/conformance`."""

from __future__ import annotations

import pytest

from dralloc.server.access.users import User
from tests.support.local_api import LocalApi, refusal, with_api

AUTHORIZATION = "/apis/authorization.k8s.io/v1"


@with_api
async def test_a_user_asks_who_it_is(api: LocalApi) -> None:
    extra = (("example.com/p", ("x",)),)
    ann = LocalApi(api.server, User(name="ann", uid="7", groups=("devs",), extra=extra))
    answer = await ann.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    assert answer["kind"] == "SelfSubjectReview"
    assert answer["status"]["userInfo"] == {
        "username": "ann",
        "uid": "7",
        "groups": ["devs"],
        "extra": {"example.com/p": ["x"]},
    }


@with_api
async def test_reviews_are_only_created(api: LocalApi) -> None:
    path = f"{AUTHORIZATION}/selfsubjectaccessreviews"
    assert (await api.call("GET", path)).code == 405
    assert (await api.call("GET", f"{path}/x")).code == 404
    assert (await api.call("POST", f"{AUTHORIZATION}/namespaces/default/subjectaccessreviews", {})).code == 404
    assert (await api.call("POST", f"{AUTHORIZATION}/localsubjectaccessreviews", {})).code == 405
    assert (await refusal(api.create(path, {"spec": 1}))).code == 400


@with_api
async def test_reviews_are_discovered(api: LocalApi) -> None:
    groups = {group["name"] for group in (await api.get("/apis"))["groups"]}
    assert {"authentication.k8s.io", "authorization.k8s.io"} <= groups
    listed = (await api.get("/apis/authorization.k8s.io/v1"))["resources"]
    assert ("localsubjectaccessreviews", True, ["create"]) in [
        (entry["name"], entry["namespaced"], entry["verbs"]) for entry in listed
    ]
    assert (await api.get("/openapi/v3/apis/authorization.k8s.io/v1"))["openapi"]
    core = (await api.get("/api/v1"))["resources"]
    assert {"name": "serviceaccounts/token", "kind": "TokenRequest"}.items() <= next(
        entry for entry in core if entry["name"] == "serviceaccounts/token"
    ).items()


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"user": "x", "resourceAttributes": {"namespace": "other"}}, "spec.resourceAttributes.namespace"),
        ({"user": "x", "nonResourceAttributes": {"path": "/"}}, "spec.nonResourceAttributes"),
    ],
)
def test_a_local_review_is_about_its_namespace(spec: dict[str, object], field: str) -> None:
    @with_api
    async def ask(api: LocalApi) -> None:
        path = f"{AUTHORIZATION}/namespaces/default/localsubjectaccessreviews"
        answer = await refusal(api.create(path, {"spec": spec}))
        assert answer.causes == [("FieldValueInvalid", field)]

    ask()
