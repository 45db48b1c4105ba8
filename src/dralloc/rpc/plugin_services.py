"""The gRPC services between a node and its drivers, for both sides: paths, message types and advertised versions.

A service is a value: the node makes callables from it on a channel, a driver makes handlers from it for its server.
Each version of a service has its own message types; `messages` is the module that holds them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError

from dralloc.rpc.generated import (
    dra_health_v1_pb2,
    dra_health_v1alpha1_pb2,
    dra_v1_pb2,
    dra_v1beta1_pb2,
    plugin_registration_pb2,
)

# The `PluginInfo.type` of a DRA driver.
DRA_PLUGIN_TYPE: Final = "DRAPlugin"

GET_INFO: Final = "GetInfo"
NOTIFY_REGISTRATION_STATUS: Final = "NotifyRegistrationStatus"
NODE_PREPARE_RESOURCES: Final = "NodePrepareResources"
NODE_UNPREPARE_RESOURCES: Final = "NodeUnprepareResources"
NODE_WATCH_RESOURCES: Final = "NodeWatchResources"


@dataclass(frozen=True, slots=True)
class Rpc:
    """One method: request type, response type, and whether the response is a stream."""

    request: type[Any]
    response: type[Any]
    is_stream: bool = False


@dataclass(frozen=True, slots=True)
class PluginService:
    """A gRPC service. `advertised` is its name in the supported versions of a plugin registration."""

    name: str
    advertised: str
    messages: ModuleType
    rpcs: Mapping[str, Rpc]

    def path(self, rpc_name: str) -> str:
        return f"/{self.name}/{rpc_name}"

    def callable_on(self, channel: Any, rpc_name: str) -> Any:
        """Returns the method as a function of a request, on a channel of `grpc` or `grpc.aio`.

        The function returns `None` if the peer sent bytes that do not decode as the response type.
        """
        rpc = self.rpcs[rpc_name]
        make = channel.unary_stream if rpc.is_stream else channel.unary_unary
        return make(
            self.path(rpc_name),
            request_serializer=rpc.request.SerializeToString,
            response_deserializer=_reader(rpc.response),
        )

    def handlers(self, functions: Mapping[str, Callable[..., Any]]) -> grpc.GenericRpcHandler:
        """Returns handlers that serve the methods with these functions of (request, context), for `grpc` or `grpc.aio`."""
        assert functions.keys() == self.rpcs.keys(), f"{self.name} has the methods {', '.join(self.rpcs)}"
        return grpc.method_handlers_generic_handler(
            self.name, {name: _handler(self.rpcs[name], function) for name, function in functions.items()}
        )


def _reader(message: type[Any]) -> Callable[[bytes], Any]:
    # By default gRPC prints the exception and continues without a message.
    def read(content: bytes) -> Any:
        try:
            return message.FromString(content)
        except DecodeError:
            return None

    return read


def _handler(rpc: Rpc, function: Callable[..., Any]) -> Any:
    make = grpc.unary_stream_rpc_method_handler if rpc.is_stream else grpc.unary_unary_rpc_method_handler
    return make(
        function,
        request_deserializer=rpc.request.FromString,
        response_serializer=rpc.response.SerializeToString,
    )


def _dra(version: str, messages: Any) -> PluginService:
    rpcs = {
        NODE_PREPARE_RESOURCES: Rpc(messages.NodePrepareResourcesRequest, messages.NodePrepareResourcesResponse),
        NODE_UNPREPARE_RESOURCES: Rpc(messages.NodeUnprepareResourcesRequest, messages.NodeUnprepareResourcesResponse),
    }
    return PluginService(f"k8s.io.kubelet.pkg.apis.dra.{version}.DRAPlugin", f"{version}.DRAPlugin", messages, rpcs)


def _health(version: str, messages: Any) -> PluginService:
    rpc = Rpc(messages.NodeWatchResourcesRequest, messages.NodeWatchResourcesResponse, is_stream=True)
    name = f"{version}.DRAResourceHealth"
    return PluginService(name, name, messages, {NODE_WATCH_RESOURCES: rpc})


REGISTRATION: Final = PluginService(
    "pluginregistration.Registration",
    "",
    plugin_registration_pb2,
    {
        GET_INFO: Rpc(plugin_registration_pb2.InfoRequest, plugin_registration_pb2.PluginInfo),
        NOTIFY_REGISTRATION_STATUS: Rpc(
            plugin_registration_pb2.RegistrationStatus, plugin_registration_pb2.RegistrationStatusResponse
        ),
    },
)
DRA_V1: Final = _dra("v1", dra_v1_pb2)
DRA_V1BETA1: Final = _dra("v1beta1", dra_v1beta1_pb2)
HEALTH_V1: Final = _health("v1", dra_health_v1_pb2)
HEALTH_V1ALPHA1: Final = _health("v1alpha1", dra_health_v1alpha1_pb2)

# In order of preference: a node uses the first DRA service that the driver advertises, and the first of these health
# services.
DRA_SERVICES: Final = (DRA_V1, DRA_V1BETA1)
HEALTH_SERVICES: Final = (HEALTH_V1, HEALTH_V1ALPHA1)
