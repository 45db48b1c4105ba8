"""One object that cannot be decoded hides no other, ends no watch, and is reported.

No server of this version stores such an object, so the tests write it into the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralloc.answers.cluster_objects import relevant_kinds
from dralloc.client.api_calls import ApiCalls
from dralloc.client.async_client import AsyncClient
from dralloc.client.informer import Informer
from dralloc.client.known_resources import resource_read_as
from dralloc.client.reflector import Reflector
from dralloc.client.typed_resource import ObjectKey
from dralloc.client.unreadable_objects import UNREADABLE_OBJECTS, UnreadableObject
from dralloc.kube.codec import decode, encode
from dralloc.kube.kind import Kind
from dralloc.kube.protobuf_schema import SCALARS, MessageField, message_name, message_type, messages
from dralloc.kube.registry import KINDS, read_object
from dralloc.kube.volumes_v1 import PersistentVolumeClaim
from dralloc.primitives.features import FeatureGates
from dralloc.server.store.interface import Store
from dralloc.server.store.memory import MemoryStore
from dralloc.testing.virtual_time import run_virtual
from dralloc.web.explain_endpoint import ExplainEndpoint
from tests.support.api_server import api_in_process, api_server
from tests.support.local_api import LocalApi, pod_document

CLAIMS = resource_read_as(PersistentVolumeClaim)


async def store_as_it_is(store: Store, name: str, spec: object) -> None:
    key = f"/registry/persistentvolumeclaims/default/{name}"
    value = encode({"metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"}, "spec": spec})
    if (record := await store.get(key)) is None:
        await store.create(key, value)
    else:
        await store.update(key, value, expected_revision=record.revision)


def with_store(test: Callable[[Store, AsyncClient], Awaitable[None]]) -> Callable[[], None]:
    async def main() -> None:
        async with MemoryStore() as store, api_in_process(store=store) as client:
            await test(store, client)

    def wrapper() -> None:
        run_virtual(main())

    return wrapper


class Following:
    """An informer of volume claims, and the modes that it knows of each."""

    def __init__(self, calls: ApiCalls) -> None:
        self._informer: Informer[PersistentVolumeClaim] = Informer()
        self._calls = calls
        self._task: asyncio.Task[None] | None = None

    async def known(self) -> dict[str, str]:
        if self._task is None:
            self._task = asyncio.ensure_future(Reflector(self._calls, CLAIMS, self._informer).run())
        await asyncio.sleep(1)
        return {item.metadata.name: item.spec.volume_name for item in self._informer.all()}

    def end(self) -> None:
        assert self._task is not None
        assert not self._task.done(), "the watch goes on"
        self._task.cancel()


@with_store
async def _an_informer_goes_on(store: Store, client: AsyncClient) -> None:
    counted = UNREADABLE_OBJECTS.value("persistentvolumeclaims")
    await store_as_it_is(store, "bad", "1654")
    await store_as_it_is(store, "good", {"volumeName": "1"})
    following = Following(client.calls)
    assert await following.known() == {"good": "1"}
    await store_as_it_is(store, "worse", {"resources": []})
    await store_as_it_is(store, "new", {"volumeName": "2"})
    assert await following.known() == {"good": "1", "new": "2"}
    await store_as_it_is(store, "good", {"volumeName": 7})
    assert await following.known() == {"good": "1", "new": "2"}, "the last readable state of what exists"
    await store_as_it_is(store, "bad", {"volumeName": "3"})
    assert await following.known() == {"good": "1", "new": "2", "bad": "3"}
    for name in ("good", "new"):
        await client.calls.delete(CLAIMS, ObjectKey("default", name))
    assert await following.known() == {"bad": "3"}
    following.end()
    assert UNREADABLE_OBJECTS.value("persistentvolumeclaims") - counted == 3


@with_store
async def _a_new_list_keeps_what_was_known(store: Store, client: AsyncClient) -> None:
    await store_as_it_is(store, "good", {"volumeName": "1"})
    following = Following(client.calls)
    assert await following.known() == {"good": "1"}
    await store_as_it_is(store, "good", 7)
    await store.compact(await store.current_revision())
    assert await following.known() == {"good": "1"}
    following.end()


@with_store
async def _a_get_names_the_object(store: Store, client: AsyncClient) -> None:
    await store_as_it_is(store, "bad", "1654")
    with pytest.raises(UnreadableObject, match=r'persistentvolumeclaims default/bad cannot be read: spec: .* "1654"'):
        await client.calls.get(CLAIMS, ObjectKey("default", "bad"))


def test_an_informer_goes_on_after_an_object_that_it_cannot_read() -> None:
    _an_informer_goes_on()


def test_a_list_keeps_what_was_known_of_an_object_that_cannot_be_read() -> None:
    _a_new_list_keeps_what_was_known()


def test_a_get_of_an_unreadable_object_names_it() -> None:
    _a_get_names_the_object()


@pytest.mark.slow
def test_an_explanation_names_what_it_leaves_out() -> None:
    async def main() -> None:
        extension = ExplainEndpoint(FeatureGates.defaults())
        async with MemoryStore() as store, api_server(store=store, extensions=(extension,)) as server:
            api = LocalApi(server)
            pod = pod_document("a")
            pod["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "good"}}]
            await api.create("/api/v1/namespaces/default/pods", pod)
            await store_as_it_is(store, "bad", "1654")
            answer = await api.get("/dralloc/v1/explain/pods/default/a")
            (note,) = [each for each in answer["notes"] if "left out" in each]
            assert (
                'persistentvolumeclaims default/bad cannot be read: spec: expected an object, got the text "1654"'
                in note
            )

    asyncio.run(main())


# --- What the server accepts, its readers can decode ---------------------------------------------------------------------

_EXTREMES = {
    "string": st.sampled_from(["", "a", "9" * 40]),
    "int": st.sampled_from([0, -1, 2**31, 2**63 - 1, -(2**63)]),
    "uint": st.sampled_from([0, 2**63 - 1]),
    "bool": st.booleans(),
    "double": st.sampled_from([0.5, 1e300]),
    "bytes": st.sampled_from(["", "YQ=="]),
    "time": st.sampled_from(["2026-01-31T12:00:00Z", "0001-01-01T00:00:00Z"]),
    "microtime": st.just("2026-01-31T12:00:00.000001Z"),
    "quantity": st.sampled_from(["0", "1Gi", "-3m", 7, "1e18"]),
    "int-or-string": st.sampled_from([0, 2**40, "", "50%"]),
    "json": st.sampled_from([None, 1, {"a": [1]}]),
    "strings": st.lists(st.just("a"), max_size=2),
}


def documents_of(message: str) -> st.SearchStrategy[dict[str, object]]:
    optional = {}
    for field in messages()[message].values():
        if field.is_inlined:
            continue
        optional[field.name] = values_of(field)
    return st.fixed_dictionaries({}, optional=optional)


def values_of(field: MessageField) -> st.SearchStrategy[object]:
    one = _EXTREMES[field.type] if field.type in SCALARS else st.deferred(lambda: documents_of(field.type))
    null_or_one = st.one_of(st.none(), one)
    if field.is_list:
        return st.lists(null_or_one, max_size=2)
    return st.dictionaries(st.sampled_from(["a", "b"]), null_or_one, max_size=2) if field.is_map else null_or_one


# The others are read as the server itself reads them.
READ = [(kind, reader) for reader, kind in relevant_kinds() if kind.view not in (None, reader)]


@pytest.mark.fuzz
@pytest.mark.parametrize(("kind", "reader"), READ, ids=lambda value: value.resource if isinstance(value, Kind) else "")
def test_what_has_the_types_of_kubernetes_can_be_read(kind: Kind, reader: type[msgspec.Struct]) -> None:
    name = message_name(kind.api_version(kind.hub_version), kind.kind)
    assert name is not None

    @given(documents_of(name))
    def check(document: dict[str, object]) -> None:
        body = msgspec.json.encode(document)
        read_object(kind, kind.hub_version, body)
        decode(body, reader)

    check()


def test_every_kind_has_its_types() -> None:
    for kind in KINDS:
        for served in kind.versions:
            assert message_type(kind.api_version(served.version), kind.kind)
