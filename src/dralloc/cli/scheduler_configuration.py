"""The file of `dralloc scheduler --config`: the placement strategy; preference and strategies of device classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from dralloc.api.validation.request_policy import STRATEGIES as CAPACITY_STRATEGIES
from dralloc.api.validation.requested_capacity import PREFERENCES
from dralloc.api.yaml_reader import read_yaml_stream
from dralloc.cli.output import fail
from dralloc.cli.strategy_names import strategy_named
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.decide.placement_strategy import SPREAD, PlacementStrategy
from dralloc.scheduler.decide.strategy_choice import SPREADING, StrategySettings
from dralloc.scheduler.decide.typical_pods import CountedPod
from dralloc.scheduler.state.class_settings import ClassSettings

API_VERSION: Final = "scheduler.dralloc.io/v1alpha1"
KIND: Final = "SchedulerConfiguration"


class _Class(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    name: str
    device_preference: str | None = None
    strategies: dict[str, str] = {}


class _Placement(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    strategy: str = SPREAD.name
    allowed_on_pods: list[str] = []
    # A file of manifests, relative to this one.
    typical_pods: str | None = None


class _File(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    api_version: str
    kind: str
    placement: _Placement = msgspec.field(default_factory=_Placement)
    device_classes: list[_Class] = []


class SchedulerFile(msgspec.Struct, frozen=True):
    class_settings: Mapping[str, ClassSettings] = {}
    strategies: StrategySettings = SPREADING


def read_configuration(path: Path | None, gates: FeatureGates, strategy: str | None = None) -> SchedulerFile:
    """The settings of the file, with the strategy of an option in place of the file's; ends the command if one is wrong."""
    stated = _read(path, gates) if path is not None else _File(API_VERSION, KIND)
    placement = stated.placement
    typical = None if path is None or placement.typical_pods is None else path.parent / placement.typical_pods
    return SchedulerFile(
        {each.name: ClassSettings(each.device_preference, each.strategies) for each in stated.device_classes},
        StrategySettings(
            default=strategy_named(strategy) if strategy is not None else _stated(placement.strategy, path),
            allowed={each: _stated(each, path) for each in placement.allowed_on_pods},
            typical=_read_typical(typical, gates) if typical is not None else None,
        ),
    )


def _stated(name: str, path: Path | None) -> PlacementStrategy:
    return strategy_named(name, f"{path}: placement")


def _read(path: Path, gates: FeatureGates) -> _File:
    try:
        documents = list(read_yaml_stream(path.read_text()))
        stated = msgspec.convert(documents[0] if len(documents) == 1 else None, _File)
    except (OSError, ValueError) as error:
        fail(f"{path}: {error}")
    if faults := list(_faults(stated, gates)):
        fail(f"{path}: {'; '.join(faults)}")
    return stated


def _read_typical(path: Path, gates: FeatureGates) -> tuple[CountedPod, ...]:
    """The pods of manifests, with their claims, templates and classes; each occurs as often as it is typical."""
    from dralloc.cli.cluster_source import ClusterSource
    from dralloc.whatif.cluster_fragmentation import typical_pods_of

    return typical_pods_of(ClusterSource(files=[str(path)]).load(gates)).counted()


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
            yield from _choice(strategy, CAPACITY_STRATEGIES, f"strategy of {capacity} in class {each.name}")
            yield from _needed("DRACapacityStrategies", gates)


def _choice(value: str, choices: tuple[str, ...], what: str) -> Iterator[str]:
    if value not in choices:
        yield f"{what}: {value!r} is not one of {', '.join(choices)}"


def _needed(gate: str, gates: FeatureGates) -> Iterator[str]:
    if gate not in gates:
        yield f"it needs --feature-gates {gate}=true"
