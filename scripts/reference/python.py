"""docs/reference/sdk.md and python.md: what drivers and programs import."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from scripts.reference.docstrings import python_page
from scripts.reference.markdown import table


def sdk_page() -> Iterator[str]:
    introduction = (
        "Everything that a driver imports: `from dralloc.driver import …`. [Writing a driver](../writing-a-driver.md) shows how the parts",
        "fit together. An argument that a function does not have is an error with the names of those that it has.",
    )
    yield from python_page("Driver SDK", introduction, ["dralloc.driver"])


# What programs import, by purpose, with the page that shows how the parts fit together.
LIBRARY: Final = (
    ("a client for any server", "../python.md", ("dralloc", "dralloc.client.blocking_client", "dralloc.client.async_client", "dralloc.primitives.errors")),
    ("a cluster in your program", "../python.md#a-cluster-in-your-program", ("dralloc.testing.cluster",)),
    ("the pytest fixture `dra_cluster`", "../testing-with-pytest.md", ("dralloc.pytest_plugin.cluster", "dralloc.pytest_plugin.driver_node")),
    ("tests: builders of objects, a bench for drivers", "../writing-a-driver.md", ("dralloc.testing.builders", "dralloc.testing.driver_bench")),
    ("what-if answers", "../python.md#what-if-answers", ("dralloc.answers.cluster_objects", "dralloc.answers.engine", "dralloc.answers.pod_explanation", "dralloc.answers.fit", "dralloc.answers.planner")),
    ("the allocator alone", "../python.md#the-allocator-alone", ("dralloc.devices.snapshot", "dralloc.devices.allocator.requests", "dralloc.devices.allocator.allocate", "dralloc.devices.allocator.outcome", "dralloc.devices.allocator.stamp")),
    ("simulation of traces", "../simulation.md#in-a-notebook", ("dralloc.study",)),
)  # fmt: skip


def library_page() -> Iterator[str]:
    rows = (
        [f"[{purpose}]({guide})", ", ".join(f"`{name}`" for name in modules)] for purpose, guide, modules in LIBRARY
    )
    introduction = (
        "What programs import, apart from the [driver SDK](sdk.md). These names change only with a line in the changelog; other modules are internal.",
        "",
        *table(["for", "modules"], rows),
    )
    yield from python_page("Python library", introduction, [name for _, _, modules in LIBRARY for name in modules])
