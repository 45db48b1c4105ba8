"""Validation rules as tables: a valid object, a change, and the expected field errors."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from dralloc.kube.admission import Admitted
from dralloc.kube.meta_v1 import ApiObject
from tests.support.admission import admission_context, causes, create, document_of, stored, update, update_status

# Values of Python as it prints them: a keyword argument or a tuple in parentheses, a constant, a quoted text.
PYTHON_VALUE: Final = re.compile(r"\w\(\w+=|: (\(|'|(None|True|False)\b)")
CASES: Final = Path(__file__).parents[1] / "cases" / "api"

TABLES: Final = ("slices.yaml", "claims.yaml", "other_kinds.yaml", "design_features.yaml", "pod_groups.yaml")


def _load(name: str) -> list[Any]:
    table = yaml.load((CASES / name).read_text(), _Loader)
    bases = table.get("bases") or {"": table["base"]}
    for case in table["cases"]:
        case["base"] = bases[case.get("base", "")]
        case.setdefault("gates", table.get("gates", ""))
    return [pytest.param(case, id=case["id"]) for case in table["cases"]]


class _Loader(yaml.SafeLoader):
    """Keeps timestamps as text, as in a manifest."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _changed(document: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Returns the document with values set by JSON pointers; null removes one."""
    document = copy.deepcopy(document)
    for pointer, value in changes.items():
        *way, last = [step.replace("~1", "/") for step in pointer[1:].split("/")]
        node: Any = document
        for step in way:
            node = node[int(step)] if isinstance(node, list) else node[step]
        if value is None:
            node.pop(last, None)
        else:
            node[int(last) if isinstance(node, list) else last] = copy.deepcopy(value)
    return document


def _stored_before(case: dict[str, Any]) -> ApiObject:
    context = admission_context(case.get("old_gates", case["gates"]))
    old = stored(_changed(case["base"], case.get("old", {})), context)
    if "old_status" not in case:
        return old
    outcome = update_status({**document_of(old), "status": case["old_status"]}, old, context)
    assert isinstance(outcome, Admitted), causes(outcome)
    return outcome.stored


@pytest.mark.parametrize("case", [case for name in TABLES for case in _load(name)])
def test_every_field_error_is_reported(case: dict[str, Any]) -> None:
    context = admission_context(case["gates"])
    changes = case.get("set", {})
    if case.get("verb", "create") == "create":
        outcome = create(_changed(case["base"], changes), context)
    else:
        old = _stored_before(case)
        document = {**document_of(old), "apiVersion": case["base"]["apiVersion"]}
        # Some kinds have no update without one.
        document["metadata"] = {**document["metadata"], "resourceVersion": "1"}
        write = update if case["verb"] == "update" else update_status
        outcome = write(_changed(document, changes), old, context)
    assert causes(outcome) == sorted(map(tuple, case["want"]))
    assert not [fault.message for fault in getattr(outcome, "faults", ()) if PYTHON_VALUE.search(fault.message)]
