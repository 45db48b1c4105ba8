"""Checks of what is beside objects: certificates, gates of components, checkpoints of nodes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from dralloc.answers.doctor.cluster_facts import CheckpointForm, CheckpointRecords, PreparedClaim
from dralloc.answers.side_facts import CertificateDates, CertificateRequest, ComponentGates, SideFacts
from dralloc.kube.meta_v1 import ApiObject
from tests.doctor.faulty_clusters import (
    LONG,
    NOW,
    claim,
    facts,
    pod,
    result_of,
    time,
)


@pytest.mark.parametrize(
    ("begin", "end", "want"),
    [
        (LONG, time(days=-31), ()),
        (LONG, time(days=-29), ("warning",)),
        (LONG, time(seconds=1), ("error",)),
        (LONG, time(), ("error",)),
        (time(seconds=-1), time(days=-300), ("error",)),
    ],
)
def test_a_certificate_counts_before_its_end_and_before_its_beginning(
    begin: str, end: str, want: tuple[str, ...]
) -> None:
    for holder in ("server", "client", "authority"):
        dates = CertificateDates(holder=holder, subject="CN=x", not_before=begin, not_after=end)
        found = result_of("certificate", facts(beside=SideFacts(certificates=(dates,)))).findings
        assert tuple(each.severity.value for each in found) == want


def test_a_request_whose_holder_has_a_newer_certificate_is_no_fault() -> None:
    old = CertificateRequest(name="old", signer="s", subject="CN=n", not_before=LONG, not_after=time(days=-2))
    new = replace(old, name="new", not_after=time(days=-200))
    other = replace(new, subject="CN=other")
    for requests, want in (((old, new), []), ((old, other), ["certificatesigningrequest old"]), ((new,), [])):
        found = result_of("certificate", facts(beside=SideFacts(certificate_requests=requests))).findings
        assert [each.subject for each in found] == want


GATE = "DRAConsumableCapacity"


@pytest.mark.parametrize(
    ("components", "want", "command"),
    [
        ({"apiserver": True, "scheduler x": True}, None, ""),
        ({"apiserver": True, "scheduler x": False}, "error", f"dralloc scheduler --feature-gates {GATE}=true"),
        ({"apiserver": False, "scheduler x": True}, "warning", f"dralloc scheduler --feature-gates {GATE}=false"),
        ({"apiserver": True, "kube-scheduler y": False}, "error", f"kube-scheduler --feature-gates {GATE}=true"),
        ({"scheduler x": True, "controllers": False}, "warning", f"dralloc controllers --feature-gates {GATE}=true"),
        ({"apiserver": True, "scheduler x": None}, None, ""),
    ],
)
def test_gates_are_compared_between_components(
    components: dict[str, bool | None], want: str | None, command: str
) -> None:
    known = tuple(
        ComponentGates(component=name, known_from="here", gates={} if on is None else {GATE: on})
        for name, on in components.items()
    )
    found = result_of("feature-gates", facts(components=known)).findings
    assert [(each.severity.value, each.commands) for each in found] == ([(want, (command,))] if want else [])


def checkpoint(**record: Any) -> CheckpointRecords:
    claims = (PreparedClaim(**{"namespace": "default", "name": "c", "uid": "uid-c", "drivers": ("d",), **record}),)
    written = record.pop("written", NOW - timedelta(hours=1))
    return CheckpointRecords(file="f", form=CheckpointForm.NODE, claims=claims, written=written)


@pytest.mark.parametrize(
    ("objects", "record", "want"),
    [
        ((claim(),), {}, None),
        ((), {}, "does not exist"),
        ((claim(),), {"uid": "another"}, "is another one"),
        ((claim(is_allocated=False),), {}, "is not allocated"),
        ((claim(), pod("p", "c")), {"pods": frozenset({"uid-p"})}, None),
        ((claim(), pod("p", "c", phase="Succeeded")), {"pods": frozenset({"uid-p"})}, "are gone"),
        ((claim(),), {"pods": frozenset({"uid-p"})}, "are gone"),
    ],
)
def test_a_checkpoint_is_compared_with_claims_and_pods(
    objects: tuple[ApiObject, ...], record: dict[str, Any], want: str | None
) -> None:
    found = result_of("stale-checkpoint", facts(*objects, checkpoints=(checkpoint(**record),))).findings
    assert [want in each.message for each in found if want] == ([True] if want else [])
    assert bool(found) == (want is not None)
