"""Formats of names, and the number of rules that an invalid one breaks: Kubernetes reports each of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from dralloc.primitives import names

Format = Callable[[str], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Case:
    format: Format
    text: str
    faults: int

    @property
    def id(self) -> str:
        return f"{self.format.__name__} {self.text[:30]!r}"


CASES = [
    Case(names.dns_label, "gpu-0", 0),
    Case(names.dns_label, "a" * 63, 0),
    Case(names.dns_label, "a" * 64, 1),
    Case(names.dns_label, "-" * 64, 2),
    Case(names.dns_label, "", 1),
    Case(names.dns_label, "Gpu", 1),
    Case(names.dns_label, "a.b", 1),
    Case(names.dns_label, "gpu\n", 1),
    Case(names.dns_label, "gpu٣", 1),
    Case(names.dns_subdomain, "gpu.example.com", 0),
    Case(names.dns_subdomain, "a" * 253, 0),
    Case(names.dns_subdomain, "a" * 254, 1),
    Case(names.dns_subdomain, "a..b", 1),
    Case(names.dns_subdomain, "", 1),
    Case(names.label_key, "example.com/gpu", 0),
    Case(names.label_key, "MyName_1.x", 0),
    Case(names.label_key, "", 2),
    Case(names.label_key, "/gpu", 1),
    Case(names.label_key, "example.com/", 2),
    Case(names.label_key, "Example.com/gpu", 1),
    Case(names.label_key, "a/b/c", 1),
    Case(names.label_key, "x" * 64, 1),
    Case(names.label_key, "-" * 64, 2),
    Case(names.label_value, "", 0),
    Case(names.label_value, "A_b.c", 0),
    Case(names.label_value, "a b", 1),
    Case(names.label_value, "ä" * 40, 2),
    Case(names.c_identifier, "_numa0", 0),
    Case(names.c_identifier, "0numa", 1),
    Case(names.uuid, "11111111-2222-4333-8444-555555555555", 0),
    Case(names.uuid, "11111111-2222-4333-8444-55555555555A", 1),
    Case(names.uuid, "", 1),
    Case(names.extended_resource_name, "example.com/gpu", 0),
    Case(names.extended_resource_name, "gpu", 1),
    Case(names.extended_resource_name, "", 2),
    Case(names.extended_resource_name, "foo.kubernetes.io/gpu", 1),
    Case(names.extended_resource_name, "requests.example.com/gpu", 1),
    Case(names.condition_reason, "Up_1", 0),
    Case(names.condition_reason, "1Up", 1),
    Case(names.interface_address, "10.0.0.7/24", 0),
    Case(names.interface_address, "fd00::7/64", 0),
    Case(names.interface_address, "10.0.0.7", 1),
    Case(names.interface_address, "10.0.0.7/255.255.255.0", 1),
    Case(names.interface_address, "FD00::7/64", 1),
    Case(names.interface_address, "::ffff:10.0.0.7/120", 1),
    Case(names.interface_address, "fe80::1%eth0/64", 1),
    Case(names.interface_address, "010.0.0.7/24", 1),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_number_of_broken_rules(case: Case) -> None:
    assert len(case.format(case.text)) == case.faults
