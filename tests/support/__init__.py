"""What only the tests, benchmarks and scripts of this repository use; `dralloc.testing` is for users."""
