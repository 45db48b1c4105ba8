"""The options of all commands that predict decisions of the scheduler, as one value: where the cluster is, and how its scheduler decides.

A command has a parameter `options` for this value, and `takes_options` gives it an option for each field.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, get_type_hints

from dralloc.cli.options import (
    Context,
    Files,
    Gates,
    Kubeconfig,
    Output,
    OutputFormat,
    SchedulerNames,
    StatedConfiguration,
    StatedStrategy,
)
from dralloc.cli.output import parse_gates

if TYPE_CHECKING:
    from dralloc.cli.cluster_source import ClusterSource
    from dralloc.primitives.features import FeatureGates


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementOptions:
    """A subclass may give a field another help."""

    files: Files = None
    kubeconfig: Kubeconfig = None
    context: Context = None
    scheduler_name: SchedulerNames = None
    config: StatedConfiguration = None
    strategy: StatedStrategy = None
    output: Output = OutputFormat.TABLE
    feature_gates: Gates = ""

    @property
    def is_wide(self) -> bool:
        return self.output is OutputFormat.WIDE

    @property
    def scheduler_names(self) -> frozenset[str]:
        from dralloc.scheduler.settings import ONLY_SCHEDULER_NAMES

        return frozenset(self.scheduler_name or ONLY_SCHEDULER_NAMES)

    def gates(self) -> FeatureGates:
        """Ends the command if a gate is unknown."""
        return parse_gates(self.feature_gates)

    def source(self, namespace: str | None = None) -> ClusterSource:
        """Ends the command if the configuration or the strategy of the scheduler is wrong."""
        from dralloc.cli.cluster_source import ClusterSource
        from dralloc.cli.scheduler_configuration import stated_scheduler

        return ClusterSource(
            files=self.files,
            kubeconfig=self.kubeconfig,
            context=self.context,
            namespace=namespace,
            stated=stated_scheduler(self.config, self.strategy),
        )


def takes_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer is to see it: its parameters, with those of `options` after them."""
    hints = get_type_hints(command, include_extras=True)
    options_type = hints["options"]
    own = [
        each.replace(annotation=hints[name])
        for name, each in signature(command).parameters.items()
        if name != "options"
    ]
    shared_hints = get_type_hints(options_type, include_extras=True)
    shared = [
        Parameter(each.name, Parameter.KEYWORD_ONLY, default=each.default, annotation=shared_hints[each.name])
        for each in fields(options_type)
    ]

    @wraps(command)
    def with_options(**given: Any) -> None:
        options = options_type(**{each.name: given.pop(each.name) for each in shared})
        command(options=options, **given)

    with_options.__signature__ = signature(command).replace(parameters=[*own, *shared])  # type: ignore[attr-defined]
    return with_options
