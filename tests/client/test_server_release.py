"""Whether all members of a server's objects are known: up to the release that this version models."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec
import pytest

from dralloc.client.api_calls import MINOR_MAX, ServerRelease
from dralloc.client.transport import ClientRequest, ClientResponse, TransportError
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.protobuf_schema import messages
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.server.describe.description_endpoints import KUBERNETES


class Answers:
    """A server that gives these answers, one after the other; None is a lost connection."""

    def __init__(self, *answers: tuple[int, bytes] | None) -> None:
        self._answers = iter(answers)
        self.paths: list[str] = []

    async def send(self, request: ClientRequest) -> ClientResponse:
        self.paths.append(request.path)
        answer = next(self._answers)
        if answer is None:
            raise TransportError("no answer")
        return ClientResponse(status=answer[0], body=answer[1])


def ask(*answers: tuple[int, bytes] | None, times: int = 1) -> list[bool]:
    async def main() -> list[bool]:
        release = ServerRelease(Answers(*answers))  # type: ignore[arg-type]
        return [await release.is_known() for _ in range(times)]

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("body", "known"),
    [
        (b'{"major":"1","minor":"37","gitVersion":"v1.37.0"}', True),
        (b'{"major":"1","minor":"36+"}', True),
        (b'{"major":"1","minor":"38"}', False),
        (b'{"major":"2","minor":"1"}', False),
        (b'{"major":"1","minor":""}', False),
        (b'{"major":"1","minor":"37-rc"}', False),
        (b'{"major":"1","minor":"' + b"1" * 5000 + b'"}', False),
        (b'{"major":1,"minor":37}', False),
        (b"<html>", False),
    ],
)
def test_a_release_is_known_up_to_the_newest_that_is_modelled(body: bytes, known: bool) -> None:
    assert ask((200, body)) == [known]


def test_the_answer_is_kept_and_a_missing_one_is_asked_for_again() -> None:
    known = (200, b'{"major":"1","minor":"37"}')
    assert ask(known, times=2) == [True, True]
    assert ask((403, b""), times=2) == [False, False]
    assert ask(None, (503, b""), (429, b""), known, times=5) == [False, False, False, True, True]


def test_the_newest_known_release_is_the_one_that_our_server_is_of() -> None:
    assert KUBERNETES.split(".")[:2] == ["1", str(MINOR_MAX)]


def unknown_members(wire_type: msgspec.inspect.Type, message: str, path: str) -> Iterator[str]:
    """Members of Kubernetes' message that the type does not have, in all of its parts."""
    if isinstance(wire_type, msgspec.inspect.UnionType):
        for each in wire_type.types:
            if not isinstance(each, msgspec.inspect.NoneType):
                yield from unknown_members(each, message, path)
    elif isinstance(wire_type, msgspec.inspect.VarTupleType | msgspec.inspect.ListType):
        yield from unknown_members(wire_type.item_type, message, path)
    elif isinstance(wire_type, msgspec.inspect.StructType):
        fields = {field.encode_name: field.type for field in wire_type.fields}
        for member in messages()[message].values():
            if member.is_inlined:
                yield from unknown_members(wire_type, member.type, path)
            elif member.name not in fields:
                yield f"{path}.{member.name}"
            elif member.type in messages() and not member.is_map:
                yield from unknown_members(fields[member.name], member.type, f"{path}.{member.name}")


def test_every_member_that_a_claim_has_in_this_release_is_known() -> None:
    """A claim is sent as a whole to servers of known releases: a member that the type lacks would be lost."""
    claim_type = msgspec.inspect.type_info(ResourceClaim)
    assert list(unknown_members(claim_type, "resource.v1.ResourceClaim", "claim")) == []
    # The walk finds what a type lacks, also in its parts.
    only_metadata = msgspec.inspect.type_info(ApiObject)
    assert list(unknown_members(only_metadata, "resource.v1.ResourceClaim", "claim")) == ["claim.spec", "claim.status"]
    of_template = [*unknown_members(claim_type, "resource.v1.ResourceClaimTemplate", "claim")]
    assert of_template == ["claim.spec.metadata", "claim.spec.spec"]
