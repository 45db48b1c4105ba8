"""`dralloc convert`: manifests in another version of the API."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from dralloc.cli.output import fail, say

if TYPE_CHECKING:
    from dralloc.cli.manifest_records import ManifestRecord


class Version(StrEnum):
    """The versions of `resource.k8s.io` that an object can be written in."""

    V1 = "v1"
    V1BETA2 = "v1beta2"
    V1BETA1 = "v1beta1"


class ConvertFormat(StrEnum):
    YAML = "yaml"
    JSON = "json"


def convert(
    files: Annotated[
        list[str], typer.Option("--filename", "-f", help="A manifest, a directory of them, or - for standard input.")
    ],
    to: Annotated[Version, typer.Option(help="The API version to convert to.")],
    output: Annotated[ConvertFormat, typer.Option("--output", "-o", help="yaml or json.")] = ConvertFormat.YAML,
) -> None:
    """Convert manifests to another version of resource.k8s.io, without defaulting or validation.

    # For a cluster that serves v1beta1 only; and back.
    dralloc convert -f claims.yaml --to v1beta1 > old.yaml
    dralloc convert -f old.yaml --to v1
    """
    from dralloc.cli.manifest_records import read_records
    from dralloc.cli.object_documents import to_json, to_yaml

    bodies = [_converted(record, to.value) for record in read_records(files)]
    if output is ConvertFormat.YAML:
        say(to_yaml(bodies), newline=False)
    else:
        say(to_json(bodies))


def _converted(record: ManifestRecord, version: str) -> bytes:
    """The object in the other version; an object of another group as it is."""
    from dralloc.cli.manifest_records import fail_unread
    from dralloc.kube.codec import DecodeError, decode, encode
    from dralloc.kube.conversion import from_hub, to_hub
    from dralloc.kube.registry import find_kind
    from dralloc.kube.resource_v1 import GROUP

    if not record.api_version or not record.kind:
        fail(f"{record.file}: expected an object with apiVersion and kind")
    if record.api_version.rpartition("/")[0] != GROUP:
        return record.body
    kind = find_kind(record.api_version, record.kind)
    if kind is None:
        fail_unread(record)
    served = kind.served(record.api_version.rpartition("/")[2])
    assert served is not None, "the kind was found by its version"
    if kind.served(version) is None:
        fail(f"{record.file}: {kind.lacks(kind.api_version(version))}")
    try:
        return encode(from_hub(to_hub(decode(record.body, served.wire_type)), version))
    except DecodeError as error:
        fail(f"{record.file}: {error}; for the position run: dralloc validate {record.file}")
