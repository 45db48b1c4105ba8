"""The part of etcd's v3 API that the store uses: addresses, calls, and the meaning of errors."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import msgspec

from dralloc.rpc.generated import etcd_pb2 as pb
from dralloc.server.store import errors

CHANNEL_OPTIONS = (
    # A page may be larger than gRPC's default limit of 4 MiB.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # Detects a dead server; etcd treats pings more frequent than every 5 s as an attack.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)

# No answer: the connection may have ended.
_BROKEN = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)

# A member without a leader must fail at once instead of serving a watch that never gets events.
METADATA = (("hasleader", "true"),)


class EtcdAddress(msgspec.Struct, frozen=True, kw_only=True):
    """The servers of one cluster, the timeout of a call, and the files for TLS."""

    endpoints: tuple[str, ...]
    timeout_s: float = 5.0
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None

    def __str__(self) -> str:
        return f"etcd at {', '.join(self.endpoints)}"


class OtherHistory(errors.StoreUnavailable):
    """The answer is of another cluster, or older than one before it: etcd was restored from a backup."""


class EtcdApi:
    """Calls to one cluster. Calls wait for a connection; each fails with a StoreError."""

    def __init__(self, address: EtcdAddress, channel: grpc.aio.Channel | None = None) -> None:
        """Simulations bring their own channel."""
        self.timeout_s = address.timeout_s
        # In any answer. Reads are linearizable, so it is at least the revision of every write that ended before the last read began.
        self.newest_revision = 0
        # The cluster that answers must be of; 0: any.
        self.cluster_id = 0
        # True after a call or a stream broke: the next connection may be to a restored etcd.
        self.is_doubtful = True
        # When etcd answered last, by the clock of the loop.
        self.heard_s = float("-inf")
        self._address = address
        self._channel = channel or _channel(address)
        self._range = self._method("KV/Range", pb.RangeRequest, pb.RangeResponse)
        self._txn = self._method("KV/Txn", pb.TxnRequest, pb.TxnResponse)
        self._compact = self._method("KV/Compact", pb.CompactionRequest, pb.CompactionResponse)
        self._watch = self._channel.stream_stream(
            "/etcdserverpb.Watch/Watch",
            request_serializer=pb.WatchRequest.SerializeToString,
            response_deserializer=pb.WatchResponse.FromString,
        )

    async def range(self, request: pb.RangeRequest) -> pb.RangeResponse:
        response: pb.RangeResponse = await self._call(self._range, request, revision=request.revision)
        return response

    async def range_of_any_history(self, request: pb.RangeRequest) -> pb.RangeResponse:
        """Asks the etcd that is there, restored or not."""
        response: pb.RangeResponse = await self._send(self._range, request)
        return response

    async def txn_of_any_history(self, request: pb.TxnRequest) -> pb.TxnResponse:
        response: pb.TxnResponse = await self._send(self._txn, request, wait_for_ready=False)
        return response

    def follow(self, header: pb.ResponseHeader, *, is_new: bool) -> None:
        """From now on, answers must be of this cluster, and not older than this answer, which may be the first of a new history."""
        newest = header.revision if is_new else max(header.revision, self.newest_revision)
        self.cluster_id, self.newest_revision, self.is_doubtful = header.cluster_id, newest, False

    async def txn(self, request: pb.TxnRequest) -> pb.TxnResponse:
        """Writes, if it can be sent at once: if it waited for a new connection, it might change a restored etcd."""
        response: pb.TxnResponse = await self._call(self._txn, request, wait_for_ready=False)
        return response

    async def compact(self, request: pb.CompactionRequest) -> pb.CompactionResponse:
        response: pb.CompactionResponse = await self._call(self._compact, request, revision=request.revision)
        return response

    async def watch(self, request: pb.WatchCreateRequest) -> AsyncGenerator[pb.WatchResponse, None]:
        """Yields the responses of one watch until it ends; closing the iterator cancels it."""
        call = self._watch(metadata=METADATA, wait_for_ready=True)
        try:
            await call.write(pb.WatchRequest(create_request=request))
            async for response in call:
                yield response
        except grpc.aio.AioRpcError as error:
            self.is_doubtful = True
            raise self._explain(error, request.start_revision) from error
        finally:
            call.cancel()

    async def close(self) -> None:
        await self._channel.close()

    def _method(self, path: str, request: Any, response: Any) -> Any:
        return self._channel.unary_unary(
            f"/etcdserverpb.{path}",
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
        )

    async def _call(self, method: Any, request: Any, *, revision: int = 0, wait_for_ready: bool = True) -> Any:
        cluster_id, newest_before = self.cluster_id, self.newest_revision
        response = await self._send(method, request, revision=revision, wait_for_ready=wait_for_ready)
        header = response.header
        if cluster_id and header.cluster_id != cluster_id:
            self.is_doubtful = True
            raise OtherHistory(f"{self._address} was restored: it is another cluster")
        if header.revision < newest_before:
            self.is_doubtful = True
            raise OtherHistory(f"{self._address} was restored: revision {header.revision} follows {newest_before}")
        if header.revision > self.newest_revision and cluster_id == self.cluster_id:
            self.newest_revision = header.revision
        return response

    async def _send(self, method: Any, request: Any, *, revision: int = 0, wait_for_ready: bool = True) -> Any:
        try:
            response = await method(request, timeout=self.timeout_s, metadata=METADATA, wait_for_ready=wait_for_ready)
        except grpc.aio.AioRpcError as error:
            self.is_doubtful |= error.code() in _BROKEN
            raise self._explain(error, revision) from error
        self.heard_s = asyncio.get_running_loop().time()
        return response

    def _explain(self, error: grpc.aio.AioRpcError, revision: int) -> errors.StoreError:
        code, details = error.code(), error.details() or ""
        match code:
            case grpc.StatusCode.OUT_OF_RANGE if "compacted" in details:
                return errors.Compacted(revision, compacted=0)
            case grpc.StatusCode.OUT_OF_RANGE if "future" in details:
                return errors.FutureRevision(revision, current=0)
            case grpc.StatusCode.RESOURCE_EXHAUSTED if "space" in details:
                return errors.StoreFull(f"{self._address}: {details}")
            case grpc.StatusCode.INVALID_ARGUMENT | grpc.StatusCode.RESOURCE_EXHAUSTED if "large" in details:
                return errors.ValueTooLarge(f"{self._address}: {details}")
            case _:
                return errors.StoreUnavailable(f"{self._address}: {details or code.name}")


def _channel(address: EtcdAddress) -> grpc.aio.Channel:
    target = _target(address.endpoints)
    if address.ca_file is None:
        return grpc.aio.insecure_channel(target, options=CHANNEL_OPTIONS)
    try:
        credentials = grpc.ssl_channel_credentials(
            root_certificates=address.ca_file.read_bytes(),
            private_key=address.key_file.read_bytes() if address.key_file else None,
            certificate_chain=address.certificate_file.read_bytes() if address.certificate_file else None,
        )
    except OSError as error:
        raise errors.StoreUnavailable(f"cannot read {error.filename}: {error.strerror}") from error
    # Several servers are addressed by IP, so the name to expect in their certificates must be set.
    name = address.endpoints[0].rpartition(":")[0].strip("[]")
    options = (*CHANNEL_OPTIONS, ("grpc.ssl_target_name_override", name))
    return grpc.aio.secure_channel(target, credentials, options=options)


def _target(endpoints: tuple[str, ...]) -> str:
    """Returns gRPC's notation for several servers to fail over between: IP addresses of one family only."""
    if len(endpoints) == 1:
        return endpoints[0]
    numbers: dict[socket.AddressFamily, list[str]] = {socket.AF_INET: [], socket.AF_INET6: []}
    for endpoint in endpoints:
        host, _, port = endpoint.rpartition(":")
        try:
            found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        except OSError as error:
            raise errors.StoreUnavailable(f"cannot resolve {endpoint}: {error.strerror}") from error
        for family in {family for family, *_ in found} & numbers.keys():
            numbers[family].append(next(_numeric(entry) for entry in found if entry[0] == family))
    if len(numbers[socket.AF_INET]) >= len(numbers[socket.AF_INET6]):
        return "ipv4:" + ",".join(numbers[socket.AF_INET])
    return "ipv6:" + ",".join(numbers[socket.AF_INET6])


def _numeric(entry: tuple[Any, ...]) -> str:
    host, port = entry[4][:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
