"""The ledger of one request as tables for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kvtrace.cost.deployment import Deployment
from kvtrace.cost.interval import Interval
from kvtrace.cost.ledger import LedgerVerdict, PathLedger
from kvtrace.cost.ledger_range import COMBINED, LedgerIntervals, PathIntervals
from kvtrace.cost.providers.pricing import OWN_PROVIDER
from kvtrace.cost.split import Split
from kvtrace.cost.tier_paths import path_title
from kvtrace.cost.ways import WAYS
from kvtrace.report.text.table import fitted_table
from kvtrace.units import format_bytes, format_rate, format_seconds, format_traffic

_WORDS: Final[dict[LedgerVerdict, str]] = {
    "move_wins": "move wins",
    "recompute_wins": "recompute wins",
    "nothing_to_move": "nothing to move",
}
_UNSETTLED: Final = "?"
"""Behind a verdict that does not hold over the whole interval."""


@dataclass(frozen=True, slots=True)
class LedgerText:
    """What is printed of a ledger."""

    deployment: Deployment
    request: LedgerIntervals
    table: tuple[LedgerIntervals, ...]
    note: str | None
    assumed: str | None = None
    """What nobody stated, in words."""

    def lines(self, width: int | None = None) -> list[str]:
        """The account for people: stages, prices, break-even, and lengths where asked."""
        head = [line for text in self._head() for line in textwrap.wrap(text, width or 100)]
        lines = [*head, "", self._stages(width), "", self._prices(width), ""]
        lines += [self._break_even(width), ""]
        lines += ["What the request waits beyond its prefill, by the way of loading", ""]
        lines += [self._ways(width), ""]
        lines += ["Rate of the path above which each way is faster than recomputing", ""]
        lines += [self._way_rates(width), ""]
        if self.table:
            lines += ["TTFT change by length (below zero the hit is faster)", ""]
            lines += [self._lengths(width), ""]
        return [*lines, *self._legend(width)]

    def _head(self) -> Iterator[str]:
        deployment, ledger = self.deployment, self.request.ledger
        yield (
            f"{deployment.llm.name} ({deployment.weight_dtype}, KV {deployment.kv_dtype}) on "
            f"{deployment.gpus} x {deployment.hardware.name}, one request alone"
        )
        moved = (
            ""
            if ledger.reusable_tokens == ledger.cached_tokens
            else f" ({ledger.reusable_tokens:,} up to the last checkpoint)"
        )
        yield (
            f"{ledger.tokens:,} tokens, {ledger.cached_tokens:,} cached{moved} · KV "
            f"{format_traffic(ledger.kv_bytes)} over all ranks, "
            f"{format_bytes(deployment.kv_bytes_per_token)} a token"
        )
        yield (
            f"recompute {_seconds_span(self.request.recompute_s)}: prefill "
            f"{format_seconds(ledger.prefill_full_s)} without the hit, "
            f"{format_seconds(ledger.prefill_new_s)} after it"
        )
        weights = format_traffic(deployment.weight_bytes_per_rank)
        held = format_traffic(deployment.kv_bytes_per_rank(ledger.reusable_tokens))
        yield (
            f"{deployment.layout.text}: a rank holds {weights} of weights and {held} of this KV"
            f"{self._handover()}"
        )
        if deployment.provider != OWN_PROVIDER:
            yield f"prefill by {deployment.pricing.title}: without the host, no interval known"
        if self.note is not None:
            yield f"note: {self.note}"
        if self.assumed is not None:
            yield f"note: {self.assumed}"
        yield from self._answer()

    def _answer(self) -> Iterator[str]:
        """In one sentence: on how many paths a move is faster, and where not."""
        paths = list(self._accounts())
        faster = [(path, spans) for path, spans in paths if path.verdict == "move_wins"]
        slower = [(path, spans) for path, spans in paths if path.verdict == "recompute_wins"]
        if not faster and not slower:
            return
        text = f"moving is faster than recomputing on {len(faster)} of {len(paths)} paths"
        if faster:
            best, _ = min(faster, key=lambda one: one[0].ttft_change_s)
            text = f"{text}, most by {best.path_id} ({_signed(best.ttft_change_s)} TTFT)"
        if slower:
            named = (f"{one.path_id}{'' if spans.is_settled else ' ?'}" for one, spans in slower)
            text = f"{text}; slower on {', '.join(named)}"
        yield text

    def _handover(self) -> str:
        ledger = self.request.ledger
        new = ledger.tokens - ledger.reusable_tokens
        handed = self.deployment.handover_bytes(new)
        if not handed:
            return ""
        return f"; each stage hands {format_traffic(handed)} of {new:,} new tokens to the next"

    def _stages(self, width: int | None) -> str:
        header = ("path", "lookup", "pull", "load", "= move", "low", "high", "write")
        rows = [
            (
                path.path_id,
                format_seconds(path.lookup_s),
                format_seconds(path.pull_s),
                format_seconds(path.load_s),
                format_seconds(path.move_s),
                format_seconds(spans.move_s.low),
                format_seconds(spans.move_s.high),
                "unknown" if path.write_s is None else format_seconds(path.write_s),
            )
            for path, spans in self._accounts()
        ]
        return fitted_table(header, rows, width)

    def _ways(self, width: int | None) -> str:
        header = ("path", *WAYS, "cut at", "faster than recomputing")
        rows = [
            (
                path.path_id,
                *(format_seconds(way.stall_s) for way in path.ways),
                _cut(path.way("split").split),
                _faster(path),
            )
            for path in self.request.ledger.paths
        ]
        return fitted_table(header, rows, width)

    def _way_rates(self, width: int | None) -> str:
        rows = [
            (path.path_id, *(_rate(way.break_even_bytes_per_s) for way in path.ways))
            for path in self.request.ledger.paths
        ]
        return fitted_table(("path", *WAYS), rows, width)

    def _prices(self, width: int | None) -> str:
        header = ("path", "TTFT", "low", "high", "GPU-s freed", "if sync", "verdict")
        rows = [
            (
                path.path_id,
                _signed(path.ttft_change_s),
                _signed(spans.ttft_change_s.low),
                _signed(spans.ttft_change_s.high),
                f"{self.request.ledger.gpu_seconds_freed:.3g}",
                f"{path.gpu_seconds_freed_sync:.3g}",
                _verdict(path, spans),
            )
            for path, spans in self._accounts()
        ]
        return fitted_table(header, rows, width)

    def _break_even(self, width: int | None) -> str:
        header = ("path", "rate", "wins above", "low", "high", "wins from")
        rows = [
            (
                path.path_id,
                format_rate(path.path_bytes_per_s),
                _rate(path.break_even_bytes_per_s),
                _rate(spans.break_even_low_bytes_per_s),
                _rate(spans.break_even_high_bytes_per_s),
                _tokens(path.break_even_tokens),
            )
            for path, spans in self._accounts()
        ]
        return fitted_table(header, rows, width)

    def _lengths(self, width: int | None) -> str:
        ids = [path.path_id for path in self.request.ledger.paths]
        header = ("tokens", "cached", "KV", "recompute", *ids)
        rows = [
            (
                row.ledger.tokens,
                row.ledger.cached_tokens,
                format_traffic(row.ledger.kv_bytes),
                format_seconds(row.recompute_s.value),
                *(
                    _signed(row.ledger.path(path).ttft_change_s) + _mark(row.paths[path])
                    for path in ids
                ),
            )
            for row in self.table
        ]
        return fitted_table(header, rows, width)

    def _accounts(self) -> list[tuple[PathLedger, PathIntervals]]:
        return [(path, self.request.paths[path.path_id]) for path in self.request.ledger.paths]

    def _legend(self, width: int | None) -> Iterator[str]:
        columns = width or 100
        for path in self.request.ledger.paths:
            title = f"{path.path_id}: {path_title(self.deployment, path.path_id)}"
            yield from textwrap.wrap(title, columns, subsequent_indent="  ")
        yield ""
        for text in _LEGEND:
            yield from textwrap.wrap(text, columns)


_LEGEND: Final = (
    "A hit has two prices: TTFT (move - recompute) and GPU-seconds (recompute x GPUs where the "
    "GPUs work on while KV arrives; `if sync`: less the move, where they wait). Nothing queues and "
    "no link is shared here: `kvtrace replay` has both. `write`: bringing the same KV there, "
    "once; it delays no request, but takes the links.",
    "serial: pull, load, then prefill, as in all tables but these two. pipelined: pull and load at "
    "once, a chunk behind. layerwise: layers load while those before them compute. split: the head "
    "of the hit is computed, up to the cut, while its tail loads.",
    f"low and high: {COMBINED}. {_UNSETTLED}: the verdict does not hold over the whole interval.",
)


def _seconds_span(span: Interval) -> str:
    low, high = format_seconds(span.low), format_seconds(span.high)
    return f"{format_seconds(span.value)} ({low} to {high})"


def _cut(split: Split | None) -> str:
    return "" if split is None else _tokens(split.computed_tokens)


def _faster(path: PathLedger) -> str:
    faster = [way.way for way in path.ways if way.ttft_change_s < 0]
    return "all" if len(faster) == len(WAYS) else ", ".join(faster) or "none"


def _signed(seconds: float) -> str:
    return f"+{format_seconds(seconds)}" if seconds > 0 else format_seconds(seconds)


def _rate(value: float | None) -> str:
    return "no rate" if value is None else format_rate(value)


def _tokens(count: int | None) -> str:
    if count is None:
        return "never"
    return "1 token" if count == 1 else f"{count:,} tokens"


def _mark(spans: PathIntervals) -> str:
    return "" if spans.is_settled else f" {_UNSETTLED}"


def _verdict(path: PathLedger, spans: PathIntervals) -> str:
    is_open = path.verdict != "nothing_to_move" and not spans.is_settled
    return f"{_WORDS[path.verdict]} {_UNSETTLED}" if is_open else _WORDS[path.verdict]
