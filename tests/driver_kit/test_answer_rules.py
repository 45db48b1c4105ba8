"""The rules for answers of a driver."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from dralloc.driver_kit.answer_rules import check_devices, check_info
from dralloc.driver_kit.caller import AnsweredClaim, AnsweredDevice, PluginInfo
from dralloc.driver_kit.findings import Finding, Remark, Violation
from dralloc.driver_kit.kit import FINDINGS_MAX, TEXT_LENGTH_MAX, first_findings
from dralloc.testing.builders import DRIVER, allocation, claim, held, request

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
        (replace(answered("gpu-0", "gpu-1"), size=65_537), [Remark]),
        (answered("gpu-0"), [Remark]),
        (answered(), [Remark]),
        (answered("gpu-0", "gpu-0", "gpu-1"), [Violation]),
        (answered("gpu-0", "gpu-1", "gpu-2"), [Violation]),
    ],
    ids=["all", "too large for the agent", "not all", "none", "one twice", "one too many"],
)
def test_check_devices(answer: AnsweredClaim, want: list[type[Finding]]) -> None:
    asked = claim("c", request(), allocation=allocation(held("gpu-0"), held("gpu-1")))
    assert [type(finding) for finding in check_devices(asked, answer, DRIVER, with_shares=True)] == want


@pytest.mark.parametrize(
    ("found", "last"),
    [
        ([Violation("v")] * 3, Violation("v")),
        ([Remark("r")] * 20 + [Violation("v")], Violation("… and 1 more")),
        ([Violation("v")] + [Remark("r")] * 100_000, Remark("… and 99981 more")),
    ],
)
def test_a_driver_that_breaks_a_rule_for_each_of_many_devices_is_told_so_in_few_lines(
    found: list[Finding], last: Finding
) -> None:
    first = first_findings(found)
    assert (len(first) <= FINDINGS_MAX + 1, first[-1]) == (True, last)


def test_of_a_finding_about_a_long_name_both_ends_are_told() -> None:
    (found,) = first_findings([Violation(f"device {'x' * 3_000_000} is not allocated", "do this")])
    assert isinstance(found, Violation)
    assert len(found.text) <= TEXT_LENGTH_MAX
    assert found.text.startswith("device xxx")
    assert found.text.endswith("x is not allocated")
    assert found.first == "do this"


def test_no_finding_is_no_finding() -> None:
    assert first_findings(()) == ()
