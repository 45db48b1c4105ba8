"""How many requests are answered at once, of all clients and of one user. Beyond that a request gets 429 with Retry-After.

The limit for one user leaves the scheduler, the controllers and the nodes their part, whatever one user sends. A request counts from
its head until its response is made: watches and the sending of long lists do not count.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from dralloc.primitives.errors import ErrorDetails, TooManyRequests

# As many as a server of Kubernetes answers at once: 400 that read and 200 that write.
REQUESTS_OF_USER_MAX: Final = 600
REQUESTS_MAX: Final = 4 * REQUESTS_OF_USER_MAX
# What a client is told to wait.
RETRY_AFTER_S: Final = 1

# A supervisor would end a busy server that does not answer these.
_UNLIMITED: Final = frozenset({"/healthz", "/livez", "/readyz"})


class RequestLimits:
    """The requests in flight, by user."""

    def __init__(self) -> None:
        self._of_user: Counter[str] = Counter()
        self._all = 0

    def enter(self, path: str, user: str) -> None:
        """Count a request until `leave`; raises `TooManyRequests`, and does not count it then."""
        is_full = self._all >= REQUESTS_MAX or self._of_user[user] >= REQUESTS_OF_USER_MAX
        if is_full and path.rstrip("/") not in _UNLIMITED:
            raise TooManyRequests(
                "too many requests, please try again later", details=ErrorDetails(retry_after_s=RETRY_AFTER_S)
            )
        self._all += 1
        self._of_user[user] += 1

    def leave(self, user: str) -> None:
        self._all -= 1
        self._of_user[user] -= 1
        if not self._of_user[user]:
            del self._of_user[user]
