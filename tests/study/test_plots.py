"""What notebooks do with a run: data frames of pandas, plots of matplotlib."""

from __future__ import annotations

import io
import sys

import pytest

from dralloc.study import Run, described_cluster, simulate, synthetic_trace
from dralloc.study.plots import plot_allocation, plot_stranded


@pytest.fixture(scope="module")
def run() -> Run:
    return simulate(synthetic_trace("pods=60; cores=uniform(4, 12)"), described_cluster("5x8:64:512"), load=1.2)


def test_pandas_takes_columns_and_records(run: Run) -> None:
    # Imported here, because it takes long and every worker imports this module.
    import pandas

    pods = pandas.DataFrame(run.pods)
    assert pods.equals(pandas.DataFrame(run.records()))
    assert pods.groupby("size")["placed_s"].count().sum() == run.summary()["placed"]
    steps = pandas.DataFrame(run.steps).set_index("arrival")
    assert steps["allocated_milli"].iloc[-1] == run.steps["allocated_milli"][-1]
    assert len(pandas.DataFrame(run.stranded)) == len(run.stranded["arrival"])
    assert len(pandas.DataFrame([run.summary()])) == 1


def test_plots(run: Run) -> None:
    for figure in (plot_allocation([run]), plot_stranded([run])):
        picture = io.BytesIO()
        figure.savefig(picture, format="png")
        assert picture.getvalue().startswith(b"\x89PNG")
    [axes] = plot_allocation([run]).axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["Spread"]
    [line] = axes.get_lines()
    assert line.get_ydata()[-1] == pytest.approx(100 * run.steps["allocated_milli"][-1] / run.capacity_milli)


def test_plots_name_what_is_missing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install 'dralloc\[plots\]'"):
        plot_allocation([run])
