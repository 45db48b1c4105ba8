"""IP addresses and networks, with Kubernetes' restrictions: no zones, and no IPv4-mapped IPv6 addresses."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import ClassVar, Final

from dralloc.cel.errors import CelEvaluationError
from dralloc.cel.library.functions import Library, accepted_by, tenths, text_cost, text_rewriting_cost
from dralloc.cel.values import Opaque, TypeValue

LIBRARY: Final = Library()
define: Final = LIBRARY.define


@dataclass(frozen=True, slots=True)
class Ip(Opaque):
    type_value: ClassVar[TypeValue] = TypeValue("net.IP")
    address: IPv4Address | IPv6Address

    @property
    def cost_size(self) -> int:
        return self.address.max_prefixlen // 8


@dataclass(frozen=True, slots=True)
class Cidr(Opaque):
    """An address and the length of its network prefix."""

    type_value: ClassVar[TypeValue] = TypeValue("net.CIDR")
    address: IPv4Address | IPv6Address
    prefix_length: int

    @property
    def cost_size(self) -> int:
        return -(-self.prefix_length // 8)

    def network_of(self, address: IPv4Address | IPv6Address) -> int:
        """Returns the network bits of an address."""
        return int(address) >> (self.address.max_prefixlen - self.prefix_length)

    def contains(self, address: IPv4Address | IPv6Address) -> bool:
        return address.version == self.address.version and self.network_of(address) == self.network_of(self.address)


def parse_address(text: str) -> IPv4Address | IPv6Address:
    try:
        address = ip_address(text)
    except ValueError:
        raise CelEvaluationError(
            f"IP Address {text!r} parse error during conversion from string: unable to parse IP"
        ) from None
    if "%" in text:
        raise CelEvaluationError(f"IP address {text!r} with zone value is not allowed")
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        raise CelEvaluationError(f"IPv4-mapped IPv6 address {text!r} is not allowed")
    return address


_LENGTH: Final = re.compile(r"0|[1-9][0-9]{0,2}", re.ASCII)


@define("ip", str, cost=text_cost)
def ip(text: str) -> Ip:
    return Ip(parse_address(text))


@define("cidr", str, cost=text_cost)
def cidr(text: str) -> Cidr:
    address_text, slash, length = text.rpartition("/")
    if not slash:
        raise CelEvaluationError(f"network address parse error during conversion from string: {text!r}: no '/'")
    address = parse_address(address_text)
    if not _LENGTH.fullmatch(length) or int(length) > address.max_prefixlen:
        raise CelEvaluationError(
            f"network address parse error during conversion from string: {text!r}: bad prefix length"
        )
    return Cidr(address, int(length))


define("isIP", str, cost=text_cost)(accepted_by(ip))
define("isCIDR", str, cost=text_cost)(accepted_by(cidr))
define("ip.isCanonical", str, cost=text_rewriting_cost)(lambda text: str(parse_address(text)) == text)
define("string", Ip)(lambda operand: str(operand.address))
define("string", Cidr)(lambda operand: f"{operand.address}/{operand.prefix_length}")


# --- Addresses -----------------------------------------------------------------------------------------------


_LOOPBACK: Final = (cidr("127.0.0.0/8"), cidr("::1/128"))
_LINK_LOCAL: Final = (cidr("169.254.0.0/16"), cidr("fe80::/10"))
_MULTICAST: Final = (cidr("224.0.0.0/4"), cidr("ff00::/8"))
_BROADCAST: Final = IPv4Address("255.255.255.255")


define("family", Ip)(lambda operand: operand.address.version)


@define("isUnspecified", Ip)
def is_unspecified(operand: Ip) -> bool:
    return int(operand.address) == 0


define("isLoopback", Ip)(lambda operand: _is_in(operand, _LOOPBACK))
define("isLinkLocalUnicast", Ip)(lambda operand: _is_in(operand, _LINK_LOCAL))


@define("isLinkLocalMulticast", Ip)
def is_link_local_multicast(operand: Ip) -> bool:
    if operand.address.version == 4:
        return int(operand.address) >> 8 == 0xE00000
    # ffx2:: for any flags x.
    return int(operand.address) >> 112 & 0xFF0F == 0xFF02


@define("isGlobalUnicast", Ip)
def is_global_unicast(operand: Ip) -> bool:
    """True for any unicast address beyond the link, including private ones."""
    if is_unspecified(operand) or operand.address == _BROADCAST:
        return False
    return not any(_is_in(operand, networks) for networks in (_LOOPBACK, _LINK_LOCAL, _MULTICAST))


def _is_in(operand: Ip, networks: tuple[Cidr, ...]) -> bool:
    return any(network.contains(operand.address) for network in networks)


# --- Networks ------------------------------------------------------------------------------------------------


define("ip", Cidr)(lambda operand: Ip(operand.address))
define("prefixLength", Cidr)(lambda operand: operand.prefix_length)


@define("masked", Cidr)
def masked(operand: Cidr) -> Cidr:
    """Returns the network with all host bits cleared."""
    shift = operand.address.max_prefixlen - operand.prefix_length
    return Cidr(operand.address.__class__(int(operand.address) >> shift << shift), operand.prefix_length)


def _membership_cost(network: Cidr, other: Ip | Cidr | str) -> int:
    parsing = tenths(len(other)) if isinstance(other, str) else 0
    return tenths(2 * network.cost_size) + parsing


def _inclusion_cost(network: Cidr, other: Cidr | str) -> int:
    return _membership_cost(network, other) + tenths(network.cost_size) + 1


define("containsIP", Cidr, Ip, cost=_membership_cost)(lambda network, operand: network.contains(operand.address))
define("containsIP", Cidr, str, cost=_membership_cost)(lambda network, text: network.contains(parse_address(text)))


@define("containsCIDR", Cidr, Cidr, cost=_inclusion_cost)
def contains_cidr(network: Cidr, other: Cidr) -> bool:
    return network.contains(other.address) and network.prefix_length <= other.prefix_length


define("containsCIDR", Cidr, str, cost=_inclusion_cost)(lambda network, text: contains_cidr(network, cidr(text)))
