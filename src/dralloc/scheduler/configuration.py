"""The configuration of a scheduler as a document: of `dralloc scheduler --config`, and as a running scheduler publishes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from dralloc.kube.validation.request_policy import PREFERENCES
from dralloc.kube.validation.request_policy import STRATEGIES as CAPACITY_STRATEGIES
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.decide.placement_strategy import SPREAD
from dralloc.scheduler.decide.strategies import STRATEGIES
from dralloc.scheduler.decide.strategy_choice import SPREADING, StrategySettings
from dralloc.scheduler.decide.typical_pods import CountedPod
from dralloc.scheduler.state.class_settings import ClassSettings

API_VERSION: Final = "scheduler.dralloc.io/v1alpha1"
KIND: Final = "SchedulerConfiguration"


class BadConfiguration(ValueError):
    """The document is wrong; the message says what."""


class StatedClass(msgspec.Struct, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    name: str
    device_preference: str | None = None
    strategies: dict[str, str] = {}


class StatedPlacement(msgspec.Struct, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    strategy: str = SPREAD.name
    allowed_on_pods: list[str] = []
    # Manifests: a file relative to this one.
    typical_pods: str | None = None


class StatedConfiguration(msgspec.Struct, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    api_version: str
    kind: str
    placement: StatedPlacement = msgspec.field(default_factory=StatedPlacement)
    device_classes: list[StatedClass] = []


NOTHING_STATED: Final = StatedConfiguration(API_VERSION, KIND)


class SchedulerConfiguration(msgspec.Struct, frozen=True):
    """What a scheduler decides by, besides the objects of the cluster and the feature gates."""

    class_settings: Mapping[str, ClassSettings] = {}
    strategies: StrategySettings = SPREADING


def stated_in(document: object, gates: FeatureGates | None = None) -> StatedConfiguration:
    """The document, checked; with gates, also whether they are on. Raises BadConfiguration."""
    try:
        stated = msgspec.convert(document, StatedConfiguration)
    except msgspec.ValidationError as error:
        raise BadConfiguration(str(error)) from None
    if faults := list(_faults(stated, gates)):
        raise BadConfiguration("; ".join(faults))
    return stated


def configuration_of(stated: StatedConfiguration, typical: tuple[CountedPod, ...] | None) -> SchedulerConfiguration:
    placement = stated.placement
    return SchedulerConfiguration(
        {each.name: ClassSettings(each.device_preference, each.strategies) for each in stated.device_classes},
        StrategySettings(
            default=STRATEGIES[placement.strategy],
            allowed={name: STRATEGIES[name] for name in placement.allowed_on_pods},
            typical=typical,
        ),
    )


def statement_of(configuration: SchedulerConfiguration, typical_pods: str | None) -> StatedConfiguration:
    """The document of a configuration; `typical_pods` is where its typical pods are."""
    strategies = configuration.strategies
    return StatedConfiguration(
        API_VERSION,
        KIND,
        StatedPlacement(strategies.default.name, sorted(strategies.allowed), typical_pods),
        [
            StatedClass(name, each.device_preference, dict(each.strategies))
            for name, each in configuration.class_settings.items()
        ],
    )


def _faults(stated: StatedConfiguration, gates: FeatureGates | None) -> Iterator[str]:
    if (stated.api_version, stated.kind) != (API_VERSION, KIND):
        yield f"expected apiVersion {API_VERSION} and kind {KIND}"
    for name in (stated.placement.strategy, *stated.placement.allowed_on_pods):
        yield from _choice(name, tuple(STRATEGIES), "placement")
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


def _needed(gate: str, gates: FeatureGates | None) -> Iterator[str]:
    if gates is not None and gate not in gates:
        yield f"it needs --feature-gates {gate}=true"
