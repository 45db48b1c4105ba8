"""The file of `dralloc scheduler --config`: preference and strategies of device classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from dralloc.api.validation.request_policy import STRATEGIES
from dralloc.api.validation.requested_capacity import PREFERENCES
from dralloc.api.yaml_reader import read_yaml_stream
from dralloc.cli.output import fail
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.state.class_settings import ClassSettings

API_VERSION: Final = "scheduler.dralloc.io/v1alpha1"
KIND: Final = "SchedulerConfiguration"


class _Class(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    name: str
    device_preference: str | None = None
    strategies: dict[str, str] = {}


class _File(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    api_version: str
    kind: str
    device_classes: list[_Class] = []


def read_class_settings(path: Path, gates: FeatureGates) -> Mapping[str, ClassSettings]:
    """The settings of each class, in the order of the file; ends the command if the file is wrong."""
    try:
        documents = list(read_yaml_stream(path.read_text()))
        stated = msgspec.convert(documents[0] if len(documents) == 1 else None, _File)
    except (OSError, ValueError) as error:
        fail(f"{path}: {error}")
    if faults := list(_faults(stated, gates)):
        fail(f"{path}: {'; '.join(faults)}")
    return {each.name: ClassSettings(each.device_preference, each.strategies) for each in stated.device_classes}


def _faults(stated: _File, gates: FeatureGates) -> Iterator[str]:
    if (stated.api_version, stated.kind) != (API_VERSION, KIND):
        yield f"expected apiVersion {API_VERSION} and kind {KIND}"
    names: set[str] = set()
    for each in stated.device_classes:
        if each.name in names:
            yield f"class {each.name} is stated twice"
        names.add(each.name)
        if each.device_preference is not None:
            yield from _choice(each.device_preference, PREFERENCES, f"devicePreference of class {each.name}")
            yield from _needed("DRADevicePreference", gates)
        for capacity, strategy in each.strategies.items():
            yield from _choice(strategy, STRATEGIES, f"strategy of {capacity} in class {each.name}")
            yield from _needed("DRACapacityStrategies", gates)


def _choice(value: str, choices: tuple[str, ...], what: str) -> Iterator[str]:
    if value not in choices:
        yield f"{what}: {value!r} is not one of {', '.join(choices)}"


def _needed(gate: str, gates: FeatureGates) -> Iterator[str]:
    if gate not in gates:
        yield f"it needs --feature-gates {gate}=true"
