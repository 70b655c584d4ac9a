"""Hardware: built-in profiles, the chunk law, and a user's TOML."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import kvtrace.cost
from kvtrace.cost import list_gpus, load_hardware
from kvtrace.cost.dtypes import kv_element_bytes, normalise_dtype
from kvtrace.cost.evidence import Constant, read_constant
from kvtrace.cost.hardware import list_links, load_link
from kvtrace.cost.names import build_index
from kvtrace.errors import UsageError


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
    ],
)
def test_a_file_with_a_fault_says_where(tmp_path: Path, text: str, cause: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        load_hardware(str(path))
    assert cause in (caught.value.cause or "")


def test_ambiguous_units_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text('gpu = "H100"\n[rdma]\nport = "400G"')
    with pytest.raises(UsageError, match="no clear unit"):
        load_hardware(str(path))


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
    page = (Path(__file__).parents[2] / "docs" / "model" / "cost.md").read_text(encoding="utf-8")
    path = tmp_path / "ours.toml"
    path.write_text(page.split("```toml\n")[1].split("```")[0])
    assert load_hardware(str(path)).rdma.port.max_bytes_per_s.value == 45e9
