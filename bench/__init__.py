"""How fast it is: figures against targets, one module a subject. `python -m bench [NAME …]` or `make bench ARGS=NAME`.

A benchmark is a function that yields `Figure`s, marked with `@benchmark(name)` of `bench.measurement`, in any module of this
package. The run prints a table and writes figures, machine and commit to `bench/results/latest.json`.
"""
