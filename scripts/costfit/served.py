"""Measured serving runs of the public package aiconfigurator-core, as validation points."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import polars as pl

from kvtrace.cost.validation import Point

MOST_CONCURRENT: Final = 4
"""Above it, TTFT is mostly the queue."""
_LARGEST_TP: Final = 8
"""Ranks of one node."""
_GPUS: Final = {
    "a100_sxm": "A100-SXM4-80GB",
    "h100_sxm": "H100-SXM5",
    "h200_sxm": "H200-SXM",
    "b200_sxm": "B200-SXM",
    "b300_sxm": "B300-SXM",
    "gb200": "GB200",
    "gb300": "GB300",
    "l40s": "L40S",
}
_FORMATS: Final = {"fp8": "fp8", "fp8_block": "fp8", "nvfp4": "nvfp4", "mxfp4": "mxfp4"}


def read_served(path: Path) -> tuple[Point, ...]:
    """TTFT and TPOT of single instances at low concurrency, one point a configuration.

    Left out: split prefill and decode; pipeline and data parallelism; more than one node; rows
    whose expert layout does not multiply to the GPUs (twins of others); unknown number formats. Of
    a configuration that was measured several times, or under two names of one LLM, TTFT is the
    least (a queue only adds) and TPOT the median at the shortest output.
    """
    rows = pl.read_csv(path, infer_schema_length=None)
    concurrency = pl.col("silicon_data_source").str.extract(r"silicon_concurrency=(\d+)")
    rows = rows.with_columns(
        concurrency=concurrency.cast(pl.Int64),
        model=pl.col("model_path").str.replace("DeepSeek-R1|DeepSeek-V3", "DeepSeek-V3"),
    ).filter(
        (pl.col("mode") == "agg")
        & (pl.col("concurrency") <= MOST_CONCURRENT)
        & (pl.col("pp_size") == 1)
        & (pl.col("tp_size") <= _LARGEST_TP)
        & (pl.col("attention_dp_size") == 1)
        & (pl.col("moe_tp_size") * pl.col("moe_ep_size") == pl.col("tp_size"))
        & pl.col("system").is_in(list(_GPUS))
        & pl.col("gemm_quant_mode").is_in(list(_FORMATS))
    )
    keys = ["backend", "model", "system", "gemm_quant_mode", "isl", "tp_size", "concurrency"]
    found = (
        rows.group_by(keys)
        .agg(
            pl.col("silicon_ttft_ms").min(),
            pl.col("silicon_tpot_ms").filter(pl.col("osl") == pl.col("osl").min()).median(),
            pl.col("osl").min(),
        )
        .sort(keys)
    )
    points = []
    for row in found.iter_rows(named=True):
        points += [_point(row, "prefill_ttft"), _point(row, "decode")]
    return tuple(point for point in points if point.value > 0)


def _point(row: dict[str, object], kind: str) -> Point:
    is_prefill = kind == "prefill_ttft"
    isl, tp = int(str(row["isl"])), int(str(row["tp_size"]))
    value = row["silicon_ttft_ms" if is_prefill else "silicon_tpot_ms"]
    name = "-".join(str(row[key]) for key in ("backend", "model", "system", "gemm_quant_mode"))
    return Point(
        line=0,
        id=f"{kind}-{name}-{isl}-{row['osl']}-{tp}-{row['concurrency']}",
        series="served",
        kind=kind,
        metric="mean_ttft_ms" if is_prefill else "mean_tpot_ms",
        value=0.0 if value is None else float(str(value)),
        unit="ms",
        tol_rel=0.3,
        model=str(row["model"]).split("/")[-1],
        gpu=_GPUS[str(row["system"])],
        n_gpus=tp,
        tp=tp,
        weight_dtype=_weights(row),
        kv_dtype="bf16",
        new_tokens=isl if is_prefill else 1,
        cached_tokens=0 if is_prefill else isl,
        concurrency=int(str(row["concurrency"])),
        bytes=None,
        path="",
        chunk_bytes=None,
        engine=str(row["backend"]),
        provenance="table",
        source="aiconfigurator-core silicon_sample.csv",
        note=f"osl {row['osl']}",
    )


def _weights(row: dict[str, object]) -> str:
    """gpt-oss is published in MXFP4 and served so, whatever the table calls it."""
    is_mxfp4 = "gpt-oss" in str(row["model"])
    return "mxfp4" if is_mxfp4 else _FORMATS[str(row["gemm_quant_mode"])]
