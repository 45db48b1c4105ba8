"""Since when a node is not ready."""

from __future__ import annotations

from datetime import datetime

from dralloc.kube.core_v1 import Node
from dralloc.kube.timestamps import stated_time


def unready_since(node: Node) -> datetime | None:
    """When the node stopped being ready; None while it is, and for nodes that say nothing about it."""
    for each in node.status.conditions:
        if each.type == "Ready" and each.status != "True":
            return stated_time(each.last_transition_time or node.metadata.creation_timestamp)
    return None


def unready_text(node: Node) -> str:
    """What the node says about it."""
    for each in node.status.conditions:
        if each.type == "Ready" and each.status != "True":
            return f"condition Ready is {each.status}: {each.message or each.reason or 'without a reason'}"
    return "ready"
