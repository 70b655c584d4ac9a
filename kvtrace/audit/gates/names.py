"""What a gate can be about: the numbers and the ordered words of a record, by name.

Names are those of the record's fields where there is one. A number that is null is unknown, never
zero; `why` then says it in words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, get_args

from kvtrace.audit.money.record import PoolOverRival
from kvtrace.audit.record import AuditRecord, Cell, Option, Outcome, Quantity

ORDERED: Final[Mapping[str, tuple[str, ...]]] = {
    "confidence": ("low", "medium", "high"),
    "severity": ("info", "warning", "critical"),
    "grade": ("L", "C", "B", "A"),
}
"""Words with an order, the least first. `severity` is that of any finding."""
OUTCOMES: Final[tuple[str, ...]] = get_args(Outcome)


@dataclass(frozen=True, slots=True)
class Number:
    """A number of a record as a gate reads it."""

    value: float | None
    unit: str
    low: float | None = None
    high: float | None = None
    why: str = ""
    """Why the value is unknown; empty where it is known."""


Read = Callable[[AuditRecord], Number]
ReadOption = Callable[[Option], Number]


def _plain(value: Cell, unit: str, why: str = "the record does not know it") -> Number:
    """A number of the record without an interval."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return Number(None, unit, why=why)
    return Number(float(value), unit)


def _share(part: float | None, whole: float | None, why: str) -> Number:
    """Part / whole; unknown where there is no whole."""
    if part is None or not whole:
        return Number(None, "ratio", why=why)
    return Number(part / whole, "ratio")


def from_quantity(quantity: Quantity) -> Number:
    """A number of the record with its interval."""
    value = quantity.value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return Number(None, quantity.unit, why=quantity.interval_reason or "the value is unknown")
    low = None if quantity.low is None else float(quantity.low)
    high = None if quantity.high is None else float(quantity.high)
    return Number(float(value), quantity.unit, low, high)


def _of_data(field: str, unit: str) -> Read:
    return lambda record: _plain(getattr(record.data, field), unit)


def _of_reuse(field: str, unit: str) -> Read:
    return lambda record: _plain(
        getattr(record.reuse, field),
        unit,
        (
            record.reuse.observed_unknown_reason
            if field.startswith("observed")
            else record.reuse.unknown_reason
        )
        or "the record does not know it",
    )


def _net_negative(option: Option) -> Number:
    """Net-negative hits over loaded hits; with the range of the path's constants where known."""
    cost = option.hit_cost
    share = _share(cost.net_negative_hits, cost.hits, f"{option.id} loads no hit")
    counted = cost.net_negative
    if share.value is None or counted is None or counted.low is None or counted.high is None:
        return share
    return Number(share.value, "ratio", counted.low / cost.hits, counted.high / cost.hits)


def _of_option(field: str, unit: str) -> ReadOption:
    return lambda option: _plain(getattr(option, field), unit)


def _time_of(name: str, figure: str) -> ReadOption:
    def read(option: Option) -> Number:
        return _plain(getattr(getattr(option, f"{name}_s"), figure), "s", "too few requests")

    return read


def _of_verdict_option(record: AuditRecord) -> Number:
    """Of the pooled option that the verdict weighs."""
    found = option_of(record, record.verdict.option or "")
    if found is None:
        return Number(None, "ratio", why="the verdict weighs no replayed option")
    return _net_negative(found)


def _chance(record: AuditRecord) -> Number:
    """How often the weighed pool pays over all that is open; its interval is one standard error."""
    known = record.uncertainty
    if known is None or known.p_pays is None:
        return Number(None, "ratio", why="what is open was not sampled: `--depth full` does")
    error = known.p_pays_error or 0.0
    return Number(known.p_pays, "ratio", known.p_pays - error, known.p_pays + error)


def _unconfirmed(record: AuditRecord) -> Number:
    return Number(float(sum(not one.is_confirmed for one in record.assumptions)), "assumptions")


def _rejected_share(record: AuditRecord) -> Number:
    rows = sum(file.kept + file.rejected for file in record.data.files)
    return _share(record.data.rejected, rows, "no record was read")


NUMBERS: Final[Mapping[str, Read]] = {
    **{
        name: _of_data(name, unit)
        for name, unit in {
            "requests": "requests",
            "prompt_tokens": "tokens",
            "output_tokens": "tokens",
            "cached_tokens": "tokens",
            "rejected": "records",
            "span_s": "s",
        }.items()
    },
    **{
        name: _of_reuse(name, unit)
        for name, unit in {
            "reusable_ratio_blocks": "ratio",
            "reusable_ratio_tokens": "ratio",
            "reusable_ratio_requests_mean": "ratio",
            "reusable_ratio_full_blocks": "ratio",
            "requests_with_reuse_ratio": "ratio",
            "observed_hit_ratio_tokens": "ratio",
            "reusable_blocks": "blocks",
            "reusable_tokens": "tokens",
        }.items()
    },
    "findings": lambda record: Number(float(len(record.findings)), "findings"),
    "net_negative_share": _of_verdict_option,
    "p_pays": _chance,
    "rejected_share": _rejected_share,
    "unconfirmed_assumptions": _unconfirmed,
}
"""Numbers that every record has; the verdict's carrying numbers go by their ids."""

CARRYING: Final = (
    "best_case_usd_per_month",
    "lowest_pool_cost_usd_per_month",
    "move_over_recompute_at_median_hit",
    "reusable_tokens_beyond_local",
    "value_minus_cost_usd_per_month",
)
"""Ids of carrying numbers; which of them a verdict has depends on what it rests on."""

MONEY: Final[Mapping[str, Callable[[PoolOverRival], Quantity]]] = {
    "break_even_dram_usd_per_gb": lambda case: case.dram_usd_per_gb,
    "break_even_gpu_usd_per_hour": lambda case: case.gpu_usd_per_hour,
    "npv": lambda case: case.npv,
    "payback_months": lambda case: case.payback,
    "pool_extra_cost": lambda case: case.extra_cost,
    "pool_saving": lambda case: case.saving,
}
"""Numbers of the best pool over the best option without one, by the ids that the audit shows."""

OPTION_NUMBERS: Final[Mapping[str, ReadOption]] = {
    **{
        f"{name}_{figure}_s": _time_of(name, figure)
        for name in ("ttft", "queue", "move", "prefill", "tpot")
        for figure in ("mean", "p50", "p90", "p99")
    },
    **{
        field: _of_option(field, unit)
        for field, unit in {
            "gpu_seconds_saved": "GPU-seconds",
            "hit_ratio_tokens": "ratio",
            "instances": "instances",
            "instances_at_slo": "instances",
            "offered_load": "ratio",
            "prefill_utilisation": "ratio",
            "usd_per_month": "USD/month",
            "usd_saved_per_month": "USD/month",
        }.items()
    },
    "net_negative_share": _net_negative,
}
"""Numbers of one option, as `pool_dram_tcp.ttft_p99_s`."""


def option_of(record: AuditRecord, ident: str) -> Option | None:
    """The option of this id, if the record has it."""
    return next((one for one in record.options if one.id == ident), None)


def _of_money(record: AuditRecord, name: str) -> Number:
    case = None if record.economics is None else record.economics.case
    if case is None:
        return Number(None, "", why="no pool is weighed against an option without one")
    return from_quantity(MONEY[name](case))


def number_of(record: AuditRecord, name: str) -> Number:
    """The number of this name; unknown, with the reason, where this record has none.

    `name` is one that `language` accepted.
    """
    if name in NUMBERS:
        return NUMBERS[name](record)
    if name in MONEY:
        return _of_money(record, name)
    for quantity in record.verdict.carrying_numbers:
        if quantity.id == name:
            return from_quantity(quantity)
    ident, _, field = name.partition(".")
    option = option_of(record, ident)
    if field and option is not None:
        return OPTION_NUMBERS[field](option)
    why = f"option `{ident}` was not replayed" if field else "this verdict does not rest on it"
    return Number(None, "", why=why)
