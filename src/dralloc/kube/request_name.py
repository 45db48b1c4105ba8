"""The name of a device request, or of one subrequest of a prioritized list, which the API writes as `main` or `main/sub`."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple


class RequestName(NamedTuple):
    main: str
    sub: str | None = None

    @classmethod
    def parse(cls, text: str) -> RequestName:
        main, slash, sub = text.partition("/")
        return cls(main, sub if slash else None)

    def __str__(self) -> str:
        return self.main if self.sub is None else f"{self.main}/{self.sub}"

    def is_in(self, references: Collection[RequestName]) -> bool:
        """True if the references name this request, or the whole request that this subrequest belongs to."""
        return self in references or RequestName(self.main) in references
