"""`dralloc delete`: objects of a server, by name, by label, or as manifests name them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from dralloc.cli.name_completion import kinds_starting_with, objects_starting_with
from dralloc.cli.options import Context, Kubeconfig, Namespace, Output, OutputFormat
from dralloc.cli.output import FINDINGS, fail, say

if TYPE_CHECKING:
    from dralloc.cli.server_objects import Target
    from dralloc.client.discovery import Discovery
    from dralloc.client.kubeconfig import ConnectionConfig
    from dralloc.client.transport import Transport

USERS_SHOWN_MAX: Final = 3


class Outcome(StrEnum):
    """What becomes of an object that is to be deleted."""

    DELETED = "deleted"
    MARKED = "marked for deletion"
    MISSING = "missing"
    REFUSED = "refused"


def delete(
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="KIND",
            help="A kind, by plural, singular or short name; or KIND/NAME.",
            autocompletion=kinds_starting_with,
        ),
    ] = None,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="These objects.", autocompletion=objects_starting_with)
    ] = None,
    files: Annotated[
        list[str] | None,
        typer.Option("--filename", "-f", help="The objects of these manifests, or - for standard input."),
    ] = None,
    selector: Annotated[str, typer.Option("--selector", "-l", help="Objects of the kind with these labels.")] = "",
    namespace: Namespace = None,
    ignore_not_found: Annotated[
        bool, typer.Option("--ignore-not-found", help="Objects that do not exist count as deleted.")
    ] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Delete objects. Exits with 1 if one of them does not exist or cannot be deleted.

    Objects with finalizers are marked for deletion and deleted later; the output says so. Objects that they own are deleted, too:
    the pods of a job, and its claim.

    # By name, by label, or the objects of manifests.
    dralloc delete pod train-0 train-1 -n ml
    dralloc delete resourceclaims -l team=vision
    dralloc delete -f examples/first-look --ignore-not-found
    """
    from dralloc.cli.answers import answer
    from dralloc.cli.get import split_words
    from dralloc.cli.manifest_records import read_records
    from dralloc.cli.object_applier import in_order
    from dralloc.cli.server_connection import ask_server, find_server
    from dralloc.cli.server_objects import Target, find_resource
    from dralloc.client.discovery import discover

    if (kind is None) == (files is None):
        fail("give a kind with names or --selector, or manifests with -f")
    words, named = split_words(kind, names or []) if kind is not None else ([], [])
    if kind is not None and bool(named) == bool(selector):
        fail("give names, or labels with --selector")
    records = read_records(files) if files else []
    connection: ConnectionConfig = find_server(kubeconfig, context)
    place = namespace or connection.namespace

    async def targets(transport: Transport, discovery: Discovery) -> list[Target]:
        found = [each.target for each in in_order(discovery, records, place)]
        for word in words:
            resource = find_resource(discovery, word)
            where = place if resource.namespaced else ""
            chosen = named or await _labelled(transport, Target(resource, where, labels=selector))
            found += [Target(resource, where, name) for name in chosen]
        # What was created last goes first, and namespaces at the end.
        return found[::-1] if records else found

    async def work(transport: Transport) -> list[Deletion]:
        fates: list[Deletion] = []
        for target in await targets(transport, await discover(transport)):
            fates.append(await _delete(transport, target))
            _tell(fates[-1], output, is_missing_fine=ignore_not_found)
        return fates

    fates = ask_server(connection, work)
    if not fates:
        say("nothing found", err=True)
    answer(output, lambda: {"objects": [_values(fate) for fate in fates]}, lambda: ())
    if not all(fate.is_good(is_missing_fine=ignore_not_found) for fate in fates):
        raise typer.Exit(FINDINGS)


async def _labelled(transport: Transport, target: Target) -> list[str]:
    import msgspec

    from dralloc.cli.server_objects import AS_OBJECTS, read_pages

    names: list[str] = []
    async for page in read_pages(transport, target, AS_OBJECTS):
        names += [each["metadata"]["name"] for each in msgspec.json.decode(page)["items"] or ()]
    return names


@dataclass(frozen=True, slots=True)
class Deletion:
    """What became of an object, and why."""

    target: Target
    outcome: Outcome
    reason: str = ""

    def is_good(self, *, is_missing_fine: bool) -> bool:
        return self.outcome in (Outcome.DELETED, Outcome.MARKED) or (
            self.outcome == Outcome.MISSING and is_missing_fine
        )


async def _delete(transport: Transport, target: Target) -> Deletion:
    from dralloc.client.status_errors import send_request
    from dralloc.primitives.errors import ApiError, NotFound

    try:
        answer = await send_request(transport, "DELETE", target.path, {"propagationPolicy": "Background"})
    except NotFound as error:
        return Deletion(target, Outcome.MISSING, str(error))
    except ApiError as error:
        return Deletion(target, Outcome.REFUSED, str(error))
    held = _holders(answer.body)
    return Deletion(target, Outcome.MARKED if held else Outcome.DELETED, held)


def _tell(fate: Deletion, output: OutputFormat, *, is_missing_fine: bool) -> None:
    """For people all of it, as it happens; otherwise only what is wrong."""
    called = fate.target.called(fate.target.name)
    match fate.outcome:
        case Outcome.MISSING if not is_missing_fine:
            say(fate.reason, err=True)
        case Outcome.REFUSED:
            say(f"{called} refused: {fate.reason}", err=True)
        case Outcome.DELETED | Outcome.MARKED if output.is_for_people:
            say(f"{called} {fate.outcome}{'; ' if fate.reason else ''}{fate.reason}")


def _values(fate: Deletion) -> dict[str, str]:
    resource = fate.target.resource
    known = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "namespace": fate.target.namespace,
        "name": fate.target.name,
        "outcome": fate.outcome.value,
        "reason": fate.reason,
    }
    return {name: value for name, value in known.items() if value}


def _holders(answer: bytes) -> str:
    """What keeps the object, if anything: an answer that shows finalizers shows an object that stays until they are gone."""
    import msgspec

    left = msgspec.json.decode(answer)
    finalizers = (left.get("metadata") or {}).get("finalizers")
    if not finalizers:
        return ""
    users = (left.get("status") or {}).get("reservedFor") or ()
    names = [f"{user['resource']}/{user['name']}" for user in users]
    more = len(names) - USERS_SHOWN_MAX
    shown = ", ".join((*names[:USERS_SHOWN_MAX], f"{more} more") if more > 0 else names)
    return f"in use by {shown}" if names else f"held by {', '.join(finalizers)}"
