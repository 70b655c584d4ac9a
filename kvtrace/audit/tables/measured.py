"""Measured figures beside modelled ones: how far the models stand from the running system."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kvtrace.audit.findings.check import MS_PER_S, in_ms
from kvtrace.audit.findings.prefill import PREFILL_TABLE, prefill_rows
from kvtrace.audit.inputs import ResultOfQuery
from kvtrace.audit.record import Cell, Data, Option, Reuse, Table, Validity
from kvtrace.audit.tables.shape import TableShape
from kvtrace.audit.view import Row, count, number, summary_of, whole_window
from kvtrace.replay.scenario import PrefillTime
from kvtrace.units import format_seconds

AGAINST_TABLE: Final = "replay/against_measured"
MEASURED_ROW: Final = "measured"
"""Id of the row that no option stands for."""

_AGAINST: Final = TableShape(
    AGAINST_TABLE,
    "Replay against measured (options modelled)",
    (
        ("option_id", "name", "`measured`: the running system, else a replayed option"),
        ("requests", "requests", "with a known TTFT (measured: of the whole trace), or replayed"),
        ("ttft_p50_s", "s", "median TTFT"),
        ("ttft_p90_s", "s", "90 % of them"),
        ("queue_p50_s", "s", "median queue"),
        ("hit_ratio_tokens", "ratio", "hit tokens / prompt tokens; measured: see hit_ratio_from"),
        ("hit_ratio_from", "name", "where the hit ratio was read"),
    ),
)
_PREFILL: Final = TableShape(
    PREFILL_TABLE,
    "Measured prefill against recomputing (recomputing modelled)",
    (
        ("prompt_bucket", "tokens", "lower bound of the half-open range up to twice this"),
        ("reuse_class", "name", "high: at least half of the prompt is reused; low: less"),
        ("requests", "requests", "of this bucket and class"),
        ("mean_prompt_tokens", "tokens", "mean prompt"),
        ("mean_reusable_tokens", "tokens", "mean cached tokens where counted, else reusable ones"),
        ("prefill_p50_s", "s", "measured, first scheduled to first token, median"),
        ("prefill_p90_s", "s", "the same, 90 %"),
        ("recompute_all_s", "s", "modelled: the mean prompt with nothing cached"),
        (
            "recompute_below_hbm_s",
            "s",
            "modelled: what HBM misses at the engine's own HBM hit ratio; null for little reuse, "
            "and where nothing is served from below HBM",
        ),
        ("measured_over_recompute_all", "times", "prefill_p50_s / recompute_all_s"),
        ("measured_over_recompute_below_hbm", "times", "prefill_p50_s / recompute_below_hbm_s"),
    ),
)
_ENGINE_RATIOS: Final = (
    ("engine_combined_hit_ratio", "engine samples, HBM and below it"),
    ("engine_prefix_hit_ratio", "engine samples, HBM alone"),
)


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured and what was replayed."""

    queries: Mapping[str, ResultOfQuery]
    reuse: Reuse
    options: Sequence[Option]
    requests: int | None
    """Replayed."""
    is_deployed_known: bool
    """The user stated the deployed fleet."""

    @property
    def latency(self) -> Row | None:
        """The measured latencies; null without a known TTFT or without replays to compare."""
        row = summary_of(self.queries, "latency/summary")
        has_ttft = number(row, "ttft_p50_ms") is not None
        return row if has_ttft and self.options else None

    @property
    def hit_ratio(self) -> tuple[float | None, str]:
        """Hit ratio of the running system and where it was read."""
        if self.reuse.observed_hit_ratio_tokens is not None:
            return self.reuse.observed_hit_ratio_tokens, "cached tokens of requests"
        window = whole_window(self.queries)
        for column, source in _ENGINE_RATIOS:
            value = number(window, column)
            if value is not None:
                return value, f"{source}, mean of its samples"
        return None, "unknown"


def tiers_below_hbm(queries: Mapping[str, ResultOfQuery], data: Data) -> str | None:
    """How the logs show hits below HBM, for people; null where they show none."""
    tiers = {tier: data.cached_tiers.get(tier) or 0 for tier in ("host", "disk", "remote")}
    told = [f"{tokens:,} cached tokens from {tier}" for tier, tokens in tiers.items() if tokens]
    external = number(whole_window(queries), "engine_external_hit_ratio")
    if external:
        told.append(f"its engine prints hits below HBM, {100 * external:.1f} % of what HBM missed")
    return "; ".join(told) or None


def build_measured_tables(measured: Measured, prefill: PrefillTime | None) -> dict[str, Table]:
    """Replays against the measured figures, and measured prefill against recomputing."""
    tables = [
        _AGAINST.table(list(_against(measured))),
        _PREFILL.table(list(_prefill(measured, prefill))),
    ]
    return {table.id: table for table in tables if table.rows}


def _against(measured: Measured) -> Iterator[list[Cell]]:
    row = measured.latency
    if row is None:
        return
    yield [
        MEASURED_ROW,
        count(row, "ttft_known_requests"),
        _seconds(row, "ttft_p50_ms"),
        _seconds(row, "ttft_p90_ms"),
        _seconds(row, "queue_p50_ms"),
        *measured.hit_ratio,
    ]
    for option in measured.options:
        yield [
            option.id,
            measured.requests,
            option.ttft_s.p50,
            option.ttft_s.p90,
            option.queue_s.p50,
            option.hit_ratio_tokens,
            "replay",
        ]


def _prefill(measured: Measured, prefill: PrefillTime | None) -> Iterator[list[Cell]]:
    for row in prefill_rows(measured.queries, prefill):
        yield [
            row.prompt_bucket,
            row.reuse_class,
            row.requests,
            row.mean_prompt_tokens,
            row.mean_reusable_tokens,
            row.prefill_p50_s,
            row.prefill_p90_s,
            row.recompute_all_s,
            row.recompute_below_hbm_s,
            row.over_all,
            row.over_below_hbm,
        ]


def _seconds(row: Row, column: str) -> float | None:
    value = number(row, column)
    return None if value is None else value / MS_PER_S


def measured_validity(measured: Measured) -> Iterator[Validity]:
    """Measured beside modelled TTFT, and why the two need not agree."""
    row = measured.latency
    known = [o for o in measured.options if o.ttft_s.p50 is not None]
    if row is None or not known:
        return
    known.sort(key=lambda option: (option.ttft_s.p50 or 0.0, option.id))
    ends = known[:1] + known[1:][-1:]
    spread = " to ".join(f"{format_seconds(o.ttft_s.p50 or 0.0)} ({o.title})" for o in ends)
    why = (
        "differences are those of model, load and configuration"
        if measured.is_deployed_known
        else "the deployed configuration is unknown (no fleet.toml), so no option stands for the "
        "running system: compare options with each other"
    )
    yield Validity(
        code="replay_against_measured",
        severity="info" if measured.is_deployed_known else "warning",
        message=f"Measured TTFT p50 {in_ms(number(row, 'ttft_p50_ms'))}, p90 "
        f"{in_ms(number(row, 'ttft_p90_ms'))}; modelled p50 {spread}; {why}. Rows: "
        f"{AGAINST_TABLE}",
    )
