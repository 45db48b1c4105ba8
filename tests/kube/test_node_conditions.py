"""A node that is not ready keeps pods away by a taint that follows its condition."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.support.local_api import LocalApi, with_api

NODE: Final = "/api/v1/nodes/n"
NOT_READY: Final = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
UNREACHABLE: Final = {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}
OTHER: Final = {"key": "team", "effect": "NoSchedule"}


def ready(status: str) -> dict[str, Any]:
    return {
        "status": {"conditions": [{"type": "DiskPressure", "status": "False"}, {"type": "Ready", "status": status}]}
    }


@pytest.mark.parametrize("others", [[], [OTHER], [{**NOT_READY, "effect": "NoExecute"}]])
@with_api
async def test_the_taint_follows_the_condition(api: LocalApi, others: list[dict[str, str]]) -> None:
    await api.create("/api/v1/nodes", {"metadata": {"name": "n"}, "spec": {"taints": others}})
    for status, taints in (
        ("False", [*others, NOT_READY]),
        ("False", [*others, NOT_READY]),
        ("Unknown", [*others, UNREACHABLE]),
        ("True", others),
        ("True", others),
        ("False", [*others, NOT_READY]),
    ):
        written = await api.patch(f"{NODE}/status", ready(status))
        assert written["spec"].get("taints", []) == taints if "spec" in written else taints == []
    # A status without the condition says nothing.
    await api.patch(f"{NODE}/status", {"status": {"conditions": [{"type": "DiskPressure", "status": "True"}]}})
    assert (await api.get(NODE))["spec"]["taints"] == [*others, NOT_READY]
