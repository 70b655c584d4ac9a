"""Stages of paths over the links of the data files, with figures worked out by hand."""

from __future__ import annotations

import pytest

from kvtrace.cost.links import load_link
from kvtrace.cost.profiles import load_hardware
from kvtrace.cost.validation.paths import PathText, parse_path
from kvtrace.cost.validation.routes import (
    CannotPredictError,
    Route,
    RouteContext,
    build_route,
    link_rate,
)


def _route(
    text: str,
    *,
    gpu: str = "H100-SXM5",
    ranks: int = 1,
    chunk_bytes: int | None = None,
    words: str = "",
    is_bare: bool = True,
) -> Route:
    path = parse_path(text)
    assert isinstance(path, PathText), path
    hardware = load_hardware(gpu) if gpu else None
    return build_route(path, RouteContext(hardware, ranks, chunk_bytes, words, is_bare))


def test_the_chunk_law_of_copies() -> None:
    # 64 KiB / (3.5 us + 64 KiB / 52.4 GB/s) = 65 536 / 4.7507 us
    assert _route("DRAM>PCIe5>HBM DMA", chunk_bytes=65_536).bytes_per_s == pytest.approx(
        65_536 / (3.5e-6 + 65_536 / 52.4e9)
    )


def test_a_copy_kernel_starts_faster_and_ends_slower_than_dma() -> None:
    small = {text: _route(text, chunk_bytes=16_384).bytes_per_s for text in _COPIES}
    large = {text: _route(text, chunk_bytes=16 << 20).bytes_per_s for text in _COPIES}
    assert small[_COPIES[1]] > 4 * small[_COPIES[0]]
    assert large[_COPIES[1]] < large[_COPIES[0]]


_COPIES = ("DRAM>PCIe5>HBM DMA", "DRAM>PCIe5>HBM kernel")


def test_posted_operations_overlap_the_wire() -> None:
    port = load_link("efa_200g")
    # 64 KiB in 10.8 us of operations, 1 MiB bound by the port
    assert link_rate(port, 65_536) == pytest.approx(65_536 / 10.8e-6)
    assert link_rate(port, 1 << 20) == 21.5e9


def test_ranks_load_at_once_and_get_in_each_others_way() -> None:
    one = _route("DRAM>PCIe5>HBM", is_bare=False).bytes_per_s
    four = _route("DRAM>PCIe5>HBM x4", is_bare=False).bytes_per_s
    # 4 / (1 + 0.15 x 3)
    assert four / one == pytest.approx(4 / 1.45)
    per_rank = _route("DRAM>PCIe5>HBM per rank", ranks=4, is_bare=False).bytes_per_s
    assert per_rank == pytest.approx(one)


def test_serial_stages_add() -> None:
    route = _route("Storage Scale>DRAM>PCIe5>HBM x4", is_bare=False)
    load = _route("DRAM>PCIe5>HBM x4", is_bare=False)
    assert [stage.name for stage in route.stages] == ["storage scale", "pcie"]
    assert route.seconds(1e9) == pytest.approx(1e9 / 95e9 + 1e-3 + load.seconds(1e9))


def test_gpu_direct_leaves_out_what_host_memory_takes() -> None:
    direct = _route("HBM>16xEFA200G>HBM", chunk_bytes=1 << 20).bytes_per_s
    bounce = _route("DRAM>16xEFA200G>DRAM", chunk_bytes=1 << 20).bytes_per_s
    assert direct == pytest.approx(16 * 21.5e9)
    assert bounce == pytest.approx(213e9)


def test_libraries_reach_their_share_of_a_port() -> None:
    # 50 GB/s a port: 99 % and 84 %
    assert _route("HBM>IB400G>HBM", words="ucx").bytes_per_s == pytest.approx(49.5e9)
    assert _route("HBM>IB400G>HBM", words="mooncake te").bytes_per_s == pytest.approx(42e9)
    slow = _route("HBM>TCP100G>HBM", words="nixlbench ucx").bytes_per_s
    assert slow == pytest.approx(0.55e9)


def test_tiers_come_from_the_storage_file() -> None:
    assert _route("NVMe>DRAM io_uring").bytes_per_s == pytest.approx(6.9e9)
    assert _route("4x NVMe>DRAM").bytes_per_s == pytest.approx(4 * 6.9e9)
    assert _route("NVMe Gen3>DRAM").bytes_per_s == pytest.approx(3.0e9)
    assert _route("object store>node").bytes_per_s == pytest.approx(9.2e9)
    assert _route("3FS>1x400G client").bytes_per_s == pytest.approx(42.9e9)
    assert _route("DRAM>NVMe Gen4 write").bytes_per_s == pytest.approx(4.0e9)


def test_a_drive_read_straight_into_a_gpu_streams_at_the_slower_of_both() -> None:
    # a drive of 13.5 GB/s below a lane of 52.4; four drives of 7 below one of 24.5
    assert _route("NVMe Gen5>GDS>HBM").bytes_per_s == pytest.approx(13.5e9)
    four = _route("4x NVMe Gen4>PCIe4>HBM", gpu="A100")
    assert four.bytes_per_s == pytest.approx(24.5e9, rel=1e-3)
    # through host memory the two stages add: 1 / (1 / 7 + 1 / 24.5)
    staged = _route("NVMe Gen4>DRAM>PCIe4>HBM", gpu="A100")
    assert staged.bytes_per_s == pytest.approx(5.444e9, rel=1e-3)


def test_a_copy_that_states_no_chunk_moves_at_the_rate_of_long_chunks() -> None:
    assert _route("DRAM>NVLink-C2C>HBM", gpu="GH200").bytes_per_s == pytest.approx(375e9, rel=2e-3)
    paged = _route("DRAM>NVLink-C2C>HBM", gpu="GH200", is_bare=False)
    assert paged.bytes_per_s < 250e9


def test_a_transfer_library_pays_its_setup_on_the_scale_up_link() -> None:
    # 30 000 pages of 32 KiB: 0.456 us each, 983 MB at 370 GB/s, and 3.6 ms + 3 us
    paged = _route("HBM>NVLink4>HBM", chunk_bytes=32_768, is_bare=False)
    expected = 30_000 * 0.456e-6 + 983.04e6 / 370e9 + 3.6e-3 + 3e-6
    assert paged.seconds(983.04e6) == pytest.approx(expected)
    assert _route("HBM>NVLink4>HBM").fixed_s == pytest.approx(3e-6)


def test_a_tier_behind_a_network_streams_at_the_slower_of_both() -> None:
    assert _route("object store>TCP10G>DRAM").bytes_per_s == pytest.approx(1.1e9)


@pytest.mark.parametrize(
    ("text", "gpu", "reason"),
    [
        ("DRAM>PCIe9>HBM", "", "PCIe 9 is not among the links"),
        ("HBM>NVLink9>HBM", "", "NVLink 9 is not among the links"),
        ("HBM>NVLink>HBM", "L40S", "L40S has no NVLink"),
        ("DRAM>PCIe5>HBM compressed", "", "the path is compressed"),
        ("pool>HBM", "", "no link is named between pool and hbm"),
        ("HBM>object store", "", "the write rate of Object store"),
    ],
)
def test_what_cannot_be_expressed_gets_a_reason(text: str, gpu: str, reason: str) -> None:
    with pytest.raises(CannotPredictError, match=reason):
        _route(text, gpu=gpu)


@pytest.mark.parametrize("path", ["DRAM>PCIe{0}>HBM", "DRAM>{0}xRDMA200G>DRAM"])
def test_a_faster_path_is_never_slower(path: str) -> None:
    seconds = [_route(path.format(n), gpu="").seconds(1e9) for n in (3, 4, 5, 6)]
    assert seconds == sorted(seconds, reverse=True)


@pytest.mark.parametrize("protocol", ["TCP", "RDMA", "EFA"])
def test_faster_ports_are_never_slower(protocol: str) -> None:
    rates = [_route(f"DRAM>{protocol}{g}G>DRAM").bytes_per_s for g in (25, 100, 200, 400)]
    assert rates == sorted(rates)
