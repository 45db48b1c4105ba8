"""Creates shares of an interface with `ip` and `tc`: a macvlan interface and a class with the guaranteed rate.

Every share is a macvlan interface on the shared one. What it sends leaves through the shared interface's HTB queue, where its
address leads it into its class: the class has the guaranteed rate and may borrow up to the line's. All functions give commands,
so that they can be shown as well as run.
"""

import hashlib
import json
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = "1:"
# The class of the line itself, and that of traffic without a share.
LINE, REST = 1, 2
FIRST_CLASS, LAST_CLASS = 0x10, 0xFFFE
# The percentage of the line that is never allocated.
REST_PERCENT = 1

SYSFS = Path("/sys/class/net")

Command = tuple[str, ...]


class ShapingFailed(Exception):
    """A command failed; the message has its output."""


@dataclass(frozen=True, slots=True)
class Link:
    """An interface of the machine."""

    address: str = ""
    mtu: int = 0
    # True if the link has a carrier; None if that is not known.
    has_carrier: bool | None = None


@dataclass(frozen=True, slots=True)
class Share:
    """A share of an interface for one claim."""

    interface: str
    share_id: str
    rate_bits: int
    # What it may borrow up to.
    ceiling_bits: int
    class_number: int

    @property
    def name(self) -> str:
        """The share's interface; the kernel allows fifteen characters."""
        return f"nq{self._digest[:12]}"

    @property
    def address(self) -> str:
        """A locally administered address, the same every time."""
        return ":".join(("02", *(self._digest[start : start + 2] for start in range(0, 10, 2))))

    @property
    def class_id(self) -> str:
        return f"{ROOT}{self.class_number:x}"

    @property
    def _digest(self) -> str:
        return hashlib.sha256(self.share_id.encode()).hexdigest()


def set_up_line(interface: str, line_bits: int) -> Iterator[Command]:
    """Commands for the queue of a shared interface; repeating them does not affect existing shares."""
    yield ("tc", "qdisc", "add", "dev", interface, "root", "handle", ROOT, "htb", "default", f"{REST:x}")
    yield _class("replace", interface, ROOT, f"{ROOT}{LINE}", line_bits, line_bits)
    yield _class(
        "replace", interface, f"{ROOT}{LINE}", f"{ROOT}{REST}", line_bits - shareable_bits(line_bits), line_bits
    )


def shareable_bits(line_bits: int) -> int:
    """The rate that can be guaranteed to shares."""
    return line_bits * (100 - REST_PERCENT) // 100


def add_share(share: Share) -> Iterator[Command]:
    yield (
        *("ip", "link", "add", "link", share.interface, "name", share.name, "address", share.address),
        *("type", "macvlan", "mode", "bridge"),
    )
    yield _class("replace", share.interface, f"{ROOT}{LINE}", share.class_id, share.rate_bits, share.ceiling_bits)
    yield (
        *("tc", "filter", "add", "dev", share.interface, "parent", ROOT, "protocol", "all"),
        *("pref", str(share.class_number), "u32", "match", "ether", "src", share.address, "flowid", share.class_id),
    )


def remove_share(share: Share) -> Iterator[Command]:
    yield ("tc", "filter", "del", "dev", share.interface, "parent", ROOT, "pref", str(share.class_number))
    yield ("tc", "class", "del", "dev", share.interface, "classid", share.class_id)
    yield ("ip", "link", "del", share.name)


def _class(verb: str, interface: str, parent: str, class_id: str, rate_bits: int, ceiling_bits: int) -> Command:
    return (
        *("tc", "class", verb, "dev", interface, "parent", parent, "classid", class_id),
        *("htb", "rate", f"{rate_bits}bit", "ceil", f"{ceiling_bits}bit"),
    )


class Commands:
    """Runs commands, optionally in a network namespace; a dry run only records them."""

    def __init__(self, namespace: str = "", *, is_dry: bool = False) -> None:
        self._namespace = namespace
        self.is_dry = is_dry
        self.kept: list[str] = []

    def run(self, command: Command) -> None:
        if self.is_dry:
            self.kept.append(" ".join(command))
            return
        result = self._execute(command)
        if result.returncode != 0:
            raise ShapingFailed(f"{' '.join(command)}: {result.stderr.strip()}")

    def try_to_run(self, command: Command) -> None:
        """Run a command that may fail because it is already done."""
        if self.is_dry:
            self.kept.append(" ".join(command))
        else:
            self._execute(command)

    def links(self) -> dict[str, Link]:
        """The interfaces by name."""
        if shutil.which("ip") is None:
            return {name: Link() for _, name in socket.if_nameindex()}
        result = self._execute(("ip", "-json", "link", "show"))
        if result.returncode != 0:
            raise ShapingFailed(f"ip link show: {result.stderr.strip()}")
        found = json.loads(result.stdout or "[]")
        return {
            link["ifname"]: Link(link.get("address", ""), link.get("mtu", 0), "LOWER_UP" in link.get("flags", ()))
            for link in found
        }

    def speed_bits(self, interface: str) -> int | None:
        """The line speed, if the system reports it; it does not for interfaces in a namespace."""
        try:
            megabits = int((SYSFS / interface / "speed").read_text()) if not self._namespace else 0
        except (OSError, ValueError):
            return None
        return megabits * 1_000_000 if megabits > 0 else None

    def are_allowed(self, interfaces: Sequence[str]) -> bool:
        """True if shares can be created: the programs exist, and the kernel permits it."""
        if shutil.which("ip") is None or shutil.which("tc") is None or not interfaces:
            return False
        probe = ("tc", "qdisc", "add", "dev", interfaces[0], "root", "handle", ROOT, "htb", "default", f"{REST:x}")
        return self._execute(probe).returncode == 0 or "htb" in self._queue_of(interfaces[0])

    def _queue_of(self, interface: str) -> str:
        return self._execute(("tc", "qdisc", "show", "dev", interface, "root")).stdout

    def _execute(self, command: Command) -> subprocess.CompletedProcess[str]:
        program, *arguments = command
        inside = ("-netns", self._namespace) if self._namespace else ()
        return subprocess.run([program, *inside, *arguments], capture_output=True, text=True, check=False)
