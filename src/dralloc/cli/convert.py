"""`dralloc convert`: manifests in another version of the API."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from dralloc.cli.output import fail, say

if TYPE_CHECKING:
    from dralloc.api.documents import Document


class Version(StrEnum):
    """The versions of `resource.k8s.io` that an object can be written in."""

    V1 = "v1"
    V1BETA2 = "v1beta2"
    V1BETA1 = "v1beta1"


class OutputFormat(StrEnum):
    YAML = "yaml"
    JSON = "json"


def convert(
    files: Annotated[
        list[str], typer.Option("--filename", "-f", help="A manifest, a directory of them, or - for standard input.")
    ],
    to: Annotated[Version, typer.Option(help="The version that is wanted.")],
    output: Annotated[OutputFormat, typer.Option("--output", "-o", help="How to write it.")] = OutputFormat.YAML,
) -> None:
    """Rewrite manifests in another version of resource.k8s.io. Nothing is defaulted or judged, nothing is lost.

    # For a cluster that has only the first beta; and back.
    dralloc convert -f claims.yaml --to v1beta1 > old.yaml
    dralloc convert -f old.yaml --to v1
    """
    from dralloc.api.documents import read_manifest
    from dralloc.cli.manifests import read_sources
    from dralloc.cli.objects import to_json, to_yaml

    bodies: list[bytes] = []
    for source in read_sources(files):
        if source.error:
            fail(f"{source.name}: {source.error}")
        manifest = read_manifest(source.content)
        if manifest.error is not None:
            place = manifest.error.position
            fail(f"{source.name}:{place.line}:{place.column}: {manifest.error}")
        bodies.extend(_converted(source.name, document, to.value) for document in manifest.documents)
    if output is OutputFormat.YAML:
        say(to_yaml(bodies), newline=False)
    else:
        say(to_json(bodies))


def _converted(file: str, document: Document, version: str) -> bytes:
    """The object in the other version; an object of another group as it is."""
    from dralloc.api.codec import DecodeError, decode, encode
    from dralloc.api.convert import from_hub, to_hub
    from dralloc.api.registry import find_kind
    from dralloc.api.resource_v1 import GROUP

    kind = find_kind(document.api_version, document.kind)
    if kind is None or kind.group != GROUP:
        return document.body
    served = kind.served(document.api_version.rpartition("/")[2])
    assert served is not None, "the kind was found by its version"
    if kind.served(version) is None:
        versions = ", ".join(existing.version for existing in kind.versions)
        fail(f"{file}: there is no {kind.kind} in {kind.group}/{version}; it exists in {versions}")
    try:
        return encode(from_hub(to_hub(decode(document.body, served.wire_type)), version))
    except DecodeError as error:
        fail(f"{file}: {error}; dralloc validate {file} says where")
