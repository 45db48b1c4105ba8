"""The options in a request's query, parsed and validated as Kubernetes does.

Each verb has its own set. Errors name the options object that Kubernetes decodes, such as `CreateOptions.meta.k8s.io`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final

from msgspec import Struct

from dralloc.primitives.errors import BadRequest
from dralloc.primitives.field_errors import FieldError, FieldPath, forbidden, invalid, not_supported, required, too_long
from dralloc.server.http.statuses import invalid_options

IGNORE: Final = "Ignore"
WARN: Final = "Warn"
STRICT: Final = "Strict"

EXACT: Final = "Exact"
NOT_OLDER_THAN: Final = "NotOlderThan"

FIELD_MANAGER_LENGTH_MAX: Final = 128

_Query = Mapping[str, str]


class WriteOptions(Struct, frozen=True, gc=False):
    """The options of a create, update or patch."""

    dry_run: bool = False
    field_validation: str = WARN
    field_manager: str = ""
    force: bool = False


class ListOptions(Struct, frozen=True, gc=False):
    label_selector: str = ""
    field_selector: str = ""
    limit: int = 0
    continue_token: str = ""
    resource_version: str = ""
    resource_version_match: str = ""
    timeout_s: int | None = None
    allow_bookmarks: bool = False
    # None if it is not stated.
    send_initial_events: bool | None = None


def write_options(query: _Query, kind: str, *, apply: bool = False) -> WriteOptions:
    """The options of a write; `kind` is CreateOptions, UpdateOptions or PatchOptions."""
    return _write_options(tuple(query.items()), kind, apply)


# A client sends the same options with every write.
@lru_cache(maxsize=256)
def _write_options(stated: tuple[tuple[str, str], ...], kind: str, apply: bool) -> WriteOptions:
    query = dict(stated)
    _refuse(kind, list(_faults_of_write(query, kind, apply)))
    return WriteOptions(
        dry_run="dryRun" in query and query["dryRun"] != "",
        field_validation=query.get("fieldValidation") or WARN,
        field_manager=query.get("fieldManager", ""),
        force=_truth(query, "force"),
    )


def require_field_manager(options: WriteOptions) -> None:
    """Refuse an apply without a field manager."""
    if not options.field_manager:
        _refuse("PatchOptions", [required(FieldPath.of("fieldManager"), "is required for apply patch")])


def wants_watch(query: _Query) -> bool:
    return _truth(query, "watch")


def list_options(query: _Query) -> ListOptions:
    options = ListOptions(
        label_selector=query.get("labelSelector", ""),
        field_selector=query.get("fieldSelector", ""),
        limit=max(_number(query, "limit") or 0, 0),
        continue_token=query.get("continue", ""),
        resource_version=query.get("resourceVersion", ""),
        resource_version_match=query.get("resourceVersionMatch", ""),
        timeout_s=_number(query, "timeoutSeconds"),
        allow_bookmarks=_truth(query, "allowWatchBookmarks"),
        send_initial_events=_truth(query, "sendInitialEvents") if "sendInitialEvents" in query else None,
    )
    _refuse("ListOptions", list(_faults_of_list(options, wants_watch(query))))
    return options


# Of 64 bits. Python refuses to read numbers of some thousand digits.
REVISION_DIGITS_MAX: Final = 20


def revision_of(resource_version: str) -> int:
    """The number in a resourceVersion; empty means 0."""
    if not resource_version:
        return 0
    is_number = (
        resource_version.isascii() and resource_version.isdigit() and len(resource_version) <= REVISION_DIGITS_MAX
    )
    if not is_number or int(resource_version) >= 2**64:
        raise BadRequest(
            f'invalid resource version: resourceVersion: Invalid value: "{resource_version}": not a decimal number'
        )
    return int(resource_version)


def _faults_of_write(query: _Query, kind: str, apply: bool) -> Iterator[FieldError]:
    if query.get("dryRun", "") not in ("", "All"):
        yield not_supported(FieldPath.of("dryRun"), [query["dryRun"]], ("All",))
    if query.get("fieldValidation", "") not in ("", IGNORE, WARN, STRICT):
        yield not_supported(FieldPath.of("fieldValidation"), query["fieldValidation"], (IGNORE, STRICT, WARN))
    manager = query.get("fieldManager", "")
    if len(manager.encode()) > FIELD_MANAGER_LENGTH_MAX:
        yield too_long(FieldPath.of("fieldManager"), FIELD_MANAGER_LENGTH_MAX)
    if not manager.isprintable():
        yield invalid(FieldPath.of("fieldManager"), manager, "should only contain printable characters")
    if kind == "PatchOptions" and not apply and "force" in query:
        yield forbidden(FieldPath.of("force"), "may not be specified for non-apply patch")


def _faults_of_list(options: ListOptions, watch: bool) -> Iterator[FieldError]:
    match_path = FieldPath.of("resourceVersionMatch")
    if options.send_initial_events is not None:
        if not watch:
            yield forbidden(FieldPath.of("sendInitialEvents"), "sendInitialEvents is forbidden for list")
        elif options.resource_version_match != NOT_OLDER_THAN:
            yield forbidden(match_path, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
        return
    if not options.resource_version_match:
        return
    if watch:
        yield forbidden(match_path, "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
    elif not options.resource_version:
        yield forbidden(match_path, "resourceVersionMatch is forbidden unless resourceVersion is provided")
    if options.continue_token:
        yield forbidden(match_path, "resourceVersionMatch is forbidden when continue is provided")
    if options.resource_version_match not in (EXACT, NOT_OLDER_THAN):
        yield not_supported(match_path, options.resource_version_match, (EXACT, NOT_OLDER_THAN))
    if options.resource_version_match == EXACT and options.resource_version == "0":
        yield forbidden(match_path, 'resourceVersionMatch "Exact" is forbidden for resourceVersion "0"')


def _refuse(kind: str, faults: list[FieldError]) -> None:
    if faults:
        raise invalid_options(kind, faults)


def _truth(query: _Query, name: str) -> bool:
    """True for every value but `false` and `0`, as Kubernetes decodes queries."""
    return name in query and query[name].lower() not in ("false", "0")


def _number(query: _Query, name: str) -> int | None:
    text = query.get(name, "")
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise BadRequest(f'cannot read {name}: "{text}" is not a number') from None
