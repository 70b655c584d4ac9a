"""What GPUs reach in measured kernels: GEMM, attention, all-reduce; for families without runs."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Final

import polars as pl

from kvtrace.cost import load_hardware

_SYSTEMS: Final = {
    "sm80": ("a100_sxm", "A100-SXM4-80GB"),
    "sm89": ("l40s", "L40S"),
    "sm90": ("h100_sxm", "H100-SXM5"),
    "sm100": ("b200_sxm", "B200-SXM"),
    "sm103": ("b300_sxm", "B300-SXM"),
    "sm120": ("rtx_pro_6000_server", "RTX-PRO-6000-Server"),
}
_GEMM: Final = {"bf16": ("bfloat16",), "fp8": ("fp8", "fp8_static", "fp8_block"), "fp4": ("nvfp4",)}
_LONG_MESSAGE: Final = 16 << 20
"""Elements from which an all-reduce is bound by its bytes."""
_LARGE: Final = 2048
"""Rows and columns from which a GEMM or a sequence is long enough for the plateau."""


def kernel_shares(systems: Path, family: str) -> dict[str, float]:
    """Median shares of the peak in large kernels: gemm_<format>, attention, allreduce_tp<n>."""
    system, gpu_name = _SYSTEMS[family]
    gpu = load_hardware(gpu_name).gpu
    peaks = {
        "bf16": gpu.bf16_flops.value,
        "fp8": 0.0 if gpu.fp8_flops is None else gpu.fp8_flops.value,
        "fp4": 0.0 if gpu.fp4_flops is None else gpu.fp4_flops.value,
    }
    shares: dict[str, float] = {}
    folder = systems / "data" / system
    gemm = _frames(folder / "gemm", "gemm_perf.parquet")
    for name, peak in peaks.items():
        share = _gemm_share(gemm, name, peak) if peak else None
        if share is not None:
            shares[f"gemm_{name}"] = share
    attention = _attention_share(_frames(folder / "attention", "context_attention_perf.parquet"))
    if attention is not None:
        shares["attention"] = attention / gpu.bf16_flops.value
    if gpu.scaleup_bytes_per_s is not None:
        frames = _frames(folder / "comm", "nccl_perf.parquet")
        shares |= _allreduce_shares(frames, gpu.scaleup_bytes_per_s.value)
    return shares


def families() -> tuple[str, ...]:
    """GPU families with kernel tables."""
    return tuple(_SYSTEMS)


def _frames(folder: Path, name: str) -> list[pl.DataFrame]:
    """The newest table of each framework; pointers to other systems' tables are no Parquet."""
    found = []
    for framework in sorted(folder.iterdir()) if folder.is_dir() else []:
        newest = sorted(framework.rglob(name))
        if newest:
            found.append(pl.read_parquet(newest[-1]))
    return found


def _gemm_share(frames: list[pl.DataFrame], name: str, peak: float) -> float | None:
    rates = []
    for frame in frames:
        rows = frame.filter(
            pl.col("gemm_dtype").is_in(_GEMM[name])
            & (pl.col("m") >= _LARGE)
            & (pl.col("n") >= _LARGE)
            & (pl.col("k") >= _LARGE)
            & (pl.col("latency") > 0)
        )
        flops = 2.0 * pl.col("m").cast(pl.Float64) * pl.col("n") * pl.col("k")
        rates += rows.select((flops / pl.col("latency") * 1e3).alias("rate"))["rate"].to_list()
    value = _median(rates)
    return None if value is None else value / peak


def _attention_share(frames: list[pl.DataFrame]) -> float | None:
    """FLOP/s of causal attention over long sequences of 128-wide heads in 16 bits."""
    rates = []
    for frame in frames:
        window = pl.col("window_size") if "window_size" in frame.columns else pl.lit(0)
        rows = frame.filter(
            (pl.col("isl") >= 2 * _LARGE)
            & (pl.col("head_dim") == 128)
            & (window == 0)
            & (pl.col("step") == 0)
            & (pl.col("attn_dtype") == "bfloat16")
            & (pl.col("latency") > 0)
        )
        pairs = pl.col("batch_size") * pl.col("isl").cast(pl.Float64).pow(2) / 2
        flops = 4.0 * pairs * pl.col("num_heads") * pl.col("head_dim")
        rates += rows.select((flops / pl.col("latency") * 1e3).alias("rate"))["rate"].to_list()
    return _median(rates)


def _allreduce_shares(frames: list[pl.DataFrame], link: float) -> dict[str, float]:
    shares = {}
    for tp in (2, 4, 8):
        rates = []
        for frame in frames:
            rows = frame.filter(
                (pl.col("op_name") == "all_reduce")
                & (pl.col("nccl_dtype") == "half")
                & (pl.col("num_gpus") == tp)
                & (pl.col("message_size") >= _LONG_MESSAGE)
                & (pl.col("latency") > 0)
            )
            size = pl.col("message_size").cast(pl.Float64) * 2  # elements of 16 bits
            rates += rows.select((size / pl.col("latency") * 1e3).alias("rate"))["rate"].to_list()
        value = _median(rates)
        if value is not None:
            shares[f"allreduce_tp{tp}"] = value / link
    return shares


def _median(values: list[float]) -> float | None:
    return statistics.median(values) if values else None
