"""Max-min fair links against closed forms."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from kvtrace.replay.links import FlowNet


def drain(net: FlowNet[str]) -> dict[str, float]:
    """Let all flows end; when each of them did."""
    ended: dict[str, float] = {}
    while net.next_at < inf:
        now = net.next_at
        for owner in net.finish():
            ended[owner] = now
    return ended


def test_a_lone_flow_takes_bytes_over_rate() -> None:
    net: FlowNet[str] = FlowNet([10.0], [(0,)])
    net.start(1.0, 0, 100.0, "a", write=False)
    assert drain(net) == {"a": 11.0}
    assert net.busy_s == [10.0]


def test_two_equal_flows_finish_at_twice_the_time() -> None:
    net: FlowNet[str] = FlowNet([10.0], [(0,)])
    for owner in "ab":
        net.start(0.0, 0, 100.0, owner, write=False)
    assert drain(net) == {"a": 20.0, "b": 20.0}


def test_staggered_flows_share_only_while_both_run() -> None:
    # a alone to 4 (40 of 100 B), then 5 B/s each: a ends at 4 + 60 / 5 = 16; b has 60 of 100 then,
    # and gets 10 B/s again: 16 + 40 / 10 = 20
    net: FlowNet[str] = FlowNet([10.0], [(0,)])
    net.start(0.0, 0, 100.0, "a", write=False)
    net.start(4.0, 0, 100.0, "b", write=False)
    assert drain(net) == pytest.approx({"a": 16.0, "b": 20.0})
    assert net.busy_s == pytest.approx([20.0])


def test_n_flows_of_different_size_finish_in_order_of_size() -> None:
    # sizes 1, 2, 3 at 6 B/s: 0.5 s (2 B/s each), then 3 B/s each 1/3 s, then 6 B/s 1/6 s
    net: FlowNet[str] = FlowNet([6.0], [(0,)])
    for size, owner in ((3.0, "c"), (1.0, "a"), (2.0, "b")):
        net.start(0.0, 0, size, owner, write=False)
    assert drain(net) == pytest.approx({"a": 0.5, "b": 5 / 6, "c": 1.0})


def test_twice_the_rate_halves_the_times() -> None:
    ended = []
    for factor in (1.0, 2.0):
        net: FlowNet[str] = FlowNet([8.0 * factor, 3.0 * factor], [(0,), (0, 1)])
        net.start(0.0, 0, 64.0, "a", write=False)
        net.start(0.0, 1, 30.0, "b", write=False)
        ended.append(drain(net))
    assert ended[1] == pytest.approx({owner: at / 2 for owner, at in ended[0].items()})


def test_a_flow_that_is_limited_elsewhere_leaves_the_rest() -> None:
    # link 0: 10 B/s for both; link 1: 2 B/s for b only. b gets 2, a gets 8.
    net: FlowNet[str] = FlowNet([10.0, 2.0], [(0,), (0, 1)])
    net.start(0.0, 0, 80.0, "a", write=False)
    net.start(0.0, 1, 20.0, "b", write=False)
    assert drain(net) == pytest.approx({"a": 10.0, "b": 10.0})


def test_max_min_over_three_links() -> None:
    # The classic: x crosses both links, y the first, z the second; rates 6 and 10.
    # First link: 3 each (x, y); then z gets 10 - 3 = 7.
    net: FlowNet[str] = FlowNet([6.0, 10.0], [(0, 1), (0,), (1,)])
    net.start(0.0, 0, 30.0, "x", write=False)
    net.start(0.0, 1, 30.0, "y", write=False)
    net.start(0.0, 2, 70.0, "z", write=False)
    assert drain(net) == pytest.approx({"x": 10.0, "y": 10.0, "z": 10.0})


def test_links_are_settled_in_rounds_where_one_depends_on_another() -> None:
    # rates: link 0 = 4 (x, y), link 1 = 12 (y, z), link 2 = 20 (z, w).
    # x = y = 2; z = 12 - 2 = 10 at link 1 or 20 / 2 = 10 at link 2; w = 10.
    net: FlowNet[str] = FlowNet([4.0, 12.0, 20.0], [(0,), (0, 1), (1, 2), (2,)])
    for route, (owner, size) in enumerate((("x", 20.0), ("y", 20.0), ("z", 100.0), ("w", 100.0))):
        net.start(0.0, route, size, owner, write=False)
    assert drain(net) == pytest.approx(dict.fromkeys("xyzw", 10.0))


def test_flows_without_a_common_link_do_not_meet() -> None:
    net: FlowNet[str] = FlowNet([10.0, 10.0], [(0,), (1,)])
    net.start(0.0, 0, 100.0, "a", write=False)
    net.start(0.0, 1, 50.0, "b", write=False)
    assert drain(net) == {"a": 10.0, "b": 5.0}


def test_bytes_are_conserved_on_each_link() -> None:
    net: FlowNet[str] = FlowNet([10.0, 5.0], [(0,), (0, 1)])
    net.start(0.0, 0, 7.0, "a", write=False)
    net.start(0.5, 1, 11.0, "b", write=True)
    net.start(0.6, 1, 13.0, "c", write=False)
    assert set(drain(net)) == set("abc")
    assert net.read_bytes == [20.0, 13.0]
    assert net.written_bytes == [11.0, 11.0]


def test_routes_with_the_same_links_are_one() -> None:
    net: FlowNet[str] = FlowNet([10.0, 10.0], [(0, 1), (1, 0)])
    net.start(0.0, 0, 50.0, "a", write=False)
    net.start(0.0, 1, 50.0, "b", write=False)
    assert drain(net) == {"a": 10.0, "b": 10.0}


def test_a_flow_of_no_bytes_ends_at_once() -> None:
    net: FlowNet[str] = FlowNet([10.0], [(0,)])
    net.start(3.0, 0, 0.0, "a", write=False)
    assert drain(net) == {"a": 3.0}


def test_the_fair_rate_counts_the_flows_that_are_there() -> None:
    net: FlowNet[str] = FlowNet([10.0, 30.0], [(0, 1)])
    assert net.fair_rate(0) == 10.0
    net.start(0.0, 0, 10.0, "a", write=False)
    assert net.fair_rate(0) == 5.0


def test_a_stopped_flow_leaves_its_share_and_its_bytes() -> None:
    # a and b at 5 B/s each; b goes at 4 with 20 of 100 B: a has 80 left, 10 B/s from then on
    net: FlowNet[str] = FlowNet([10.0], [(0,)])
    for owner in "ab":
        net.start(0.0, 0, 100.0, owner, write=False)
    assert net.stop(4.0, 0, "b", write=False) == pytest.approx(80.0)
    assert drain(net) == pytest.approx({"a": 12.0})
    assert net.read_bytes == pytest.approx([120.0])


def test_random_flows_take_the_mean_of_processor_sharing() -> None:
    # M/G/1-PS: E[time] = E[size] / rate / (1 - load), whatever the sizes: 2 / (1 - 0.6) = 5.
    rows = np.random.Generator(np.random.PCG64(7)).random((40_000, 2))
    arrivals = np.cumsum(-np.log1p(-rows[:, 0]) / 0.3)
    sizes = np.where(rows[:, 1] < 0.9, 1.0, 11.0)
    net: FlowNet[int] = FlowNet([1.0], [(0,)])
    total_s = 0.0
    for owner, (at, size) in enumerate(zip(arrivals.tolist(), sizes.tolist(), strict=True)):
        while net.next_at <= at:
            now = net.next_at
            total_s += sum(now - float(arrivals[one]) for one in net.finish())
        net.start(at, 0, size, owner, write=False)
    while net.next_at < inf:
        now = net.next_at
        total_s += sum(now - float(arrivals[one]) for one in net.finish())
    assert total_s / len(sizes) == pytest.approx(5.0, rel=0.05)
