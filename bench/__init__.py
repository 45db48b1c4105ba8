"""Benchmarks: measured figures against targets, one module per subject. Run `python -m bench [NAME …]` or `make bench
ARGS=NAME`.

A benchmark is a function that yields `Figure`s, registered with `@benchmark(name)` of `bench.measurement`, in any
module of this package. A run prints a table and writes figures, machine and commit to `bench/results/latest.json`.
"""
