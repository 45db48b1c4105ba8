"""How many connections there may be, of all addresses and of one."""

from __future__ import annotations

from dralloc.server.http.connection_gate import ConnectionGate


def test_one_address_does_not_get_all_connections() -> None:
    gate = ConnectionGate(16)
    assert [gate.admit(number, "192.0.2.1") for number in range(15)] == [""] * 15
    assert gate.admit("one more", "192.0.2.1") == "its address has too many"
    assert gate.admit("another", "192.0.2.2") == ""
    gate.leave(7)
    assert gate.admit("one more", "192.0.2.1") == ""


def test_there_are_not_more_than_may_be_open() -> None:
    gate = ConnectionGate(4)
    assert [gate.admit(number, f"192.0.2.{number}") for number in range(4)] == [""] * 4
    assert gate.admit("one more", "192.0.2.9") == "all connections are in use"
    for _ in range(2):
        # A connection that ended twice is not counted twice.
        gate.leave(0)
    assert len(gate) == 3
    assert gate.admit("one more", "192.0.2.9") == ""
