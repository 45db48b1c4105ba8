"""The rules of the conformance kit that need no driver: what a driver says of itself, its slices, and the reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from dralloc.api.meta_v1 import ObjectMeta, OwnerReference
from dralloc.api.resource_v1 import Device, ResourceSlice
from dralloc.driver_kit.answer_rules import check_devices, check_info
from dralloc.driver_kit.caller import AnsweredClaim, AnsweredDevice, PluginInfo
from dralloc.driver_kit.check import Check, CheckResult
from dralloc.driver_kit.findings import Finding, Remark, Violation
from dralloc.driver_kit.report import junit_of, lines_of, summary_of
from dralloc.driver_kit.slice_rules import SliceHistory, are_complete, check_published
from dralloc.testing.builders import DRIVER, allocation, claim, device, held, request, resource_slice

NODE = "node-a"


@dataclass(frozen=True)
class InfoCase:
    id: str
    want: list[type[Finding]]
    type: str = "DRAPlugin"
    name: str = DRIVER
    endpoint: str = "/var/lib/kubelet/plugins/x/dra.sock"
    versions: tuple[str, ...] = ("v1.DRAPlugin", "v1beta1.DRAPlugin")


INFOS = [
    InfoCase(id="as it should be", want=[]),
    InfoCase(id="no endpoint: the registration socket serves", endpoint="", want=[]),
    InfoCase(id="the older version only", versions=("v1beta1.DRAPlugin",), want=[Remark]),
    InfoCase(id="the older version first", versions=("v1beta1.DRAPlugin", "v1.DRAPlugin"), want=[Remark]),
    InfoCase(id="health first does not matter", versions=("v1.DRAResourceHealth", "v1.DRAPlugin"), want=[]),
    InfoCase(id="a relative endpoint", endpoint="dra.sock", want=[Violation]),
    InfoCase(id="a long endpoint", endpoint="/" + "x" * 107, want=[Violation]),
    InfoCase(id="no version", versions=(), want=[Violation]),
    InfoCase(id="a version twice", versions=("v1.DRAPlugin", "v1.DRAPlugin"), want=[Violation]),
    InfoCase(id="another type", type="DevicePlugin", want=[Violation]),
    InfoCase(id="no name", name="", want=[Violation]),
]


@pytest.mark.parametrize("case", INFOS, ids=lambda case: case.id)
def test_check_info(case: InfoCase) -> None:
    info = PluginInfo(case.type, case.name, case.endpoint, case.versions)
    assert [type(finding) for finding in check_info(info)] == case.want


def answered(*devices: str) -> AnsweredClaim:
    return AnsweredClaim("", tuple(AnsweredDevice(("request",), "pool-a", name, (), None) for name in devices))


@pytest.mark.parametrize(
    ("answer", "want"),
    [
        (answered("gpu-0", "gpu-1"), []),
        (answered("gpu-0"), [Remark]),
        (answered(), [Remark]),
        (answered("gpu-0", "gpu-0", "gpu-1"), [Violation]),
        (answered("gpu-0", "gpu-1", "gpu-2"), [Violation]),
    ],
    ids=["all", "not all", "none", "one twice", "one too many"],
)
def test_check_devices(answer: AnsweredClaim, want: list[type[Finding]]) -> None:
    asked = claim("c", request(), allocation=allocation(held("gpu-0"), held("gpu-1")))
    assert [type(finding) for finding in check_devices(asked, answer, DRIVER, with_shares=True)] == want


# --- Slices -------------------------------------------------------------------------------------------------------

OWNER = OwnerReference(api_version="v1", kind="Node", name=NODE, uid="u", controller=True)


def owned(name: str, *devices: Device, generation: int = 1, of: int = 1, node: str = NODE) -> ResourceSlice:
    made = resource_slice(name, *devices, generation=generation, of=of, node_name=node)
    return replace(made, metadata=ObjectMeta(name=name, owner_references=(OWNER,)))


A, B = device("a"), device("b")


@dataclass(frozen=True)
class SliceCase:
    id: str
    slices: Sequence[ResourceSlice]
    want: list[str]


SLICES = [
    SliceCase(id="complete", slices=[owned("0", A, of=2), owned("1", B, of=2)], want=[]),
    SliceCase(id="an old generation is ignored", slices=[owned("0", A), owned("1", A, generation=2)], want=[]),
    SliceCase(id="one is missing", slices=[owned("0", A, of=2)], want=["only 1 of 2 slices are published"]),
    SliceCase(id="counts differ", slices=[owned("0", A, of=2), owned("1", B, of=1)], want=["announce 1 and 2 slices"]),
    SliceCase(
        id="a device twice", slices=[owned("0", A, of=2), owned("1", A, of=2)], want=["device a is published 2 times"]
    ),
    SliceCase(id="of another node", slices=[owned("0", A, node="node-b")], want=["is for node node-b"]),
    SliceCase(id="without an owner", slices=[resource_slice("0", A)], want=["has no owner reference to its Node"]),
    SliceCase(
        id="counters that the pool does not have",
        slices=[owned("0", device("a", draws={"card": {"memory": "1Gi"}}))],
        want=["consumes counter card/memory"],
    ),
]


@pytest.mark.parametrize("case", SLICES, ids=lambda case: case.id)
def test_check_published(case: SliceCase) -> None:
    findings = list(check_published(case.slices, NODE))
    assert len(findings) == len(case.want)
    assert all(want in finding.text for want, finding in zip(case.want, findings, strict=True))


def test_a_pool_is_complete_when_all_announced_slices_are_there() -> None:
    assert are_complete([owned("0", A, of=2), owned("1", B, of=2)])
    assert not are_complete([owned("0", A, of=2)])
    assert not are_complete([])


@dataclass(frozen=True)
class HistoryCase:
    id: str
    # A slice that is put, or the name of one that is removed.
    events: Sequence[ResourceSlice | str]
    want: str = ""


HISTORIES = [
    HistoryCase(id="one slice changes", events=[owned("0", A), owned("0", B)]),
    HistoryCase(
        id="a new generation",
        events=[owned("0", A), owned("0", A, generation=2, of=2), owned("1", B, generation=2, of=2)],
    ),
    HistoryCase(id="taken away, and begun anew", events=[owned("0", A, generation=5), "0", owned("1", A)]),
    HistoryCase(id="back in time", events=[owned("0", A, generation=2), owned("0", A)], want="from generation 2 to 1"),
    HistoryCase(
        id="an old slice comes late", events=[owned("0", A, generation=2), owned("1", B)], want="already had 2"
    ),
    HistoryCase(
        id="a device moves without a new generation",
        events=[owned("0", A, of=2), owned("1", B, of=2), owned("1", A, B, of=2), owned("0", of=2)],
        want="looked complete but had a twice",
    ),
    HistoryCase(
        id="a device moves with one",
        events=[
            owned("0", A, of=2),
            owned("1", B, of=2),
            owned("1", A, B, of=2, generation=2),
            owned("0", of=2, generation=2),
        ],
    ),
]


@pytest.mark.parametrize("case", HISTORIES, ids=lambda case: case.id)
def test_slice_history(case: HistoryCase) -> None:
    history = SliceHistory()
    for event in case.events:
        if isinstance(event, str):
            history.remove(event)
        else:
            history.put(event)
    assert [case.want in fault.text for fault in history.violations] == ([True] if case.want else [])


# --- Reports ------------------------------------------------------------------------------------------------------


async def _unused(_subject: object) -> list[Finding]:
    return []


CHECK = Check(id="prepare.repeat", title="the same answer again", why="kubelets repeat calls", run=_unused)
PASSED = CheckResult(CHECK, seconds=0.5)
REMARKED = CheckResult(CHECK, (Remark("could be better"),))
FAILED = CheckResult(CHECK, (Violation("differs\x00<&"), Remark("and slow")))
SKIPPED = CheckResult(CHECK, skipped="no server")


def test_lines_say_what_was_found_and_why_it_matters() -> None:
    assert list(lines_of(PASSED)) == ["ok       prepare.repeat             the same answer again"]
    assert [line.strip() for line in lines_of(FAILED)][1:] == [
        "violation: differs\x00<&",
        "remark: and slow",
        "why it matters: kubelets repeat calls",
    ]
    assert [line.strip() for line in lines_of(SKIPPED)][1:] == ["no server"]
    assert list(summary_of([PASSED, REMARKED, FAILED, SKIPPED])) == [
        "2 of 4 checks passed (1 with remarks), 1 failed, 1 skipped"
    ]
    assert list(summary_of([PASSED, CheckResult(SKIPPED.check, skipped="no server", is_testable=False)])) == [
        "1 of 2 checks passed (0 with remarks), 0 failed, 1 skipped",
        "this is not a pass: 1 checks did not run because no server",
    ]


def test_the_junit_report_is_xml_that_a_build_understands() -> None:
    suite = ElementTree.fromstring(junit_of([PASSED, REMARKED, FAILED, SKIPPED], DRIVER))
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("4", "1", "1")
    passed, remarked, failed, skipped = suite
    assert (passed.get("classname"), passed.get("name"), list(passed)) == (f"{DRIVER}.prepare", "repeat", [])
    assert [child.tag for child in remarked] == ["system-out"]
    assert failed[0].get("message") == "differs\ufffd<&"
    assert (failed[0].text or "").endswith("Why it matters: kubelets repeat calls.")
    assert skipped[0].get("message") == "no server"
