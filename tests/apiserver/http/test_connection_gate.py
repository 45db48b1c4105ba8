"""Silent and idle connections give way to new ones; those with a request in progress stay."""

from __future__ import annotations

from dralloc.apiserver.http.connection_gate import ConnectionGate


class Peer:
    def __init__(self) -> None:
        self.is_closed = False

    def close_now(self) -> None:
        self.is_closed = True


def make_gate(reports: list[str] | None = None) -> ConnectionGate:
    kept: list[str] = [] if reports is None else reports
    return ConnectionGate(connections_max=4, silent_max=2, report=kept.append)


def admitted(gate: ConnectionGate, count: int) -> list[Peer]:
    """Connections of as many addresses."""
    peers = [Peer() for _ in range(count)]
    assert [gate.admit(peer, 0.0, str(id(peer))) for peer in peers] == [True] * count
    return peers


def test_one_address_does_not_get_all_connections() -> None:
    reports: list[str] = []
    gate = ConnectionGate(connections_max=16, silent_max=16, report=reports.append)
    mine = [Peer() for _ in range(16)]
    for peer in mine[:15]:
        assert gate.admit(peer, 0.0, "192.0.2.1")
        gate.start_request(peer)
    assert not gate.admit(mine[15], 0.0, "192.0.2.1")
    assert reports == ["refused, their address has too many"]
    assert gate.admit(Peer(), 0.0, "192.0.2.2")
    gate.end_request(mine[7])
    assert gate.admit(mine[15], 0.0, "192.0.2.1")
    assert mine[7].is_closed


def test_the_oldest_silent_connection_gives_way() -> None:
    gate = make_gate()
    peers = admitted(gate, 3)
    assert [peer.is_closed for peer in peers] == [True, False, False]
    assert len(gate) == 2


def test_new_connections_wait_until_the_oldest_silent_one_had_time() -> None:
    gate = make_gate()
    admitted(gate, 1)
    assert gate.may_accept(0.1)
    admitted(gate, 1)
    assert not gate.may_accept(0.1)
    assert gate.may_accept(2.0)


def test_an_idle_connection_gives_way_only_if_the_server_is_full() -> None:
    gate = make_gate()
    idle = []
    for _ in range(4):
        (peer,) = admitted(gate, 1)
        gate.start_request(peer)
        gate.end_request(peer)
        idle.append(peer)
    assert not any(peer.is_closed for peer in idle)
    admitted(gate, 1)
    assert [peer.is_closed for peer in idle] == [True, False, False, False]


def test_connections_in_use_stay_and_a_new_one_is_refused() -> None:
    reports: list[str] = []
    gate = make_gate(reports)
    for _ in range(4):
        (peer,) = admitted(gate, 1)
        gate.start_request(peer)
    assert not gate.admit(Peer(), 0.0, "192.0.2.9")
    assert reports == ["refused, all connections are in use"]
    gate.leave(peer)
    assert gate.admit(Peer(), 0.0, "192.0.2.9")


def test_a_closed_connection_that_ends_its_request_is_not_counted_again() -> None:
    gate = make_gate()
    (peer,) = admitted(gate, 1)
    gate.start_request(peer)
    gate.leave(peer)
    gate.end_request(peer)
    assert len(gate) == 0
