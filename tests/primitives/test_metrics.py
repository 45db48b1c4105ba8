"""The Prometheus text exposition."""

from __future__ import annotations

import pickle

from dralloc.primitives.metrics import CounterMetric, GaugeMetric, HistogramMetric, added_up, exposition


def test_counters_print_each_combination_of_labels() -> None:
    requests = CounterMetric("requests_total", "Requests.", ["verb", "code"])
    requests.add("GET", "200")
    requests.add("GET", "200", amount=2)
    requests.add('P"\n\\', "500")
    assert exposition([requests]) == (
        "# HELP requests_total Requests.\n"
        "# TYPE requests_total counter\n"
        'requests_total{verb="GET",code="200"} 3\n'
        'requests_total{verb="P\\"\\n\\\\",code="500"} 1\n'
    )


def test_a_counter_without_labels_starts_at_zero() -> None:
    assert "up_total 0\n" in exposition([CounterMetric("up_total", "Ups.")])


def test_gauges_are_set_or_read() -> None:
    stored = GaugeMetric("stored", "Objects.", ["kind"])
    stored.set("claims", value=1.5)
    assert 'stored{kind="claims"} 1.5\n' in exposition([stored])
    assert "live 7\n" in exposition([GaugeMetric("live", "Now.", read=lambda: [((), 7.0)])])


def test_histogram_buckets_add_up() -> None:
    duration = HistogramMetric("seconds", "Time.", ["verb"], buckets=(0.1, 1.0))
    for value in (0.1, 0.5, 3.0):
        duration.observe("GET", value=value)
    assert exposition([duration]).splitlines()[2:] == [
        'seconds_bucket{verb="GET",le="0.1"} 1',
        'seconds_bucket{verb="GET",le="1"} 2',
        'seconds_bucket{verb="GET",le="+Inf"} 3',
        'seconds_sum{verb="GET"} 3.6',
        'seconds_count{verb="GET"} 3',
    ]


def test_each_metric_names_its_prometheus_type() -> None:
    metrics = (CounterMetric("a_total", "A."), GaugeMetric("b", "B."), HistogramMetric("c", "C.", buckets=(1.0,)))
    types = [line.split()[-1] for line in exposition(metrics).splitlines() if line.startswith("# TYPE")]
    assert types == [metric.type for metric in metrics] == ["counter", "gauge", "histogram"]


def test_counters_of_one_name_are_added_up() -> None:
    one, other = (CounterMetric("claims_total", "Claims.", ("status",)) for _ in range(2))
    one.add("success")
    other.add("success", amount=2)
    other.add("failure")
    lines = ['claims_total{status="failure"} 1', 'claims_total{status="success"} 3']
    assert exposition(added_up([one, other])).splitlines()[2:] == lines


def test_a_copy_for_another_process_has_the_values_of_now() -> None:
    depth = [1.0]
    read = GaugeMetric("depth", "Keys waiting.", ["name"], lambda: [(("claims",), depth[0])])
    waited = HistogramMetric("waited_seconds", "Waiting.", ["name"])
    waited.observe("claims", value=0.3)
    copies = pickle.loads(pickle.dumps((read, waited)))
    before = exposition((read, waited))
    depth[0] = 2.0
    assert exposition(copies) == before
