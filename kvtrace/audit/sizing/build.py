"""The part of the record on sizes: from queries, prices and replays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvtrace.audit.inputs import AuditInput
from kvtrace.audit.quantity import Quantity
from kvtrace.audit.record import ReplayWindow, Table
from kvtrace.audit.sizing.bandwidth_point import break_even_paths, typical_hit
from kvtrace.audit.sizing.contention_point import break_even_contention
from kvtrace.audit.sizing.link_budget import link_budget
from kvtrace.audit.sizing.littles_law import littles_law
from kvtrace.audit.sizing.minutes import minutes_of
from kvtrace.audit.sizing.numbers import sizing_numbers
from kvtrace.audit.sizing.record import ResidencyRule, Sizing
from kvtrace.audit.sizing.residency import Rule, residency_rules
from kvtrace.audit.sizing.reuse_point import WeighedPool, break_even_reuse
from kvtrace.audit.sizing.tables import (
    bandwidth_table,
    contention_table,
    reuse_table,
    rules_table,
)
from kvtrace.audit.sizing.tiers import tier_prices
from kvtrace.audit.uncertainty.ranges import Range
from kvtrace.audit.view import Row, count, number, rows_of

RESIDENCY_QUERY = "sizing/residency"


@dataclass(frozen=True, slots=True)
class SizingPart:
    """The record's part and the tables that it rests on."""

    sizing: Sizing
    tables: dict[str, Table]


def build_sizing(
    inputs: AuditInput, pools: Sequence[WeighedPool], window: ReplayWindow | None
) -> SizingPart:
    """Sizes, rules and break-even points; what cannot be known is absent or null."""
    deployment, value = inputs.deployment, inputs.reuse_value
    token_bytes = deployment.kv_bytes_per_token_unreplicated
    rules = residency_rules(tier_prices(deployment, inputs.fleet), value, token_bytes)
    minutes = minutes_of(inputs.trace)
    sizing = Sizing(
        numbers=sizing_numbers(inputs.queries, value),
        residency=_residency(inputs, rules),
        reuse=break_even_reuse(pools, window, value),
        paths=break_even_paths(typical_hit(inputs.whole_trace or inputs.trace), deployment),
        contention=break_even_contention(inputs.replays, inputs.trace, minutes),
        unknown_reason=_unknown(inputs),
    )
    tables = [
        rules_table(
            rules,
            deployment,
            kv_bytes_per_token=token_bytes,
            usd_per_gb_hit=None if value is None else _middle(value.usd_per_gb(token_bytes)),
            gpu_s_per_gb=None if value is None else value.gpu_s_per_gb(token_bytes).value,
        ),
        reuse_table(sizing.reuse),
        bandwidth_table(sizing.paths),
        contention_table(sizing.contention),
        link_budget(inputs.replays, minutes),
        littles_law(inputs.replays, inputs.trace, minutes),
    ]
    return SizingPart(sizing, {one.id: one for one in tables if one is not None and one.rows})


def _unknown(inputs: AuditInput) -> str | None:
    if rows_of(inputs.queries, "sizing/pool_size"):
        return None
    return "no reuse is known: block identity of the requests would show it"


def _residency(inputs: AuditInput, rules: Sequence[Rule]) -> list[ResidencyRule]:
    by_tier = {str(row["tier"]): row for row in rows_of(inputs.queries, RESIDENCY_QUERY)}
    return [_rule(rule, by_tier.get(rule.price.tier, {})) for rule in rules]


def _rule(rule: Rule, row: Row) -> ResidencyRule:
    price = rule.price
    return ResidencyRule(
        tier=price.tier,
        title=price.title,
        price=_quantity(
            f"price:{price.tier}",
            price.usd_per_gb_month,
            "USD/GB-month",
            f"a GB of {price.title}",
            price.source,
        ),
        residency=_quantity(
            f"residency:{price.tier}",
            rule.residency_s,
            "s",
            f"break-even residency in {price.title}",
            "worth of a hit on a GB of KV / price of a GB-second (Gray and Putzolu 1987)",
        ),
        is_endless=price.is_free,
        within_tokens=count(row, "within_tokens"),
        within_ratio_tokens=number(row, "within_ratio_tokens"),
        kept_bytes=number(row, "kept_bytes"),
    )


def _middle(amount: Range | None) -> float | None:
    return None if amount is None else amount.value


def _quantity(
    ident: str, amount: Range | None, unit: str, title: str, source: str
) -> Quantity | None:
    if amount is None:
        return None
    return amount.modelled(ident, unit, title, source)
