"""Values that several kinds have: names, raw JSON, lists without duplicates."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import lru_cache
from typing import Final, TypeVar

import msgspec

from dralloc.kube.resource_v1 import NULL
from dralloc.primitives import names
from dralloc.primitives.field_errors import FieldError, FieldPath, duplicate, invalid, not_supported, required, too_long
from dralloc.primitives.names import length_in_bytes

DRIVER_NAME_LENGTH_MAX: Final = 63
POOL_NAME_LENGTH_MAX: Final = 253
ATTRIBUTE_ID_LENGTH_MAX: Final = 32

QUALIFIED_NAME_LENGTH_MAX: Final = DRIVER_NAME_LENGTH_MAX + len("/") + ATTRIBUTE_ID_LENGTH_MAX

ItemT = TypeVar("ItemT")


def validate_format(text: str, path: FieldPath, faults_of: Callable[[str], tuple[str, ...]]) -> Iterator[FieldError]:
    for fault in faults_of(text):
        yield invalid(path, text, fault)


def validate_dns_label(text: str, path: FieldPath) -> Iterator[FieldError]:
    for fault in names.dns_label(text):
        yield invalid(path, text, fault)


def validate_dns_subdomain(text: str, path: FieldPath) -> Iterator[FieldError]:
    for fault in names.dns_subdomain(text):
        yield invalid(path, text, fault)


def validate_required_subdomain(text: str, path: FieldPath) -> Iterator[FieldError]:
    if not text:
        yield required(path)
    else:
        yield from validate_dns_subdomain(text, path)


def validate_required_label(text: str, path: FieldPath) -> Iterator[FieldError]:
    if not text:
        yield required(path)
    else:
        yield from validate_dns_label(text, path)


def validate_driver_name(text: str, path: FieldPath) -> Iterator[FieldError]:
    """A DNS subdomain of at most 63 bytes, in upper or lower case."""
    if not text:
        yield required(path)
        return
    if length_in_bytes(text) > DRIVER_NAME_LENGTH_MAX:
        yield too_long(path, DRIVER_NAME_LENGTH_MAX)
    for fault in names.dns_subdomain(text.lower()):
        yield invalid(path, text, fault)


def validate_pool_name(text: str, path: FieldPath) -> Iterator[FieldError]:
    """DNS subdomains joined by slashes."""
    if not text:
        yield required(path)
        return
    if length_in_bytes(text) > POOL_NAME_LENGTH_MAX:
        yield too_long(path, POOL_NAME_LENGTH_MAX)
    for segment in text.split("/"):
        yield from validate_dns_subdomain(segment, path)


def is_usual_name(text: str) -> bool:
    """True for a valid qualified name of usual length: a fast test for hundreds of devices, which repeat their names."""
    return len(text) <= QUALIFIED_NAME_LENGTH_MAX and _is_qualified_name(text)


@lru_cache(maxsize=4096)
def _is_qualified_name(text: str) -> bool:
    return not any(validate_qualified_name(text, FieldPath.of("name")))


def validate_qualified_name(text: str, path: FieldPath) -> Iterator[FieldError]:
    """The name of an attribute or capacity: an identifier, optionally with a domain.

    Kubernetes checks only the first slash, so a name with two is accepted.
    """
    match text.split("/"):
        case [identifier]:
            yield from _validate_identifier(identifier, path)
        case [domain, identifier]:
            if domain:
                yield from validate_driver_name(domain, path)
            else:
                yield invalid(path, text, "the domain before '/' must not be empty")
            if identifier:
                yield from _validate_identifier(identifier, path)
            else:
                yield invalid(path, text, "the name after '/' must not be empty")


def validate_fully_qualified_name(text: str, path: FieldPath) -> Iterator[FieldError]:
    """An attribute name with its domain, which unlike in a slice must be in lower case."""
    yield from validate_qualified_name(text, path)
    domain, slash, rest = text.partition("/")
    if not slash:
        yield invalid(path, text, "must be a domain and a name with a '/' between them, like 'gpu.example.com/model'")
    elif "/" not in rest and not names.dns_subdomain(domain.lower()) and names.dns_subdomain(domain):
        yield invalid(path, text, "the domain must be in lower case")


def _validate_identifier(text: str, path: FieldPath) -> Iterator[FieldError]:
    if length_in_bytes(text) > ATTRIBUTE_ID_LENGTH_MAX:
        yield too_long(path, ATTRIBUTE_ID_LENGTH_MAX)
    yield from validate_format(text, path, names.c_identifier)


def validate_choice(text: str, path: FieldPath, choices: tuple[str, ...]) -> Iterator[FieldError]:
    if text not in choices:
        yield not_supported(path, text, choices)


def validate_json_object(text: msgspec.Raw, path: FieldPath, length_max: int | None) -> Iterator[FieldError]:
    """A JSON object of at most this many bytes, as sent."""
    written = bytes(text)
    if not written or text == NULL:
        yield required(path)
    elif length_max is not None and len(written) > length_max:
        yield too_long(path, length_max)
    elif not written.lstrip().startswith(b"{"):
        yield invalid(path, "<value omitted>", "must be a JSON object")


def validate_unique(items: Iterable[ItemT], path: FieldPath, key: Callable[[ItemT], Hashable]) -> Iterator[FieldError]:
    """Yields an error for every item that repeats the key of an earlier one."""
    seen: set[Hashable] = set()
    for position, item in enumerate(items):
        value = key(item)
        if value in seen:
            yield duplicate(path.index(position), value)
        seen.add(value)


def shortened(key: str, length_max: int) -> str:
    """Returns a map key for a path: the middle of a long key is omitted."""
    raw = key.encode("utf-8", "surrogatepass")
    if len(raw) <= length_max:
        return key
    remaining = length_max - len("...")
    head, tail = raw[: (remaining + 1) // 2], raw[len(raw) - remaining // 2 :]
    return f"{head.decode('utf-8', 'replace')}...{tail.decode('utf-8', 'replace')}"
