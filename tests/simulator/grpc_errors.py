"""The errors that a gRPC client gets if a simulated call fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import grpc
import grpc.aio

from tests.simulator.network import NoAnswer


def grpc_error(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=details)


@contextmanager
def network_errors_as_grpc() -> Iterator[None]:
    try:
        yield
    except NoAnswer as error:
        raise grpc_error(grpc.StatusCode.UNAVAILABLE, str(error)) from None
    except TimeoutError:
        raise grpc_error(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded") from None
