"""Objects of a server on their way to the terminal: tables that the server makes, or objects, once or for as long as they change."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from dralloc.cli.options import GetFormat
from dralloc.cli.output import say
from dralloc.cli.server_objects import AS_OBJECTS, AS_TABLE, Document, Target, follow, read_pages, revision_of
from dralloc.cli.tables import TableLayout
from dralloc.client.status_errors import LIST_AGAIN
from dralloc.client.transport import Transport
from dralloc.kube.codec import encode
from dralloc.kube.json_reader import read_json
from dralloc.primitives.errors import NotFound

# Before a watch that the server has ended is begun anew.
PAUSE_S: Final = 1.0


class ObjectPrinter:
    """One `get`: what it shows, and how."""

    def __init__(self, transport: Transport, output: GetFormat, *, with_kinds: bool) -> None:
        self._transport = transport
        self._output = output.value
        self._with_kinds = with_kinds

    async def show(self, targets: list[Target], *, and_follow: bool) -> bool:
        """Shows everything there is; then, if that is wanted, every change. False if a named object is not there."""
        if self._output in ("table", "wide"):
            return await self._show_tables(targets, and_follow=and_follow)
        return await self._show_objects(targets, and_follow=and_follow)

    # --- Tables ---------------------------------------------------------------------------------------------------------

    async def _show_tables(self, targets: list[Target], *, and_follow: bool) -> bool:
        is_complete, shown = True, 0
        for group in _by_resource(targets):
            sheet = _Sheet(group[0], is_wide=self._output == "wide", with_kinds=self._with_kinds)
            for target in group:
                try:
                    async for page in read_pages(self._transport, target, AS_TABLE):
                        sheet.add(page)
                except NotFound as error:
                    is_complete = False
                    say(str(error), err=True)
            if sheet.rows:
                say("\n".join(("",) * bool(shown) + tuple(sheet.lines())))
                shown += 1
            if and_follow:
                await self._follow_table(group[0], sheet)
        if not shown and is_complete:
            say(_nothing(targets), err=True)
        return is_complete

    async def _follow_table(self, target: Target, sheet: _Sheet) -> None:
        """Never returns but by an error or Ctrl-C. What is too old to be gone on from is read anew."""
        while True:
            try:
                async for kind, table in follow(self._transport, target, sheet.revision, AS_TABLE):
                    for line in sheet.changed(table, is_news=kind != "BOOKMARK"):
                        say(line)
            except LIST_AGAIN:
                async for page in read_pages(self._transport, target, AS_TABLE):
                    for line in sheet.changed(page, is_news=True):
                        say(line)
            await asyncio.sleep(PAUSE_S)

    # --- Objects --------------------------------------------------------------------------------------------------------

    async def _show_objects(self, targets: list[Target], *, and_follow: bool) -> bool:
        is_complete = True
        bodies: list[bytes] = []
        revision = ""
        for target in targets:
            try:
                async for page in read_pages(self._transport, target, AS_OBJECTS):
                    revision = revision_of(page)
                    bodies += objects_in(target, page)
            except NotFound as error:
                is_complete = False
                say(str(error), err=True)
        is_list = len(bodies) != 1 or not targets[0].name
        if bodies or is_complete:
            self._print(targets, bodies, is_list=is_list)
        if and_follow:
            await self._follow_objects(targets[0], revision)
        return is_complete

    async def _follow_objects(self, target: Target, revision: str) -> None:
        while True:
            try:
                async for kind, body in follow(self._transport, target, revision, AS_OBJECTS):
                    revision = revision_of(body)
                    if kind != "BOOKMARK":
                        self._print([target], list(objects_in(target, body)), is_list=False)
            except LIST_AGAIN:
                async for page in read_pages(self._transport, target, AS_OBJECTS):
                    revision = revision_of(page)
                    self._print([target], list(objects_in(target, page)), is_list=False)
            await asyncio.sleep(PAUSE_S)

    def _print(self, targets: list[Target], bodies: list[bytes], *, is_list: bool) -> None:
        # Tables need none of it.
        from dralloc.cli.object_documents import as_list, to_json, to_yaml

        match self._output:
            case "json":
                say(to_json(bodies, is_list=is_list))
            case "yaml":
                say(to_yaml(bodies or [as_list(())]), newline=False)
            case _:
                by_kind = {target.resource.kind: target for target in targets}
                for body in bodies:
                    document = msgspec.json.decode(body)
                    say(by_kind[document["kind"]].called(document["metadata"]["name"]))


class _Sheet:
    """The rows of one kind, as the server sent them."""

    def __init__(self, target: Target, *, is_wide: bool, with_kinds: bool) -> None:
        self._target = target
        self._is_wide = is_wide
        self._with_kinds = with_kinds
        self._with_namespaces = target.resource.namespaced and not target.namespace
        self._columns: list[int] = []
        self._header: tuple[str, ...] = ()
        self._layout: TableLayout | None = None
        self.rows: list[tuple[str, ...]] = []
        self.revision = ""

    def add(self, table: bytes) -> None:
        """More rows, and the revision that changes are followed from."""
        document = msgspec.json.decode(table)
        self.revision = revision_of(table) or self.revision
        if document.get("kind") != "Table":
            # A server that makes no tables for this kind sends objects.
            document = _bare_table(document)
        if definitions := document.get("columnDefinitions"):
            shown = [index for index, column in enumerate(definitions) if self._is_wide or not column.get("priority")]
            self._columns = shown
            place = ("NAMESPACE",) if self._with_namespaces else ()
            self._header = (*place, *(definitions[index]["name"].upper() for index in shown))
        self.rows += self._rows(document.get("rows") or ())

    def lines(self) -> Iterator[str]:
        if self.rows:
            self._layout = TableLayout.of((self._header, *self.rows))
            yield from map(self._layout.line, (self._header, *self.rows))

    def changed(self, table: bytes, *, is_news: bool) -> Iterator[str]:
        """The lines of rows that came later. Columns stay as wide as they are."""
        self.rows.clear()
        self.add(table)
        document = msgspec.json.decode(table)
        for row in document.get("rows") or ():
            metadata = (row.get("object") or {}).get("metadata") or {}
            self.revision = metadata.get("resourceVersion") or self.revision
        if not is_news:
            return
        if self._layout is None:
            yield from self.lines()
        else:
            yield from map(self._layout.line, self.rows)

    def _rows(self, rows: Iterable[Document]) -> Iterator[tuple[str, ...]]:
        for row in rows:
            cells = [_text(row["cells"][index]) for index in self._columns]
            metadata = (row.get("object") or {}).get("metadata") or {}
            if self._with_kinds and cells:
                cells[0] = self._target.called(cells[0])
            place = (metadata.get("namespace", ""),) if self._with_namespaces else ()
            yield (*place, *cells)


def _bare_table(document: Document) -> Document:
    objects = document.get("items", [document])
    return {
        "columnDefinitions": [{"name": "Name"}, {"name": "Created At"}],
        "rows": [
            {"cells": [each["metadata"]["name"], each["metadata"].get("creationTimestamp", "")], "object": each}
            for each in objects
        ],
    }


def _text(cell: Any) -> str:
    return "<none>" if cell is None else str(cell)


def _by_resource(targets: list[Target]) -> Iterator[list[Target]]:
    groups: dict[tuple[str, str], list[Target]] = {}
    for target in targets:
        groups.setdefault((target.resource.group, target.resource.plural), []).append(target)
    yield from groups.values()


def objects_in(target: Target, page: bytes) -> Iterator[bytes]:
    """The objects of a list, or the one that it is, each with what it is, and without who owns which field."""
    tree = read_json(page.decode())
    for each in tree["items"] or () if "items" in tree else (tree,):
        each["apiVersion"], each["kind"] = target.resource.api_version, target.resource.kind
        each["metadata"].pop("managedFields", None)
        yield encode(each)


def _nothing(targets: list[Target]) -> str:
    namespaces = {target.namespace for target in targets if target.resource.namespaced}
    where = f" in namespace {namespaces.pop()}" if len(namespaces) == 1 and namespaces != {""} else ""
    return f"nothing found{where}"
