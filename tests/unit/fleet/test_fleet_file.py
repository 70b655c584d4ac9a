"""The fleet file: sections, the first files without them, who stands behind a line, faults."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from kvtrace.cost.deployment import Deployment, build_deployment
from kvtrace.cost.fleet import Fleet, default_fleet, load_fleet
from kvtrace.cost.toml_lines import remark_of
from kvtrace.errors import UsageError


@pytest.fixture(scope="module")
def deployment() -> Deployment:
    return build_deployment("Meta-Llama-3.1-70B", "H100-SXM5", tp=4)


@pytest.fixture
def base(deployment: Deployment) -> Fleet:
    return default_fleet(deployment, 4)


def write(folder: Path, text: str) -> Path:
    path = folder / "fleet.toml"
    path.write_text(text)
    return path


def test_sections_say_what_the_first_files_said_without_them(base: Fleet, tmp_path: Path) -> None:
    flat = load_fleet(
        write(
            tmp_path,
            'instances = 6\npool_nodes = 3\npool_dram_bytes = "8TiB"\ndram_usd_per_gb = 9\n'
            'dram_idle_bytes_per_instance = "1TiB"\nnic_usd_per_port = 1000\n',
        ),
        base,
    )
    sections = load_fleet(
        write(
            tmp_path,
            '[instances]\ncount = 6\ndram_free = "1TiB"\n[pool]\nnodes = 3\ndram = "8TiB"\n'
            "[prices]\ndram_usd_per_gb = 9\nnic_usd_per_port = 1000\n",
        ),
        base,
    )
    assert flat == sections
    assert sections.prices.nic(12.5e9).value == sections.prices.nic(50e9).value == 1000


def test_room_of_a_node_is_shared_by_its_instances(base: Fleet, tmp_path: Path) -> None:
    path = write(tmp_path, '[gpu_nodes]\ndram_free = "1TiB"\nnvme_free = "8TB"\ndram_room = "0B"\n')
    fleet = load_fleet(path, base)
    # TP4 of 8 GPUs a node: half a node each.
    assert fleet.dram_idle_bytes_per_instance.value == 2**40 / 2
    assert fleet.nvme_free_bytes_per_instance.value == 4e12
    assert fleet.dram_room_bytes_per_instance.value == 0
    assert fleet.nvme_free_bytes_per_instance.kind == "given"


def test_ports_and_shares_set_the_usable_rate(base: Fleet, tmp_path: Path) -> None:
    path = write(tmp_path, "[network]\ncompute_ports = 4\ncompute_kv_share = 0.25\n")
    fleet = load_fleet(path, base)
    # 4 of 8 ports and a quarter of them: an eighth of what all 8 give.
    assert fleet.node_network_bytes_per_s.value == pytest.approx(
        base.node_network_bytes_per_s.value / 8
    )
    assert fleet.network.compute_bytes_per_s == 4 * 50e9 * 0.25
    measured = write(tmp_path, '[network]\ncompute_ports = 4\nusable_rate = "99GB/s"\n')
    assert load_fleet(measured, base).node_network_bytes_per_s.value == 99e9


def test_the_line_rate_of_a_pool_port_sets_its_usable_rate_and_price(
    base: Fleet, tmp_path: Path
) -> None:
    fleet = load_fleet(write(tmp_path, '[pool]\nport_rate = "200Gb/s"\n'), base)
    assert fleet.pool_nic_bytes_per_s.value == pytest.approx(base.pool_nic_bytes_per_s.value / 2)
    assert fleet.prices.nic(fleet.pool_port_line_bytes_per_s).id == "prices.nic_100g_usd"


def test_contract_slo_and_load(base: Fleet, tmp_path: Path) -> None:
    assert base.contract.kind.kind == "assumed"
    assert base.peak_factor is None
    fleet = load_fleet(
        write(
            tmp_path,
            '[gpu_contract]\nkind = "reserved"\nuntil = 2027-06-30\n'
            '[slo]\nttft = "2s"\nttft_per_1k_tokens = "100ms"\nshare = 0.95\n'
            '[load]\npeak_factor = 1.5\n[tenants]\nsharing = "tenant"\n',
        ),
        base,
    )
    assert (fleet.contract.kind.value, fleet.contract.until) == ("reserved", date(2027, 6, 30))
    assert (fleet.slo.ttft_s, fleet.slo.share, fleet.slo.tpot_s) == (2.0, 0.95, None)
    assert fleet.slo.ttft_s_per_token == pytest.approx(1e-4)
    assert fleet.peak_factor is not None
    assert fleet.peak_factor.value == 1.5
    assert (fleet.sharing.value, fleet.sharing.kind) == ("tenant", "given")


def test_a_line_marked_unconfirmed_counts_and_stays_an_estimate(
    base: Fleet, tmp_path: Path
) -> None:
    text = (
        "[pool]\nnodes = 3            # unconfirmed: default of kvtrace\n"
        'dram = "8TiB"  # from logs: 8 TiB registered\nports_per_node = 4  # checked by ops\n'
        '[gpu_contract]\nkind = "owned" # unconfirmed\n'
    )
    fleet = load_fleet(write(tmp_path, text), base)
    assert (fleet.pool_nodes.value, fleet.pool_nodes.kind) == (3, "assumed")
    assert (fleet.pool_nodes.low, fleet.pool_nodes.high) == (2, 4)  # the default's range holds it
    assert (fleet.pool_dram_bytes.kind, fleet.pool_dram_bytes.source) == (
        "given",
        "logs, by fleet.toml",
    )
    assert (fleet.pool_nics_per_node.kind, fleet.pool_nics_per_node.source) == (
        "given",
        "fleet.toml",
    )
    assert (fleet.contract.kind.value, fleet.contract.kind.kind) == ("owned", "assumed")


def test_a_hash_inside_a_string_is_no_remark() -> None:
    assert remark_of('a = "x # unconfirmed"', ("a",)) == ""
    assert remark_of('a = "x # y" # unconfirmed', ("a",)) == "unconfirmed"
    assert remark_of("a = 1", ("b",)) == ""


@pytest.mark.parametrize(
    ("text", "line", "cause"),
    [
        ("[pool]\n\nnode = 3", 3, "`pool.node`; did you mean `nodes`"),
        ("[pol]\nnodes = 3", 1, "did you mean `pool`"),
        ("[pool]\nzzzz = 3", 2, "known: nodes, dram"),
        ('[gpu_contract]\nkind = "own"', 2, "did you mean `owned`"),
        ('[gpu_contract]\nuntil = "soon"', 2, "not a date"),
        ("[network]\nis_built = 1", 2, "true or false"),
        ("[network]\ncompute_kv_share = 1.5", 2, "ratio, 0 to 1"),
        ("[slo]\nttft = 2", 2, "with its unit, such as `250ms`"),
        ('[slo]\nttft = "2 fortnights"', 2, "no clear unit of time"),
        ("[pool]\nnodes = { value = 4, low = 5 }", 2, "between low and high"),
        ("[pool]\nnodes = { low = 5 }", 2, "a range is"),
        ("[pool]\nnodes = nan", 2, "finite"),
        ("[instances]\ncount = 1.5", 2, "whole number"),
        ("[prices]\ndram_usd_per_gib = 5", 2, "did you mean `dram_usd_per_gb`"),
    ],
)
def test_a_fault_names_its_line(
    base: Fleet, tmp_path: Path, text: str, line: int, cause: str
) -> None:
    with pytest.raises(UsageError) as caught:
        load_fleet(write(tmp_path, text), base)
    assert cause in (caught.value.cause or "")
    assert caught.value.where is not None
    assert caught.value.where.line == line
    assert caught.value.hint


def test_a_file_that_is_not_toml_names_its_line(base: Fleet, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        load_fleet(write(tmp_path, "[pool]\nnodes = 2\ndram = 4TiB\n"), base)
    assert caught.value.where is not None
    assert caught.value.where.line == 3
