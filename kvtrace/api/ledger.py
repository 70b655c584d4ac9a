"""The verb `ledger`: what a hit of one request saves and what moving it costs, without a log."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from kvtrace.api.results import to_json
from kvtrace.api.setup import DEFAULT_HARDWARE, DEFAULT_LLM, DEFAULT_TP
from kvtrace.api.texttable import fitted_table
from kvtrace.config import Settings, resolve_settings
from kvtrace.cost.deployment import Deployment, build_deployment
from kvtrace.cost.evidence import Constant
from kvtrace.cost.interval import Interval
from kvtrace.cost.ledger import LEDGER_LENGTHS, LedgerVerdict, PathLedger
from kvtrace.cost.ledger_range import (
    COMBINED,
    LedgerIntervals,
    PathIntervals,
    ledger_intervals,
    ranged_constants,
)
from kvtrace.cost.placement import require_block_size
from kvtrace.cost.providers.pricing import OWN_PROVIDER
from kvtrace.cost.tier_paths import LEDGER_PATHS, path_title
from kvtrace.errors import ModelError, UsageError
from kvtrace.units import format_bytes, format_rate, format_seconds, format_traffic

DEFAULT_TOKENS: Final = 2000
DEFAULT_CACHED_SHARE: Final = 0.95
_WORDS: Final[dict[LedgerVerdict, str]] = {
    "move_wins": "move wins",
    "recompute_wins": "recompute wins",
    "nothing_to_move": "nothing to move",
}
_UNSETTLED: Final = "?"
"""Behind a verdict that does not hold over the whole interval."""


@dataclass(frozen=True, slots=True)
class LedgerOutcome:
    """The ledger of one request, and of further lengths where asked, over the same paths."""

    deployment: Deployment
    block_size_tokens: int | None
    request: LedgerIntervals
    table: tuple[LedgerIntervals, ...]
    constants: tuple[Constant, ...]
    """Those with an interval that the figures follow from."""
    note: str | None
    """What is odd about the deployment."""

    def to_json(self) -> str:
        """The document of `kvtrace ledger --json`: exact seconds, bytes and bytes/s."""
        deployment = self.deployment
        return to_json(
            {
                "llm": deployment.llm.name,
                "hardware": deployment.hardware.name,
                "gpu": deployment.hardware.gpu.name,
                "tp": deployment.tp,
                "weight_dtype": deployment.weight_dtype,
                "kv_dtype": deployment.kv_dtype,
                "cost_provider": deployment.pricing.title,
                "block_size_tokens": self.block_size_tokens,
                "kv_bytes_per_token": deployment.kv_bytes_per_token,
                "kv_bytes_per_token_one_copy": deployment.kv_bytes_per_token_unreplicated,
                "note": self.note,
                "intervals": COMBINED,
                "request": self._document(self.request),
                "table": [self._document(row) for row in self.table],
                "constants": [asdict(constant) for constant in self.constants],
            }
        )

    def _document(self, row: LedgerIntervals) -> dict[str, object]:
        ledger = row.ledger
        return {
            "tokens": ledger.tokens,
            "cached_tokens": ledger.cached_tokens,
            "reusable_tokens": ledger.reusable_tokens,
            "kv_bytes": ledger.kv_bytes,
            "prefill_full_s": ledger.prefill_full_s,
            "prefill_new_s": ledger.prefill_new_s,
            "recompute_s": asdict(row.recompute_s),
            "gpu_seconds_freed": asdict(row.gpu_seconds_freed),
            "paths": [self._path_document(path, row) for path in ledger.paths],
        }

    def _path_document(self, path: PathLedger, row: LedgerIntervals) -> dict[str, object]:
        spans = row.paths[path.path_id]
        needed = path.break_even_bytes_per_s
        return {
            "path_id": path.path_id,
            "title": path_title(self.deployment, path.path_id),
            "lookup_s": path.lookup_s,
            "pull_s": path.pull_s,
            "load_s": path.load_s,
            "move_s": asdict(spans.move_s),
            "stall_s": path.move_s,
            "stall_layerwise_s": path.stall_layerwise_s,
            "ttft_change_s": asdict(spans.ttft_change_s),
            "gpu_seconds_freed_async": row.ledger.gpu_seconds_freed,
            "gpu_seconds_freed_sync": asdict(spans.gpu_seconds_freed_sync),
            "path_bytes_per_s": asdict(spans.path_bytes_per_s),
            "break_even_bytes_per_s": {
                "low": spans.break_even_low_bytes_per_s,
                "value": needed,
                "high": spans.break_even_high_bytes_per_s,
            },
            "break_even_bytes_per_s_per_gpu": None
            if needed is None
            else needed / self.deployment.gpus,
            "break_even_tokens": path.break_even_tokens,
            "verdict": path.verdict,
            "is_settled": spans.is_settled,
        }

    def lines(self, width: int | None = None) -> list[str]:
        """The account for people: stages, prices, break-even, and lengths where asked."""
        head = [line for text in self._head() for line in textwrap.wrap(text, width or 100)]
        lines = [*head, "", self._stages(width), "", self._prices(width), ""]
        lines += [self._break_even(width), ""]
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
        if deployment.provider != OWN_PROVIDER:
            yield f"prefill by {deployment.pricing.title}: without the host, no interval known"
        if self.note is not None:
            yield f"note: {self.note}"

    def _stages(self, width: int | None) -> str:
        header = ("path", "lookup", "pull", "load", "= move", "low", "high", "stall, layered")
        rows = [
            (
                path.path_id,
                format_seconds(path.lookup_s),
                format_seconds(path.pull_s),
                format_seconds(path.load_s),
                format_seconds(path.move_s),
                format_seconds(spans.move_s.low),
                format_seconds(spans.move_s.high),
                format_seconds(path.stall_layerwise_s),
            )
            for path, spans in self._accounts()
        ]
        return fitted_table(header, rows, width)

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
                "never" if path.break_even_tokens is None else f"{path.break_even_tokens:,} tokens",
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
    "no link is shared here: `kvtrace replay` has both. `stall, layered`: what is left of the move "
    "where layers load while those before them compute.",
    f"low and high: {COMBINED}. {_UNSETTLED}: the verdict does not hold over the whole interval.",
)


def ledger(
    *,
    tokens: int = DEFAULT_TOKENS,
    cached: int | None = None,
    paths: Sequence[str] = LEDGER_PATHS,
    lengths: Sequence[int] = (),
    kv_dtype: str | None = None,
    block_size: int | None = None,
    settings: Settings | None = None,
) -> LedgerOutcome:
    """The ledger of one request of `tokens`, `cached` of them cached (95 % unless told).

    `lengths` adds a table with the same cached share.

    Raises:
        UsageError: an unknown name, path or number format, or tokens that are no hit.
        ModelError: the FLOPs of the LLM are not known.
    """
    settings = settings or resolve_settings({})
    deployment = _deployment(settings, kv_dtype)
    block_size = require_block_size(block_size)
    hit = int(tokens * DEFAULT_CACHED_SHARE) if cached is None else cached
    chosen = tuple(dict.fromkeys(paths)) or LEDGER_PATHS
    requests = [(tokens, hit), *(_scaled(length, tokens, hit) for length in lengths)]
    rows = ledger_intervals(
        deployment, requests=requests, paths=chosen, block_size_tokens=block_size
    )
    return LedgerOutcome(
        deployment=deployment,
        block_size_tokens=block_size,
        request=rows[0],
        table=tuple(rows[1:]),
        constants=ranged_constants(deployment, chosen),
        note=_fit_note(deployment),
    )


def default_lengths() -> tuple[int, ...]:
    """Prompt lengths of the table."""
    return LEDGER_LENGTHS


def _deployment(settings: Settings, kv_dtype: str | None) -> Deployment:
    llm, hardware = settings.text("llm"), settings.text("hardware")
    tp = settings.integer("tp")
    if llm is None and hardware is None and tp is None:
        tp = DEFAULT_TP
    weights = settings["weight_dtype"]
    return build_deployment(
        llm or DEFAULT_LLM,
        hardware or DEFAULT_HARDWARE,
        tp=tp,
        weight_dtype=None if weights.is_default else str(weights.value),
        kv_dtype=kv_dtype or str(settings["kv_dtype"].value),
        provider=str(settings["cost_provider"].value),
    )


def _scaled(length: int, tokens: int, cached: int) -> tuple[int, int]:
    """A request of `length` tokens with the same share cached, rounded down, at least 1."""
    if length < 2:
        raise UsageError(
            "KVT-C065", f"{length} tokens are no request with a hit", hint="`--lengths 1000,8000`"
        )
    return length, min(length - 1, max(1, length * cached // tokens))


def _fit_note(deployment: Deployment) -> str | None:
    try:
        _ = deployment.hbm_cache_bytes
    except ModelError as error:
        return f"{error.message}; {error.hint}"
    return None


def _seconds_span(span: Interval) -> str:
    low, high = format_seconds(span.low), format_seconds(span.high)
    return f"{format_seconds(span.value)} ({low} to {high})"


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
