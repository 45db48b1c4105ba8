"""The kubeconfig file with the server's address and the administrator's credentials.

It may be the user's file for all clusters, so entries of other clusters are kept.
"""

from __future__ import annotations

import os
import stat
from base64 import b64encode
from pathlib import Path
from typing import Any, Final

from dralloc.atomic_files import write_private

CONTEXT: Final = "dralloc"
USER: Final = "dralloc-admin"
_PARTS: Final = ("clusters", "users", "contexts")


class UnusableKubeconfig(Exception):
    """The file cannot be written, or is not a kubeconfig and is left unchanged."""


def write_kubeconfig(path: Path, *, server: str, authority_pem: bytes | None, token: str) -> None:
    """Add the server's cluster, user and context to the file, and make the context the current one.

    The certificate authority is embedded. A new file is private; an existing one keeps its mode and all other entries.
    """
    # Follow a symbolic link instead of replacing it.
    target = Path(os.path.realpath(path))
    try:
        earlier = target.stat() if target.exists() else None
        if earlier is not None and not stat.S_ISREG(earlier.st_mode):
            raise _unusable(path, "it is not a file")
        document = _read(path, target.read_bytes()) if earlier is not None else {}
        merged = _merged(document, _entries(server, authority_pem, token))
        # A full disk must not prevent a restart, so an unchanged file is left alone.
        if merged != document:
            write_private(target, _text(merged), like=earlier)
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from error


def _entries(server: str, authority_pem: bytes | None, token: str) -> dict[str, dict[str, Any]]:
    cluster = {"server": server}
    if authority_pem is not None:
        cluster["certificate-authority-data"] = b64encode(authority_pem).decode("ascii")
    return {
        "clusters": {"name": CONTEXT, "cluster": cluster},
        "users": {"name": USER, "user": {"token": token}},
        "contexts": {"name": CONTEXT, "context": {"cluster": CONTEXT, "user": USER}},
    }


def _merged(document: dict[str, Any], entries: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The document with the server's entries, which replace entries of the same names."""
    merged = {"apiVersion": "v1", "kind": "Config", **document}
    for part, entry in entries.items():
        known = merged.get(part) or []
        merged[part] = [entry if each["name"] == entry["name"] else each for each in known]
        if entry not in merged[part]:
            merged[part].append(entry)
    return {**merged, "current-context": CONTEXT}


def _read(path: Path, content: bytes) -> dict[str, Any]:
    """The content of a kubeconfig; empty for an empty file."""
    import msgspec

    from dralloc.kube.manifests import read_manifest

    manifest = read_manifest(content)
    if manifest.error is not None:
        raise _unusable(path, f"line {manifest.error.position.line}: {manifest.error}")
    if not manifest.documents:
        return {}
    document = msgspec.json.decode(manifest.documents[0].body)
    if len(manifest.documents) > 1 or not _is_kubeconfig(document):
        raise _unusable(path, "it is not a kubeconfig")
    return document  # type: ignore[no-any-return]  # a mapping, as was seen


def _is_kubeconfig(document: Any) -> bool:
    if not isinstance(document, dict) or document.get("kind", "Config") != "Config":
        return False
    parts = [document.get(part) or [] for part in _PARTS]
    are_lists_of_named = all(
        isinstance(part, list) and all(isinstance(each, dict) and "name" in each for each in part) for part in parts
    )
    # Like kubectl, accept a file without a kind if it has the parts of a kubeconfig.
    looks_like_one = not document or any(name in document for name in ("kind", "current-context", *_PARTS))
    return are_lists_of_named and looks_like_one


def _text(document: dict[str, Any]) -> str:
    # Slow to import, and most users of this module do not write a file.
    from dralloc.kube.yaml_writer import write_yaml

    return write_yaml(document)


def _unusable(path: Path, reason: str) -> UnusableKubeconfig:
    return UnusableKubeconfig(f"cannot write the kubeconfig {path}: {reason}")
