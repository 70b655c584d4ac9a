"""What is fitted, between which bounds, and a table of efficiencies with other values in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kvtrace.cost.efficiency import EfficiencyTable
from kvtrace.cost.evidence import Constant


@dataclass(frozen=True, slots=True)
class Parameter:
    """A constant of data/efficiency.toml that is fitted."""

    name: str
    """`shared.<key>` or `<family>.<key>`."""
    start: float
    """Where the search begins, and where a weak prior holds it."""
    low: float
    high: float
    prior: float = 1.0
    """How far the start is trusted: a standard deviation in log space."""


def _family(name: str, formats: dict[str, float], attention: float, half: float) -> list[Parameter]:
    """Starts are what measured kernels of the family reach, see `kernels`: runs lose some of it."""
    rows = [
        Parameter(f"{name}.gemm_{key}", value, 0.1, 0.95, 0.25) for key, value in formats.items()
    ]
    rows.append(Parameter(f"{name}.attention", attention, 0.3, 0.8, 0.25))
    rows.append(Parameter(f"{name}.half_tokens", half, 2.0, 400.0, 0.7))
    return rows


PARAMETERS: Final[tuple[Parameter, ...]] = (
    *_family("sm80", {"bf16": 0.78}, 0.53, 60.0),
    *_family("sm90", {"bf16": 0.78, "fp8": 0.5}, 0.55, 60.0),
    *_family("sm100", {"fp8": 0.47, "fp4": 0.36}, 0.47, 60.0),
    *_family("sm103", {"fp8": 0.5, "fp4": 0.25}, 0.57, 60.0),
    Parameter("shared.moe_gemm", 0.8, 0.1, 1.5, 0.4),
    Parameter("shared.moe_half_width", 225.0, 10.0, 2000.0, 0.5),
    Parameter("shared.moe_passes", 20.0, 1.0, 200.0),
    Parameter("shared.recurrent_passes", 20.0, 0.1, 400.0),
    Parameter("shared.elementwise_passes", 8.0, 2.0, 30.0),
    Parameter("shared.prefill_fixed_s", 8e-3, 0.5e-3, 40e-3),
    Parameter("shared.prefill_layer_s", 50e-6, 1e-6, 120e-6),
    Parameter("shared.prefill_token_s", 1e-6, 0.05e-6, 5e-6),
    Parameter("shared.frontend_s", 8e-3, 0.5e-3, 60e-3),
    Parameter("shared.frontend_token_s", 1.5e-6, 0.05e-6, 6e-6),
    Parameter("shared.split_s", 15e-3, 1e-3, 60e-3),
    Parameter("shared.allreduce_prefill_s", 15e-6, 3e-6, 60e-6),
    Parameter("shared.hbm_read", 0.82, 0.6, 0.95, 0.2),
    Parameter("shared.kv_read", 0.75, 0.4, 0.95, 0.3),
    Parameter("shared.decode_fixed_s", 0.6e-3, 0.05e-3, 4e-3),
    Parameter("shared.decode_layer_s", 8e-6, 0.2e-6, 60e-6),
    Parameter("shared.moe_layer_s", 30e-6, 1e-6, 120e-6),
    Parameter("shared.allreduce_decode_s", 10e-6, 2e-6, 40e-6),
    Parameter("shared.prefill_trtllm", 0.9, 0.5, 1.5),
    Parameter("shared.decode_trtllm", 0.9, 0.5, 1.3),
    Parameter("shared.frontend_trtllm_s", 20e-3, 0.5e-3, 300e-3),
    Parameter("shared.prefill_sglang", 1.0, 0.5, 2.0, 0.3),
    Parameter("shared.decode_sglang", 1.0, 0.5, 2.0, 0.3),
    Parameter("shared.frontend_sglang_s", 50e-3, 0.5e-3, 300e-3),
    Parameter("shared.indexer_layer_s", 30e-6, 1e-6, 300e-6),
)


Shares = Mapping[str, Mapping[str, float]]
"""Family to the share of its peaks that measured kernels reach, by constant."""
_LIKE: Final = {"gemm_bf16": "sm90", "gemm_fp8": "sm90", "gemm_fp4": "sm100"}
"""The fitted family whose loss between kernels and runs holds for families without runs."""


def with_kernels(table: EfficiencyTable, shares: Shares) -> EfficiencyTable:
    """The table with efficiencies of families that no run measured, from measured kernels.

    Formula: efficiency = kernel share x (fitted efficiency / kernel share) of a family with runs.
    """
    families = dict(table.families)
    fitted = {name.split(".")[0] for name in _fitted_names()}
    for name, share in shares.items():
        family = families.get(name) or replace(families["other"], family=name)
        gemm = dict(family.gemm)
        for key, like in _LIKE.items():
            if key in share and f"{name}.{key}" not in _fitted_names():
                loss = min(1.0, families[like].gemm[key[5:]].value / shares[like][key])
                gemm[key[5:]] = _moved(gemm[key[5:]], min(0.95, share[key] * loss))
        attention, half = family.attention, family.half_tokens
        if name not in fitted and "attention" in share:
            loss = min(1.0, families["sm90"].attention.value / shares["sm90"]["attention"])
            attention = _moved(attention, min(0.95, share["attention"] * loss))
            half = _moved(half, families["sm90"].half_tokens.value)
        families[name] = replace(family, gemm=gemm, attention=attention, half_tokens=half)
    return EfficiencyTable(families=families, shared=table.shared)


def _fitted_names() -> frozenset[str]:
    return frozenset(parameter.name for parameter in PARAMETERS)


def with_values(
    table: EfficiencyTable,
    parameters: Sequence[Parameter],
    values: Sequence[float],
    shares: Shares,
) -> EfficiencyTable:
    """The table with these values, and what follows from them for families without runs."""
    families, shared = dict(table.families), dict(table.shared)
    for parameter, value in zip(parameters, values, strict=True):
        owner, key = parameter.name.split(".", 1)
        if owner == "shared":
            shared[key] = _moved(shared[key], value)
            continue
        family = families[owner]
        if key.startswith("gemm_"):
            gemm = dict(family.gemm)
            gemm[key[5:]] = _moved(gemm[key[5:]], value)
            families[owner] = replace(family, gemm=gemm)
        elif key == "attention":
            families[owner] = replace(family, attention=_moved(family.attention, value))
        else:
            families[owner] = replace(family, half_tokens=_moved(family.half_tokens, value))
    return with_kernels(EfficiencyTable(families=families, shared=shared), shares)


def _moved(constant: Constant, value: float) -> Constant:
    return replace(constant, value=float(value), low=None, high=None)
