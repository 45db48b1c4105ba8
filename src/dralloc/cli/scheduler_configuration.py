"""The scheduler's configuration from the options `--config` and `--strategy`, in the scheduler and in all that predict its decisions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec

from dralloc.answers.cluster_objects import StatedScheduler
from dralloc.cli.output import fail
from dralloc.cli.strategy_names import strategy_named
from dralloc.kube.yaml_reader import read_yaml_stream
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.configuration import (
    NOTHING_STATED,
    BadConfiguration,
    SchedulerConfiguration,
    StatedConfiguration,
    configuration_of,
    stated_in,
)
from dralloc.scheduler.decide.typical_pods import CountedPod


def read_configuration(
    path: Path | None, gates: FeatureGates | None, strategy: str | None = None
) -> SchedulerConfiguration:
    """The settings of the file, with the strategy of an option in place of the file's; ends the command if one is wrong.

    Without gates it is not checked whether those are on that the file needs.
    """
    stated = _read(path, gates) if path is not None else NOTHING_STATED
    named = stated.placement.typical_pods
    typical = None if path is None or named is None else _read_typical(path.parent / named, gates)
    found = configuration_of(stated, typical)
    if strategy is None:
        return found
    chosen = replace(found.strategies, default=strategy_named(strategy))
    return msgspec.structs.replace(found, strategies=chosen)


def stated_scheduler(config: Path | None, strategy: str | None) -> StatedScheduler:
    """What the options of a command that predicts decisions say about the scheduler; ends the command if that is wrong."""
    return StatedScheduler(
        read_configuration(config, None) if config is not None else None,
        strategy_named(strategy) if strategy is not None else None,
    )


def _read(path: Path, gates: FeatureGates | None) -> StatedConfiguration:
    try:
        documents = list(read_yaml_stream(path.read_text()))
        return stated_in(documents[0] if len(documents) == 1 else None, gates)
    except OSError as error:
        fail(f"{path}: {error.strerror}")
    except (ValueError, BadConfiguration) as error:
        fail(f"{path}: {error}")


def _read_typical(path: Path, gates: FeatureGates | None) -> tuple[CountedPod, ...]:
    """The pods of manifests, with their claims, templates and classes."""
    from dralloc.answers.assumed_scheduler import typical_pods_of
    from dralloc.cli.cluster_source import ClusterSource

    objects = ClusterSource(files=[str(path)]).load(gates or FeatureGates.defaults())
    return typical_pods_of(objects, are_counted=True).all()
