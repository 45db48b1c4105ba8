"""dralloc: Kubernetes Dynamic Resource Allocation as a library, a command and a control plane."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dralloc.client.async_client import connect_async
    from dralloc.client.blocking_client import connect

__version__ = "0.1.0"
__all__ = ["__version__", "connect", "connect_async"]


def __getattr__(name: str) -> Any:
    """Load the client only for those who use it: a command that reads a file need not wait for an HTTP library."""
    if name == "connect":
        from dralloc.client.blocking_client import connect

        return connect
    if name == "connect_async":
        from dralloc.client.async_client import connect_async

        return connect_async
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
