"""What earlier versions had and this one does not have: who still asks for it is told in one line since when, and what to use instead.

A name is asked for in four ways: as a command, as an option of a command, as a feature gate, as a kind. Each way has a table, and the
module that would say "unknown" asks it first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Removal(NamedTuple):
    """What something was for, the version since which it is gone, and what to do instead, as a sentence without its end."""

    purpose: str
    since: str
    instead: str

    def told_of(self, name: str) -> str:
        """The line for those who ask for it by name."""
        return f"{name} ({self.purpose}) is gone since {self.since}; {self.instead}"


# By the name of the command, as it is typed: "rotate", "top devices".
COMMANDS: Final[Mapping[str, Removal]] = {}

# By the option's name with its dashes, of whichever command had it: "--audit-log-path".
OPTIONS: Final[Mapping[str, Removal]] = {}

GATES: Final[Mapping[str, Removal]] = {}

# By resource and group, as in a path of the store: "certificatesigningrequests.certificates.k8s.io".
KINDS: Final[Mapping[str, Removal]] = {}

# By resource and subresource: "pods/exec".
SUBRESOURCES: Final[Mapping[str, Removal]] = {}
