"""The API server: builds its parts over one store, and turns each request into a response.

Every error becomes a `Status` response here.
"""

from __future__ import annotations

import logging
import pathlib
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from dralloc.kube import rbac_v1
from dralloc.kube.registry import NAMESPACE, PRIORITY_CLASS, served_kinds
from dralloc.primitives import removals
from dralloc.primitives.clock import Clock
from dralloc.primitives.errors import ApiError, RequestEntityTooLarge, ServiceUnavailable
from dralloc.primitives.features import FeatureGates
from dralloc.primitives.removals import removed_kind
from dralloc.server.access.authorizer import Authorizer
from dralloc.server.access.impersonation import Impersonation, ImpersonationRefused
from dralloc.server.background.default_accounts import DefaultAccounts
from dralloc.server.background.event_expiry import EventExpiry
from dralloc.server.background.garbage_collector import GarbageCollector
from dralloc.server.background.policy_bootstrap import bootstrap_policy
from dralloc.server.background.published_settings import publish_settings
from dralloc.server.background.role_aggregator import RoleAggregator
from dralloc.server.describe.description_endpoints import DescriptionEndpoints
from dralloc.server.http.access_requests import access_request, refusal
from dralloc.server.http.authentication import Authenticator, wanted_user
from dralloc.server.http.messages import TEXT, HttpRequest, HttpResponse
from dralloc.server.http.request_metrics import ServerMetrics
from dralloc.server.http.statuses import no_such_resource, status_of, status_response
from dralloc.server.http.url_paths import GroupPath, Path, PlainPath, ResourcePath, VersionPath, parse_path
from dralloc.server.plain_endpoints import PlainEndpoints
from dralloc.server.pod_logs import NodeCredentials, PodLogs
from dralloc.server.read.access_control import AccessControl
from dralloc.server.read.api_resources import REGISTRY, ResourceTable
from dralloc.server.read.background_task import Stoppable
from dralloc.server.read.reader import Reader
from dralloc.server.read.response_forms import convert
from dralloc.server.read.stored_policy import POLICY_KINDS, StoredPolicy
from dralloc.server.read.watch_streams import WatchTable
from dralloc.server.resource_endpoints import ResourceEndpoints
from dralloc.server.reviews import Reviews
from dralloc.server.store.errors import StoreError, StoreFull, StoreUnavailable, ValueTooLarge
from dralloc.server.store.interface import Store
from dralloc.server.write import write_batches
from dralloc.server.write.deleter import Deleter
from dralloc.server.write.escalation_check import EscalationCheck
from dralloc.server.write.guard_set import GuardSet
from dralloc.server.write.namespaces import Namespaces, initial_namespaces
from dralloc.server.write.node_restriction import NodeRestriction
from dralloc.server.write.object_admission import ObjectAdmission, random_uid
from dralloc.server.write.pod_priorities import system_classes
from dralloc.server.write.pod_subresources import DisruptionBudgets, PodSubresources
from dralloc.server.write.service_account_tokens import ServiceAccountTokens
from dralloc.server.write.writer import WriteCheck, Writer

_logger = logging.getLogger(__name__)


HandleRequest = Callable[[HttpRequest], Awaitable[HttpResponse]]


class ServerExtension(Protocol):
    """Answers requests below a path of its own, outside of Kubernetes' API."""

    @property
    def prefix(self) -> str:
        """The first part of the path, such as `/dralloc/`."""
        ...

    async def answer(self, request: HttpRequest, api: HandleRequest) -> HttpResponse:
        """The response; raises ApiError. `api` is the server: requests to it have the permissions of their user."""
        ...


class ApiServer:
    """One API over one store. `new_uid` makes the UIDs of new objects. Kubernetes has no device guard, so tests can disable it."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        gates: FeatureGates,
        new_uid: Callable[[], str] = random_uid,
        guards_devices: bool = True,
        authorizer: Authorizer | None = None,
        enforces_roles: bool = False,
        accounts: ServiceAccountTokens | None = None,
        authenticator: Authenticator | None = None,
        extensions: Sequence[ServerExtension] = (),
        authority: pathlib.Path | None = None,
        node_credentials: NodeCredentials | None = None,
    ) -> None:
        self._store = store
        self._policy = StoredPolicy(store) if enforces_roles else None
        self._access = AccessControl(store, authorizer, self._policy)
        self._impersonation = Impersonation(self._access.decide_again)
        self._extensions = {extension.prefix.strip("/"): extension for extension in extensions}
        kinds = served_kinds(gates)
        self._resources = ResourceTable(kinds)
        self._watches = WatchTable(store)
        self._description = DescriptionEndpoints(kinds)
        self._gates = gates
        self._accounts = accounts or ServiceAccountTokens(store, clock=clock)
        self._reviews = Reviews(self._access, (authenticator or Authenticator({}, verifier=self._accounts)).review)
        guards = GuardSet(store, kinds, gates, guards_devices=guards_devices)
        # An order of writes needs the guards.
        self._batch_paths = write_batches.PATHS if guards_devices else frozenset[str]()
        nodes = NodeRestriction(store, self._access)
        self._writer = Writer(
            store,
            ObjectAdmission(clock, gates, self._access, nodes, new_uid),
            Namespaces(store),
            guards.priorities,
            guards=guards.by_resource,
            checks=self._write_checks(),
            quotas=guards.quotas,
            removals=guards.removals,
        )
        policy = self._policy
        self._aggregator = RoleAggregator(policy, self._writer, self._resources) if policy is not None else None
        self._default_accounts = DefaultAccounts(store, self._writer)
        deleter = Deleter(self._writer, clock)
        self._collector = GarbageCollector(store, self._writer, deleter)
        self._expiry = EventExpiry(store, clock, deleter)
        self._authority = authority
        self._background: tuple[Stoppable, ...] = (
            *((self._aggregator,) if self._aggregator is not None else ()),
            *(self._default_accounts, self._collector, self._expiry),
            *(self._access, guards),
        )
        budgets = DisruptionBudgets(store, self._writer, clock)
        self._endpoints = ResourceEndpoints(
            store=store,
            reader=Reader(store, clock, self._watches),
            writer=self._writer,
            deleter=deleter,
            pods=PodSubresources(
                self._writer, deleter, budgets, clock, guards.uses.hold_binding if guards_devices else None
            ),
            logs=PodLogs(store, node_credentials),
            nodes=nodes,
            access=self._access,
            accounts=self._accounts,
        )
        self.metrics = ServerMetrics(watches=self._watches.__len__, gates=gates)
        self._plain = PlainEndpoints(store, self._description, self._accounts, self.metrics)
        self._ready = False

    def _write_checks(self) -> dict[str, WriteCheck]:
        """By kind."""
        if self._policy is None:
            return {}
        escalation = EscalationCheck(self._policy, self._access.decide_again)
        return dict.fromkeys((kind.kind for kind in POLICY_KINDS), escalation)

    async def start(self) -> None:
        """Create the initial objects and start background tasks."""
        await self._name_kept_objects()
        for kind, objects in ((NAMESPACE, initial_namespaces()), (PRIORITY_CLASS, system_classes())):
            for name, document in objects:
                await self._writer.create_initial(kind, name, document)
        if self._policy is not None and self._aggregator is not None:
            await bootstrap_policy(self._writer, self._gates)
            await self._aggregator.start()
            await self._default_accounts.start()
            await self._policy.ready()
            await publish_settings(self._writer, self._authority)
        self._collector.start()
        self._expiry.start()
        self._ready = True

    async def _name_kept_objects(self) -> None:
        """Logs which objects of an earlier version stay in the store although their kind is gone."""
        for name, removal in removals.KINDS.items():
            page = await self._store.list_prefix(f"{REGISTRY}{name}/", limit=1)
            if page.records:
                count = len(page.records) + page.remaining
                _logger.warning("%d objects are kept in the store and not served: %s", count, removal.told_of(name))

    async def stop(self) -> None:
        """End watches and background tasks. The store stays open."""
        self.end_streams()
        for task in self._background:
            await task.stop()

    def end_streams(self) -> None:
        """Report not ready, and end every watch."""
        self._ready = False
        self._watches.end_all()

    async def handle(self, request: HttpRequest) -> HttpResponse:
        """The response to a request; errors become `Status` responses."""
        started = time.perf_counter()
        path = parse_path(request.path)
        about = path if isinstance(path, ResourcePath) and self._is_served(path) else None
        self.metrics.in_flight += 1
        try:
            response = await self._answer(request, path)
        finally:
            self.metrics.in_flight -= 1
        await convert(response, request)
        verb = _verb(request, about)
        self.metrics.observe(
            verb,
            about,
            dry_run="dryRun" in request.query,
            code=response.status,
            seconds=None if verb == "WATCH" else time.perf_counter() - started,
        )
        return response

    def _is_served(self, path: ResourcePath) -> bool:
        """True if the path can exist: metrics have no series for paths that clients invent."""
        resource = self._resources.find(path.group, path.version, path.resource)
        return resource is not None and (not path.subresource or path.subresource in resource.kind.subresources)

    def refuse(self, request: HttpRequest, error: ApiError) -> HttpResponse:
        """The response to a request that is not handled: there are too many, its body is too large, another site sent it."""
        path, response = parse_path(request.path), status_response(status_of(error))
        about = path if isinstance(path, ResourcePath) and self._is_served(path) else None
        self.metrics.observe(
            _verb(request, about), about, dry_run="dryRun" in request.query, code=response.status, seconds=None
        )
        return response

    async def _answer(self, request: HttpRequest, path: Path) -> HttpResponse:
        try:
            if request.impersonation:
                await self._impersonate(request, path)
            if not self._is_extension(path):
                await self._authorize(request, path)
            if "//" in request.path and not isinstance(path, PlainPath):
                return self._nothing_there(path)
            match path:
                case ResourcePath():
                    return await self._on_resource(request, path)
                case PlainPath():
                    response = await self._on_plain(request, path.path)
                case GroupPath():
                    response = self._description.group(path.group)
                case VersionPath():
                    response = self._description.version(path.group, path.version)
            return response or self._nothing_there(path)
        except ApiError as error:
            return status_response(status_of(error))
        except StoreError as error:
            return status_response(status_of(self._store_failure(error)))
        except Exception as error:
            _logger.exception("%s %s", request.method, request.path)
            return status_response(status_of(ApiError(f"internal error: {type(error).__name__}")))

    def _store_failure(self, error: StoreError) -> ApiError:
        match error:
            case ValueTooLarge():
                return RequestEntityTooLarge(f"the object is too large for the store: {error}")
            case StoreFull() | StoreUnavailable():
                _logger.warning("the store refused a request: %s", error)
                return ServiceUnavailable(f"the store is unavailable: {error}")
            case _:
                _logger.error("the store failed", exc_info=error)
                return ApiError(f"the store failed: {error}")

    def _is_extension(self, path: Path) -> bool:
        """True for paths of extensions: they act as the caller, so that each of their requests is authorized."""
        if not isinstance(path, PlainPath):
            return False
        return path.path in self._batch_paths or path.path.strip("/").partition("/")[0] in self._extensions

    async def _impersonate(self, request: HttpRequest, path: Path) -> None:
        """Serve the request as the user that its headers name, or refuse it: they are never ignored."""
        wanted = wanted_user(request.impersonation)
        if wanted is None:
            return
        asked = access_request(request, path)
        await self._access.ready(asked)
        try:
            user = self._impersonation.impersonated(wanted, asked)
        except ImpersonationRefused as refused:
            raise refusal(refused.asked, refused.decision) from None
        request.user = user

    async def _authorize(self, request: HttpRequest, path: Path) -> None:
        """Refuse what the user may not do, before anything says whether the object exists."""
        asked = access_request(request, path)
        decision = await self._access.decide(asked)
        if not decision.allowed:
            raise refusal(asked, decision)

    async def _on_resource(self, request: HttpRequest, path: ResourcePath) -> HttpResponse:
        resource = self._resources.find(path.group, path.version, path.resource)
        if resource is None:
            if (path.group, path.resource) == ("", "bindings") and request.method == "POST" and path.namespace:
                return await self._endpoints.bind_by_body(request, path.namespace)
            return await self._reviews.answer(request, path) or self._nothing_there(path)
        try:
            response = await self._endpoints.handler_of(request.method, resource, path)(request, resource, path)
            if self._policy is not None and path.group == rbac_v1.GROUP and request.method != "GET":
                # The next request of any client is decided by what this one wrote.
                await self._policy.ready()
            return response
        except ApiError as error:
            response = status_response(status_of(error))
            response.headers += resource.deprecation
            return response

    async def _on_plain(self, request: HttpRequest, path: str) -> HttpResponse | None:
        if request.path in self._batch_paths:
            return await write_batches.answer(request, self.handle)
        if (extension := self._extensions.get(request.path.removeprefix("/").partition("/")[0])) is not None:
            return await extension.answer(request, self.handle)
        if "//" in request.path:
            return None
        return await self._plain.answer(request, path, is_ready=self._ready)

    def _nothing_there(self, path: Path) -> HttpResponse:
        """A `Status` within a served group and for what is gone, a plain 404 elsewhere."""
        if isinstance(path, ResourcePath) and removed_kind(path.group, path.resource):
            return status_response(status_of(no_such_resource(path.group, path.resource)))
        if isinstance(path, ResourcePath | VersionPath) and path.group in self._resources.groups:
            return status_response(status_of(no_such_resource()))
        return HttpResponse(status=404, body=b"404 page not found\n", content_type=TEXT)


def _verb(request: HttpRequest, path: ResourcePath | None) -> str:
    if path is None or path.name:
        is_apply = request.method == "PATCH" and b"apply-patch" in request.headers.get(b"content-type", b"")
        return "APPLY" if is_apply else request.method
    match request.method:
        case "GET":
            return "WATCH" if "watch" in request.query else "LIST"
        case "DELETE":
            return "DELETECOLLECTION"
        case method:
            return method
