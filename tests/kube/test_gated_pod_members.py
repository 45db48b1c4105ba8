"""Members of pods that are dropped while their gate is off."""

from __future__ import annotations

from typing import Any

import pytest

from dralloc.kube.core_strategies import without_gated_members
from dralloc.primitives.features import FeatureGates

GROUP = {"schedulingGroup": {"podGroupName": "g"}}
RESPONDERS = {"evictionResponders": [{"name": "example.com/r"}]}
NAME = {"nodeName": "n"}


@pytest.mark.parametrize(
    ("gates", "spec", "stored", "kept"),
    [
        ("", {**GROUP, **NAME}, {}, NAME),
        ("", GROUP, GROUP, GROUP),
        ("GenericWorkload=true", {**GROUP, **NAME}, {}, {**GROUP, **NAME}),
        # So a pod never has both, which Kubernetes refuses where the gate of responders is on.
        ("GenericWorkload=true", {**GROUP, **RESPONDERS}, {}, GROUP),
        ("", RESPONDERS, RESPONDERS, RESPONDERS),
    ],
)
def test_which_members_are_kept(gates: str, spec: dict[str, Any], stored: dict[str, Any], kept: dict[str, Any]) -> None:
    assert without_gated_members(spec, stored, FeatureGates.parse(gates)) == kept
