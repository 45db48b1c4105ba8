"""An allocated device in words, the same in events and answers."""

from __future__ import annotations

from dralloc.api.resource_v1 import DeviceRequestAllocationResult
from dralloc.devices.identity import DeviceId


def text_of_result(result: DeviceRequestAllocationResult) -> str:
    """The device, and what the claim has of it: `gpu.example.com/node-1/gpu-0 (memory=40Gi)`."""
    consumed = ",".join(f"{name}={amount}" for name, amount in result.consumed_capacity.items())
    share = consumed or ("a share" if result.share_id else "")
    return f"{DeviceId.of(result)} ({share})" if share else str(DeviceId.of(result))
