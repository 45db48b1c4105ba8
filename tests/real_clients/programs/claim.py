"""The claim that the programs work with."""

from __future__ import annotations

from typing import Any


def named(name: str, namespace: str) -> dict[str, Any]:
    exactly = {"deviceClassName": "nic.example.com", "capacity": {"requests": {"bandwidth": "1G"}}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace, "labels": {"team": "net"}},
        "spec": {"devices": {"requests": [{"name": "nic", "exactly": exactly}]}},
    }
