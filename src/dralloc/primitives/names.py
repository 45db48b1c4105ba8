"""Formats of names: each function returns the rules that a text breaks, and an empty tuple for a valid text.

Kubernetes reports each broken rule as an error of its own, so these return tuples. All limits are in bytes of UTF-8;
all alphabets are ASCII.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from hashlib import blake2b
from typing import Final

DNS_LABEL_LENGTH_MAX: Final = 63
DNS_SUBDOMAIN_LENGTH_MAX: Final = 253
LABEL_LENGTH_MAX: Final = 63
LABEL_KEY_LENGTH_MAX: Final = DNS_SUBDOMAIN_LENGTH_MAX + len("/") + LABEL_LENGTH_MAX


WELL_FORMED: Final[tuple[str, ...]] = ()

_DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_DNS_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_NAME: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_C_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CONFIGURATION_KEY: Final = re.compile(r"[-._a-zA-Z0-9]+")
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_CONDITION_REASON: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")

# Kubernetes' own words, as recorded: a `Status` is compared as a whole.
_NOT_A_LABEL: Final = f"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_DNS_LABEL.pattern}')"
_NOT_A_SUBDOMAIN: Final = f"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_DNS_SUBDOMAIN.pattern}')"
_NOT_A_LABEL_NAME: Final = f"must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_LABEL_NAME.pattern}')"
_NOT_A_LABEL_VALUE: Final = f"a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '({_LABEL_NAME.pattern})?')"
_NOT_A_CONFIGURATION_KEY: Final = "a valid config key must consist of letters, digits, '-', '_' or '.', like 'key.name'"
_NOT_AN_INTERFACE_ADDRESS: Final = "must be an IP address and a prefix length, like '10.0.0.7/24' or 'fd00::7/64'"


def length_in_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def dns_label(text: str) -> tuple[str, ...]:
    """A lower-case DNS label of at most 63 bytes."""
    if len(text) <= DNS_LABEL_LENGTH_MAX and _is_dns_label(text):
        return WELL_FORMED
    return _too_long(text, DNS_LABEL_LENGTH_MAX) + _unmatched(text, _DNS_LABEL, _NOT_A_LABEL)


def dns_subdomain(text: str) -> tuple[str, ...]:
    """DNS labels joined by dots, at most 253 bytes. The length of a single label is not limited."""
    if len(text) <= DNS_SUBDOMAIN_LENGTH_MAX and _is_dns_subdomain(text):
        return WELL_FORMED
    return _too_long(text, DNS_SUBDOMAIN_LENGTH_MAX) + _unmatched(text, _DNS_SUBDOMAIN, _NOT_A_SUBDOMAIN)


def path_segment(text: str) -> tuple[str, ...]:
    """A name that a URL can contain as one segment of its path."""
    return (f"may not be '{text}'",) if text in (".", "..") else path_segment_prefix(text)


def path_segment_prefix(text: str) -> tuple[str, ...]:
    return tuple(f"may not contain '{character}'" for character in "/%" if character in text)


def configuration_key(text: str) -> tuple[str, ...]:
    """A key of a ConfigMap or Secret: usable as the name of a file."""
    faults = _too_long(text, DNS_SUBDOMAIN_LENGTH_MAX)
    faults += _unmatched(text, _CONFIGURATION_KEY, _NOT_A_CONFIGURATION_KEY)
    if text in (".", ".."):
        faults += (f"must not be '{text}'",)
    elif text.startswith(".."):
        faults += ("must not start with '..'",)
    return faults


def label_key(text: str) -> tuple[str, ...]:
    """A qualified name in Kubernetes' sense: a name of at most 63 bytes, optionally prefixed with a DNS subdomain and a
    slash.
    """
    if len(text) <= LABEL_KEY_LENGTH_MAX and _is_label_key(text):
        return WELL_FORMED
    return _faults_of_label_key(text)


def _faults_of_label_key(text: str) -> tuple[str, ...]:
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        return (
            f"a valid label key {_NOT_A_LABEL_NAME} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
        )
    faults: tuple[str, ...] = ()
    if slash:
        faults = (
            tuple(f"prefix part {fault}" for fault in dns_subdomain(prefix))
            if prefix
            else ("prefix part must be non-empty",)
        )
    if not name:
        faults += ("name part must be non-empty",)
    of_name = _too_long(name, LABEL_LENGTH_MAX) + _unmatched(name, _LABEL_NAME, _NOT_A_LABEL_NAME)
    return faults + tuple(f"name part {fault}" for fault in of_name)


def label_value(text: str) -> tuple[str, ...]:
    """Empty, or at most 63 bytes of the alphabet of label names."""
    if not text:
        return WELL_FORMED
    return _too_long(text, LABEL_LENGTH_MAX) + _unmatched(text, _LABEL_NAME, _NOT_A_LABEL_VALUE)


def c_identifier(text: str) -> tuple[str, ...]:
    if _C_IDENTIFIER.fullmatch(text):
        return WELL_FORMED
    return ("must start with a letter or '_', followed by letters, digits and '_', like 'numaNode'",)


def uuid(text: str) -> tuple[str, ...]:
    if _UUID.fullmatch(text):
        return WELL_FORMED
    return ("must be a lower-case UUID, like '8e3f2c1a-0b4d-4e6f-8a9b-0c1d2e3f4a5b'",)


def extended_resource_name(text: str) -> tuple[str, ...]:
    """A name outside `kubernetes.io` that quotas can prefix with `requests.`."""
    faults: tuple[str, ...] = ()
    if "/" not in text:
        faults += ("must be a domain and a name with a '/' between them, like 'example.com/gpu'",)
    if "kubernetes.io/" in text:
        faults += ("must not be in the domain kubernetes.io",)
    if text.startswith("requests."):
        faults += ("must not start with 'requests.', the prefix that quotas add",)
    return faults + label_key(f"requests.{text}")


def condition_reason(text: str) -> tuple[str, ...]:
    if _CONDITION_REASON.fullmatch(text):
        return WELL_FORMED
    return (
        "must start with a letter, end with a letter, digit or '_', and hold only letters, digits, '_', ',' and ':'",
    )


def interface_address(text: str) -> tuple[str, ...]:
    """An IP address with its prefix length, in canonical form. Unlike in a network, host bits may be set."""
    try:
        interface = ipaddress.ip_interface(text)
    except ValueError:
        return (_NOT_AN_INTERFACE_ADDRESS,)
    if "%" in text:
        return (_NOT_AN_INTERFACE_ADDRESS,)
    if isinstance(interface, ipaddress.IPv6Interface) and interface.ipv4_mapped is not None:
        return ("must not be an IPv4 address written as IPv6",)
    if str(interface) != text:
        return (f"must be in canonical form: {interface}",)
    return WELL_FORMED


# --- Caches, because names repeat ------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _is_dns_label(text: str) -> bool:
    return _DNS_LABEL.fullmatch(text) is not None


@lru_cache(maxsize=4096)
def _is_dns_subdomain(text: str) -> bool:
    return _DNS_SUBDOMAIN.fullmatch(text) is not None


@lru_cache(maxsize=4096)
def _is_label_key(text: str) -> bool:
    return not _faults_of_label_key(text)


def _unmatched(text: str, pattern: re.Pattern[str], fault: str) -> tuple[str, ...]:
    return WELL_FORMED if pattern.fullmatch(text) else (fault,)


def _too_long(text: str, length_max: int) -> tuple[str, ...]:
    return (f"must be no more than {length_max} bytes",) if length_in_bytes(text) > length_max else WELL_FORMED


# --- Name suffixes --------------------------------------------------------------------------------------------------
# Suffixes for names of created objects: random-looking, but the same whenever the same object is created again.
#
# A repeated creation (after a lost answer, from a stale cache, by a second leader) therefore fails with
# AlreadyExists instead of creating a second object.


# The alphabet of Kubernetes: no vowels, which would form words, and no characters that are easily misread.
ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
SUFFIX_LENGTH: Final = 5
_SUFFIX_COUNT: Final = len(ALPHABET) ** SUFFIX_LENGTH
# Coprime to the number of suffixes, so that serial numbers do not repeat a suffix before all are used.
_STRIDE: Final = 7_368_787

LENGTH_MAX: Final = 63


def suffix(seed: str, serial: int = 0) -> str:
    """Five characters, different for every serial number of the same seed."""
    start = int.from_bytes(blake2b(seed.encode(), digest_size=8).digest())
    number = (start + serial * _STRIDE) % _SUFFIX_COUNT
    characters = []
    for _ in range(SUFFIX_LENGTH):
        number, digit = divmod(number, len(ALPHABET))
        characters.append(ALPHABET[digit])
    return "".join(characters)
