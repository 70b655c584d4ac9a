"""The frontier of cost against P99 TTFT and the cheapest option in time, by hand."""

from __future__ import annotations

from kvtrace.audit.options.frontier import build_frontier
from kvtrace.audit.record import Option, Percentiles
from tests.report.records import make_option


def priced(
    option_id: str, usd: float | None, p99_s: float | None, *, kept: bool = True, bits: bool = False
) -> Option:
    option = make_option(option_id, option_id, queue=0, move=0, prefill=1, hit=0.1, usd=usd)
    option.ttft_s = Percentiles(mean=0.1, p50=0.1, p90=0.5, p99=p99_s)
    option.keeps_slo, option.is_quantised = kept, bits
    return option


def test_the_frontier_and_what_each_millisecond_costs() -> None:
    options = [
        priced("free", 0.0, 2.0, kept=False),
        priced("dear", 900.0, 1.0),
        priced("dram", 100.0, 1.5),
        priced("slow", 500.0, 1.6),
        priced("unknown", None, 0.1),
    ]
    frontier = build_frontier(options)
    assert frontier is not None
    assert [step.option for step in frontier.steps] == ["free", "dram", "dear"]
    # 100 $ for 500 ms less, then 800 $ for 500 ms less.
    assert [step.usd_per_ms for step in frontier.steps] == [None, 0.2, 1.6]
    assert (frontier.cheapest, frontier.weighed, frontier.unpriced) == ("dram", 4, ["unknown"])
    assert [one.is_on_frontier for one in options] == [True, True, True, False, None]


def test_options_that_are_nearly_alike_are_one_step() -> None:
    # By $0.80 and 0.5 %, and by 0.9 % and 0.5 %: the cheaper one stands. Then 0.9 % and 5 %, and
    # 5 % and 0.5 %: steps of their own.
    options = [
        priced("free", 0.0, 2.0),
        priced("cents", 0.8, 1.99),
        priced("dear", 1000.0, 1.0),
        priced("as dear", 1009.0, 0.995),
        priced("faster", 1009.5, 0.95),
        priced("dearer", 1060.0, 0.946),
    ]
    frontier = build_frontier(options)
    assert frontier is not None
    assert [step.option for step in frontier.steps] == ["free", "dear", "faster", "dearer"]
    assert [one.is_on_frontier for one in options] == [True, False, True, False, True, True]


def test_fewer_bits_are_told_apart_and_p90_stands_in_for_p99() -> None:
    options = [priced("narrow", 0.0, None, bits=True), priced("wide", 5.0, None)]
    frontier = build_frontier(options)
    assert frontier is not None
    assert (frontier.cheapest, frontier.cheapest_as_it_is) == ("narrow", "wide")
    assert frontier.ttft_is_p90


def test_options_that_carry_no_load_have_no_frontier() -> None:
    option = priced("full", 0.0, 1.0)
    option.is_feasible = False
    assert build_frontier([option]) is None


def test_the_cheapest_is_net_of_the_instances_that_it_gives_back() -> None:
    # 100 $ and nothing given back, against 500 $ less 730 $. The axis stays at equal GPUs.
    plain, giving = priced("plain", 100.0, 2.0), priced("giving", 500.0, 1.5)
    plain.usd_saved_per_month, giving.usd_saved_per_month = 0.0, 730.0
    frontier = build_frontier([plain, giving])
    assert frontier is not None
    assert frontier.cheapest == "giving"
    assert [step.usd_per_month for step in frontier.steps] == [100.0, 500.0]
    assert [step.net_usd_per_month for step in frontier.steps] == [100.0, -230.0]
