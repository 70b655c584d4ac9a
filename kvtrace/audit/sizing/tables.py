"""Break-even points and prices of tiers as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvtrace.audit.quantity import Quantity
from kvtrace.audit.record import Cell, Table
from kvtrace.audit.sizing.record import BreakEvenContention, BreakEvenPath, BreakEvenReuse
from kvtrace.audit.sizing.residency import Rule
from kvtrace.audit.tables.shape import TableShape
from kvtrace.audit.uncertainty.ranges import Range
from kvtrace.cost.deployment import Deployment
from kvtrace.cost.tier_paths import find_path
from kvtrace.units import GB

RULES_TABLE: Final = "sizing/tier_rules"
REUSE_TABLE: Final = "sizing/break_even_reuse"
BANDWIDTH_TABLE: Final = "sizing/break_even_bandwidth"
CONTENTION_TABLE: Final = "sizing/break_even_contention"

_RULES: Final = TableShape(
    RULES_TABLE,
    "How soon a block must be reused to be worth its GB (modelled)",
    (
        ("tier", "name", "the tier"),
        ("usd_per_gb_month", "USD/GB-month", "of keeping 10^9 bytes there"),
        ("usd_per_gb_hit", "USD", "GPU time that one hit on 10^9 bytes of KV frees"),
        ("until_low_s", "s", "break-even residency: cheapest hit, dearest tier"),
        ("until_s", "s", "break-even residency; null: without end, or unknown"),
        ("until_high_s", "s", "break-even residency: dearest hit, cheapest tier"),
        ("is_endless", "flag", "the tier is there and costs nothing"),
        ("move_s_per_gb", "s", "of 10^9 bytes alone on their way into HBM; null: they are there"),
        ("recompute_s_per_gb", "s", "prefill of the same tokens on one instance"),
        ("price_source", "text", "what the price holds"),
    ),
)
_REUSE: Final = TableShape(
    REUSE_TABLE,
    "Break-even reuse of each pool beyond its rival (modelled)",
    (
        ("option_id", "name", "the pooled option"),
        ("rival", "text", "the option without a pool that the verdict weighs it against"),
        ("cost_usd_per_month", "USD/month", "of the pool, less that of the rival"),
        ("present_ratio_tokens", "ratio", "served beyond the rival in the replays / prompt tokens"),
        ("needed_low_ratio_tokens", "ratio", "needed: cheapest pool, dearest GPU time"),
        ("needed_ratio_tokens", "ratio", "needed / prompt tokens, for its hits to be worth it"),
        ("needed_high_ratio_tokens", "ratio", "needed: dearest pool, cheapest GPU time"),
        ("ceiling_ratio_tokens", "ratio", "an unlimited cache beyond the rival / prompt tokens"),
        ("value_usd_per_month", "USD/month", "GPU time that the present share frees"),
        ("load_times", "times", "loads like this at which the present share is enough"),
    ),
)
_BANDWIDTH: Final = TableShape(
    BANDWIDTH_TABLE,
    "Break-even bandwidth of each path, for the median request with reuse (modelled)",
    (
        ("path_id", "name", "the path"),
        ("prompt_tokens", "tokens", "of the request"),
        ("cached_tokens", "tokens", "moved instead of computed"),
        ("needed_bytes_per_s", "bytes/s", "B* per GPU; null: no rate is enough"),
        ("given_bytes_per_s", "bytes/s", "per GPU, when the move is alone"),
        ("given_over_needed", "times", "above 1 the hit is worth moving"),
        ("move_s", "s", "lookup, pull and load, alone"),
        ("recompute_s", "s", "what it saves"),
    ),
)
_CONTENTION: Final = TableShape(
    CONTENTION_TABLE,
    "Break-even contention on the ports of each pool (modelled)",
    (
        ("option_id", "name", "the pooled option"),
        ("link_id", "name", "what all loads share"),
        ("flows", "count", "loads at once up to which the median hit is not slower; 0: none"),
        ("mean_in_flight", "count", "loads at once in the replay, mean"),
        ("peak_in_flight", "count", "the same, at the moment with most"),
        ("is_within", "flag", "the moment with most has no more than that"),
    ),
)


def rules_table(
    rules: Sequence[Rule],
    deployment: Deployment,
    *,
    kv_bytes_per_token: float,
    usd_per_gb_hit: float | None,
    gpu_s_per_gb: float | None,
) -> Table:
    """One row per tier."""
    recompute = None if gpu_s_per_gb is None else gpu_s_per_gb / deployment.kv_ranks
    return _RULES.table(
        [
            [
                rule.price.tier,
                _middle(rule.price.usd_per_gb_month),
                usd_per_gb_hit,
                None if rule.residency_s is None else rule.residency_s.low,
                _middle(rule.residency_s),
                None if rule.residency_s is None else rule.residency_s.high,
                rule.price.is_free,
                _move_s_per_gb(rule.price.path_id, deployment, kv_bytes_per_token),
                recompute,
                rule.price.source,
            ]
            for rule in rules
        ]
    )


def _middle(amount: Range | None) -> float | None:
    return None if amount is None else amount.value


def _move_s_per_gb(
    path_id: str | None, deployment: Deployment, kv_bytes_per_token: float
) -> float | None:
    """Seconds per GB of one copy: what ranks replicate is moved as often as they hold it."""
    if path_id is None:
        return None
    copies = deployment.kv_bytes_per_token / kv_bytes_per_token
    return GB * copies / find_path(deployment, path_id).bytes_per_s


def reuse_table(points: Sequence[BreakEvenReuse]) -> Table:
    """One row per pool."""
    return _REUSE.table(
        [
            [
                one.option,
                one.rival,
                one.cost.value,
                one.present_ratio_tokens,
                one.needed.low,
                one.needed.value,
                one.needed.high,
                one.ceiling_ratio_tokens,
                one.value.value,
                one.load_times,
            ]
            for one in points
        ]
    )


def bandwidth_table(points: Sequence[BreakEvenPath]) -> Table:
    """One row per path."""
    return _BANDWIDTH.table(
        [
            [
                one.path,
                one.prompt_tokens,
                one.cached_tokens,
                _value(one.needed),
                one.given_bytes_per_s,
                _over(one.given_bytes_per_s, _value(one.needed)),
                one.move_s,
                one.recompute_s,
            ]
            for one in points
        ]
    )


def contention_table(points: Sequence[BreakEvenContention]) -> Table:
    """One row per pool."""
    return _CONTENTION.table(
        [
            [
                one.option,
                one.link,
                one.flows,
                one.mean_in_flight,
                one.peak_in_flight,
                None if one.flows is None else one.peak_in_flight <= one.flows,
            ]
            for one in points
        ]
    )


def _value(quantity: Quantity | None) -> float | None:
    value = None if quantity is None else quantity.value
    return value if isinstance(value, int | float) else None


def _over(given: float, needed: float | None) -> Cell:
    return None if not needed else given / needed
