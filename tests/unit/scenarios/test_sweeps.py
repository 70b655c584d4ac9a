"""Sweeps: which keys they set, and which combinations they make."""

from __future__ import annotations

import pytest

from kvtrace.errors import UsageError
from kvtrace.scenarios.document import load_scenario
from kvtrace.scenarios.sweeps import Axis, Case, expand, parse_axis
from tests.unit.scenarios.cases import document

POOL = 'base = "pool_dram_tcp"\nhardware = "H100-SXM5"\n[tier.pool]\ncapacity_blocks = 5\n'


def cases(*axes: str, one_at_a_time: bool = False, text: str = POOL) -> list[Case]:
    return expand([document(text)], [*map(parse_axis, axes)], one_at_a_time=one_at_a_time)


def test_an_axis_is_a_key_and_its_values() -> None:
    assert parse_axis("pool.capacity=1TB, 2TB,1TB") == Axis("pool.capacity", ("1TB", "2TB"))
    for text in ("pool.capacity", "=1", "seed=", "seed=,"):
        with pytest.raises(UsageError, match="is no sweep"):
            parse_axis(text)


def test_a_grid_is_every_combination() -> None:
    found = cases("pool.capacity=1TB,2TB", "seed=1,2")
    assert [case.changes for case in found] == [
        "pool.capacity=1TB, seed=1",
        "pool.capacity=1TB, seed=2",
        "pool.capacity=2TB, seed=1",
        "pool.capacity=2TB, seed=2",
    ]
    assert {(case.axis, case.value) for case in found} == {("grid", None)}
    assert found[3].document.table["tier"] == {"pool": {"capacity": "2TB"}}  # no blocks beside it
    assert found[3].document.table["seed"] == 2


def test_one_at_a_time_is_the_start_and_each_value_alone() -> None:
    found = cases("pool.capacity=1TB", "seed=1,2", one_at_a_time=True)
    assert [(case.axis, case.value) for case in found] == [
        (None, None),
        ("pool.capacity", "1TB"),
        ("seed", "1"),
        ("seed", "2"),
    ]
    assert found[0].document.table == document(POOL).table


@pytest.mark.parametrize(
    ("axis", "path"),
    [
        ("pool.lookup=1ms", ("tier", "pool", "lookup")),
        ("rdma.rate=20GB/s", ("hardware", "rdma", "rate")),
        ("nic_tcp.rate=5GB/s", ("link", "nic_tcp", "rate")),
        ("fleet.pool_nodes=4", ("fleet", "pool_nodes")),
        ("hardware.moves.chunk=1MiB", ("hardware", "moves", "chunk")),
        ("load_decision=arbiter", ("load_decision",)),
    ],
)
def test_a_key_finds_its_place(axis: str, path: tuple[str, ...]) -> None:
    (case,) = cases(axis)
    found: object = case.document.table
    for key in path:
        assert isinstance(found, dict)
        found = found[key]
    assert str(found) == axis.partition("=")[2]
    if path[0] == "hardware":
        assert isinstance(case.document.table["hardware"], dict)
        assert case.document.table["hardware"]["gpu"] == "H100-SXM5"


def test_what_cannot_be_set_is_refused() -> None:
    for axis in ("host_dram.capacity=1TB", "nothing=1", "tier=1"):
        with pytest.raises(UsageError, match="has nothing that"):
            cases(axis)
    with pytest.raises(UsageError, match="swept twice"):
        cases("seed=1", "seed=2")
    assert cases("host_dram.capacity=1TB", text='base = "dram_idle"\n')
    assert expand([load_scenario("pool_dram_tcp")], [], one_at_a_time=False)[0].changes == ""
