"""Ratios of reuse and amounts of KV, each with what it is of and what it means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kvtrace.audit.record import AuditRecord, Reuse
from kvtrace.report.format import Scale, format_in, format_value, pick_scale, safe_text
from kvtrace.report.texts import Texts


@dataclass(frozen=True, slots=True)
class RatioView:
    """One ratio or amount with what it is of and what it means."""

    title: str
    text: str | None
    of: str
    meaning: str


def _share_of(part: int | None, whole: int | None, unit: str, texts: Texts) -> str:
    if part is None or whole is None:
        return texts("reuse.of_unknown")
    shown_part, shown_whole = format_value(part, ""), format_value(whole, unit)
    return texts("reuse.of", part=shown_part, whole=shown_whole)


def ratios(record: AuditRecord, texts: Texts) -> tuple[RatioView, ...]:
    """Every denominator of reuse, so that one hit rate is never taken for another."""
    reuse, data = record.reuse, record.data
    ok = data.requests_by_status.get("ok", 0)
    rows = (
        (
            "tokens",
            reuse.reusable_ratio_tokens,
            _share_of(reuse.reusable_tokens, data.prompt_tokens, "tokens", texts),
        ),
        (
            "blocks",
            reuse.reusable_ratio_blocks,
            _share_of(reuse.reusable_blocks, data.block_refs, "blocks", texts),
        ),
        ("full_blocks", reuse.reusable_ratio_full_blocks, texts("reuse.of_full_blocks")),
        (
            "requests_mean",
            reuse.reusable_ratio_requests_mean,
            texts("reuse.of_mean", requests=format_value(ok, "requests")),
        ),
        (
            "requests",
            reuse.requests_with_reuse_ratio,
            texts("reuse.of_requests", requests=format_value(ok, "requests")),
        ),
        (
            "observed",
            reuse.observed_hit_ratio_tokens,
            texts(
                "reuse.of_observed", requests=format_value(data.cached_known_requests, "requests")
            ),
        ),
    )
    why = safe_text(reuse.observed_unknown_reason or "")
    return tuple(
        RatioView(
            texts(f"reuse.{key}.title"),
            _at_least(format_value(value, "ratio"), key, reuse, texts),
            of if value is not None else why if key == "observed" else "",
            texts(f"reuse.{key}.meaning"),
        )
        for key, value, of in rows
    )


def _at_least(text: str | None, key: str, reuse: Reuse, texts: Texts) -> str | None:
    """A ratio that requests missing from the log make a lower bound; what was observed is none."""
    if text is None or key == "observed" or reuse.lower_bound_reason is None:
        return text
    return texts("reuse.at_least", value=text)


def amounts(record: AuditRecord, texts: Texts) -> tuple[RatioView, ...]:
    """KV bytes, all in powers of two, so that what is asked for and what is held compare."""
    kv, spread = record.kv, record.kv.distribution
    rows = (
        ("per_token", kv.bytes_per_token),
        ("requested", kv.bytes_requested),
        ("rounded", kv.bytes_requested_block_rounded),
        ("distinct", kv.bytes_distinct),
        ("p50", spread.p50),
        ("p90", spread.p90),
        ("p99", spread.p99),
        ("maximum", spread.maximum),
    )
    whole = pick_scale("bytes", [value for key, value in rows if key in _WHOLE])
    each = pick_scale("bytes", [value for key, value in rows if key in _EACH])
    return tuple(
        RatioView(
            texts(f"kv.{key}.title"),
            _in_scale(value, whole if key in _WHOLE else each if key in _EACH else None),
            "",
            texts(f"kv.{key}.meaning"),
        )
        for key, value in rows
    )


_WHOLE: Final = ("requested", "rounded", "distinct")
_EACH: Final = ("p50", "p90", "p99", "maximum")


def _in_scale(value: float | None, scale: Scale | None) -> str | None:
    return format_value(value, "bytes") if scale is None else format_in(value, scale)
