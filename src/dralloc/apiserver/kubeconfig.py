"""The file that tells kubectl and every other client where the server is and how to prove who they are."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

import yaml

from dralloc.apiserver.authentication import write_private


def write_kubeconfig(path: Path, *, server: str, authority_pem: bytes | None, token: str) -> None:
    """Write a complete kubeconfig with mode 0600; the certificate authority is inside, so the file can travel."""
    cluster: dict[str, Any] = {"server": server}
    if authority_pem is not None:
        cluster["certificate-authority-data"] = b64encode(authority_pem).decode("ascii")
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "dralloc", "cluster": cluster}],
        "users": [{"name": "dralloc-admin", "user": {"token": token}}],
        "contexts": [{"name": "dralloc", "context": {"cluster": "dralloc", "user": "dralloc-admin"}}],
        "current-context": "dralloc",
    }
    write_private(path, yaml.safe_dump(document, sort_keys=False))
