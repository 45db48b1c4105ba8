"""Content negotiation: objects, metadata or tables; JSON, protobuf or YAML; aggregated or plain discovery.

The `Accept` header names the form: `application/json;as=Table;v=v1;g=meta.k8s.io,application/json` asks for a table, or else for
the object.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Final

from dralloc.server.http.messages import PROTOBUF
from dralloc.server.http.statuses import unwritable_answer

META_GROUP: Final = "meta.k8s.io"
DISCOVERY_GROUP: Final = "apidiscovery.k8s.io"
AGGREGATED_VERSIONS: Final = ("v2", "v2beta1")

YAML: Final = "application/yaml"

_WRITABLE: Final = ("application/json", YAML, PROTOBUF, "application/*", "*/*")


class Form(Enum):
    """The forms in which objects are returned."""

    OBJECT = ""
    METADATA = "PartialObjectMetadata"
    TABLE = "Table"


@dataclass(frozen=True, slots=True)
class _Range:
    """One accepted media range that the server can write."""

    media_type: str
    form: str
    group: str
    version: str


def form_of_objects(accept: str) -> Form:
    """Raises `NotAcceptable` if the client accepts nothing that can be written."""
    choice = _choice(accept)
    if choice is None:
        raise unwritable_answer(("application/json",))
    return choice[0]


def wants_metadata(accept: str) -> bool:
    """True if the answer to a write is to be the metadata alone."""
    choice = _choice(accept)
    return choice is not None and choice[0] is Form.METADATA


def wants_yaml(accept: str) -> bool:
    """True if the client prefers YAML to JSON."""
    return _encoding(accept) == YAML


def wants_protobuf(accept: str) -> bool:
    """True if the client prefers protobuf to JSON."""
    return _encoding(accept) == PROTOBUF


def _encoding(accept: str) -> str:
    """The media type that the client prefers; empty if it accepts none that can be written."""
    choice = _choice(accept)
    return choice[1] if choice is not None else ""


# Clients send the same few headers with every request.
@lru_cache(maxsize=256)
def _choice(accept: str) -> tuple[Form, str] | None:
    """The form and the media type of the first range that can be written. A value, so that "none" is remembered, too."""
    for wanted in _ranges(accept):
        if not wanted.form:
            return Form.OBJECT, wanted.media_type
        if wanted.group == META_GROUP and wanted.version in ("v1", "v1beta1"):
            # Kubernetes has no message for tables.
            if wanted.form == "Table" and wanted.media_type != PROTOBUF:
                return Form.TABLE, wanted.media_type
            if wanted.form in ("PartialObjectMetadata", "PartialObjectMetadataList"):
                return Form.METADATA, wanted.media_type
    return None


@lru_cache(maxsize=256)
def form_of_discovery(accept: str) -> str | None:
    """The version of aggregated discovery that the client wants, or `None` for plain discovery."""
    for wanted in _ranges(accept):
        if not wanted.form:
            return None
        if (
            wanted.form == "APIGroupDiscoveryList"
            and wanted.group == DISCOVERY_GROUP
            and wanted.version in AGGREGATED_VERSIONS
        ):
            return wanted.version
    raise unwritable_answer(("application/json",))


def discovery_content_type(version: str) -> str:
    return f"application/json;g={DISCOVERY_GROUP};v={version};as=APIGroupDiscoveryList"


def _ranges(accept: str) -> Iterator[_Range]:
    """The accepted media ranges that the server can write, the preferred first."""
    weighted: list[tuple[float, _Range]] = []
    for part in (accept or "*/*").split(","):
        media_type, *parameters = (text.strip() for text in part.split(";"))
        if media_type.lower() in _WRITABLE:
            named = dict(parameter.partition("=")[::2] for parameter in parameters)
            wanted = _Range(media_type.lower(), named.get("as", ""), named.get("g", ""), named.get("v", ""))
            weighted.append((_weight(named.get("q", "")), wanted))
    weighted.sort(key=lambda pair: -pair[0])
    return (wanted for weight, wanted in weighted if weight > 0)


def _weight(text: str) -> float:
    try:
        return float(text) if text else 1.0
    except ValueError:
        return 1.0
