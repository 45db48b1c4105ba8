"""gRPC between an API server and the simulated etcd: the store's own calls, with the messages and errors of the real ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import grpc

from dralloc.rpc.generated import etcd_pb2 as pb
from dralloc.testing.virtual_time import SimulatedProcess
from tests.simulator.grpc_errors import grpc_error, network_errors_as_grpc
from tests.simulator.network import Faults, Network, NoAnswer
from tests.simulator.simulated_etcd import EtcdWatch, OutOfRange, SimulatedEtcd


class EtcdHost:
    """The process in which etcd runs."""

    def __init__(self, etcd: SimulatedEtcd) -> None:
        self.etcd = etcd
        self.process = SimulatedProcess("etcd")


class EtcdChannel:
    """Stands in for a `grpc.aio.Channel`."""

    def __init__(self, network: Network, source: str, host: EtcdHost) -> None:
        self._network = network
        self._source = source
        self._host = host
        # The etcd that it is connected to, by cluster: a restored one is another process.
        self._connected_to = host.etcd.cluster_id

    @property
    def _faults(self) -> Faults:
        return self._network.faults_between(self._source, self._host.process.name)

    def unary_unary(self, path: str, request_serializer: Any, response_deserializer: Any) -> Any:
        method = path.rpartition("/")[2].lower()
        request_type: Any = {"range": pb.RangeRequest, "txn": pb.TxnRequest, "compact": pb.CompactionRequest}[method]

        async def call(request: Any, *, timeout: float, **_: Any) -> Any:
            sent = request_serializer(request)

            async def work() -> bytes:
                self._check_sent_to(connected_to)
                answer = getattr(self._host.etcd, method)(request_type.FromString(sent))
                return bytes(answer.SerializeToString())

            # gRPC sends a request once.
            faults = replace(self._faults, duplicate=0.0)
            try:
                with network_errors_as_grpc():
                    connected_to = self._connect()
                    async with asyncio.timeout(timeout):
                        answer = await self._network.call(self._source, self._host.process, work, faults)
            except OutOfRange as error:
                raise grpc_error(grpc.StatusCode.OUT_OF_RANGE, str(error)) from None
            return response_deserializer(answer)

        return call

    def stream_stream(self, path: str, request_serializer: Any, response_deserializer: Any) -> Any:
        return lambda **_: _WatchCall(self)

    async def close(self) -> None:
        """No-op: calls in flight end with the process."""

    async def open_watch(self, request: pb.WatchCreateRequest) -> EtcdWatch:
        async def work() -> EtcdWatch:
            self._check_sent_to(connected_to)
            return self._host.etcd.watch(request)

        with network_errors_as_grpc():
            connected_to = self._connect()
            return await self._network.call(self._source, self._host.process, work, Faults())

    def _connect(self) -> int:
        """The etcd that a call is sent to. The first call after a restore finds that its connection is broken; the next has a new one."""
        before, self._connected_to = self._connected_to, self._host.etcd.cluster_id
        self._check_sent_to(before)
        return before

    def _check_sent_to(self, cluster_id: int) -> None:
        """What was sent to an etcd that is gone does not arrive at the next one."""
        if cluster_id != self._host.etcd.cluster_id:
            raise NoAnswer("the connection broke")

    def close_watch(self, watch: EtcdWatch) -> None:
        self._host.etcd.cancel(watch)

    def ask_progress(self, watch: EtcdWatch) -> None:
        self._host.etcd.progress(watch)

    def copies(self) -> int:
        """How often a response of a watch arrives: a proxy that reconnects may deliver one again."""
        return 1 + self._network.chance(self._faults.duplicate)

    async def cross(self) -> None:
        with network_errors_as_grpc():
            await self._network.pass_piece(self._host.process.name, self._source, self._faults)


class _WatchCall:
    """A bidirectional stream with one watch."""

    def __init__(self, channel: EtcdChannel) -> None:
        self._channel = channel
        self._watch: EtcdWatch | None = None

    async def write(self, request: pb.WatchRequest) -> None:
        match request.WhichOneof("request_union"):
            case "create_request":
                self._watch = await self._channel.open_watch(request.create_request)
            case "progress_request":
                assert self._watch is not None, "the watch is created first"
                self._channel.ask_progress(self._watch)

    async def __aiter__(self) -> AsyncIterator[pb.WatchResponse]:
        assert self._watch is not None, "the watch is created first"
        while True:
            response = await self._watch.responses.get()
            if response is None:
                raise grpc_error(grpc.StatusCode.UNAVAILABLE, "the stream broke")
            await self._channel.cross()
            for _ in range(self._channel.copies()):
                yield pb.WatchResponse.FromString(response.SerializeToString())

    def cancel(self) -> None:
        if self._watch is not None:
            self._channel.close_watch(self._watch)
