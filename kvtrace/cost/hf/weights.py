"""The number formats of the weights and of the KV of a Hugging Face config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kvtrace.cost.hf.reader import HfConfig

_NAMED: Final = ("nvfp4", "mxfp4", "fp8")
"""Formats that a method or algorithm has in its name."""
_PLAIN: Final = {"float32": "fp32", "float16": "fp16"}
_NARROW_BITS: Final = 4
_BYTE_BITS: Final = 8


def read_weight_dtype(config: HfConfig) -> str:
    """The format of most weights as published, such as `fp8`; bf16 where nothing is stated.

    Weights of fewer than four bits count as int4, the narrowest format here.
    """
    quantised = config.keys.get("quantization_config")
    found = _quantised(quantised) if isinstance(quantised, Mapping) else None
    given = str(config.keys.get("torch_dtype") or config.keys.get("dtype") or "bfloat16")
    return found or _PLAIN.get(given, "bf16")


def read_kv_dtype(config: HfConfig) -> str:
    """The format of KV that a `kv_cache_scheme` or `kv_cache_quant_algo` states; else bf16."""
    quantised = config.keys.get("quantization_config")
    table = quantised if isinstance(quantised, Mapping) else {}
    scheme, named = table.get("kv_cache_scheme"), table.get("kv_cache_quant_algo")
    if isinstance(scheme, Mapping) and scheme.get("num_bits") == _BYTE_BITS:
        return "fp8" if scheme.get("type") == "float" else "int8"
    text = str(scheme if isinstance(scheme, str) else named).lower()
    return next((name for name in (*_NAMED, "int8") if name in text), "bf16")


def _quantised(table: Mapping[str, object]) -> str | None:
    """The format of a `quantization_config`; null where it is not read here."""
    weights = _weights_of_group(table)
    words = (table.get("quant_method"), table.get("quant_algo"), table.get("format"))
    text = " ".join(str(word) for word in (*words, weights.get("dtype")) if word).lower()
    named = next((name for name in _NAMED if name in text), None)
    if named is not None:
        return named
    if table.get("load_in_4bit"):
        return "int4"
    if table.get("load_in_8bit"):
        return "int8"
    bits = weights.get("num_bits", table.get("bits"))
    if bits is None and str(table.get("quant_method")).lower() in ("awq", "gptq"):
        bits = _NARROW_BITS
    if not isinstance(bits, int) or isinstance(bits, bool):
        return None
    is_narrow = bits <= _NARROW_BITS
    if weights.get("type") == "float":
        return "nvfp4" if is_narrow else "fp8"
    return "int4" if is_narrow else "int8"


def _weights_of_group(table: Mapping[str, object]) -> Mapping[str, object]:
    """How the first group of layers has its weights; empty where no group says so."""
    groups = table.get("config_groups")
    listed = list(groups.values()) if isinstance(groups, Mapping) else []
    for group in (*listed, table.get("global_quant_config")):
        weights = (
            (group.get("weights") or group.get("weight")) if isinstance(group, Mapping) else None
        )
        if isinstance(weights, Mapping):
            return weights
    return {}
