"""Bytes by stretches of time, by hand."""

from __future__ import annotations

import pytest

from kvtrace.replay.engine import simulate
from kvtrace.replay.ledger import LinkLedger
from kvtrace.replay.links import FlowNet
from tests.unit.replay_cases import Ask, links, make_scenario, make_trace, pool_tier


def test_two_flows_are_booked_at_their_shares() -> None:
    # 10 bytes/s. A reads 10 bytes from 0 s, B writes 10 from 0.5 s. A alone moves 5; then both
    # at 5 bytes/s: A ends at 1.5 s, B has 5 left and ends at 2 s. Stretches of 1 s:
    # read 5 + 2.5 | 2.5; written 2.5 | 2.5 + 5.
    ledger = LinkLedger(1.0)
    ledger.open(["wire"], [10.0], 0.0)
    net: FlowNet[str] = FlowNet([10.0], [(0,)])
    net.ledger = ledger
    net.start(0.0, 0, 10.0, "A", write=False)
    net.start(0.5, 0, 10.0, "B", write=True)
    assert (net.next_at, net.finish()) == (1.5, ["A"])
    assert (net.next_at, net.finish()) == (2.0, ["B"])
    (row,) = ledger.rows()
    assert (row.links, row.bytes_per_s) == (1, 10.0)
    assert row.read_bytes.tolist() == [7.5, 2.5]
    assert row.written_bytes.tolist() == [2.5, 7.5]


def test_a_stopped_flow_has_booked_what_it_moved() -> None:
    # A and B read at 5 bytes/s each. A stops at 1 s with 5 of its 20 bytes; B stops at 1.5 s, after
    # half a second of 10 bytes/s; C then writes 10 bytes from 3 s to 4 s. Stretches of 2 s.
    ledger = LinkLedger(2.0)
    ledger.open(["wire"], [10.0], 0.0)
    net: FlowNet[str] = FlowNet([10.0], [(0,)])
    net.ledger = ledger
    net.start(0.0, 0, 20.0, "A", write=False)
    net.start(0.0, 0, 20.0, "B", write=False)
    assert net.stop(1.0, 0, "A", write=False) == 15.0
    assert net.stop(1.5, 0, "B", write=False) == 10.0
    net.start(3.0, 0, 10.0, "C", write=True)
    assert (net.next_at, net.finish()) == (4.0, ["C"])
    (row,) = ledger.rows()
    assert row.read_bytes.tolist() == [15.0, 0.0]
    assert row.written_bytes.tolist() == [0.0, 10.0]
    assert net.read_bytes == [15.0]


def test_a_replay_books_every_byte_of_every_link_once() -> None:
    asks = [Ask(1 + 0.05 * turn, [turn % 3, (turn % 3, "tail")], output=2) for turn in range(9)]
    scenario = make_scenario(
        hbm_capacity_bytes=60.0, tiers=(pool_tier(),), links=links(nic=40.0, pool=60.0, pcie=90.0)
    )
    ledger = LinkLedger(0.25)
    result = simulate(make_trace(asks), scenario, ledger=ledger)
    rows = {row.link_id: row for row in ledger.rows()}
    assert sum(use.bytes_read for use in result.link_use) > 0
    for use in result.link_use:
        row = rows[use.link_id]
        assert row.read_bytes.sum() == pytest.approx(use.bytes_read, rel=1e-12)
        assert row.written_bytes.sum() == pytest.approx(use.bytes_written, rel=1e-12)
        assert ((row.read_bytes + row.written_bytes) <= row.bytes_per_s * 0.25 * (1 + 1e-9)).all()
    assert rows["nic"].written_bytes[0] == 0  # counted from the first arrival, not from 0 s


def test_a_ledger_of_nothing_has_no_rows() -> None:
    ledger = LinkLedger(1.0)
    simulate(make_trace([]), make_scenario(), ledger=ledger)
    assert ledger.rows() == ()
