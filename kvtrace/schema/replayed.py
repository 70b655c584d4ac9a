"""Tables of replays: what each scenario did with each request, and what crossed each link when.

All of it is modelled. A replay that repeats a scenario with other settings is a run of its own.
"""

from __future__ import annotations

from typing import Final

from kvtrace.schema.table import Column, Table

_RUN: Final = Column("run", "int32", "key", "the replay, from 0 in the order in which it was asked")
_NO_OUTPUT: Final = "the output length is unknown or the request has one output token at most"

REPLAY_RUNS: Final = Table(
    "replay_runs",
    "one replay of one scenario",
    (
        _RUN,
        Column("scenario", "text", "name", "name of the scenario, or the id of an option"),
        Column(
            "changes", "text", "settings", "what a sweep changed, `key=value` each; empty: none"
        ),
        Column("title", "text", "words", "what the scenario is"),
        Column("load", "text", "words", "what was done to the logged requests; empty: nothing"),
        Column("llm", "text", "name", "the served LLM"),
        Column("hardware", "text", "name", "the GPU or the hardware file"),
        Column("tp", "int64", "GPUs", "of an instance"),
        Column("instances", "int64", "count", "engine instances"),
        Column("routing", "text", "name", "how an instance is chosen"),
        Column("load_decision", "text", "name", "what is loaded instead of computed"),
        Column("load_mode", "text", "name", "async | sync"),
        Column("seed", "int64", "seed", "of everything random"),
        Column("requests", "int64", "requests", "replayed"),
        Column("warmup_requests", "int64", "requests", "before them, which filled the caches"),
        Column("refused_requests", "int64", "requests", "longer than an instance can hold"),
        Column("oversized_requests", "int64", "requests", "served one by one for their size"),
        Column("span_s", "float64", "s", "first arrival to last first token"),
        Column("kv_bytes_per_token", "float64", "bytes", "KV of a token, all ranks"),
        Column("prefill_utilisation", "float64", "ratio", "busy with prefill / instances x span"),
        Column(
            "offered_load",
            "float64",
            "ratio",
            "seconds of work that arrive per instance-second; above 1 the queue grows",
            "all arrive at once",
        ),
        Column("is_overloaded", "bool", "flag", "the fleet does not keep up: times say how long"),
        Column("hbm_evicted_blocks", "int64", "blocks", "evicted from HBM, all instances"),
    ),
    ("run",),
    is_derived=True,
)

REPLAY_REQUESTS: Final = Table(
    "replay_requests",
    "one request of one replay: its timeline, and what recomputing would have cost",
    (
        _RUN,
        Column("request_rank", "int64", "rank", "of the replayed requests by arrival, from 0"),
        Column("request_key", "int64", "key", "the logged request", "a copy that growth added"),
        Column("instance", "int32", "number", "the instance that prefilled it"),
        Column("arrived_s", "float64", "s", "since the first replayed arrival"),
        Column("prompt_tokens", "int64", "tokens", "of the prompt"),
        Column("output_tokens", "int64", "tokens", "generated", "the source does not say"),
        Column("hit_tokens", "int64", "tokens", "served from any tier, HBM included"),
        Column("loaded_tokens", "int64", "tokens", "of these, from below HBM"),
        Column("computed_tokens", "int64", "tokens", "prefilled"),
        Column("moved_bytes", "float64", "bytes", "loaded for it over its last stage"),
        Column("queue_s", "float64", "s", "waiting that its move did not hide"),
        Column("lookup_s", "float64", "s", "asking the tiers"),
        Column("pull_s", "float64", "s", "over a network or from a drive"),
        Column("load_s", "float64", "s", "from host memory into HBM"),
        Column("prefill_s", "float64", "s", "first step to first token"),
        Column("stall_s", "float64", "s", "of prefill_s: waits for a load that ran beside it"),
        Column("ttft_s", "float64", "s", "queue + lookup + pull + load + prefill"),
        Column(
            "handoff_s",
            "float64",
            "s",
            "first token until its KV is on the instance that decodes it; part of decode_s",
            "instances prefill and decode",
        ),
        Column("preemptions", "int64", "times", "it gave its HBM up for running requests"),
        Column(
            "preempted_s",
            "float64",
            "s",
            "from each preemption until it had room again; part of decode_s",
        ),
        Column("decode_s", "float64", "s", "first to last token", _NO_OUTPUT),
        Column("tpot_s", "float64", "s", "decode_s / (output tokens - 1)", _NO_OUTPUT),
        Column("e2e_s", "float64", "s", "arrival to last token", "no output length is known"),
        Column("gpu_busy_s", "float64", "s", "of its instance, for prefill and sync loads"),
        Column("recompute_s", "float64", "s", "prefill of the whole prompt, alone"),
        Column("recompute_loaded_s", "float64", "s", "prefill of what was loaded, alone"),
        Column("declined_tokens", "int64", "tokens", "found below HBM, and not loaded by decision"),
        Column("declined_move_s", "float64", "s", "their load, links as they were then"),
        Column("declined_recompute_s", "float64", "s", "their prefill, alone"),
    ),
    ("run", "request_rank"),
    is_derived=True,
)

REPLAY_HITS: Final = Table(
    "replay_hits",
    "tokens of one request of one replay that one tier served",
    (
        _RUN,
        Column("request_rank", "int64", "rank", "as in replay_requests"),
        Column("tier", "text", "name", "hbm, or a tier below it"),
        Column("tier_position", "int32", "number", "of the tier in the chain; 0 is hbm"),
        Column("hit_tokens", "int64", "tokens", "served; above zero"),
    ),
    ("run", "request_rank", "tier_position"),
    is_derived=True,
)

REPLAY_LINKS: Final = Table(
    "replay_links",
    "bytes over one kind of link in one stretch of time of one replay",
    (
        _RUN,
        Column("link", "text", "name", "kind of link, as pcie or pool_nic_rdma"),
        Column("bucket", "int64", "number", "the stretch, from 0 at the first replayed arrival"),
        Column("start_s", "float64", "s", "its start, since the first replayed arrival"),
        Column("width_s", "float64", "s", "its length"),
        Column("links", "int64", "count", "such links in all"),
        Column("link_bytes_per_s", "float64", "bytes/s", "what they can move together"),
        Column("read_bytes", "float64", "bytes", "loads that crossed them"),
        Column("written_bytes", "float64", "bytes", "writes, hand-offs and evictions"),
    ),
    ("run", "link", "bucket"),
    is_derived=True,
)

REPLAY_SWEEP: Final = Table(
    "replay_sweep",
    "one replay of a sweep, as replay/summary gives it",
    (
        Column("run", "int32", "key", "the replay, from 0 in the order of the sweep"),
        Column("scenario", "text", "name", "the scenario that the sweep began from"),
        Column(
            "axis", "text", "name", "what differs from the start; `grid`: several", "nothing does"
        ),
        Column("value", "text", "setting", "the value of the axis", "no axis, or several"),
        Column("changes", "text", "settings", "`key=value` each; empty: the start itself"),
        Column("content", "text", "digest", "of all that the replay follows from"),
        Column("instances", "int64", "count", "engine instances"),
        Column("requests", "int64", "requests", "replayed"),
        Column("is_overloaded", "bool", "flag", "the fleet does not keep up"),
        Column("prompt_tokens", "int64", "tokens", "of all prompts"),
        Column("hit_tokens", "int64", "tokens", "served from any tier"),
        Column("loaded_tokens", "int64", "tokens", "of these, from below HBM"),
        Column("loaded_requests", "int64", "requests", "with something loaded"),
        Column(
            "net_negative_requests", "int64", "requests", "whose load took longer than computing"
        ),
        Column("net_negative_bytes", "float64", "bytes", "loaded for those"),
        Column("net_negative_lost_s", "float64", "s", "what those lost"),
        Column("moved_bytes", "float64", "bytes", "loaded in all"),
        Column("ttft_mean_s", "float64", "s", "mean TTFT"),
        Column("ttft_p50_s", "float64", "s", "median TTFT"),
        Column("ttft_p90_s", "float64", "s", "90 %"),
        Column("ttft_p99_s", "float64", "s", "99 %", "fewer than 1 000 requests"),
        Column("tpot_mean_s", "float64", "s", "mean TPOT", _NO_OUTPUT),
        Column("tpot_p50_s", "float64", "s", "median TPOT", _NO_OUTPUT),
        Column("tpot_p99_s", "float64", "s", "99 %", "fewer than 1 000 requests"),
        Column("e2e_p50_s", "float64", "s", "median arrival to last token", "no output length"),
        Column("gpu_busy_s", "float64", "s", "of instances, for prefill and sync loads"),
    ),
    ("run",),
    is_derived=True,
)
