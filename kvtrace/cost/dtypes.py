"""Number formats: bytes per KV element and per weight, and the peak that they reach."""

from __future__ import annotations

from typing import Final, Literal

from kvtrace.errors import UsageError

ComputeDtype = Literal["bf16", "fp8", "fp4"]

DTYPES: Final[tuple[str, ...]] = (
    "bf16", "fp16", "fp32", "fp8", "fp8_ds_mla", "int8", "nvfp4", "mxfp4", "int4",
)  # fmt: skip
_ALIASES: Final = {
    "auto": "bf16",
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float32": "fp32",
    "float": "fp32",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "float8_e4m3fn": "fp8",
    "fp4": "nvfp4",
    "awq": "int4",
    "gptq": "int4",
}
_KV_BYTES: Final = {
    "bf16": 2.0, "fp16": 2.0, "fp32": 4.0, "fp8": 1.0, "int8": 1.0,
    "nvfp4": 0.5 + 1 / 16, "mxfp4": 0.5 + 1 / 32, "int4": 0.5 + 2 / 64,
}  # fmt: skip
"""Scales included: one byte per 16 (nvfp4) or 32 (mxfp4) elements, two per 64 (int4)."""
_WEIGHT_BYTES: Final = {**_KV_BYTES, "int4": 0.5 + 2 / 128}


def normalise_dtype(dtype: str) -> str:
    """The name of `dtype` here.

    Raises:
        UsageError: the number format is not known.
    """
    name = dtype.strip().lower().removeprefix("torch.")
    name = _ALIASES.get(name, name)
    if name not in DTYPES:
        raise UsageError(
            "KVT-C010",
            f"`{dtype}` is not a known number format",
            hint=f"use one of {', '.join(DTYPES)}",
        )
    return name


def kv_element_bytes(dtype: str) -> float:
    """Bytes of one KV element, scales included."""
    return _KV_BYTES[_without_layout(dtype)]


def weight_element_bytes(dtype: str) -> float:
    """Bytes of one parameter, scales included."""
    return _WEIGHT_BYTES[_without_layout(dtype)]


def compute_dtype(
    weight_dtype: str, *, fp8_flops: float | None, fp4_flops: float | None
) -> ComputeDtype:
    """The peak that GEMMs of `weight_dtype` run at on a GPU with these peaks.

    Assumes: formats that the GPU lacks, and int4, are widened to bf16; mxfp4 weights run with
    fp8 activations where fp4 exists, else widened to bf16.
    """
    dtype = normalise_dtype(weight_dtype)
    if dtype == "nvfp4" and fp4_flops is not None:
        return "fp4"
    if dtype == "mxfp4" and fp4_flops is not None and fp8_flops is not None:
        return "fp8"
    if dtype in ("fp8", "int8") and fp8_flops is not None:
        return "fp8"
    return "bf16"


def _without_layout(dtype: str) -> str:
    name = normalise_dtype(dtype)
    return "fp8" if name == "fp8_ds_mla" else name
