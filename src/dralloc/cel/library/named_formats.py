"""Kubernetes' named text formats, such as `format.dns1123Label()`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from typing import ClassVar, Final

from dralloc.cel.library.functions import Library, tenths
from dralloc.cel.library.urls import UrlError, parse_url
from dralloc.cel.values import NONE, Opaque, Optional, TypeValue
from dralloc.primitives import names

LIBRARY: Final = Library()
define: Final = LIBRARY.define

# Returns the errors of a text.
Check = Callable[[str], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class NamedFormat(Opaque):
    """A format; `pattern_size` is the length of an equivalent regular expression, for costs."""

    type_value: ClassVar[TypeValue] = TypeValue("kubernetes.NamedFormat")
    name: str
    check: Check = field(compare=False)
    pattern_size: int = field(compare=False)


_DNS1035_LABEL: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_UUID: Final = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.ASCII | re.IGNORECASE)
_BASE64: Final = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})", re.ASCII)
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_TIME: Final = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))", re.ASCII)


def _dns1035_label(text: str) -> tuple[str, ...]:
    faults: tuple[str, ...] = ()
    if names.length_in_bytes(text) > names.DNS_LABEL_LENGTH_MAX:
        faults += (f"must be no more than {names.DNS_LABEL_LENGTH_MAX} bytes",)
    if not _DNS1035_LABEL.fullmatch(text):
        faults += ("must consist of lower-case letters, digits and '-', start with a letter and not end with '-'",)
    return faults


def _as_prefix(check: Check) -> Check:
    """The check for a name prefix: a trailing dash is valid, because more text follows."""

    def check_prefix(text: str) -> tuple[str, ...]:
        return check(f"{text[:-2]}a" if len(text) > 1 and text.endswith("-") else text)

    return check_prefix


def _uri(text: str) -> tuple[str, ...]:
    try:
        parse_url(text, is_request=True)
    except UrlError as fault:
        return (f"parse {text!r}: {fault}",)
    return ()


def _is_date(text: str) -> bool:
    if not _DATE.fullmatch(text):
        return False
    try:
        # Like 2000, the year 0 is a leap year.
        date.fromisoformat(f"2000{text[4:]}" if text.startswith("0000") else text)
    except ValueError:
        return False
    return True


def _is_datetime(text: str) -> bool:
    day, _, rest = text.lower().partition("t")
    clock = _TIME.fullmatch(rest.partition("t")[0])
    return _is_date(day) and clock is not None and clock[1] <= "23" and clock[2] <= "59" and clock[3] <= "59"


def _matching(is_well_formed: Callable[[str], object], fault: str) -> Check:
    return lambda text: () if is_well_formed(text) else (fault,)


FORMATS: Final[dict[str, NamedFormat]] = {
    "dns1123Label": NamedFormat("DNS1123Label", names.dns_label, 30),
    "dns1123Subdomain": NamedFormat("DNS1123Subdomain", names.dns_subdomain, 60),
    "dns1035Label": NamedFormat("DNS1035Label", _dns1035_label, 30),
    "qualifiedName": NamedFormat("QualifiedName", names.label_key, 60),
    "dns1123LabelPrefix": NamedFormat("DNS1123LabelPrefix", _as_prefix(names.dns_label), 30),
    "dns1123SubdomainPrefix": NamedFormat("DNS1123SubdomainPrefix", _as_prefix(names.dns_subdomain), 60),
    "dns1035LabelPrefix": NamedFormat("DNS1035LabelPrefix", _as_prefix(_dns1035_label), 30),
    "labelValue": NamedFormat("LabelValue", names.label_value, 40),
    "uri": NamedFormat("URI", _uri, 1104),
    "uuid": NamedFormat("uuid", _matching(_UUID.fullmatch, "does not match the UUID format"), 70),
    "byte": NamedFormat("byte", _matching(_BASE64.fullmatch, "invalid base64"), 84),
    "date": NamedFormat("date", _matching(_is_date, "invalid date"), 72),
    "datetime": NamedFormat("datetime", _matching(_is_datetime, "invalid datetime"), 72),
}


define("format.named", str)(lambda name: Optional(FORMATS[name]) if name in FORMATS else NONE)


def _define_shorthand(name: str) -> None:
    @define(f"format.{name}")
    def shorthand() -> NamedFormat:
        return FORMATS[name]


for _name in FORMATS:
    _define_shorthand(_name)


def _validation_cost(wanted: NamedFormat, text: str) -> int:
    return tenths(len(text) + 1) * math.ceil(wanted.pattern_size * 0.25)


@define("validate", NamedFormat, str, cost=_validation_cost)
def validate(wanted: NamedFormat, text: str) -> Optional:
    """Returns the errors of the text as an optional."""
    faults = wanted.check(text)
    return Optional(list(faults)) if faults else NONE
