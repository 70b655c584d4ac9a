"""From the rows of `sharing/scopes` to the record: reuse, money and what is not known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kvtrace.audit.inputs import ResultOfQuery
from kvtrace.audit.quantity import Quantity
from kvtrace.audit.sharing.record import SharingScope
from kvtrace.audit.sizing.worth import ReuseValue
from kvtrace.audit.uncertainty.ranges import Range
from kvtrace.audit.view import Row, count, number, rows_of

SCOPES_QUERY: Final = "sharing/scopes"
_UNKNOWN: Final[Mapping[str, tuple[str, str]]] = {
    "tenant": (
        "no request names its tenant",
        "log the team, organisation or API key of each request at the gateway (LiteLLM: `team_id` "
        "or `api_key` in its spend logs; Kong, Higress, APISIX: the consumer), or point "
        '`--mapping` at the field: `tenant = "FIELD"`',
    ),
    "user": (
        "no request names its end user",
        "send the end user with each request and log it at the gateway (OpenAI-compatible APIs: "
        "`user` or `safety_identifier`; LiteLLM: `end_user` in its spend logs; Langfuse: `userId`; "
        "Helicone: the header `Helicone-User-Id`; spans: `user.id`), or point `--mapping` at the "
        'field: `user = "FIELD"`',
    ),
    "session": (
        "no request has blocks",
        "log block identity of each request",
    ),
}
_SOURCE: Final = (
    "sharing/scopes: reused tokens times the GPU time that one frees, as often as this trace fits "
    "into a month; low and high: GEMM efficiency, GPU price and busy share of the fleet. GPU "
    "time counts by the second, before rounding to whole instances"
)


def build_scopes(
    queries: Mapping[str, ResultOfQuery], value: ReuseValue | None
) -> list[SharingScope]:
    """One entry per scope, the widest first; empty where no request has blocks."""
    return [_scope(row, value) for row in rows_of(queries, SCOPES_QUERY)]


def _scope(row: Row, value: ReuseValue | None) -> SharingScope:
    scope = str(row["scope"])
    lost = count(row, "lost_tokens")
    is_whole = scope == "global"
    reason, flag = _UNKNOWN.get(scope, (None, None)) if lost is None else (None, None)
    return SharingScope(
        scope=scope,
        groups=count(row, "groups"),
        known_requests=count(row, "known_requests") or 0,
        requests=count(row, "requests") or 0,
        reusable_tokens=count(row, "reusable_tokens"),
        lost_tokens=lost,
        lost_ratio_tokens=number(row, "lost_ratio_tokens"),
        reaching_requests=count(row, "reaching_requests"),
        worth=_usd(row, "worth_usd_per_month", f"reuse within one {_of(scope)}", value),
        isolation=None
        if is_whole
        else _usd(row, "isolation_usd_per_month", f"a cache for each {_of(scope)}", value),
        unknown_reason=reason,
        flag=flag,
    )


def _of(scope: str) -> str:
    return {"global": "cache for all", "session": "conversation"}.get(scope, scope)


def _usd(row: Row, column: str, title: str, value: ReuseValue | None) -> Quantity | None:
    """The USD of a row with the interval of the token's worth; null where it is unknown."""
    usd = number(row, column)
    if usd is None or value is None or value.usd_per_token is None:
        return None
    amount = _spread(usd, value.usd_per_token)
    return Quantity(
        id=f"sharing.{row['scope']}.{column}",
        title=title,
        value=amount.value,
        low=amount.low,
        high=amount.high,
        unit="USD/month",
        source=_SOURCE,
        kind="modelled",
    )


def _spread(usd: float, each: Range) -> Range:
    return Range(usd * each.low / each.value, usd, usd * each.high / each.value)
