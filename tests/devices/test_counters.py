"""What devices draw from counters, and what counter sets hold."""

from __future__ import annotations

from dralloc.devices.counters import CounterId, amounts_of, draws_of
from dralloc.kube.resource_v1 import Counter, Device, DeviceCounterConsumption
from dralloc.primitives.quantity import NANOS, Quantity
from dralloc.testing.builders import device, resource_slice


def test_a_device_that_names_a_counter_twice_draws_the_sum() -> None:
    slots = {"slots": Counter(value=Quantity.of(2))}
    use = DeviceCounterConsumption(counter_set="card", counters=slots)
    assert draws_of(Device(name="d", consumes_counters=(use, use))) == ((CounterId("card", "slots"), 4 * NANOS),)
    assert draws_of(device("d")) == ()


def test_counters_of_different_sets_are_different_counters() -> None:
    sets = resource_slice("s", counters={"a": {"slots": "8"}, "b": {"slots": "4"}}).spec.shared_counters
    amounts = amounts_of(sets or ())
    assert amounts == {CounterId("a", "slots"): 8 * NANOS, CounterId("b", "slots"): 4 * NANOS}
    assert [str(counter) for counter in amounts] == ["a/slots", "b/slots"]
