"""Thresholds of findings: value, unit, and why it is that value.

`policy` in a source means that kvtrace chose it; it is stated so that it can be argued with.
"""

from __future__ import annotations

from typing import Final

from kvtrace.audit.thresholds import Threshold

LOG_WHOLE: Final = Threshold(
    "log_kept_share",
    0.95,
    "ratio",
    "policy: a log that holds more than this of the requests is taken as whole, since some fail "
    "before they are logged; sampling, slow-only logging or lost lines that it states count too",
)
QUEUE_SHARE: Final = Threshold(
    "queue_share_of_ttft",
    0.5,
    "ratio",
    "policy: more than half of TTFT passes before the first token is worked on",
)
QUEUE_CRITICAL: Final = Threshold(
    "queue_share_critical",
    0.8,
    "ratio",
    "policy: four fifths of TTFT are queue; no prefill that gets faster is felt any more",
)
QUEUE_MEDIAN_SHARE: Final = Threshold(
    "queue_share_of_median",
    0.1,
    "ratio",
    "policy: a median queue below a tenth of the median TTFT is a queue of the tail only",
)
QUEUE_CORRELATION: Final = Threshold(
    "ttft_queue_correlation",
    0.7,
    "",
    "policy: r² of 0.49, half of the variance of TTFT goes with the queue",
)
LENGTH_CORRELATION: Final = Threshold(
    "ttft_length_correlation",
    0.3,
    "",
    "policy: r² below 0.09, prompt length explains less than a tenth of the variance of TTFT",
)
TIERS_MAY_COST: Final = Threshold(
    "tiers_may_cost",
    1.02,
    "times",
    "policy: what tiers may add to the mean TTFT of the same replay without them; the limit that "
    "an arbiter is held to",
)
TTFT_COLLAPSE: Final = Threshold(
    "ttft_collapse",
    2,
    "times",
    "policy: mean TTFT at least doubles against the same replay without the tiers, more than the "
    "error of the modelled mean",
)
HIT_RATIO_RISE: Final = Threshold(
    "hit_ratio_rise",
    0.02,
    "ratio",
    "policy: two points of hit ratio between the first and the last third",
)
TTFT_RISE: Final = Threshold(
    "ttft_rise", 1.2, "times", "policy: TTFT grew by a fifth from the first to the last third"
)
CAUSE_SHARE: Final = Threshold(
    "cause_share", 0.5, "ratio", "policy: a cause is named when it covers half of the growth"
)
MOVE_SHARE: Final = Threshold(
    "move_share",
    0.5,
    "ratio",
    "policy: lookup, pull and load take more than half of the time after the queue",
)
RESTORED_SHARE: Final = Threshold(
    "restored_share",
    0.05,
    "ratio",
    "policy: one computed token in twenty that the fleet had computed before is worth a look at "
    "routing and capacity; a pool cannot save more than these",
)
BLOCK_LOSS: Final = Threshold(
    "block_rounding_share",
    0.02,
    "ratio",
    "policy: reuse that whole blocks may hide, as a share of the prompt tokens",
)
FINE_BLOCK: Final = Threshold(
    "fine_block",
    64,
    "tokens",
    "exact: vLLM hashes blocks of 16 tokens by default and up to 64, SGLang pages of 1 to 64; a "
    "trace with larger ones hides what lies between",
)
BOUNCE_FACTOR: Final = Threshold(
    "bounce_over_direct",
    1.3,
    "times",
    "policy: the host bounce makes a move a third longer than GPU-direct",
)
MOVE_MATTERS: Final = Threshold(
    "move_matters", 0.1, "ratio", "policy: moves are a tenth of TTFT; below that no path matters"
)
DECODE_SHARE: Final = Threshold(
    "decode_share",
    0.9,
    "ratio",
    "policy: by Amdahl's law, removing all of TTFT then shortens a request by a tenth at most",
)
MEASURED_OVER_RECOMPUTE: Final = Threshold(
    "measured_over_recompute",
    1,
    "times",
    "exact: from one on, the measured prefill with its hits takes as long as recomputing",
)
ENOUGH_MOVES: Final = Threshold(
    "enough_moves", 20, "count", "policy: a rate over fewer moves is that of a few moments"
)
SLOW_MOVES: Final = Threshold(
    "slow_moves",
    0.5,
    "times",
    "policy: half the modelled rate or less is no spread of hardware but another path",
)
LINK_LEFT: Final = Threshold(
    "link_need_over_left",
    1.0,
    "times",
    "exact: bytes a second that an option needs over what the measured load leaves of the link; "
    "past one they do not fit, on the mean",
)
ENOUGH_IN_BUCKET: Final = Threshold(
    "enough_in_bucket", 20, "requests", "policy: a median rests on ten requests to each side"
)
TAIL_AUC: Final = Threshold(
    "tail_auc",
    0.7,
    "ratio",
    "policy: a cause explains the tail where a slow request has more of it than another in seven "
    "of ten pairs, by the lower end of the interval; 0.5 is chance",
)
TAIL_REQUESTS: Final = Threshold(
    "tail_requests", 20, "requests", "policy: an AUC over fewer slow requests is that of one burst"
)
HIT_HELP: Final = Threshold(
    "hit_help",
    0.05,
    "ratio",
    "policy: hits that save less than a twentieth of the mean TTFT, by the upper end of the "
    "interval, are not felt",
)
CONFOUNDED: Final = Threshold(
    "confounded", 0.3, "", "policy: r² of 0.09, a tenth of the spread of hits goes with the queue"
)
TENANTS_ON_ONE_CACHE: Final = Threshold(
    "tenants_on_one_cache",
    2,
    "tenants",
    "exact: from two on, one can probe the other's prefixes by TTFT. CVE-2025-46570 "
    "(vllm-project/vllm GHSA-4qjh-9fv9-r85r); arXiv:2411.18191 tells hit from miss at a ROC AUC of "
    "0.99; NDSS 2025, PromptPeek. Read 2026-11",
)
ISOLATION_HELPS: Final = Threshold(
    "short_p_over_isolated",
    1.2,
    "times",
    "policy: the tail of short prompts is a fifth longer than where long ones run apart",
)
LONG_ADDS: Final = Threshold(
    "long_prompts_add",
    0.2,
    "ratio",
    "policy: a short prompt behind a long one waits a fifth of its median TTFT longer, by the low "
    "end of the interval",
)
BYTES_IN_TAIL: Final = Threshold(
    "tail_move_share",
    0.5,
    "ratio",
    "policy: more than half of what the slowest first tokens take longer is moving KV",
)
MORE_BYTES: Final = Threshold(
    "tail_bytes_over_rest", 2, "times", "policy: the tail loads twice the bytes of the others"
)
LOAD_SHARE: Final = Threshold(
    "load_share_of_move",
    0.5,
    "ratio",
    "policy: with RDMA in place more than half of a move is the copy from host memory into HBM",
)
SHARED_RATE: Final = Threshold(
    "rate_over_alone",
    2 / 3,
    "ratio",
    "policy: a move that gets less than two thirds of what the link gives one alone shares it on "
    "the mean with another one every second time; two at once get a half, three a third",
)
REPLICATION: Final = Threshold(
    "kv_copies_over_ranks",
    1,
    "times",
    "exact: more than one copy of a token's KV over the tensor-parallel ranks is moved and held",
)
HALF_RATE: Final = Threshold(
    "rate_over_long_chunks",
    0.5,
    "ratio",
    "exact: at half of the rate of long chunks the fixed cost of a piece takes as long as its "
    "bytes; smaller pieces are paid by the piece",
)
READ_BACK: Final = Threshold(
    "read_over_written",
    0.1,
    "ratio",
    "policy: a tier of which less than a tenth of the written amount is read is written for "
    "nothing",
)
ROUTING_GAIN: Final = Threshold(
    "routing_gain",
    0.05,
    "ratio",
    "policy: routing by what caches hold serves five points more of the prompt tokens",
)
SIZE_GAP: Final = Threshold(
    "pool_size_gap",
    0.05,
    "ratio",
    "policy: five points of the prompt tokens lie beyond the size of the pool, by the capacity "
    "curve; its interleaving with HBM moves it by a few",
)
OVERSIZE: Final = Threshold(
    "pool_oversize", 2, "times", "policy: half of the pool would serve all but two points as well"
)
DRIVE_WRITES: Final = Threshold(
    "drive_writes_per_day",
    1,
    "1/day",
    "policy: one write of the capacity a day, the class of drives sold for reading "
    "(`ssd_drive_writes_per_day` of data/prices.toml, with its source); the data sheet decides",
)
PREEMPTED: Final = Threshold(
    "preemptions",
    1,
    "requests",
    "exact: a preempted request finds its own blocks again, and these count as hits where the "
    "engine does not keep them apart (vLLM below 0.11.1, issue 25780; SGLang's batch lines)",
)
COVERAGE: Final = Threshold(
    "field_known_share",
    0.95,
    "ratio",
    "policy: what less than this share of the requests says is a figure of a part of them",
)
HOLE: Final = Threshold(
    "empty_slices",
    1,
    "count",
    "policy: a slice without a request, beside slices that hold the mean number of twenty or more, "
    "is a gap of the log and no pause: chance of one is below 1 in 10^8",
)
LOST_HITS: Final = Threshold(
    "lost_hit_share",
    0.02,
    "ratio",
    "policy: two points of the prompt tokens that a drafter or a state checkpoint computes again",
)
HIT_LOSS: Final = Threshold(
    "hit_ttft_change",
    0,
    "ms",
    "exact: hits whose mean TTFT is above that of equally long prompts without hits, by the low "
    "end "
    "of the 95 % interval, lose time",
)
