"""What each check counts as a fault, and what it does not."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from dralloc.answers.cluster_objects import ClusterObjects, ReadKind
from dralloc.answers.doctor.cluster_facts import ClusterFacts
from dralloc.answers.doctor.examination import CHECKS
from dralloc.answers.side_facts import ComponentGates, SideFacts, UnreadFact
from dralloc.kube.batch_v1 import Job
from dralloc.kube.core_v1 import Node
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.pod_v1 import Pod
from dralloc.primitives.features import FeatureGates
from tests.doctor.faulty_clusters import (
    JUST_NOW,
    KINDS,
    LONG,
    NOW,
    claim,
    device_class,
    facts,
    made,
    node,
    pod,
    result_of,
    rule,
    slices,
    time,
    user,
    written,
)
from tests.doctor.test_side_fact_checks import GATE, checkpoint


@dataclass(frozen=True, kw_only=True)
class Case:
    """`want`: for each finding its severity and a part of its message."""

    id: str
    check: str
    objects: tuple[ApiObject, ...] = ()
    more: Mapping[str, Any] = field(default_factory=dict)
    want: tuple[tuple[str, str], ...] = ()


CASES = [
    Case(
        id="a claim that no user holds is leaked",
        check="leaked-claim",
        objects=(claim(),),
        want=(("error", "no user holds it"),),
    ),
    Case(id="a claim without devices is not", check="leaked-claim", objects=(claim(is_allocated=False),)),
    Case(id="a claim that was written just now is not", check="leaked-claim", objects=(claim(**written(JUST_NOW)),)),
    Case(
        id="the newest write counts, not the creation",
        check="leaked-claim",
        objects=(claim(**written(time(minutes=11))),),
        want=(("error", "no user holds it"),),
    ),
    Case(id="a claim of a pod that runs is held", check="leaked-claim", objects=(claim("c", user("p")), pod("p", "c"))),
    Case(
        id="a claim of a pod that waits is not leaked", check="leaked-claim", objects=(claim(), pod("p", "c", phase=""))
    ),
    Case(
        id="a pod of the same name and another uid does not hold it",
        check="leaked-claim",
        objects=(claim("c", {**user("p"), "uid": "other"}), pod("p")),
        want=(("error", "all gone"),),
    ),
    Case(
        id="a finished pod does not hold it",
        check="leaked-claim",
        objects=(claim("c", user("p")), pod("p", "c", phase="Failed")),
        want=(("error", "all gone"),),
    ),
    Case(
        id="a job that is gone does not hold it",
        check="leaked-claim",
        objects=(claim("c", user("j", "jobs", "batch")),),
        want=(("error", "all gone"),),
    ),
    Case(
        id="a job holds it",
        check="leaked-claim",
        objects=(claim("c", user("j", "jobs", "batch")), made(Job, "j", namespace="default")),
    ),
    Case(
        id="a job that is gone holds it while a pod uses it",
        check="leaked-claim",
        objects=(claim("c", user("j", "jobs", "batch")), pod("p", "c", node="n")),
    ),
    Case(
        id="a workload of an unknown kind is taken to exist",
        check="leaked-claim",
        objects=(claim("c", user("t", "trainings", "example.com")),),
    ),
    Case(
        id="a claim in deletion is for another check",
        check="leaked-claim",
        objects=(claim(deletionTimestamp=LONG, finalizers=["f"]),),
    ),
    Case(
        id="a claim that is deleted just now is not stuck",
        check="stuck-deletion",
        objects=(claim(deletionTimestamp=JUST_NOW, finalizers=["f"]),),
    ),
    Case(
        id="a claim whose pod ends just now is not stuck",
        check="stuck-deletion",
        objects=(
            claim(deletionTimestamp=LONG, finalizers=["f"]),
            pod("p", "c", node="n", deletionTimestamp=JUST_NOW),
        ),
    ),
    Case(
        id="a claim whose pod does not end is stuck",
        check="stuck-deletion",
        objects=(claim(deletionTimestamp=LONG, finalizers=["f"]), pod("p", "c", node="n", deletionTimestamp=LONG)),
        want=(("error", "1 pod, of which 1 should have ended"),),
    ),
    Case(
        id="a claim in deletion that a job has",
        check="stuck-deletion",
        objects=(
            claim("c", user("j", "jobs", "batch"), deletionTimestamp=LONG, finalizers=["f"]),
            made(Job, "j", namespace="default"),
        ),
        want=(("error", "reserved for jobs/j"),),
    ),
    Case(
        id="slices of a node that exists are alive",
        check="dead-driver",
        objects=(slices(), node("n")),
    ),
    Case(
        id="slices of a node that is not ready for seconds are alive",
        check="dead-driver",
        objects=(slices(), node("n", ready="False", since=JUST_NOW)),
    ),
    Case(id="slices for all nodes belong to none", check="dead-driver", objects=(slices("s", None), node("other"))),
    Case(
        id="slices of a node that does not exist are dead",
        check="dead-driver",
        objects=(slices(), node("other")),
        want=(("error", "does not exist"),),
    ),
    Case(id="a complete pool", check="incomplete-pool", objects=(slices("a", of=2), slices("b", of=2))),
    Case(
        id="an older generation does not complete a pool",
        check="incomplete-pool",
        objects=(slices("a"), slices("b", generation=2, of=2)),
        want=(("error", "1 of 2 slices"),),
    ),
    Case(
        id="more slices than announced",
        check="incomplete-pool",
        objects=(slices("a"), slices("b")),
        want=(("error", "2 of 1 slices"),),
    ),
    Case(
        id="a pool that is being published",
        check="incomplete-pool",
        objects=(slices("a", of=2, **written(JUST_NOW)),),
    ),
    Case(
        id="a device plugin for a class that selects the devices is certainly the same hardware",
        check="double-booking",
        objects=(slices(driver="x.acme.io"), node("n", acme_com__gpu="4"), device_class("acme.com/gpu")),
        want=(("warning", "(certain: class class serves acme.com/gpu"),),
    ),
    Case(
        id="a class that selects no device of the node says nothing",
        check="double-booking",
        objects=(slices(driver="x.acme.io"), node("n", acme_com__gpu="4"), device_class("acme.com/gpu", "false")),
    ),
    Case(
        id="the same vendor and the same word are likely the same hardware",
        check="double-booking",
        objects=(slices(driver="gpu.acme.com", count=3), node("n", acme_com__gpu="4")),
        want=(("warning", "(likely: driver and resource are of acme.com, and both say gpu"),),
    ),
    Case(
        id="the same vendor and the same number are likely the same hardware",
        check="double-booking",
        objects=(slices(driver="dra.acme.com", count=4), node("n", acme_com__gpu="4")),
        want=(("warning", "both have 4"),),
    ),
    Case(
        id="another product of the same vendor is not",
        check="double-booking",
        objects=(slices(driver="fabric.acme.com", count=1), node("n", acme_com__gpu="4")),
    ),
    Case(
        id="another vendor is not",
        check="double-booking",
        objects=(slices(driver="gpu.notacme.com", count=4), node("n", acme_com__gpu="4")),
    ),
    Case(
        id="a device plugin that has stopped offers nothing",
        check="double-booking",
        objects=(slices(driver="gpu.acme.com"), node("n", acme_com__gpu="0")),
    ),
    Case(
        id="devices that a rule taints are not offered",
        check="double-booking",
        objects=(slices(driver="gpu.acme.com"), node("n", acme_com__gpu="1"), rule(driver="gpu.acme.com")),
    ),
    Case(
        id="a rule that evicts from every device",
        check="broad-taint-rule",
        objects=(rule("NoExecute"), slices()),
        want=(("error", "evicts all pods"),),
    ),
    Case(
        id="a rule that closes every device",
        check="broad-taint-rule",
        objects=(rule(), slices()),
        want=(("warning", "no pod gets a device"),),
    ),
    Case(id="a rule that only shows what it would do", check="broad-taint-rule", objects=(rule("None"),)),
    Case(id="a rule for a driver", check="broad-taint-rule", objects=(rule("NoExecute", driver="d"),)),
    Case(
        id="both in use is an error",
        check="double-booking",
        objects=(
            slices(driver="gpu.example.com"),
            node("n", example_com__gpu="1"),
            claim(),
            made(
                Pod,
                "p",
                namespace="default",
                spec={
                    "nodeName": "n",
                    "containers": [{"name": "c", "resources": {"requests": {"example.com/gpu": "1"}}}],
                },
            ),
        ),
        want=(("error", "same hardware"),),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_faults(case: Case) -> None:
    found = result_of(case.check, facts(*case.objects, **case.more)).findings
    assert [each.severity.value for each in found] == [severity for severity, _ in case.want]
    for each, (_, part) in zip(found, case.want, strict=True):
        assert part in each.message
        assert each.evidence
        assert each.commands


@pytest.mark.parametrize(
    ("server", "version"),
    [("", "v1"), ("v1.37.0+dralloc.0.1", "v1"), ("v1.36.2", "v1beta2"), ("v1.35.0-eks", "v1alpha3"), ("v1.40.1", "v1")],
)
def test_a_rule_has_the_version_that_the_server_has(server: str, version: str) -> None:
    cluster = facts(slices(driver="gpu.acme.com"), node("n", acme_com__gpu="1"))
    cluster.objects.server_version = server
    (finding,) = result_of("double-booking", cluster).findings
    assert f'"apiVersion":"resource.k8s.io/{version}"' in finding.commands[0]


def test_pods_that_use_a_device_plugin_and_the_driver_are_named() -> None:
    container = {"name": "c", "resources": {"requests": {"example.com/gpu": "1"}}}
    claims = [{"name": "g", "resourceClaimName": "c"}]
    greedy = made(
        Pod, "p", namespace="default", spec={"nodeName": "n", "containers": [container], "resourceClaims": claims}
    )
    cluster = facts(slices(), node("n", example_com__gpu="1"), claim("c", user("p")), greedy)
    (finding,) = result_of("double-booking", cluster).findings
    assert any(line.endswith("pods with both: default/p") for line in finding.evidence)


def test_a_node_that_could_not_be_read_is_not_gone() -> None:
    left_out = ReadKind(note="left out: node n", is_incomplete=True)
    found = result_of("dead-driver", facts(slices(), node("other"), read={Node: left_out}))
    assert not found.findings
    assert found.is_failed


def test_names_cannot_break_out_of_a_command() -> None:
    """A dump may come from anywhere, and its reader copies what is printed."""
    hostile = "x'; touch owned #"
    found = [
        *result_of("leaked-claim", facts(claim(hostile))).findings,
        *result_of("incomplete-pool", facts(slices(hostile, of=2))).findings,
        *result_of("stale-checkpoint", facts(checkpoints=(checkpoint(uid=hostile),))).findings,
        *result_of(
            "feature-gates",
            facts(
                components=(
                    ComponentGates(component="apiserver", gates={GATE: True}),
                    ComponentGates(component=hostile.replace(" ", "\t"), gates={GATE: False}),
                )
            ),
        ).findings,
    ]
    assert len(found) == 4
    for each in found:
        (command,) = each.commands
        assert any(hostile.split(";")[0] in word for word in shlex.split(command)), command
        assert "touch" not in shlex.split(command), command


# --- What could not be looked at -------------------------------------------------------------------------------------

NO_RIGHT = ReadKind(note="cannot read: forbidden", is_missing=True)


@pytest.mark.parametrize("check", list(CHECKS))
@pytest.mark.parametrize("kind", KINDS)
def test_a_check_that_lacks_a_kind_says_so_and_is_not_healthy(check: str, kind: type[ApiObject]) -> None:
    reads = (*CHECKS[check].needs, *CHECKS[check].uses)
    found = result_of(check, facts(read={kind: NO_RIGHT}, checkpoints=(checkpoint(name="x"),)))
    assert any(each.reason == NO_RIGHT.note for each in found.unchecked) == (kind in reads)
    if kind in CHECKS[check].needs:
        assert not found.findings
        assert found.is_failed


def test_pods_of_other_namespaces_that_were_not_read_are_not_gone() -> None:
    in_default = ReadKind(note="pods were read in namespace other only", namespace="other")
    found = result_of("leaked-claim", facts(claim("c", user("p")), read={Pod: in_default}))
    assert not found.findings
    assert any("1 namespace" in each.reason for each in found.unchecked)


def test_a_file_that_does_not_say_what_it_lacks_proves_nothing() -> None:
    found = ClusterObjects(FeatureGates.defaults(), now=NOW)
    found.add(claim("c", user("p")))
    cluster = ClusterFacts(objects=found)
    for check in ("leaked-claim", "dead-driver", "incomplete-pool", "double-booking"):
        result = result_of(check, cluster)
        assert not result.findings
        assert result.unchecked
        assert result.is_failed
    certificates = result_of("certificate", cluster)
    assert certificates.unchecked
    assert not certificates.is_failed


def test_what_could_not_be_read_beside_objects_is_told() -> None:
    beside = SideFacts(unread=(UnreadFact(what="feature gates", why="/metrics answers 403"),))
    found = result_of("feature-gates", facts(beside=beside))
    assert [each.reason for each in found.unchecked] == ["/metrics answers 403"]
    assert found.is_failed
