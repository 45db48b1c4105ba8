"""`dralloc validate`: what is wrong with manifests, like a compiler."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dralloc.cli.convert import Version
from dralloc.cli.options import Gates, Output, OutputFormat
from dralloc.cli.output import BAD_INPUT, FINDINGS, parse_gates, say
from dralloc.primitives.phrases import counted

if TYPE_CHECKING:
    from dralloc.cli.manifest_records import Part, Source
    from dralloc.kube.diagnostics import Diagnostic, ManifestDiagnosis
    from dralloc.kube.meta_v1 import ApiObject


def validate(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE", help="Manifests, directories of them, or - for standard input.")
    ],
    output: Output = OutputFormat.TABLE,
    feature_gates: Gates = "",
    output_version: Annotated[
        Version | None, typer.Option(help="Also print the objects with defaults in this version.")
    ] = None,
) -> None:
    """Check manifests as Kubernetes 1.37 would, without a cluster. Exits with 1 if anything is wrong.

    Each error has a line and column, as from a compiler. Warnings are about fields that are valid but probably a mistake.

    # Files, directories, or the output of another program.
    dralloc validate claims.yaml examples/first-look/
    helm template chart/ | dralloc validate -

    # For a cluster with features that are off by default.
    dralloc validate examples/14-summed-bandwidth/ --feature-gates AllAlpha=true

    # The objects with defaults, in an older version. For a program: -o json.
    dralloc validate claims.yaml --output-version v1beta1
    dralloc validate claims.yaml -o json
    """
    from dralloc.cli.manifest_checks import CheckOptions, check_parts
    from dralloc.cli.manifest_records import cut, read_sources, shown_name
    from dralloc.cli.progress import progress

    report = _Report(output, output_version)
    options = CheckOptions(parse_gates(feature_gates), datetime.now(UTC), with_stored=output_version is not None)
    sources = list(read_sources(files))
    for source in sources:
        if source.error:
            report.tell_unusable(source.name, source.error)
    parts = list(cut(source for source in sources if not source.error))
    judged = zip(parts, check_parts(parts, options), strict=True)
    for part, judgement in progress(judged, total=len(parts), what="checking"):
        report.tell(part, judgement)
    report.tell_about_names([source for source in sources if not source.error])
    if report.is_empty and report.is_usable:
        for name in files:
            report.tell_unusable(shown_name(name), "no objects here: empty, or only comments")
    report.conclude()


class _Report:
    """What is told while files are read, and what is told at the end."""

    def __init__(self, output: OutputFormat, version: Version | None) -> None:
        self.output = output
        self.version = version
        self.files = self.objects = self.errors = self.warnings = 0
        self.is_usable = True
        self.entries: list[dict[str, Any]] = []
        self.stored: list[ApiObject] = []

    @property
    def is_for_machines(self) -> bool:
        return self.output in (OutputFormat.JSON, OutputFormat.YAML)

    @property
    def tells_on_stderr(self) -> bool:
        """Findings go to standard error if standard output has the objects."""
        return self.version is not None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to judge, and no fault is found. One empty file among others is no fault, as for kubectl."""
        return not self.objects and not self.errors

    def tell_unusable(self, name: str, reason: str) -> None:
        self.is_usable = False
        self.entries.append({"file": name, "severity": "error", "message": reason})
        if not self.is_for_machines:
            say(f"{name}: error: {reason}", err=True)

    def tell(self, part: Part, judgement: ManifestDiagnosis) -> None:
        self.files += not part.lines_before
        self.objects += judgement.object_count
        self.stored.extend(judgement.stored)
        for diagnostic in judgement.diagnostics:
            self._tell(part.file, diagnostic)

    def tell_about_names(self, sources: list[Source]) -> None:
        """What selectors ask for and no device in these files has: that takes all files at once."""
        from dralloc.kube.diagnostics import warn_about_unknown_names
        from dralloc.kube.manifests import read_manifest

        for needed in (b"ResourceSlice", b"expression"):
            # Reading is dear, and mostly there is nothing to compare.
            if not any(needed in source.content for source in sources):
                return
        manifests = [read_manifest(source.content) for source in sources]
        for index, diagnostic in warn_about_unknown_names(manifests):
            self._tell(sources[index].name, diagnostic)

    def _tell(self, name: str, diagnostic: Diagnostic) -> None:
        is_error = diagnostic.severity.value == "error"
        self.errors += is_error
        self.warnings += not is_error
        position, severity = diagnostic.position, diagnostic.severity.value
        if not self.is_for_machines:
            from dralloc.cli.manifest_checks import sentence

            say(sentence(name, diagnostic), err=self.tells_on_stderr)
            return
        self.entries.append(
            {
                "file": name,
                "line": position.line,
                "column": position.column,
                "severity": severity,
                "path": diagnostic.path,
                "message": diagnostic.message,
                "kind": diagnostic.kind,
                "name": diagnostic.name,
            }
        )

    def conclude(self) -> None:
        from dralloc.cli.object_documents import as_manifest, to_yaml

        stored = [as_manifest(obj, self.version.value) for obj in self.stored] if self.version else []
        if self.is_for_machines:
            self._print_values(stored)
        else:
            say(to_yaml(stored), newline=False)
            if self.files and not self.is_empty:
                counts = f"{counted(self.objects, 'object')} in {counted(self.files, 'file')}"
                say(f"{counts}: {counted(self.errors, 'error')}, {counted(self.warnings, 'warning')}", err=True)
        if not self.is_usable:
            raise typer.Exit(BAD_INPUT)
        if self.errors:
            raise typer.Exit(FINDINGS)

    def _print_values(self, stored: list[bytes]) -> None:
        from msgspec import Raw

        from dralloc.cli.answers import answer
        from dralloc.kube.json_reader import read_json

        counts = {"files": self.files, "objects": self.objects, "errors": self.errors, "warnings": self.warnings}
        report: dict[str, Any] = {**counts, "diagnostics": self.entries}
        if self.version:
            is_json = self.output is OutputFormat.JSON
            report["stored"] = [Raw(body) if is_json else read_json(body.decode()) for body in stored]
        answer(self.output, lambda: report, lambda: ())
