"""Which scheduler allocates devices of which driver, agreed by leases."""
