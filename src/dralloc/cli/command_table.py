"""Every command of `dralloc`: the module that it is loaded from, and where it stands in the help."""

from __future__ import annotations

from typing import Final, NamedTuple

ASK: Final = "Query a cluster or files"
WORK: Final = "Work with a cluster"
RUN: Final = "Run a cluster, or parts of one"
CHECK: Final = "Check and measure"


class Entry(NamedTuple):
    """A command: the function, or the group of sub-commands, that it is made from, and where it stands in the help."""

    module: str
    member: str
    panel: str


COMMANDS: Final = {
    "up": Entry("up", "up", RUN),
    "apiserver": Entry("apiserver", "apiserver", RUN),
    "scheduler": Entry("scheduler", "scheduler", RUN),
    "controllers": Entry("controllers", "controllers", RUN),
    "node": Entry("node", "node", RUN),
    "explain": Entry("explain", "explain", ASK),
    "top": Entry("top", "app", ASK),
    "doctor": Entry("doctor", "doctor", ASK),
    "allocate": Entry("allocate", "allocate", ASK),
    "plan": Entry("plan", "plan", ASK),
    "fit": Entry("fit", "fit", ASK),
    "drain": Entry("drain", "drain", ASK),
    "defrag": Entry("defrag", "defrag", ASK),
    "simulate": Entry("simulate", "simulate", ASK),
    "dump": Entry("dump", "dump", ASK),
    "validate": Entry("validate", "validate", ASK),
    "convert": Entry("convert", "convert", ASK),
    "cel": Entry("cel", "cel", ASK),
    "get": Entry("get", "get", WORK),
    "apply": Entry("apply", "apply", WORK),
    "delete": Entry("delete", "delete", WORK),
    "backup": Entry("backup", "backup", WORK),
    "restore": Entry("restore", "restore", WORK),
    "record": Entry("record", "record", WORK),
    "forget": Entry("forget", "forget", WORK),
    "new": Entry("new", "app", WORK),
    "driver-test": Entry("driver_test", "driver_test", CHECK),
    "conformance": Entry("conformance", "conformance", CHECK),
    "bench": Entry("bench", "app", CHECK),
}
