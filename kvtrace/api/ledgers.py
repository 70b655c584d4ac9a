"""The verb `ledger`: what a hit of one request saves and what moving it costs, without a log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

from kvtrace.api.query_results import to_json
from kvtrace.api.setup import DEFAULT_HARDWARE, DEFAULT_LLM, DEFAULT_TP
from kvtrace.config import Settings, resolve_settings
from kvtrace.cost.deployment import Deployment, build_deployment
from kvtrace.cost.evidence import Constant
from kvtrace.cost.ledger import LEDGER_LENGTHS, PathLedger
from kvtrace.cost.ledger_range import (
    COMBINED,
    LedgerIntervals,
    PathIntervals,
    ledger_intervals,
    ranged_constants,
)
from kvtrace.cost.placement import require_block_size
from kvtrace.cost.tier_paths import LEDGER_PATHS, path_title
from kvtrace.cost.ways import WayLedger
from kvtrace.errors import ModelError, UsageError
from kvtrace.report.text.ledger import LedgerText

DEFAULT_TOKENS: Final = 2000
DEFAULT_CACHED_SHARE: Final = 0.95


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
    assumed: str | None = None
    """Which of LLM and GPU nobody stated, and how to; None: both are stated."""

    def to_json(self) -> str:
        """The document of `kvtrace ledger --json`: exact seconds, bytes and bytes/s."""
        deployment = self.deployment
        return to_json(
            {
                "llm": deployment.llm.name,
                "hardware": deployment.hardware.name,
                "gpu": deployment.hardware.gpu.name,
                "tp": deployment.tp,
                "layout": {**asdict(deployment.layout), "gpus": deployment.gpus},
                "weight_bytes_per_rank": deployment.weight_bytes_per_rank,
                "weight_dtype": deployment.weight_dtype,
                "kv_dtype": deployment.kv_dtype,
                "cost_provider": deployment.pricing.title,
                "block_size_tokens": self.block_size_tokens,
                "kv_bytes_per_token": deployment.kv_bytes_per_token,
                "kv_bytes_per_token_one_copy": deployment.kv_bytes_per_token_unreplicated,
                "note": self.note,
                "assumed": self.assumed,
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
            "kv_bytes_per_rank": self.deployment.kv_bytes_per_rank(
                ledger.reusable_tokens, block_size_tokens=self.block_size_tokens
            ),
            "handover_bytes": self.deployment.handover_bytes(
                ledger.tokens - ledger.reusable_tokens
            ),
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
            "write_s": None if spans.write_s is None else asdict(spans.write_s),
            "stall_s": path.move_s,
            "stall_layerwise_s": path.way("layerwise").stall_s,
            "ways": [_way_document(way, spans) for way in path.ways],
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
        text = LedgerText(self.deployment, self.request, self.table, self.note, self.assumed)
        return text.lines(width)


def _way_document(way: WayLedger, spans: PathIntervals) -> dict[str, object]:
    return {
        "way": way.way,
        "stall_s": asdict(spans.way_stall_s[way.way]),
        "ttft_change_s": asdict(spans.way_ttft_change_s[way.way]),
        "gpu_seconds_freed": way.gpu_seconds_freed,
        "break_even_bytes_per_s": way.break_even_bytes_per_s,
        "break_even_tokens": way.break_even_tokens,
        "loses_again_tokens": way.loses_again_tokens,
        "is_faster": way.ttft_change_s < 0,
        "split": None if way.split is None else asdict(way.split),
    }


def ledger(
    *,
    tokens: int = DEFAULT_TOKENS,
    cached: int | None = None,
    paths: Sequence[str] = LEDGER_PATHS,
    lengths: Sequence[int] = (),
    kv_dtype: str | None = None,
    block_size: int | None = None,
    pp: int = 1,
    dp: int = 1,
    ep: int | None = None,
    settings: Settings | None = None,
) -> LedgerOutcome:
    """The ledger of one request of `tokens`, `cached` of them cached (95 % unless told).

    `lengths` adds a table with the same cached share. `pp` stages, `dp` groups of data-parallel
    attention and `ep` ranks of whole experts make the instance TP x PP x DP GPUs.

    Raises:
        UsageError: an unknown name, path or number format, or tokens that are no hit.
        ModelError: the FLOPs of the LLM are not known.
    """
    settings = settings or resolve_settings({})
    deployment = _deployment(settings, kv_dtype, pp=pp, dp=dp, ep=ep)
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
        assumed=_assumed(settings),
    )


def default_lengths() -> tuple[int, ...]:
    """Prompt lengths of the table."""
    return LEDGER_LENGTHS


def _deployment(
    settings: Settings, kv_dtype: str | None, *, pp: int, dp: int, ep: int | None
) -> Deployment:
    llm, hardware = settings.text("llm"), settings.text("hardware")
    tp = settings.integer("tp")
    if llm is None and hardware is None and tp is None:
        tp = DEFAULT_TP
    weights, stated = settings["weight_dtype"], settings["kv_dtype"]
    return build_deployment(
        llm or DEFAULT_LLM,
        hardware or DEFAULT_HARDWARE,
        tp=tp,
        weight_dtype=None if weights.is_default else str(weights.value),
        kv_dtype=kv_dtype or (None if stated.is_default else str(stated.value)),
        pp=pp,
        dp=dp,
        ep=ep,
        provider=str(settings["cost_provider"].value),
    )


def _assumed(settings: Settings) -> str | None:
    """Names the settings that are only examples here, with the flags that state them."""
    words = {"llm": "LLM", "hardware": "GPU"}
    missing = [name for name in words if settings.text(name) is None]
    if not missing:
        return None
    flags = " ".join(f"--{name} NAME" for name in missing)
    what = " and ".join(words[name] for name in missing)
    verb = "is an example" if len(missing) == 1 else "are examples"
    lists = " and ".join(f"`kvtrace {name}`" for name in missing)
    return f"{what} {verb}; state yours with `{flags}` ({lists} list what is built in)"


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
