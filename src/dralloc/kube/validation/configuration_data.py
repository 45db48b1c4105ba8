"""ConfigMaps and Secrets: keys, sizes, what a type of secret must contain, and immutable data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from dralloc.kube.core_v1 import ConfigMap, Secret
from dralloc.primitives import names
from dralloc.primitives.decoders import UNREADABLE
from dralloc.primitives.field_errors import FieldError, FieldPath, forbidden, invalid, required, too_long

DATA_BYTES_MAX: Final = 1024 * 1024
SERVICE_ACCOUNT_NAME: Final = "kubernetes.io/service-account.name"
SERVICE_ACCOUNT_TOKEN: Final = "kubernetes.io/service-account-token"

_DATA: Final = FieldPath.of("data")
_BINARY_DATA: Final = FieldPath.of("binaryData")
_WHEN_IMMUTABLE: Final = "field is immutable when `immutable` is set"
# Keys of which each is required, by the type of the secret.
_REQUIRED_KEYS: Final = {
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}
# The key with a JSON document, by the type of the secret.
_JSON_KEYS: Final = {
    "kubernetes.io/dockercfg": ".dockercfg",
    "kubernetes.io/dockerconfigjson": ".dockerconfigjson",
}
_BASIC_AUTH_KEYS: Final = ("username", "password")


def validate_config_map(config: ConfigMap) -> Iterator[FieldError]:
    yield from _validate_keys(config.data, _DATA)
    yield from _validate_keys(config.binary_data, _BINARY_DATA)
    for key in sorted(config.data.keys() & config.binary_data.keys()):
        yield invalid(_BINARY_DATA.key(key), key, "duplicate of key present in data")
    size = sum(names.length_in_bytes(text) for text in config.data.values())
    if size + sum(map(len, config.binary_data.values())) > DATA_BYTES_MAX:
        yield too_long(FieldPath.of(""), DATA_BYTES_MAX)


def validate_secret(secret: Secret) -> Iterator[FieldError]:
    yield from _validate_keys(secret.data, _DATA)
    if sum(map(len, secret.data.values())) > DATA_BYTES_MAX:
        yield too_long(_DATA, DATA_BYTES_MAX)
    if secret.type == SERVICE_ACCOUNT_TOKEN and not secret.metadata.annotations.get(SERVICE_ACCOUNT_NAME):
        yield required(FieldPath.of("metadata", "annotations").key(SERVICE_ACCOUNT_NAME))
    if secret.type == "kubernetes.io/basic-auth" and not any(key in secret.data for key in _BASIC_AUTH_KEYS):
        for key in _BASIC_AUTH_KEYS:
            yield required(_DATA.key(key))
    for key in _REQUIRED_KEYS.get(secret.type, ()):
        if key not in secret.data or (key == "ssh-privatekey" and not secret.data[key]):
            yield required(_DATA.key(key))
    if (key := _JSON_KEYS.get(secret.type, "")) and key not in secret.data:
        yield required(_DATA.key(key))
    elif key and not _is_json(secret.data[key]):
        yield invalid(_DATA.key(key), "<secret contents redacted>", "is not valid JSON")


def validate_secret_update(new: Secret, old: Secret) -> Iterator[FieldError]:
    if new.type != old.type:
        yield invalid(FieldPath.of("type"), new.type, "field is immutable")
    yield from validate_immutable_data(new, old)


def validate_immutable_data(new: ConfigMap | Secret, old: ConfigMap | Secret) -> Iterator[FieldError]:
    if not old.immutable:
        return
    if not new.immutable:
        yield forbidden(FieldPath.of("immutable"), _WHEN_IMMUTABLE)
    if new.data != old.data:
        yield forbidden(_DATA, _WHEN_IMMUTABLE)
    if isinstance(new, ConfigMap) and isinstance(old, ConfigMap) and new.binary_data != old.binary_data:
        yield forbidden(_BINARY_DATA, _WHEN_IMMUTABLE)


def _validate_keys(data: Mapping[str, object], path: FieldPath) -> Iterator[FieldError]:
    for key in sorted(data):
        for fault in names.configuration_key(key):
            yield invalid(path.key(key), key, fault)


def _is_json(content: bytes) -> bool:
    try:
        msgspec.json.decode(content)
    except UNREADABLE:
        return False
    return True
