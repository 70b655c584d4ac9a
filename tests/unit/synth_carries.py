"""What each format that `kvtrace synth` writes carries of the story, for ingest to find again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from kvtrace.synth import WRITERS, Served
from kvtrace.synth.formats.scene import START_NS

MS, SECOND = 1_000_000, 1_000_000_000

Expect = Callable[[Served], int | None]
"""What a column holds for a request."""


@dataclass(frozen=True)
class Carried:
    """What ingest finds in a format."""

    columns: Mapping[str, Expect] = field(default_factory=dict)
    arrival: Expect | None = None
    """Arrival from the start of the story, as far as the format resolves it."""
    clock: Literal["utc", "first"] = "utc"
    """UTC, or shown from the first row."""
    has_ids: bool = True
    """Without ids the rows come in order of arrival, or that of conversations."""
    by_conversation: bool = False
    """The requests of a conversation stand together; conversations by their last arrival."""
    has_sessions: bool = False
    block_tokens: int | None = None
    """Tokens of a block, where prompts are known as blocks."""
    has_partial: bool = True
    """Whether the block at the end that is not full is one of them."""
    warnings: frozenset[str] = frozenset()
    """What ingest must warn of, because the format does not settle it."""

    def in_order(self, served: Sequence[Served]) -> list[Served]:
        """The requests in the order of the rows, sorted by arrival where that is known."""
        if not self.by_conversation:
            arrival = self.arrival or arrived
            return sorted(served, key=lambda one: (arrival(one) or 0, one.arrived_at_ns))
        last = {one.request.session: one.arrived_at_ns for one in served}
        return sorted(served, key=lambda one: (last[one.request.session], one.request.turn))

    def expected_arrival(self, one: Served, first: Served) -> int | None:
        """What `arrived_at_ns` holds."""
        if self.arrival is None:
            return None
        at_ns, first_ns = self.arrival(one), self.arrival(first)
        assert at_ns is not None
        assert first_ns is not None
        return START_NS + at_ns if self.clock == "utc" else at_ns - first_ns


def cut(expect: Expect, to_ns: int = MS) -> Expect:
    """What a format keeps that cuts numbers to a resolution."""

    def kept(one: Served) -> int | None:
        value = expect(one)
        return None if value is None else value // to_ns * to_ns

    return kept


def arrived(one: Served) -> int:
    return one.arrived_at_ns


def scheduled(one: Served) -> int:
    return one.scheduled_at_ns


def ttft(one: Served) -> int:
    return one.ttft_ns


def e2e(one: Served) -> int:
    return one.last_token_at_ns - one.arrived_at_ns


def queue(one: Served) -> int:
    """In the queue of the engine."""
    return one.scheduled_at_ns - one.queued_at_ns


def prefill(one: Served) -> int:
    return one.first_token_at_ns - one.scheduled_at_ns


def between(start: str, end: str, to_ns: int = MS) -> Expect:
    """The difference of two times that are both cut."""

    def kept(one: Served) -> int:
        first, last = (int(getattr(one, name)) // to_ns * to_ns for name in (start, end))
        return last - first

    return kept


def ends_at(to_ns: int = MS) -> Expect:
    """Arrival as the end less the duration, both cut."""

    def kept(one: Served) -> int:
        return one.last_token_at_ns // to_ns * to_ns - e2e(one) // to_ns * to_ns

    return kept


PROMPT: dict[str, Expect] = {"prompt_tokens": lambda one: one.request.prompt_tokens}
LENGTHS: dict[str, Expect] = {**PROMPT, "output_tokens": lambda one: one.request.output_tokens}
TIMES: dict[str, Expect] = {"ttft_ns": ttft, "e2e_ns": e2e}
TIMES_MS: dict[str, Expect] = {"ttft_ns": cut(ttft), "e2e_ns": cut(e2e)}
CACHED: dict[str, Expect] = {"cached_tokens": lambda one: one.cached_tokens}
QUEUE: dict[str, Expect] = {"queue_ns": queue}
TIERS: dict[str, Expect] = {
    "cached_device_tokens": lambda one: one.device_tokens,
    "cached_remote_tokens": lambda one: one.pulled_tokens,
}
ASSUMED = frozenset({"cache_semantics_assumed"})
UTC_MS = cut(arrived)
UTC_S = cut(arrived, SECOND)

CARRIES: dict[str, Carried] = {
    "mooncake": Carried(LENGTHS, UTC_MS, "first", block_tokens=64),
    "bailian": Carried(
        LENGTHS, arrived, "first", has_ids=False, has_sessions=True, block_tokens=16
    ),
    "azure": Carried(LENGTHS, arrived, has_ids=False),
    "burstgpt": Carried(
        {**LENGTHS, "e2e_ns": e2e}, arrived, "first", has_ids=False, has_sessions=True
    ),
    "dynamo_request_trace": Carried(
        {
            **LENGTHS,
            **TIMES,
            **CACHED,
            "queue_ns": lambda one: one.scheduled_at_ns - one.arrived_at_ns,
            "prefill_ns": prefill,
        },
        arrived,
        has_sessions=True,
        block_tokens=64,
    ),
    "lmcache_hashes": Carried(PROMPT, scheduled, block_tokens=256, has_partial=False),
    "vllm_text": Carried({"e2e_ns": e2e}, arrived),
    "vllm_timing": Carried(
        {
            **LENGTHS,
            **QUEUE,
            "prefill_ns": prefill,
            "ttft_ns": lambda one: one.first_token_at_ns - one.queued_at_ns,
            "e2e_ns": lambda one: one.last_token_at_ns - one.queued_at_ns,
        },
        arrived,
    ),
    "kv_events": Carried(),
    "sglang_text": Carried(
        {**LENGTHS, **TIMES, **CACHED, **TIERS, **QUEUE}, arrived, has_sessions=True
    ),
    "sglang_request_metrics": Carried(
        {**LENGTHS, **TIMES, **CACHED, **TIERS, **QUEUE}, arrived, has_sessions=True
    ),
    "lmcache_text": Carried({**PROMPT, **CACHED, **TIERS}, cut(scheduled)),
    "prometheus": Carried(),
    "litellm": Carried({**LENGTHS, **TIMES, **CACHED}, arrived, has_sessions=True),
    "litellm_spend_logs": Carried(
        {
            **LENGTHS,
            **CACHED,
            "ttft_ns": between("arrived_at_ns", "first_token_at_ns"),
            "e2e_ns": between("arrived_at_ns", "last_token_at_ns"),
        },
        UTC_MS,
        has_sessions=True,
    ),
    "otlp_genai": Carried({**LENGTHS, **TIMES, **QUEUE}, arrived),
    "aiperf": Carried({**LENGTHS, **TIMES, **CACHED}, arrived, has_sessions=True),
    "envoy_ai_gateway": Carried(
        {**LENGTHS, **CACHED, "e2e_ns": cut(e2e)}, UTC_MS, has_sessions=True, warnings=ASSUMED
    ),
    "kong": Carried({**LENGTHS, **CACHED, **TIMES_MS}, UTC_MS),
    "nginx_access": Carried({"e2e_ns": cut(e2e)}, ends_at()),
    "higress": Carried({**LENGTHS, **CACHED, **TIMES_MS}, UTC_MS, has_sessions=True),
    "apisix": Carried({**LENGTHS, **CACHED, **TIMES_MS}, ends_at()),
    "cloudflare_ai_gateway": Carried({**LENGTHS, "e2e_ns": cut(e2e)}, UTC_S, has_sessions=True),
    "portkey": Carried({**LENGTHS, "e2e_ns": cut(e2e)}, UTC_MS, has_sessions=True),
    "openrouter": Carried({**LENGTHS, **CACHED}, UTC_MS, has_sessions=True),
    "langfuse": Carried(
        {
            **LENGTHS,
            **CACHED,
            "ttft_ns": between("arrived_at_ns", "first_token_at_ns"),
            "e2e_ns": between("arrived_at_ns", "last_token_at_ns"),
        },
        UTC_MS,
        has_sessions=True,
    ),
    "helicone": Carried({**LENGTHS, **CACHED, **TIMES_MS}, UTC_MS, has_sessions=True),
    "helicone_csv": Carried({**LENGTHS, **CACHED, **TIMES_MS}, UTC_MS),
    "openai_batch": Carried({**LENGTHS, **CACHED}, UTC_S),
    "provider_usage": Carried(
        {**LENGTHS, **CACHED, **TIMES}, arrived, has_sessions=True, warnings=ASSUMED
    ),
    "generic_usage": Carried({**LENGTHS, **CACHED, **TIMES}, arrived, has_sessions=True),
    "nim_response": Carried({**LENGTHS, **CACHED, **QUEUE, "ttft_ns": ttft}, UTC_S),
    "vllm_bench": Carried({**LENGTHS, **TIMES}, arrived, "first", has_ids=False),
    "sglang_bench": Carried({**LENGTHS, **TIMES, **CACHED, **TIERS}, has_ids=False),
    "genai_perf": Carried(
        {**LENGTHS, **TIMES, **CACHED}, arrived, has_ids=False, has_sessions=True
    ),
    "guidellm": Carried({**LENGTHS, **TIMES, **CACHED}, arrived, has_sessions=True),
    "inference_perf": Carried({**LENGTHS, **TIMES, **CACHED}, arrived, "first", has_ids=False),
    "llmperf": Carried({**LENGTHS, **TIMES}, has_ids=False),
    "trtllm_request_metrics": Carried(
        {
            **LENGTHS,
            **TIMES,
            **CACHED,
            "queue_ns": lambda one: one.scheduled_at_ns - one.arrived_at_ns,
            "prefill_ns": prefill,
        },
        arrived,
        "first",
    ),
    "jaeger": Carried({**LENGTHS, **TIMES, **QUEUE}, arrived),
    "splitwise": Carried(LENGTHS, arrived, "first", has_ids=False),
    "vidur": Carried(LENGTHS, arrived, "first", has_ids=False),
    "llmservingsim": Carried(LENGTHS, arrived, "first", has_ids=False),
    "llmservingsim_results": Carried(
        {
            **LENGTHS,
            **TIMES,
            "queue_ns": lambda one: one.scheduled_at_ns - one.arrived_at_ns,
        },
        arrived,
        "first",
        has_ids=False,
        warnings=frozenset({"simulated"}),
    ),
    "aibrix_trace": Carried(LENGTHS, UTC_MS, "first", has_ids=False, has_sessions=True),
    "tair_kvcache": Carried(LENGTHS, arrived, block_tokens=64),
    "tracelab": Carried(
        {**LENGTHS, **CACHED, "e2e_ns": between("arrived_at_ns", "last_token_at_ns")},
        UTC_MS,
        has_sessions=True,
    ),
    "agentic_mooncake": Carried(
        {**LENGTHS, "e2e_ns": e2e},
        arrived,
        "first",
        has_ids=False,
        has_sessions=True,
        block_tokens=64,
    ),
    "weka": Carried(
        {**LENGTHS, **TIMES},
        has_ids=False,
        by_conversation=True,
        has_sessions=True,
        block_tokens=64,
        has_partial=False,
        warnings=frozenset({"no_common_clock"}),
    ),
    "tabbyapi_text": Carried(
        {
            **LENGTHS,
            **CACHED,
            "e2e_ns": cut(e2e, 10 * MS),
            "queue_ns": cut(lambda one: one.scheduled_at_ns - one.arrived_at_ns, 10 * MS),
        },
        lambda one: one.last_token_at_ns // MS * MS - e2e(one) // (10 * MS) * (10 * MS),
    ),
    "tgi_text": Carried(
        {"output_tokens": LENGTHS["output_tokens"], **QUEUE, "e2e_ns": e2e}, arrived, has_ids=False
    ),
    "ollama_text": Carried(
        {"e2e_ns": e2e},
        lambda one: one.last_token_at_ns // SECOND * SECOND - e2e(one),
        has_ids=False,
    ),
    "aibrix_text": Carried({**LENGTHS, "e2e_ns": e2e}, arrived),
}
"""Every format that is written; those without columns hold no requests."""
OF_REQUESTS = sorted(name for name, carried in CARRIES.items() if carried.columns)


def docs_row(name: str) -> str:
    """The row of docs/synth.md about a format."""
    carried = CARRIES[name]
    files = ", ".join(f"`{writer.file}`" for writer in WRITERS if writer.format == name)
    said = {
        "lengths": ("prompt_tokens", "output_tokens"),
        "cached tokens": ("cached_tokens",),
        "TTFT": ("ttft_ns",),
        "E2E": ("e2e_ns",),
        "queue": ("queue_ns",),
    }
    words = [word for word, columns in said.items() if set(columns) <= set(carried.columns)]
    if "prompt_tokens" in carried.columns and "output_tokens" not in carried.columns:
        words.insert(0, "prompt length")
    if carried.has_sessions:
        words.append("sessions")
    if carried.block_tokens:
        words.append("blocks")
    return f"| `{name}` | {files} | {_arrival(carried)} | {', '.join(words)} |"


def _arrival(carried: Carried) -> str:
    if carried.arrival is None:
        return "no requests" if not carried.columns else "none"
    ids = "" if carried.has_ids else ", no ids"
    return ("UTC" if carried.clock == "utc" else "from the first") + ids
