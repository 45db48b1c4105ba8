"""Accept headers, and the form of the response that they ask for."""

from __future__ import annotations

from time import perf_counter

import pytest

from dralloc.primitives.errors import NotAcceptable
from dralloc.server.http.negotiation import Form, form_of_discovery, form_of_objects, wants_yaml


@pytest.mark.parametrize(
    ("accept", "want"),
    [
        ("", Form.OBJECT),
        ("*/*", Form.OBJECT),
        ("application/json", Form.OBJECT),
        ("application/vnd.kubernetes.protobuf,application/json", Form.OBJECT),
        (
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
            Form.TABLE,
        ),
        ("application/json; as=Table; v=v1; g=meta.k8s.io", Form.TABLE),
        ("application/json;as=Table;v=v9;g=meta.k8s.io,application/json", Form.OBJECT),
        ("application/json;as=Table;v=v1;g=meta.k8s.io;q=0.1,application/json;q=0.9", Form.OBJECT),
        ("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", Form.METADATA),
        ("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json", Form.METADATA),
        ("text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2", Form.OBJECT),
    ],
)
def test_forms_of_objects(accept: str, want: Form) -> None:
    assert form_of_objects(accept) is want


@pytest.mark.parametrize(
    ("accept", "want"),
    [
        ("", None),
        ("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json", "v2"),
        ("application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json", "v2beta1"),
        ("application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList,application/json", None),
    ],
)  # fmt: skip
def test_forms_of_discovery(accept: str, want: str | None) -> None:
    assert form_of_discovery(accept) == want


@pytest.mark.parametrize(
    "accept", ["text/html", "application/json;as=Chart;v=v1;g=meta.k8s.io", "application/json;q=0"]
)
def test_unsupported_forms_are_not_acceptable(accept: str) -> None:
    with pytest.raises(NotAcceptable):
        form_of_objects(accept)
    with pytest.raises(NotAcceptable):
        form_of_discovery(accept)


def test_what_is_not_acceptable_is_remembered() -> None:
    accept = ",".join(f"text/x-{number}" for number in range(5000))
    seconds: list[float] = []
    for _ in range(5):
        started = perf_counter()
        assert not wants_yaml(accept)
        seconds.append(perf_counter() - started)
    assert min(seconds[1:]) < seconds[0] / 10
