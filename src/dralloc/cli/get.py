"""`dralloc get`: objects of any kind that a server has, as a table of its own making or as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from dralloc.cli.name_completion import kinds_starting_with, namespaces_starting_with, objects_starting_with
from dralloc.cli.options import Context, GetFormat, Kubeconfig
from dralloc.cli.output import FINDINGS, fail

if TYPE_CHECKING:
    from dralloc.cli.server_objects import Target
    from dralloc.client.discovery import Discovery
    from dralloc.client.transport import Transport


ONE_AT_A_TIME: Final = "--watch needs exactly one kind or one object"


def get(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="Comma-separated kinds, by plural, singular or short name; or KIND/NAME.",
            autocompletion=kinds_starting_with,
        ),
    ],
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="Only these objects.", autocompletion=objects_starting_with),
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            help="The namespace; default: that of the context.",
            autocompletion=namespaces_starting_with,
        ),
    ] = None,
    all_namespaces: Annotated[bool, typer.Option("--all-namespaces", "-A", help="All namespaces.")] = False,
    selector: Annotated[str, typer.Option("--selector", "-l", help="Only objects with these labels: a=b,c!=d.")] = "",
    field_selector: Annotated[str, typer.Option(help="Only objects with these fields: spec.nodeName=node-7.")] = "",
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Then print every change, until Ctrl-C.")] = False,
    output: Annotated[
        GetFormat,
        typer.Option(
            "--output",
            "-o",
            metavar="FORMAT",
            help="table, wide, json, yaml or name.",
        ),
    ] = GetFormat.TABLE,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Show objects of a server, without kubectl. Exits with 1 if a named object does not exist.

    # The claims of all namespaces, with their state; then one of them, in full.
    dralloc get resourceclaims -A
    dralloc get resourceclaim shared-gpu -n ml -o yaml

    # Several kinds; pods with a label; changes from now on.
    dralloc get no,deviceclasses,resourceslices -o wide
    dralloc get pods -l job=train
    dralloc get pods -w
    """
    from dralloc.cli.object_printer import ObjectPrinter
    from dralloc.cli.server_connection import ask_server, find_server
    from dralloc.cli.server_objects import Target, resources_of
    from dralloc.client.discovery import discover

    words, named = split_words(kind, names or [])
    if watch and (len(words) > 1 or len(named) > 1):
        fail(ONE_AT_A_TIME)
    connection = find_server(kubeconfig, context)

    def targets(discovery: Discovery) -> list[Target]:
        found: list[Target] = []
        for resource in resources_of(discovery, words):
            is_everywhere = not resource.namespaced or (all_namespaces and not named)
            place = "" if is_everywhere else namespace or connection.namespace
            chosen = [Target(resource, place, labels=selector, fields=field_selector)]
            found += [Target(resource, place, name) for name in named] or chosen
        return found

    async def work(transport: Transport) -> bool:
        chosen = targets(await discover(transport))
        kinds = {target.resource for target in chosen}
        if watch and len(kinds) > 1:
            fail(ONE_AT_A_TIME)
        return await ObjectPrinter(transport, output, with_kinds=len(kinds) > 1).show(chosen, and_follow=watch)

    if not ask_server(connection, work, is_endless=watch):
        raise typer.Exit(FINDINGS)


def split_words(kind: str, names: list[str]) -> tuple[list[str], list[str]]:
    """The kinds and the names: `pods a b`, or `pod/a`."""
    word, slash, name = kind.partition("/")
    if not slash:
        return [each for each in kind.split(",") if each], names
    if names or not name:
        fail(f"{kind}: use KIND/NAME, or KIND followed by names")
    return [word], [name]
