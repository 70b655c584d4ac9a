"""The path grammar `TIER[>[N x]LINK]>TIER [words]`."""

from __future__ import annotations

import pytest

from kvtrace.cost.validation.paths import PathLink, PathText, parse_path


def _parsed(text: str) -> PathText:
    parsed = parse_path(text)
    assert isinstance(parsed, PathText), parsed
    return parsed


@pytest.mark.parametrize(
    ("text", "tiers", "links"),
    [
        ("DRAM>PCIe5>HBM", ("dram", "hbm"), [("pcie", 1, None, 5)]),
        ("DRAM>PCIe>HBM per rank", ("dram", "hbm"), [("pcie", 1, None, None)]),
        ("HBM>8xRoCE200G>HBM GPUDirect", ("hbm", "hbm"), [("rdma", 8, 200, None)]),
        ("HBM>IB400G>HBM", ("hbm", "hbm"), [("rdma", 1, 400, None)]),
        ("DRAM>4x200G RDMA>DRAM", ("dram", "dram"), [("rdma", 4, 200, None)]),
        ("DRAM>8 x 400G TCP>DRAM", ("dram", "dram"), [("tcp", 8, 400, None)]),
        ("HBM>16xEFA200G>HBM write", ("hbm", "hbm"), [("efa", 16, 200, None)]),
        ("HBM>NVLink4>HBM page 16 tokens", ("hbm", "hbm"), [("nvlink", 1, None, 4)]),
        ("HBM>NVLink-C2C>DRAM", ("hbm", "dram"), [("c2c", 1, None, None)]),
        ("remote DRAM>8xRDMA400G>DRAM", ("remote_dram", "dram"), [("rdma", 8, 400, None)]),
        ("3FS>1x400G client", ("dfs", "dram"), [("client", 1, 400, None)]),
        ("NVMe Gen5>GDS>HBM", ("nvme", "hbm"), [("gds", 1, None, None)]),
        ("Redis>TCP100G>DRAM", ("pool", "dram"), [("tcp", 1, 100, None)]),
    ],
)
def test_one_hop(
    text: str, tiers: tuple[str, ...], links: list[tuple[str, int, int | None, int | None]]
) -> None:
    parsed = _parsed(text)
    assert parsed.tiers == tiers
    found = [(one.protocol, one.count, one.gbit_per_s, one.generation) for one in parsed.links[0]]
    assert found == links


def test_several_hops_keep_their_order() -> None:
    parsed = _parsed("pool>RDMA 4x200G>DRAM>PCIe4>HBM layerwise")
    assert parsed.tiers == ("pool", "dram", "hbm")
    assert parsed.links == ((PathLink("rdma", 4, 200, None),), (PathLink("pcie", 1, None, 4),))
    assert "layerwise" in parsed.words


def test_a_tier_next_to_another_needs_no_link() -> None:
    parsed = _parsed("Storage Scale>DRAM>PCIe5>HBM x4")
    assert parsed.tiers == ("dfs", "dram", "hbm")
    assert parsed.links[0] == ()
    assert parsed.ranks == 4


def test_words_pages_and_ranks() -> None:
    parsed = _parsed("DRAM>PCIe5>HBM kernel page 64 tokens x8 per rank")
    assert (parsed.page_tokens, parsed.ranks, parsed.is_per_rank) == (64, 8, True)
    assert {"kernel", "page"} <= parsed.words


def test_a_tier_alone_moves_nothing() -> None:
    assert _parsed("HBM").links == ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no path"),
        ("DRAM>>HBM", "`DRAM>>HBM` has an empty part"),
        ("tape>PCIe5>HBM", "`tape` is neither a tier nor a link that is known"),
        ("DRAM>carrier pigeon>HBM", "`carrier pigeon` is neither a tier nor a link that is known"),
        ("disk/remote>HBM", "`disk/remote>HBM` leaves open which tier it is"),
    ],
)
def test_a_text_that_is_no_path_gets_a_reason(text: str, reason: str) -> None:
    assert parse_path(text) == reason
