"""ConfigMaps and Secrets: keys, sizes, types, immutability."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest

from dralloc.kube.codec import DecodeError
from dralloc.kube.registry import CONFIG_MAP, SECRET, read_object
from tests.support.admission import Causes, causes, create, document_of, stored, update


def config_map(**members: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, **members}


def secret(type_: str = "", /, *keys: str, **members: Any) -> dict[str, Any]:
    data = {"data": dict.fromkeys(keys, "e30=")} if keys else {}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "type": type_, **data, **members}


CASES: list[tuple[dict[str, Any], Causes]] = [
    (config_map(), []),
    (config_map(data={"a.b_C-1": "x", "..2": "y"}), [("Invalid", "data[..2]")]),
    (config_map(data={".": "", "a b": ""}), [("Invalid", "data[.]"), ("Invalid", "data[a b]")]),
    (config_map(data={"a" * 254: ""}), [("Invalid", f"data[{'a' * 254}]")]),
    (config_map(data={"a": ""}, binaryData={"a": ""}), [("Invalid", "binaryData[a]")]),
    (config_map(data={"a": "x" * 2**20}), []),
    (config_map(data={"a": "x" * 2**20}, binaryData={"b": "eA=="}), [("TooLong", "")]),
    (secret(), []),
    (secret("anything.example.com/x", "k"), []),
    (secret(stringData={"a/b": ""}), [("Invalid", "data[a/b]")]),
    (secret(data={"a": b64encode(bytes(2**20 + 1)).decode()}), [("TooLong", "data")]),
    (secret("kubernetes.io/tls", "tls.crt"), [("Required", "data[tls.key]")]),
    (secret("kubernetes.io/tls", "tls.crt", "tls.key"), []),
    (secret("kubernetes.io/ssh-auth"), [("Required", "data[ssh-privatekey]")]),
    (secret("kubernetes.io/basic-auth"), [("Required", "data[password]"), ("Required", "data[username]")]),
    (secret("kubernetes.io/basic-auth", "username"), []),
    (secret("kubernetes.io/dockercfg"), [("Required", "data[.dockercfg]")]),
    (secret("kubernetes.io/dockerconfigjson", ".dockerconfigjson"), []),
    (
        secret("kubernetes.io/dockerconfigjson", stringData={".dockerconfigjson": "{"}),
        [("Invalid", "data[.dockerconfigjson]")],
    ),
    (
        secret("kubernetes.io/service-account-token"),
        [("Required", "metadata.annotations[kubernetes.io/service-account.name]")],
    ),
]


@pytest.mark.parametrize(("document", "want"), CASES)
def test_invalid_data_is_refused(document: dict[str, Any], want: Causes) -> None:
    assert causes(create(document)) == want


def test_texts_of_a_secret_are_stored_as_base64_and_replace_data() -> None:
    kept = document_of(stored(secret("", "a", "b", stringData={"b": "ü", "c": ""})))
    assert kept["data"] == {"a": "e30=", "b": b64encode("ü".encode()).decode(), "c": ""}
    assert kept["type"] == "Opaque"
    assert "stringData" not in kept


def test_immutable_data_and_the_type_of_a_secret_cannot_change() -> None:
    fixed = stored(config_map(data={"a": "b"}, immutable=True))
    assert causes(update(config_map(data={"a": "c"}, immutable=True), fixed)) == [("Forbidden", "data")]
    assert causes(update(config_map(data={"a": "b"}), fixed)) == [("Forbidden", "immutable")]
    changed = config_map(data={"a": "b"}, binaryData={"c": ""}, immutable=True)
    assert causes(update(changed, fixed)) == [("Forbidden", "binaryData")]
    assert causes(update(config_map(data={"a": "c"}), stored(config_map(data={"a": "b"})))) == []
    assert causes(update(secret("x/y"), stored(secret()))) == [("Invalid", "type")]
    assert causes(update(secret(immutable=True), stored(secret()))) == []


@pytest.mark.parametrize("value", ["=", "hunter2", "a-b_", "ü", 1, {}])
def test_data_that_is_not_base64_is_refused_without_showing_it(value: object) -> None:
    for kind, member in ((SECRET, "data"), (CONFIG_MAP, "binaryData")):
        with pytest.raises(DecodeError, match=rf"^{member}\[key\]: illegal base64 data$"):
            read_object(kind, "v1", json.dumps({member: {"key": value}}).encode())
