"""Kinds of objects that answers are computed from."""

from __future__ import annotations

from dralloc.answers.cluster_objects import relevant_kinds
from dralloc.kube.core_v1 import Event


def test_every_type_is_read_from_one_kind() -> None:
    """`events.k8s.io` has an Event, too, which is not the one that answers depend on."""
    types = [object_type for object_type, _ in relevant_kinds()]
    assert len(types) == len(set(types))
    assert {kind.group for object_type, kind in relevant_kinds() if object_type is Event} == {""}
