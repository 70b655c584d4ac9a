"""What a calibration may fit: constants of the cost model, each between bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from kvtrace.cost.deployment import Deployment
from kvtrace.cost.efficiency import efficiency_table
from kvtrace.cost.evidence import Constant
from kvtrace.cost.walk import collect_constants, replaced_constants

ParameterName = Literal[
    "prefill_rate",
    "prefill_fixed",
    "prefill_token",
    "decode_bandwidth",
    "kv_bandwidth",
    "decode_fixed",
]
PREFILL: Final[tuple[ParameterName, ...]] = ("prefill_rate", "prefill_fixed", "prefill_token")
DECODE: Final[tuple[ParameterName, ...]] = ("decode_bandwidth", "kv_bandwidth", "decode_fixed")
NAMES: Final = (*PREFILL, *DECODE)
NESTED: Final[tuple[tuple[str, ...], ...]] = (
    ("prefill_rate", "decode_bandwidth"),
    ("prefill_fixed",),
    ("kv_bandwidth",),
    ("decode_fixed", "prefill_token"),
)
"""Parameters in the order in which they join a fit, as long as later requests are the gainers."""
LEAST_FIRST: Final = (
    "prefill_token",
    "decode_fixed",
    "prefill_fixed",
    "kv_bandwidth",
    "decode_bandwidth",
    "prefill_rate",
)
"""Which of several that the data cannot tell is given up first: what matters least."""
_SHARE_SPAN: Final = 5.0
"""A share of a peak is sought from the model's value over this …"""
_MOST_SHARE: Final = 1.2
"""… up to this: clocks above those of the data sheet may exceed a peak by a little."""
_SECONDS_SPAN: Final = 50.0
"""An overhead is sought from the model's value over this up to it times this."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One constant that is fitted."""

    name: str
    constant: Constant
    """As the model has it before the fit."""
    least: float
    most: float

    @property
    def start(self) -> float:
        """Where the search begins."""
        return self.constant.value


def parameters_of(deployment: Deployment, names: Sequence[str]) -> tuple[Parameter, ...]:
    """The parameters of these names on a deployment, in the order of `NAMES`.

    Raises:
        ModelError: the FLOPs of the LLM are not known.
    """
    found = _constants(deployment)
    if found["kv_bandwidth"].id == found["decode_bandwidth"].id:
        del found["kv_bandwidth"]
    return tuple(_parameter(name, found[name]) for name in NAMES if name in names and name in found)


def _constants(deployment: Deployment) -> dict[str, Constant]:
    hardware, table = deployment.hardware, deployment.efficiencies or efficiency_table()
    compute, _ = hardware.gpu.peak_flops(deployment.weight_dtype)
    return {
        "prefill_rate": table.family(hardware.gpu.family).gemm[compute],
        "prefill_fixed": table.shared["prefill_fixed_s"],
        "prefill_token": table.shared["prefill_token_s"],
        "decode_bandwidth": table.hbm_read(hardware.gpu.family),
        "kv_bandwidth": table.kv_read(hardware.gpu.family),
        "decode_fixed": table.shared["decode_fixed_s"],
    }


def _parameter(name: str, constant: Constant) -> Parameter:
    if constant.unit == "s":
        return Parameter(
            name, constant, constant.value / _SECONDS_SPAN, constant.value * _SECONDS_SPAN
        )
    most = max(_MOST_SHARE, constant.value * _MOST_SHARE)
    return Parameter(name, constant, constant.value / _SHARE_SPAN, most)


def with_values(deployment: Deployment, values: Mapping[str, float]) -> Deployment:
    """The deployment with constants of its efficiencies (by id) at these values."""
    if not values:
        return deployment
    table = deployment.efficiencies or efficiency_table()
    change = {
        one.id: replace(one, value=values[one.id], low=None, high=None)
        for one in collect_constants(table)
        if one.id in values
    }
    return replace(deployment, efficiencies=replaced_constants(table, change))
