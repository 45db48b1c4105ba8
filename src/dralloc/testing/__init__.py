"""The published test kit: `builders` for objects of the resource API, `driver_bench` for tests of drivers, and virtual time."""
