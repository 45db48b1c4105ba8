"""The file that tells kubectl and every other client where the server is and how to prove who they are."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path

from dralloc.apiserver.authentication import write_private


def write_kubeconfig(path: Path, *, server: str, authority_pem: bytes | None, token: str) -> None:
    """Write a complete kubeconfig with mode 0600; the certificate authority is inside, so the file can travel."""
    lines = [
        "apiVersion: v1",
        "kind: Config",
        "clusters:",
        "- name: dralloc",
        "  cluster:",
        # JSON texts are YAML texts.
        f"    server: {json.dumps(server)}",
    ]
    if authority_pem is not None:
        lines.append(f"    certificate-authority-data: {b64encode(authority_pem).decode('ascii')}")
    lines += [
        "users:",
        "- name: dralloc-admin",
        "  user:",
        f"    token: {json.dumps(token)}",
        "contexts:",
        "- name: dralloc",
        "  context: {cluster: dralloc, user: dralloc-admin}",
        "current-context: dralloc",
    ]
    write_private(path, "\n".join(lines) + "\n")
