"""Endpoints of resources: maps methods and paths to verbs, and responds to each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

import msgspec
from msgspec import structs

from dralloc.kube.authentication_v1 import TokenRequest
from dralloc.kube.codec import encode
from dralloc.kube.registry import NAMESPACE, POD
from dralloc.primitives.errors import AlreadyExists, BadRequest, ErrorDetails
from dralloc.primitives.removals import SUBRESOURCES
from dralloc.server.access.node_restriction import CREATE, DELETE
from dralloc.server.access.users import node_of
from dralloc.server.describe.tables import partial_metadata
from dralloc.server.documents.json_documents import Document
from dralloc.server.documents.server_side_apply import manager_of_user_agent
from dralloc.server.http.access_requests import access_request, escape_value, verb_of_method
from dralloc.server.http.messages import HttpRequest, HttpResponse, warning_headers
from dralloc.server.http.negotiation import wants_metadata
from dralloc.server.http.query_options import (
    WriteOptions,
    list_options,
    require_field_manager,
    wants_watch,
    write_options,
)
from dralloc.server.http.statuses import (
    forbidden,
    method_not_allowed,
    no_such_resource,
    not_found,
    status_response,
    success_status,
)
from dralloc.server.http.url_paths import ResourcePath
from dralloc.server.pod_logs import PodLogs
from dralloc.server.read.access_control import AccessControl
from dralloc.server.read.api_resources import ApiResource, key_of
from dralloc.server.read.reader import Collection, Reader, select
from dralloc.server.read.record_lists import list_records
from dralloc.server.read.stored_form import from_stored, read_metadata
from dralloc.server.store.interface import Store
from dralloc.server.store.records import Record
from dralloc.server.write.deleter import Deleter
from dralloc.server.write.deletion_rules import read_delete_options
from dralloc.server.write.namespaces import finalized
from dralloc.server.write.node_restriction import NodeRestriction
from dralloc.server.write.object_admission import ObjectChange
from dralloc.server.write.patch_requests import APPLY_PATCH, patch_object, read_patch, replacement
from dralloc.server.write.pod_subresources import PodSubresources
from dralloc.server.write.request_bodies import (
    SentObject,
    WriteTarget,
    decode_document,
    member,
    read_document,
    read_sent,
    read_unstored,
)
from dralloc.server.write.service_account_tokens import ServiceAccountTokens
from dralloc.server.write.subresource_parts import PARTS
from dralloc.server.write.writer import Writer, Written

# Deletions of these return a Status instead of the deleted object, as in Kubernetes.
_ANSWERED_BY_STATUS: Final = frozenset(
    {
        ("resource.k8s.io", "v1", "devicetaintrules"),
        ("", "v1", "nodes"),
        ("", "v1", "events"),
        ("batch", "v1", "jobs"),
        ("coordination.k8s.io", "v1", "leases"),
    }
)

Handler = Callable[[HttpRequest, ApiResource, ResourcePath], Awaitable[HttpResponse]]

BINDING: Final = ("v1", "Binding")
EVICTION: Final = ("policy/v1", "Eviction")


class ResourceEndpoints:
    """Responds to requests for resources."""

    def __init__(
        self,
        *,
        store: Store,
        reader: Reader,
        writer: Writer,
        deleter: Deleter,
        pods: PodSubresources,
        logs: PodLogs,
        nodes: NodeRestriction,
        access: AccessControl,
        accounts: ServiceAccountTokens,
    ) -> None:
        self._store = store
        self._reader = reader
        self._writer = writer
        self._deleter = deleter
        self._pods = pods
        self._logs = logs
        self._nodes = nodes
        self._access = access
        self._accounts = accounts
        self._on_collection: Mapping[str, Handler] = {
            "GET": self._list_or_watch,
            "POST": self._create,
            "DELETE": self._delete_collection,
        }
        self._on_object: Mapping[str, Handler] = {
            "GET": self._get,
            "PUT": self._update,
            "PATCH": self._patch,
            "DELETE": self._delete,
        }
        part: Mapping[str, Handler] = {"GET": self._get_part, "PUT": self._update_part, "PATCH": self._patch_part}
        self._on_subresource: Mapping[str, Mapping[str, Handler]] = {
            "status": {"GET": self._get, "PUT": self._update, "PATCH": self._patch},
            "binding": {"POST": self._bind},
            "eviction": {"POST": self._evict},
            "finalize": {"PUT": self._finalize},
            "token": {"POST": self._issue_token},
            "log": {"GET": self._log},
            **dict.fromkeys(PARTS, part),
        }

    def handler_of(self, method: str, resource: ApiResource, path: ResourcePath) -> Handler:
        """The handler of the method on the path."""
        kind = resource.kind
        if kind is POD and path.subresource == "proxy":
            return self._refuse_proxy
        if kind is POD and f"{kind.plural}/{path.subresource}" in SUBRESOURCES:
            return self._refuse_stream
        if path.tail or (path.namespace and not kind.namespaced):
            raise no_such_resource()
        if path.verb:
            if path.verb != "watch" or path.subresource:
                raise no_such_resource()
            if method != "GET":
                raise method_not_allowed()
            return self._watch_by_path
        if path.subresource:
            if path.subresource not in kind.subresources:
                raise no_such_resource()
            handlers = self._on_subresource[path.subresource]
        else:
            handlers = self._on_object if path.name else self._on_collection
        if kind.namespaced and not path.namespace and path.name:
            raise no_such_resource()
        handler = handlers.get(method)
        if handler is None or (kind.namespaced and not path.namespace and method in ("POST", "DELETE")):
            raise method_not_allowed()
        return handler

    # --- reads ----------------------------------------------------------------------------------------------

    async def _get(self, request: HttpRequest, resource: ApiResource, path: ResourcePath) -> HttpResponse:
        return await self._reader.get(request, Collection(resource, path.namespace), path.name)

    async def _list_or_watch(self, request: HttpRequest, resource: ApiResource, path: ResourcePath) -> HttpResponse:
        collection = Collection(resource, path.namespace)
        if wants_watch(request.query):
            return await self._reader.watch(request, collection)
        return await self._reader.list(request, collection)

    async def _watch_by_path(self, request: HttpRequest, resource: ApiResource, path: ResourcePath) -> HttpResponse:
        """`/watch/…`, the old form of `?watch=1`; with a name, it watches one object."""
        query = {**request.query, "watch": "1"}
        if path.name:
            selected = f"metadata.name={escape_value(path.name)}"
            others = query.get("fieldSelector")
            query["fieldSelector"] = f"{selected},{others}" if others else selected
        return await self._reader.watch(structs.replace(request, query=query), Collection(resource, path.namespace))

    # --- writes ---------------------------------------------------------------------------------------------

    async def _create(self, request: HttpRequest, resource: ApiResource, path: ResourcePath) -> HttpResponse:
        options = write_options(request.query, "CreateOptions")
        sent = read_sent(request, resource, options.field_validation)
        return _written(request, resource, await self._writer.create(_target(request, resource, path, options), sent))

    async def _update(self, request: HttpRequest, resource: ApiResource, path: ResourcePath) -> HttpResponse:
        options = write_options(request.query, "UpdateOptions")
        sent = read_sent(request, resource, options.field_validation)
        metadata = sent.object.metadata
        if not metadata.name:
            raise BadRequest(
                f"the name of the object ({path.name} based on URL) was undeterminable: name must be provided"
            )
        target = _target(request, resource, path, options)
        creates = resource.kind.created_by_update and not metadata.uid
        if creates and await self._store.get(target.key) is None:
            with suppress(AlreadyExists):
                return _written(request, resource, await self._writer.create(target, sent))
        change = ObjectChange(make=replacement(request, resource, sent))
        return _written(request, resource, await self._writer.change(target, change))

    async def _patch(self, request: HttpRequest, resource: ApiResource, path: ResourcePath) -> HttpResponse:
        applies = request.media_type == APPLY_PATCH
        options = write_options(request.query, "PatchOptions", apply=applies)
        if applies:
            require_field_manager(options)
        target = _target(request, resource, path, options)
        return _written(request, resource, await patch_object(self._writer, target, request, options))

    # --- parts of objects -----------------------------------------------------------------------------------

    async def _get_part(self, _: HttpRequest, resource: ApiResource, path: ResourcePath) -> HttpResponse:
        record = await self._store.get(key_of(resource.kind, path.namespace, path.name))
        if record is None:
            raise not_found(resource.group, resource.plural, path.name)
        return HttpResponse(body=_shown_part(resource, path, record.value, record.revision))

    async def _update_part(self, request: HttpRequest, resource: ApiResource, path: ResourcePath) -> HttpResponse:
        options = write_options(request.query, "UpdateOptions")
        sent = read_document(request)
        return await self._write_part(request, resource, path, options, lambda _: sent)

    async def _patch_part(self, request: HttpRequest, resource: ApiResource, path: ResourcePath) -> HttpResponse:
        options = write_options(request.query, "PatchOptions")
        patch = read_patch(request, resource.kind)
        return await self._write_part(request, resource, path, options, patch)

    async def _write_part(
        self,
        request: HttpRequest,
        resource: ApiResource,
        path: ResourcePath,
        options: WriteOptions,
        patch: Callable[[Document], Document],
    ) -> HttpResponse:
        """Write what the patch makes of the part that is stored."""
        part = PARTS[path.subresource]
        target = structs.replace(_target(request, resource, path, options), subresource=part.admitted_as)

        def make(record: Record) -> SentObject:
            stored = resource.presentation.document(record.value, record.revision)
            merged = part.merge(stored, patch(part.show(stored)))
            return decode_document(merged, resource, options.field_validation)

        change = ObjectChange(make=make, repeatable=request.method == "PATCH")
        written = await self._writer.change(target, change)
        return HttpResponse(body=_shown_part(resource, path, written.stored, written.revision))

    # --- deletions ------------------------------------------------------------------------------------------

    async def _delete(self, request: HttpRequest, resource: ApiResource, path: ResourcePath) -> HttpResponse:
        options = read_delete_options(read_document(request), request.query)
        key = key_of(resource.kind, path.namespace, path.name)
        if node_of(request.user) is not None and (record := await self._store.get(key)) is not None:
            self._check_deletion_by_node(request, resource, path, record)
            # An object that takes the name after the check is not deleted.
            options = replace(options, uid=options.uid or read_metadata(record.value).uid)
        return _deleted(resource, path, await self._deleter.delete(resource.kind, key, options))

    async def _delete_collection(self, request: HttpRequest, resource: ApiResource, path: ResourcePath) -> HttpResponse:
        options = read_delete_options(read_document(request), request.query)
        listed = list_options({name: value for name, value in request.query.items() if name != "dryRun"})
        prefix, selection = select(Collection(resource, path.namespace), listed)
        listing = await list_records(self._store, prefix, selection, listed)
        records = listing.records
        if node_of(request.user) is not None:
            # Kubernetes deletes no pods here either: a node deletes them one by one.
            records = () if resource.kind is POD else records
            for record in records:
                self._check_deletion_by_node(request, resource, path, record)
        deleted = await self._deleter.delete_all(resource.kind, records, options)
        items = b",".join([resource.presentation.item(gone.stored, gone.revision) for gone in deleted])
        head = f'{{"kind":"{resource.kind.list_kind}","apiVersion":"{resource.api_version}"'
        metadata = f'"metadata":{{"resourceVersion":"{listing.revision}"}}'
        return HttpResponse(body=f'{head},{metadata},"items":['.encode() + items + b"]}", headers=resource.deprecation)

    def _check_deletion_by_node(
        self, request: HttpRequest, resource: ApiResource, path: ResourcePath, record: Record
    ) -> None:
        self._nodes.check_write(
            request.user,
            DELETE,
            resource.kind,
            namespace=path.namespace,
            name=path.name,
            old=from_stored(resource.kind, record.value),
        )

    # --- actions --------------------------------------------------------------------------------------------

    async def bind_by_body(self, request: HttpRequest, namespace: str) -> HttpResponse:
        """Handle a binding that names its pod in the body."""
        binding = read_document(request, *BINDING)
        name = member(binding, "metadata").get("name")
        if not isinstance(name, str) or not name:
            raise BadRequest("metadata.name of a binding must name its pod")
        return await self._bound(request, namespace, name)

    async def _bind(self, request: HttpRequest, _: ApiResource, path: ResourcePath) -> HttpResponse:
        return await self._bound(request, path.namespace, path.name)

    async def _bound(self, request: HttpRequest, namespace: str, name: str) -> HttpResponse:
        self._nodes.check_write(request.user, CREATE, POD, subresource="binding", namespace=namespace, name=name)
        options = write_options(request.query, "CreateOptions")
        binding = read_document(request, *BINDING)
        await self._pods.bind(namespace, name, binding, dry_run=options.dry_run)
        return status_response(success_status(201))

    async def _evict(self, request: HttpRequest, _: ApiResource, path: ResourcePath) -> HttpResponse:
        uid = await self._nodes.check_eviction(request.user, path.namespace, path.name)
        options, eviction = write_options(request.query, "CreateOptions"), read_document(request, *EVICTION)
        await self._pods.evict(path.namespace, path.name, eviction, uid=uid, dry_run=options.dry_run)
        return status_response(success_status(201))

    async def _refuse_proxy(self, _: HttpRequest, resource: ApiResource, path: ResourcePath) -> HttpResponse:
        """Requests are not passed on to pods."""
        if await self._store.get(key_of(POD, path.namespace, path.name)) is None:
            raise not_found(resource.group, resource.plural, path.name)
        raise no_such_resource()

    async def _refuse_stream(self, request: HttpRequest, resource: ApiResource, path: ResourcePath) -> HttpResponse:
        """There are no streams to pods; who may not open one, also by GET, is told that, as by Kubernetes."""
        decision = await self._access.decide(structs.replace(access_request(request, path), verb="create"))
        if not decision.allowed:
            raise forbidden(resource.group, resource.plural, path.name, decision.reason)
        raise no_such_resource(resource.group, resource.plural, path.subresource)

    async def _log(self, request: HttpRequest, _: ApiResource, path: ResourcePath) -> HttpResponse:
        return await self._logs.log(request, path)

    async def _issue_token(self, request: HttpRequest, _: ApiResource, path: ResourcePath) -> HttpResponse:
        asked = read_unstored(request, TokenRequest)
        await self._nodes.check_token_request(request.user, path.namespace, path.name, asked.spec)
        return HttpResponse(201, encode(await self._accounts.issue(path.namespace, path.name, asked)))

    async def _finalize(self, request: HttpRequest, resource: ApiResource, path: ResourcePath) -> HttpResponse:
        """Set the finalizers in a namespace's spec."""
        document = read_document(request)
        stated, finalizers = member(document, "metadata"), member(document, "spec").get("finalizers") or []
        if not isinstance(finalizers, list) or not all(isinstance(name, str) for name in finalizers):
            raise BadRequest("spec.finalizers must be a list of strings")
        key = key_of(NAMESPACE, "", path.name)
        options = write_options(request.query, "UpdateOptions")
        written = await self._writer.edit(
            NAMESPACE, key, lambda found: finalized(found, stated, finalizers), dry_run=options.dry_run
        )
        return _written(request, resource, written)


def _target(request: HttpRequest, resource: ApiResource, path: ResourcePath, options: WriteOptions) -> WriteTarget:
    return WriteTarget(
        resource=resource,
        user=request.user,
        namespace=path.namespace,
        name=path.name,
        subresource=path.subresource,
        verb=verb_of_method(request.method),
        manager=options.field_manager or manager_of_user_agent(request.header(b"user-agent")),
        manager_named=bool(options.field_manager),
        dry_run=options.dry_run,
    )


def _shown_part(resource: ApiResource, path: ResourcePath, stored: bytes, revision: int) -> bytes:
    """The part of a stored object that a subresource shows."""
    return encode(PARTS[path.subresource].show(resource.presentation.document(stored, revision)))


def _written(request: HttpRequest, resource: ApiResource, written: Written) -> HttpResponse:
    body, warnings = _shown(resource, written), written.warnings
    if wants_metadata(request.header(b"accept")):
        body = encode(partial_metadata(msgspec.json.decode(body)))
    if resource.deprecation_warning:
        warnings = (resource.deprecation_warning, *warnings)
    if resource.kind.kept_only:
        warnings = (resource.kind.kept_only, *warnings)
    return HttpResponse(201 if written.created else 200, body, headers=warning_headers(warnings) if warnings else ())


def _deleted(resource: ApiResource, path: ResourcePath, deleted: Written) -> HttpResponse:
    if deleted.removed and (resource.group, resource.version, resource.plural) in _ANSWERED_BY_STATUS:
        details = ErrorDetails(
            name=path.name, group=resource.group, kind=resource.plural, uid=read_metadata(deleted.stored).uid
        )
        response = status_response(success_status(details=details))
        response.headers = resource.deprecation
        return response
    return HttpResponse(body=_shown(resource, deleted), headers=resource.deprecation)


def _shown(resource: ApiResource, written: Written) -> bytes:
    if not written.revision:
        return resource.presentation.unstored(written.stored)
    return resource.presentation.object(written.stored, written.revision)
