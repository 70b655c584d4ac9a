"""The same requests with a cache off and on, for a terminal; all figures are measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kvtrace.audit.compare.pairing import Paired
from kvtrace.audit.compare.signs import MedianChange
from kvtrace.report.format import format_value
from kvtrace.report.text.table import fitted_table

_PARTS: Final = (
    ("compute_saved_mean_ms", "compute saved", "-", "compute_known_pairs"),
    ("move_added_mean_ms", "move added", "+", "move_known_pairs"),
    ("queue_added_mean_ms", "queue added", "+", "queue_known_pairs"),
    ("unexplained_mean_ms", "unexplained", "+", "ttft_known_pairs"),
)
_COLUMNS: Final = (
    ("prompt_bucket", "prompt tokens from"),
    ("pairs", "pairs"),
    ("slower_share", "slower"),
    ("off_ttft_p50_ms", "TTFT off p50 ms"),
    ("on_ttft_p50_ms", "on p50 ms"),
    ("ttft_change_p50_ms", "change p50 ms"),
    ("ttft_change_p90_ms", "p90 ms"),
    ("compute_saved_mean_ms", "compute saved ms"),
    ("move_added_mean_ms", "move added ms"),
    ("queue_added_mean_ms", "queue added ms"),
)


def paired_lines(
    summary: Mapping[str, object],
    buckets: Sequence[Mapping[str, object]],
    *,
    paired: Paired,
    median: MedianChange,
    p_value: float | None,
    notes: Sequence[str],
    width: int,
) -> list[str]:
    """Pairs and who was left out, the split of the mean change, the median, and by prompt."""
    return [
        f"{summary['pairs']:,} pairs by {paired.paired_by.replace('_', ' ')}; without a partner: "
        f"{paired.unpaired_off:,} off, {paired.unpaired_on:,} on (measured)",
        *(f"note: {note}" for note in notes),
        "",
        *_change(summary),
        *_spread(summary, median, p_value),
        "",
        fitted_table([head for _, head in _COLUMNS], [_bucket(row) for row in buckets], width),
    ]


def _change(summary: Mapping[str, object]) -> Iterator[str]:
    """The mean change and its parts, which add up."""
    if not summary["ttft_known_pairs"]:
        yield "no pair knows both TTFTs: nothing can be said of their change"
        return
    yield (
        f"mean TTFT {_ms(summary['off_ttft_mean_ms'])} off, {_ms(summary['on_ttft_mean_ms'])} on: "
        f"change {_ms(summary['ttft_change_mean_ms'])} over {summary['ttft_known_pairs']:,} pairs"
    )
    for name, label, sign, known in _PARTS:
        of = f"known of {summary[known]:,} pairs"
        value = summary[name]
        text = "not logged" if value is None else f"{_ms(value)}, {of}"
        yield f"  {sign} {label:<14} {text}"
    if summary["compute_saved_mean_ms"] is None and summary["prefill_change_mean_ms"] is not None:
        yield f"  prefill with the loads in it changed by {_ms(summary['prefill_change_mean_ms'])}"


def _spread(
    summary: Mapping[str, object], median: MedianChange, p_value: float | None
) -> Iterator[str]:
    if median.value is None:
        return
    share = format_value(_float(summary["slower_share"]), "ratio")
    yield (
        f"{summary['slower_requests']:,} of {summary['ttft_known_pairs']:,} requests ({share}) are "
        f"slower with the cache on, {summary['faster_requests']:,} faster"
    )
    ends = " to ".join(format_value(end, "s") or "unknown" for end in (median.low, median.high))
    sign = (
        "sign test: no TTFT differs"
        if p_value is None
        else f"sign test p = {p_value:.2g}, if pairs were independent"
    )
    yield (
        f"median change {format_value(median.value, 's')} (95 %: {ends}, {median.resamples:,} "
        f"resamples of blocks of {median.block:,}); {sign}"
    )


def _bucket(row: Mapping[str, object]) -> list[object]:
    return [_cell(name, row[name]) for name, _ in _COLUMNS]


def _cell(name: str, value: object) -> object:
    if name == "slower_share":
        return format_value(_float(value), "ratio")
    return round(value, 1) if isinstance(value, float) else value


def _ms(value: object) -> str:
    return f"{_float(value):,.1f} ms"


def _float(value: object) -> float:
    return float(str(value))
