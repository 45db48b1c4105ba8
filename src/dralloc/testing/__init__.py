"""The published test kit: `builders` for objects of the resource API, and `driver_bench` for tests of drivers."""
