"""Hardware: built-in profiles, the chunk law, and a user's TOML."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kvtrace.cost
from kvtrace.cost import list_gpus, load_hardware
from kvtrace.cost.dtypes import kv_element_bytes, normalise_dtype
from kvtrace.cost.evidence import Constant, price, read_constant, read_toml
from kvtrace.cost.links import list_links, load_link
from kvtrace.cost.names import build_index
from kvtrace.cost.storage import list_tiers, load_tier
from kvtrace.cost.walk import collect_constants
from kvtrace.errors import ModelError, UsageError


def test_every_gpu_and_link_loads_with_evidence() -> None:
    for name in list_gpus():
        profile = load_hardware(name)
        assert profile.gpu.name == name
        for constant in (*profile.host_link.constants(), profile.gpu.bf16_flops):
            assert constant.source, constant.id
            assert constant.as_of, constant.id
    for link in list_links():
        assert load_link(link).max_bytes_per_s.value <= load_link(link).peak_bytes_per_s.value


@pytest.mark.parametrize("name", ["H100", "h100 sxm5", "NVIDIA H100 80GB HBM3", "H100-SXM5-80GB"])
def test_gpu_names_match_as_people_and_drivers_write_them(name: str) -> None:
    assert load_hardware(name).gpu.name == "H100-SXM5"


def test_an_unknown_gpu_lists_close_ones() -> None:
    with pytest.raises(UsageError) as caught:
        load_hardware("H10O-SXM")
    assert "H100-SXM5" in (caught.value.cause or "")


def test_chunk_law_halves_the_rate_where_both_parts_are_equal() -> None:
    link = load_link("pcie5_x16")
    chunk = link.op_s.value * link.max_bytes_per_s.value
    assert link.bytes_per_s(chunk) == pytest.approx(link.max_bytes_per_s.value / 2)


def test_ranks_that_load_at_once_slow_one_another() -> None:
    profile = load_hardware("H100-SXM5")
    one, four = profile.load_bytes_per_s(1), profile.load_bytes_per_s(4)
    # fitted to 44 GB/s alone and 112 to 131 GB/s over four
    assert one == pytest.approx(43.9e9, rel=0.01)
    assert 112e9 < four < 131e9


def test_int4_and_missing_fp8_run_at_the_bf16_peak() -> None:
    a100, h100 = load_hardware("A100").gpu, load_hardware("H100").gpu
    b200 = load_hardware("B200").gpu
    assert a100.peak_flops("fp8") == ("bf16", 312e12)
    assert h100.peak_flops("fp8") == ("fp8", 1978e12)
    assert h100.peak_flops("int4")[0] == "bf16"
    assert h100.peak_flops("mxfp4")[0] == "bf16"
    assert b200.peak_flops("mxfp4")[0] == "fp8"
    assert b200.peak_flops("nvfp4") == ("fp4", 9e15)


def test_number_formats() -> None:
    assert normalise_dtype("torch.bfloat16") == "bf16"
    assert normalise_dtype("auto") == "bf16"
    assert kv_element_bytes("nvfp4") == 0.5625
    with pytest.raises(UsageError, match="fp7"):
        normalise_dtype("fp7")


def test_a_users_file_overrides_what_it_states(tmp_path: Path) -> None:
    path = tmp_path / "ours.toml"
    path.write_text(
        """
        gpu = "h100"
        gpus_per_node = 4
        hbm = "94GiB"
        hbm_rate = "3.9TB/s"
        [host_link]
        rate = "48GB/s"
        [rdma]
        port = "200Gb/s"
        ports_per_node = 2
        setup = "2ms"
        [tcp]
        port = "50Gb/s"
        [dram]
        size = "1TiB"
        idle_share = 0.25
        [moves]
        chunk = "64KiB"
        handover = "3ms"
        """
    )
    profile, base = load_hardware(str(path)), load_hardware("h100")
    assert profile.name == "ours"
    assert profile.gpus_per_node == 4
    assert profile.gpu.hbm_bytes.value == 94 * 2**30
    assert profile.gpu.hbm_bytes.kind == "given"
    assert profile.host_link.max_bytes_per_s.value == 48e9
    assert profile.rdma.port.link == "rdma_200g"
    assert profile.rdma.port.peak_bytes_per_s.value == 25e9
    assert profile.rdma.ports_per_node.value == 2
    assert profile.rdma.setup_s.value == 0.002
    assert profile.tcp.port.peak_bytes_per_s.value == 6.25e9
    assert profile.dram_bytes_per_node.value == 2**40
    assert profile.chunk_bytes.value == 65_536
    assert profile.handover_s.value == 0.003
    assert profile.load_contention == base.load_contention


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ('hbm = "80GiB"', "`gpu` is missing"),
        ('gpu = "H100"\nhmb = "80GiB"', "did you mean `hbm`"),
        ('gpu = "H100"\n[rdma]\nprot = "400Gb/s"', "did you mean `port`"),
        ('gpu = "H100"\n[rdma]\nport = 400', "needs a unit"),
        ('gpu = "H100"\nrdma = 3', "not a table"),
        ('gpu = "H100"\n[dram]\nidle_share = 2.0', "0 to 1"),
        ('gpu = "H100"\n[moves]\nload_contention = 1.5', "never load slower"),
        ('gpu = "H100"\n[host_link]\nlink = "pcie9"', "pcie5_x16"),
        ('gpu = "H100"\ngpus_per_node = 0.5', "whole number"),
        ('gpu = "H100"\ngpu_usd_per_hour = nan', "not a finite number"),
        ('gpu = "H100"\nbf16 = "1e400TFLOPS"', "above zero and finite"),
        ('gpu = "H100"\n[rdma]\nports_per_node = 0', "whole number"),
        (
            'gpu = "H100"\n[rdma]\nport = "100Gb/s"\nrate = "45GB/s"',
            "`rdma.rate` of 45 GB/s is above the port's line rate of 12.5 GB/s (100 Gb/s)",
        ),
        ('gpu = "H100"\n[tcp]\nrate = "90GB/s"', "above the port's line rate"),
    ],
)
def test_a_file_with_a_fault_says_where(tmp_path: Path, text: str, cause: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        load_hardware(str(path))
    assert cause in (caught.value.cause or "")
    # What is wrong stands in the last line, but for a key that is missing.
    assert caught.value.where is not None
    line = None if "is missing" in cause else len(text.splitlines())
    assert caught.value.where.line == line


def test_ambiguous_units_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text('gpu = "H100"\n[rdma]\nport = "400G"')
    with pytest.raises(UsageError, match="no clear unit") as caught:
        load_hardware(str(path))
    assert str(caught.value.where) == f"{path}:3 (`rdma.port`)"


def test_unreadable_and_broken_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        load_hardware(str(tmp_path / "absent.toml"))
    path = tmp_path / "broken.toml"
    path.write_text("gpu = ")
    with pytest.raises(UsageError, match="not TOML"):
        load_hardware(str(path))


def test_a_constant_keeps_its_interval_around_its_value() -> None:
    entry = {"value": 2.0, "low": 3.0}
    with pytest.raises(ValueError, match="above the value"):
        read_constant(entry, id="x")
    with pytest.raises(ValueError, match="below the value"):
        read_constant({"value": 2.0, "high": 1.0}, id="x")
    with pytest.raises(ValueError, match="unknown kind"):
        read_constant({"value": 2.0, "kind": "guess"}, id="x")
    constant = Constant("x", "t", 2.0, "s", 1.0, None, "assumed", "s", "2026")
    assert constant.scaled(3.0).low == 3.0
    assert constant.given(5.0, source="mine").kind == "given"


def test_two_owners_of_one_name_are_a_fault() -> None:
    with pytest.raises(ValueError, match="names both"):
        build_index([("A-1", ["x"]), ("B-2", ["X"])])


def test_every_public_name_resolves_and_unknown_ones_do_not() -> None:
    for name in kvtrace.cost.__all__:
        assert getattr(kvtrace.cost, name) is not None
    assert set(kvtrace.cost.__all__) <= set(dir(kvtrace.cost))
    with pytest.raises(AttributeError, match="load_toaster"):
        getattr(kvtrace.cost, "load_toaster")  # noqa: B009 - a name that mypy must not see


def test_the_cost_model_imports_nothing_heavy() -> None:
    code = (
        "import sys, kvtrace.cost.ledger, kvtrace.cost.fleet; "
        "print(sorted({'scipy', 'polars', 'duckdb', 'plotly', 'numba', 'csv', 'tomllib', 'json'}"
        " & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() in ("[]", "['json']")  # numpy may bring json


def test_the_documented_hardware_file_loads(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "model" / "hardware.md").read_text("utf-8")
    path = tmp_path / "ours.toml"
    path.write_text(re.findall(r"```toml[^\n]*\n(.*?)```", page, re.DOTALL)[0])
    profile = load_hardware(str(path))
    assert profile.rdma.port.max_bytes_per_s.value == 45e9
    assert profile.tier("our_appliance").read_bytes_per_s.value == 20e9
    assert profile.topology.nvme_per_node.value == 4
    assert profile.nvme.read_bytes_per_s.value == 12e9


def test_a_node_has_a_topology_drives_and_stores() -> None:
    profile = load_hardware("A100")
    assert profile.topology.gpus_per_uplink.value == 2
    assert profile.topology.nic_placement == "switch"
    assert profile.nvme.tier == "nvme_gen4_x4"
    assert {tier.tier for tier in profile.tiers} == set(list_tiers())
    for constant in (*profile.topology.constants(), *collect_constants(profile.tiers)):
        assert constant.source, constant.id
        assert constant.as_of, constant.id


def test_a_store_is_a_link_of_its_drives() -> None:
    drive = load_tier("nvme_gen4_x4")
    link = drive.link(units=4)
    assert link.bytes_per_s(1 << 20) == pytest.approx(4 * 7e9)
    assert link.latency_s == drive.first_byte_s
    assert drive.link(is_reading=False).max_bytes_per_s.value == 4e9
    with pytest.raises(ModelError, match="write rate"):
        load_tier("cloud_file_storage").link(is_reading=False)


def test_a_users_file_adds_and_overrides_stores_and_wiring(tmp_path: Path) -> None:
    path = tmp_path / "ours.toml"
    path.write_text(
        """
        gpu = "L40S"
        name = "Our-GPU"
        family = "sm90"
        bf16 = "400TFLOPS"
        fp4 = "1.6PFLOP/s"
        scaleup = "100GB/s"
        gpu_usd_per_hour = 0.75
        [topology]
        gpus_per_uplink = 4
        nvme_placement = "none"
        [nvme]
        tier = "our_drive"
        drives = 3
        [pool]
        nvme_tier = "nvme_gen5_x4"
        drives = 12
        [storage.our_drive]
        medium = "nvme"
        rate_per = "drive"
        read = "10GB/s"
        first_byte = "90us"
        [storage.nfs_over_100g_tcp]
        write = "1GB/s"
        """
    )
    profile = load_hardware(str(path))
    gpu = profile.gpu
    assert (profile.name, gpu.family, gpu.bf16_flops.value) == ("Our-GPU", "sm90", 400e12)
    assert gpu.fp4_flops is not None
    assert (gpu.fp4_flops.value, gpu.fp4_flops.kind) == (1.6e15, "given")
    assert gpu.scaleup_bytes_per_s is not None
    assert profile.gpu_usd_per_hour.value == 0.75
    assert profile.topology.gpus_per_uplink.value == 4
    assert profile.topology.nvme_placement == "none"
    assert (profile.nvme.title, profile.topology.nvme_per_node.value) == ("our_drive", 3)
    assert (profile.pool_nvme_tier, profile.pool_nvme_per_node.value) == ("nvme_gen5_x4", 12)
    nfs = profile.tier("NFS over 100G TCP")
    assert nfs.read_bytes_per_s.value == 3e9
    assert nfs.write_bytes_per_s is not None
    assert nfs.write_bytes_per_s.value == 1e9


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("[topology]\nnic_placement = 'roof'", "none of switch, socket, none"),
        ("[topology]\nnumanodes = 2", "did you mean `numa_nodes`"),
        ("[nvme]\ndrives = 1.5", "whole number"),
        ("[storage]\nx = 3", "`storage.x` is not a table"),
        ("[storage.x]\nread = '1GB/s'", "no built-in store, so it needs `medium`"),
        ("[storage.x]\nmedium = 'tape'", "none of dram, nvme"),
        ("bf16 = 3", "needs a unit"),
        ("name = 3", "not a text"),
    ],
)
def test_a_fault_in_stores_or_wiring_says_where(tmp_path: Path, text: str, cause: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(f'gpu = "H100"\n{text}')
    with pytest.raises(UsageError) as caught:
        load_hardware(str(path))
    assert cause in (caught.value.cause or "")


@pytest.mark.parametrize(
    ("key", "value", "hint"),
    [
        ("hbm", "80G", "80GiB` is 2^30"),
        ("hbm_rate", "3.35T", "GB/s` is gigabytes"),
        ("hbm", "80Gb", "80GB` is 10^9"),
        ("bf16", "989T", "989TFLOPS"),
    ],
)
def test_a_bare_letter_is_no_unit(tmp_path: Path, key: str, value: str, hint: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(f'gpu = "H100"\n{key} = "{value}"')
    with pytest.raises(UsageError) as caught:
        load_hardware(str(path))
    assert hint in (caught.value.hint or "")
    assert caught.value.where is not None
    assert f"`{key}`" in str(caught.value.where)


def test_bits_and_bytes_differ_by_eight(tmp_path: Path) -> None:
    rates = {}
    for text in ("400Gb/s", "50GB/s", "400Gbps"):
        path = tmp_path / "ours.toml"
        path.write_text(f'gpu = "H100"\n[rdma]\nport = "{text}"')
        rates[text] = load_hardware(str(path)).rdma.port.peak_bytes_per_s.value
    assert set(rates.values()) == {50e9}


def _facts(shared_dir: Path, name: str) -> list[dict[str, str]]:
    with (shared_dir / "facts" / name).open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.shared
def test_every_published_gpu_is_built_in_with_its_figures(shared_dir: Path) -> None:
    rows = _facts(shared_dir, "gpus.csv")
    assert [row["gpu"] for row in rows] == list(list_gpus())
    for row in rows:
        gpu = load_hardware(row["gpu"]).gpu
        assert gpu.bf16_flops.value == pytest.approx(float(row["dense_bf16_tflops"]) * 1e12)
        for column, peak in (("fp8", gpu.fp8_flops), ("fp4", gpu.fp4_flops)):
            stated = row[f"dense_{column}_tflops"]
            assert (peak is None) == (not stated), gpu.name
            if peak is not None:
                assert peak.value == pytest.approx(float(stated) * 1e12)
        assert gpu.hbm_bytes.value == float(row["mem_gb"]) * 2**30
        assert gpu.hbm_bytes_per_s.value == pytest.approx(float(row["mem_bw_gbps"]) * 1e9)
        assert gpu.tdp_watts == float(row["tdp_w"])
        scaleup = gpu.scaleup_bytes_per_s
        assert (0.0 if scaleup is None else scaleup.value) == pytest.approx(
            float(row["scaleup_gbps_per_dir"] or 0) * 1e9
        )
        is_coherent = load_hardware(row["gpu"]).host_link.link == "nvlink_c2c"
        assert is_coherent == bool(row["c2c_gbps_per_dir"])


@pytest.mark.shared
def test_every_published_store_is_built_in_with_its_figures(shared_dir: Path) -> None:
    stores = {tier.title: tier for tier in map(load_tier, list_tiers())}
    rows = [row for row in _facts(shared_dir, "storage.csv") if row["kind"] != "hbm"]
    assert {row["tier"] for row in rows} <= set(stores)
    for row in rows:
        tier = stores[row["tier"]]
        assert tier.medium == row["kind"]
        assert tier.read_bytes_per_s.value == pytest.approx(float(row["read_gbps"]) * 1e9)
        write = tier.write_bytes_per_s
        assert (0.0 if write is None else write.value) == pytest.approx(
            float(row["write_gbps"] or 0) * 1e9
        )
        first_s = float(row["first_byte_latency_us"]) * 1e-6
        assert tier.first_byte_s.value == pytest.approx(first_s)


@pytest.mark.shared
def test_every_published_price_of_hardware_is_built_in(shared_dir: Path) -> None:
    known = {
        (constant.value, constant.low, constant.high)
        for constant in (
            *(price(name) for name in read_toml("prices.toml")["constants"]),
            *(load_hardware(gpu).gpu_usd_per_hour for gpu in list_gpus()),
        )
    }
    other = ("API cache-hit", "GB200", "H800")  # of tokens; two GPUs; without an interval
    for row in _facts(shared_dir, "prices.csv"):
        if not row["mid"] or not row["high"] or any(word in row["item"] for word in other):
            continue
        stated = (float(row["mid"]), float(row["low"]), float(row["high"]))
        assert stated in known, row["item"]
