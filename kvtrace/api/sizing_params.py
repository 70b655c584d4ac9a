"""Parameters of the queries over sizes and scopes: what a token is worth, what tiers cost."""

from __future__ import annotations

from kvtrace.audit.sizing.value import windows_per_month
from kvtrace.audit.sizing.worth import ReuseValue
from kvtrace.duckdb_session import Param


def sizing_params(value: ReuseValue | None, span_s: float | None) -> dict[str, Param]:
    """By the name of the parameter; null: unknown."""
    return {
        "usd_per_reused_token": None if value is None else value.usd_per_token.value,
        "windows_per_month": windows_per_month(span_s),
    }
