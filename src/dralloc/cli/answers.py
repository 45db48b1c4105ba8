"""One answer in the form that was asked for: lines for people, the same as values for machines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dralloc.cli.options import OutputFormat
from dralloc.cli.output import say


def answer(output: OutputFormat, values: Callable[[], dict[str, Any]], lines: Callable[[], Iterable[str]]) -> None:
    """Prints the one that is wanted; the other is not worked out."""
    from dralloc.cli.object_documents import plain_json, plain_yaml

    match output:
        case OutputFormat.JSON:
            say(plain_json(values()))
        case OutputFormat.YAML:
            say(plain_yaml(values()), newline=False)
        case _:
            # At once: line by line, a large cluster takes longer to print than to work out.
            if text := "\n".join(lines()):
                say(text)


def answer_objects(output: OutputFormat, bodies: Sequence[bytes], refusals: Sequence[tuple[str, str]]) -> None:
    """Prints objects for machines, so that they can be read again. Where someone got none, a list says who, and why."""
    from dralloc.cli.object_documents import as_list, to_json, to_yaml

    told = [{"subject": subject, "message": message} for subject, message in refusals]
    if told or not bodies:
        bodies = [as_list(bodies, **({"refusals": told} if told else {}))]
    say(to_yaml(bodies), newline=False) if output is OutputFormat.YAML else say(to_json(bodies))
