"""`dralloc cel`: try a selector on the devices of some slices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from dralloc.cli.answers import answer
from dralloc.cli.name_completion import devices_starting_with
from dralloc.cli.options import Context, Gates, Output, OutputFormat
from dralloc.cli.output import FINDINGS, fail, parse_gates, say

if TYPE_CHECKING:
    from dralloc.cel.device import DeviceView
    from dralloc.cel.program import Selector
    from dralloc.cel.selector_explanation import ExplainedPart
    from dralloc.kube.inventory import Inventory
    from dralloc.kube.resource_v1 import ResourceSlice

VALUES_SHOWN_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class Candidate:
    """A device, and what the selector says of it; `matches` is None where it fails."""

    driver: str
    pool: str
    device: str
    view: DeviceView
    matches: bool | None
    error: str

    @property
    def name(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


def cel(
    expression: Annotated[
        str, typer.Argument(metavar="EXPRESSION", help="A selector, such as 'device.driver == \"gpu.example.com\"'.")
    ],
    files: Annotated[
        list[str] | None,
        typer.Option(
            "--filename", "-f", help="Manifests with ResourceSlices, directories of them, or - for standard input."
        ),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show the value of each part of the expression for one device.")
    ] = False,
    device: Annotated[
        str | None,
        typer.Option(
            help="Only devices with this name, or with this driver/pool/device.", autocompletion=devices_starting_with
        ),
    ] = None,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(help="The kubeconfig of a cluster with devices; default: the devices of the files, if any."),
    ] = None,
    context: Context = None,
    output: Output = OutputFormat.TABLE,
    feature_gates: Gates = "",
) -> None:
    """Evaluate a selector on devices. Exits with 1 if it fails on one of them or would be rejected in a new object; with 2 if it does not compile.

    # Does it compile, and what is its maximum cost?
    dralloc cel 'device.attributes["gpu.example.com"].model == "a100"'

    # Which devices of a cluster, or of files, match? Names that no device has are
    # reported.
    dralloc cel 'device.driver == "gpu.example.com"' --context production
    dralloc cel 'device.allowMultipleAllocations' -f slices.yaml

    # Why does this device not match? Shows the value of every part.
    dralloc cel device.allowMultipleAllocations -f s.yaml --explain --device gpu-0
    """
    from dralloc.cel.compiler import RefusedExpression, check_selector, environment_for
    from dralloc.cel.errors import CelCompileError
    from dralloc.cel.program import compile_selector
    from dralloc.kube.inventory import take_inventory

    try:
        selector = compile_selector(expression)
    except CelCompileError as error:
        fail(f"invalid expression\n{error}")
    checked = check_selector(expression, environment_for(parse_gates(feature_gates)))
    refusal = checked.message if isinstance(checked, RefusedExpression) else ""
    slices = list(_read_slices(files or []))
    is_about_cluster = kubeconfig is not None or context is not None
    if is_about_cluster:
        slices += _slices_of_cluster(kubeconfig, context)
    candidates = [candidate for candidate in _candidates(selector, slices) if _is_meant(candidate, device)]
    if (files or is_about_cluster) and not candidates:
        fail(f"no device {device}" if device else "no devices found")
    if explain:
        _explain(selector, candidates, output)
    else:
        _report(_Findings(selector, candidates, take_inventory(slices), refusal), output)
    if refusal or any(candidate.matches is None for candidate in candidates):
        raise typer.Exit(FINDINGS)


# --- Devices ---------------------------------------------------------------------------------------------------


def _read_slices(files: list[str]) -> Iterator[ResourceSlice]:
    from dralloc.cli.manifest_records import fail_unread, read_records
    from dralloc.kube.codec import DecodeError
    from dralloc.kube.conversion import to_hub
    from dralloc.kube.registry import find_in_other_versions, find_kind, read_object
    from dralloc.kube.resource_v1 import ResourceSlice

    for record in read_records(files):
        named = find_in_other_versions(record.api_version, record.kind)
        if named is None or named.hub is not ResourceSlice:
            continue
        kind = find_kind(record.api_version, record.kind)
        if kind is None:
            fail_unread(record)
        try:
            found = to_hub(read_object(kind, record.api_version.rpartition("/")[2], record.body))
        except DecodeError as error:
            fail(f"{record.file}: {error}; for the position run: dralloc validate {record.file}")
        assert isinstance(found, ResourceSlice)
        yield found


def _slices_of_cluster(kubeconfig: Path | None, context: str | None) -> list[ResourceSlice]:
    from dralloc.cli.cluster_source import ClusterSource
    from dralloc.kube.resource_v1 import ResourceSlice

    source = ClusterSource(kubeconfig=kubeconfig, context=context)
    return list(source.load(parse_gates(""), needed={ResourceSlice}).all(ResourceSlice).values())


def _candidates(selector: Selector, slices: list[ResourceSlice]) -> Iterator[Candidate]:
    from dralloc.cel.device import DeviceView
    from dralloc.cel.errors import CelError

    for resource_slice in slices:
        spec = resource_slice.spec
        for found in spec.devices or ():
            view = DeviceView.build(spec.driver, found.attributes, found.capacity, found.allow_multiple_allocations)
            try:
                matches, error = selector.matches(view), ""
            except CelError as failure:
                matches, error = None, str(failure)
            yield Candidate(spec.driver, spec.pool.name, found.name, view, matches, error)


def _is_meant(candidate: Candidate, wanted: str | None) -> bool:
    return wanted is None or wanted in (candidate.device, candidate.name)


# --- Findings --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Findings:
    selector: Selector
    candidates: list[Candidate]
    inventory: Inventory
    refusal: str

    @property
    def counts(self) -> dict[str, int]:
        answers = Counter(candidate.matches for candidate in self.candidates)
        return {
            "devices": len(self.candidates),
            "matching": answers[True],
            "other": answers[False],
            "failing": answers[None],
        }

    def names(self) -> Iterator[dict[str, Any]]:
        """What the expression asks for, on how many devices that exists, and with which values."""
        from dralloc.kube.inventory import ATTRIBUTE, CAPACITY, find_unknown_names

        reads = self.selector.checked.reads
        likely = {
            (unknown.sort, unknown.domain, unknown.name): unknown.likely
            for unknown in find_unknown_names(reads, self.inventory)
        }
        for sort, asked in ((ATTRIBUTE, reads.attributes), (CAPACITY, reads.capacity)):
            for domain, name in sorted(asked):
                meant = likely.get((sort, domain, name))
                yield {
                    "sort": sort,
                    "name": f"{domain}/{name}",
                    "devices": self.inventory.count(sort, (domain, name)),
                    "values": self._values(sort, domain, name),
                    "likely": "/".join(meant) if meant else None,
                }

    def _values(self, sort: str, domain: str, name: str) -> dict[str, int]:
        """The most frequent values, and how many devices have them."""
        from dralloc.cel.errors import CelError
        from dralloc.cel.selector_explanation import shown_value
        from dralloc.kube.inventory import ATTRIBUTE

        counted: Counter[str] = Counter()
        for candidate in self.candidates:
            try:
                domains = candidate.view.attributes if sort == ATTRIBUTE else candidate.view.capacity
            except CelError:
                continue
            if name in domains[domain]:
                counted[shown_value(domains[domain][name])] += 1
        return dict(counted.most_common())


def _report(findings: _Findings, output: OutputFormat) -> None:
    if output in (OutputFormat.JSON, OutputFormat.YAML):
        answer(
            output,
            lambda: {
                "expression": findings.selector.text,
                "cost": {"estimated": findings.selector.checked.cost_max},
                "refusedAsNew": findings.refusal or None,
                "counts": findings.counts,
                "names": list(findings.names()),
                "devices": [
                    {
                        "driver": candidate.driver,
                        "pool": candidate.pool,
                        "device": candidate.device,
                        "matches": candidate.matches,
                        "error": candidate.error or None,
                    }
                    for candidate in findings.candidates
                ],
            },
            lambda: (),
        )
        return
    if findings.candidates:
        _print_table(findings.candidates)
        counts = findings.counts
        say(f"\n{counts['matching']} of {_devices(counts['devices'])} match, {counts['failing']} fail")
        for entry in findings.names():
            say(_sentence(entry, findings.inventory.device_count))
    else:
        say(f"The expression is valid. Its maximum cost is {findings.selector.checked.cost_max:,}.")
    if findings.refusal:
        say(f"warning: a new object with this expression would be rejected: {findings.refusal}", err=True)


def _print_table(candidates: list[Candidate]) -> None:
    from dralloc.cli.tables import table

    rows = [(one.driver, one.pool, one.device, _shown_answer(one)) for one in candidates]
    for line in table(("DRIVER", "POOL", "DEVICE", "MATCHES"), rows):
        say(line)


def _shown_answer(candidate: Candidate) -> str:
    return f"error: {candidate.error}" if candidate.matches is None else str(candidate.matches).lower()


def _sentence(entry: dict[str, Any], device_count: int) -> str:
    text = f"{entry['sort']} {entry['name']} exists on {entry['devices']} of {_devices(device_count)}"
    if entry["likely"]:
        return f"{text}; is {entry['likely']} meant?"
    values = [f"{value} ({count})" for value, count in list(entry["values"].items())[:VALUES_SHOWN_MAX]]
    more = len(entry["values"]) - len(values)
    return f"{text}: {', '.join([*values, f'{more} other values'] if more else values)}" if values else text


def _devices(number: int) -> str:
    return f"{number} device" if number == 1 else f"{number} devices"


# --- Explanations ----------------------------------------------------------------------------------------------


def _explain(selector: Selector, candidates: list[Candidate], output: OutputFormat) -> None:
    from dralloc.cel.errors import CelError

    if not candidates:
        fail("--explain needs a device: give files with -f, or a cluster with --kubeconfig or --context")
    # Without a name, the device about which there is most to tell.
    candidate = min(candidates, key=lambda one: {None: 0, False: 1, True: 2}[one.matches])
    try:
        parts = selector.explain(candidate.view).parts
    except CelError as error:
        fail(f"{candidate.name}: {error}", FINDINGS)
    plain = {"device": candidate.name, "matches": candidate.matches, "parts": [_as_data(part) for part in parts]}
    head = f"{candidate.name}: {_shown_answer(candidate)}"
    answer(output, lambda: plain, lambda: (head, "", *_lines_of_parts(parts)))


def _as_data(part: ExplainedPart) -> dict[str, Any]:
    return {
        "text": part.text,
        "depth": part.depth,
        "values": list(part.values),
        "times": part.times,
        "error": part.error,
    }


def _lines_of_parts(parts: tuple[ExplainedPart, ...]) -> Iterator[str]:
    shown = [_shown_part(part) for part in parts]
    width = min(max(map(len, shown)), 40)
    for part, text in zip(parts, shown, strict=True):
        yield f"{text.ljust(width)}   {'  ' * part.depth}{part.text}"
        if part.is_origin:
            yield f"{' ' * width}   {'  ' * part.depth}^ {part.error}"


def _shown_part(part: ExplainedPart) -> str:
    if part.error is not None:
        return "error"
    if not part.times:
        return "not needed"
    more = part.times - len(part.values)
    return ", ".join((*part.values, f"… {more} more") if more else part.values)
