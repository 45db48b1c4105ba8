"""Names of modules and classes: modules are nouns, and a public class name means one thing in the whole project."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

from tests.support.source_tree import SOURCE, modules, tree_of

# Wire types of an API version have the names that Kubernetes gives them in every version.
VERSIONS = frozenset({"api/resource_v1.py", "api/v1beta1.py", "api/v1beta2.py"})
# Names that are still defined more than once. The list only shrinks.
KNOWN_CLASSES = frozenset(
    {
        "AllocatedDevice",
        "Answer",
        "BadCheckpoint",
        "BadSettings",
        "CallFailed",
        "Cause",
        "CdiFiles",
        "Change",
        "Choice",
        "ClaimRecord",
        "Cluster",
        "Connection",
        "ContainerEdits",
        "Counter",
        "CreateClaim",
        "CreateSlice",
        "Credentials",
        "DeleteSlice",
        "DeviceHealth",
        "DeviceNode",
        "Devices",
        "Entry",
        "Event",
        "Explanation",
        "Fate",
        "Fault",
        "Follower",
        "Frame",
        "Function",
        "Gone",
        "Group",
        "Judgement",
        "Kind",
        "LabelSelector",
        "Layout",
        "Ledger",
        "Limits",
        "Misfit",
        "Mount",
        "Node",
        "Operator",
        "Outcome",
        "OutputFormat",
        "Overload",
        "Page",
        "Part",
        "Place",
        "Plan",
        "Planner",
        "PodClaims",
        "PodPlan",
        "Pool",
        "PreparedDevice",
        "Profile",
        "Record",
        "Refusal",
        "Refused",
        "Release",
        "ReportProblem",
        "Request",
        "Resource",
        "Response",
        "Service",
        "Situation",
        "Source",
        "Step",
        "Subject",
        "Surroundings",
        "Tally",
        "Target",
        "Verdict",
        "Workload",
        "World",
        "WriteStatus",
    }
)
# Nouns that end in -ing.
NOUNS = frozenset({"defaulting", "nesting", "routing", "listing", "formatting", "pruning"})
# Modules that are still named for an activity. The list only shrinks.
KNOWN_GERUNDS = frozenset(
    {
        "applying",
        "blocking",
        "building",
        "checking",
        "cluster_reading",
        "collecting",
        "deleting",
        "ending",
        "expiring",
        "following",
        "getting",
        "judging",
        "launching",
        "measuring",
        "observing",
        "opening",
        "patching",
        "placing",
        "planning",
        "preparing",
        "reaching",
        "reading",
        "recording",
        "restarting",
        "running",
        "serving",
        "slice_wiping",
        "taking",
        "unpreparing",
        "watching",
        "working",
        "writing",
    }
)


def test_public_class_names_are_unique() -> None:
    places: dict[str, set[str]] = defaultdict(set)
    for path in modules().values():
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].add(str(path.relative_to(SOURCE)))
    twice = {
        name: sorted(where)
        for name, where in places.items()
        if len(where) > 1 and not where <= VERSIONS and name not in KNOWN_CLASSES
    }
    assert not twice, "rename the class of the upper layer, or prefix it with an underscore if only its module uses it"


@pytest.mark.parametrize("path", modules().values(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_modules_are_named_with_nouns(path: Path) -> None:
    assert not path.stem.endswith("ing") or path.stem in NOUNS | KNOWN_GERUNDS, (
        "a module is named for what it is (garbage_collector), not for what it does (collecting)"
    )
