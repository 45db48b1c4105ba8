"""`dralloc node`: a node agent for real drivers and processes, or thousands of simulated nodes."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dralloc.cli.options import Context, Gates, Kubeconfig, MetricsAddress, Verbosity, profiles_starting_with
from dralloc.cli.output import fail, parse_gates, say

if TYPE_CHECKING:
    from dralloc.client.kubeconfig import ConnectionConfig
    from dralloc.node.agent import AgentSettings
    from dralloc.node.simulated.fleet import FleetSettings


_FOR_AN_AGENT = (
    "name",
    "plugin_dir",
    "runtime",
    "cdi_dir",
    "host_ip",
    "call_timeout",
    "unprepare_timeout",
    "keep_containers",
    "port",
)
_FOR_SIMULATED_NODES = ("profile", "prefix", "heartbeats")


class RuntimeChoice(Enum):
    """What a container is: a process on this machine, or nothing."""

    PROCESS = "process"
    FAKE = "fake"


def node(
    command: typer.Context,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    name: Annotated[str | None, typer.Option(help="The name of the node; default: the host name.")] = None,
    plugin_dir: Annotated[
        Path, typer.Option(help="The directory of plugins_registry, where drivers register, and of the node's state.")
    ] = Path("/var/lib/kubelet"),
    runtime: Annotated[
        RuntimeChoice, typer.Option(help="How containers run: as processes, or not at all.")
    ] = RuntimeChoice.PROCESS,
    cdi_dir: Annotated[
        list[Path] | None, typer.Option(help="A directory of CDI files of drivers; may be given several times.")
    ] = None,
    host_ip: Annotated[str, typer.Option(help="The address of the node and of its pods.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port of the server for logs; 0: a free one.", min=0, max=65535)] = 0,
    call_timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="The timeout of a call to a driver.", min=0.1)
    ] = 45.0,
    unprepare_timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", help="How long a pod that ends waits for drivers that do not unprepare.", min=0
        ),
    ] = 120.0,
    lease_duration: Annotated[
        int,
        typer.Option(metavar="SECONDS", help="The duration of the node's lease; renewed at each quarter of it.", min=1),
    ] = 40,
    keep_containers: Annotated[
        bool, typer.Option("--keep-containers", help="Leave containers running at the end; the next agent adopts them.")
    ] = False,
    fake: Annotated[
        int | None, typer.Option(metavar="COUNT", help="Simulate this number of nodes.", min=1, max=100_000)
    ] = None,
    profile: Annotated[
        str,
        typer.Option(
            help="The profile of simulated nodes: gpu, mig, nic, cpu, tpu, or a file (see dralloc record).",
            autocompletion=profiles_starting_with,
        ),
    ] = "gpu",
    prefix: Annotated[str, typer.Option(help="The prefix of the names of simulated nodes.")] = "fake",
    heartbeats: Annotated[
        bool,
        typer.Option(
            "--heartbeats", help="Renew the leases of simulated nodes, for clusters that check node heartbeats."
        ),
    ] = False,
    feature_gates: Gates = "",
    metrics_address: MetricsAddress = None,
    verbosity: Verbosity = 0,
) -> None:
    """Run a node agent: register drivers, prepare claims, run pods.

    With --fake, simulate nodes without drivers. A profile describes their devices; their pods do nothing, for the time that the
    annotation fake.dralloc.io/run-seconds gives.

    # This machine as a node, with a directory for drivers to register in;
    # containers are processes.
    dralloc node --name here --plugin-dir /tmp/kubelet

    # Five hundred simulated nodes with GPUs; see dralloc record for
    # profiles of your own.
    dralloc node --fake 500 --profile gpu
    """
    from dralloc.cli.server_connection import find_server
    from dralloc.node.timings import DEFAULT_TIMINGS

    gates = parse_gates(feature_gates)
    timings = replace(DEFAULT_TIMINGS, lease_s=lease_duration, heartbeat_s=lease_duration / 4)
    connection = find_server(kubeconfig, context)
    if fake is not None:
        _refuse_without_effect(command, _FOR_AN_AGENT, "with --fake")
        settings = replace(_fleet_settings(fake, profile, prefix, heartbeats), gates=gates, timings=timings)
        _simulate(connection, settings, metrics_address, verbosity)
        return
    _refuse_without_effect(command, _FOR_SIMULATED_NODES, "without --fake")

    from dralloc.node.agent import AgentSettings
    from dralloc.node.kubelet.cdi import CDI_DIRECTORIES
    from dralloc.node.node_object import this_machine

    agent = AgentSettings(
        shape=this_machine(name or socket.gethostname().lower(), host_ip),
        directory=plugin_dir.expanduser().absolute(),
        runs_processes=runtime is RuntimeChoice.PROCESS,
        keeps_containers=keep_containers,
        cdi_directories=tuple(cdi_dir or CDI_DIRECTORIES),
        timings=replace(timings, call_s=call_timeout, unprepare_s=unprepare_timeout),
        authority=connection.authority_pem,
        port=port,
        gates=gates,
    )
    _be_a_node(connection, agent, metrics_address, verbosity)


def _refuse_without_effect(command: typer.Context, options: Iterable[str], why: str) -> None:
    for option in options:
        source = command.get_parameter_source(option)
        if source is not None and source.name == "COMMANDLINE":
            fail(f"--{option.replace('_', '-')} has no effect {why}")


def _fleet_settings(count: int, profile: str, prefix: str, heartbeats: bool) -> FleetSettings:
    from dralloc.node.simulated.fleet import FleetSettings
    from dralloc.node.simulated.profiles import BadProfile, load_profile

    try:
        loaded = load_profile(profile)
    except BadProfile as error:
        fail(str(error))
    return FleetSettings(profile=loaded, profile_name=Path(profile).stem, count=count, prefix=prefix, beats=heartbeats)


def _be_a_node(
    connection: ConnectionConfig, settings: AgentSettings, metrics_address: str | None, verbosity: int
) -> None:
    from dralloc.cli.component_runner import metrics_endpoint, run_until_signal
    from dralloc.client.http_transport import HttpTransport
    from dralloc.node.agent import Agent
    from dralloc.node.checkpoint import DirectoryInUse
    from dralloc.node.kubelet.checkpoint_file import BadCheckpoint
    from dralloc.system_clock import SystemClock

    async def run() -> None:
        transport = HttpTransport(connection)
        try:
            agent = Agent(transport, settings, SystemClock())
            async with metrics_endpoint(metrics_address, agent.metrics_text, settings.gates):
                await agent.run(lambda: say(f"node {settings.shape.name} is ready"))
        finally:
            await transport.close()

    try:
        settings.directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(f"cannot work in {settings.directory}: {error.strerror}; choose another path with --plugin-dir")
    say(f"node {settings.shape.name} on {connection.server}, drivers register in {settings.directory}/plugins_registry")
    run_until_signal(run, BadCheckpoint, DirectoryInUse, verbosity=verbosity)


def _simulate(
    connection: ConnectionConfig, settings: FleetSettings, metrics_address: str | None, verbosity: int
) -> None:
    from dralloc.cli.component_runner import metrics_endpoint, run_until_signal
    from dralloc.client.http_transport import HttpTransport
    from dralloc.node.simulated.fleet import Fleet
    from dralloc.system_clock import SystemClock

    async def run() -> None:
        transport = HttpTransport(connection)
        try:
            fleet = Fleet(transport, settings, SystemClock())
            async with metrics_endpoint(metrics_address, fleet.metrics_text, settings.gates):
                await fleet.run(lambda: say(f"{settings.count} nodes are ready"))
        finally:
            await transport.close()

    say(f"publishing {settings.count} nodes after profile {settings.profile_name} on {connection.server}")
    run_until_signal(run, verbosity=verbosity)
