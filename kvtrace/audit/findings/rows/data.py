"""Findings on what the data can carry."""

from __future__ import annotations

from typing import Final

from kvtrace.audit import thresholds
from kvtrace.audit.findings import limits as limit
from kvtrace.audit.findings import measured as by_log
from kvtrace.audit.findings.check import Check
from kvtrace.audit.findings.sampling import log_is_sampled
from kvtrace.audit.findings.trust import (
    clock_doubtful,
    coverage_gaps,
    hits_cancelled,
    preemptions_inflate_hits,
)

CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="reuse_unknown",
        title="Reuse is unknown",
        question="Does the data identify blocks?",
        threshold=thresholds.Threshold(
            "evidence_grade", 1, "grade A", "exact: without block identity no cache can be replayed"
        ),
        look=by_log.reuse_unknown,
        action="Log block identity for two busy hours; the verdict names the flag",
        action_kind="measure",
        production_check="PromQL, as a first hint: rate(vllm:prefix_cache_hits_total[1h]) / "
        "rate(vllm:prefix_cache_queries_total[1h])",
        table="coverage/fields",
    ),
    Check(
        id="log_is_sampled",
        title="Requests are missing from the log",
        question="Does the log hold all requests of the service?",
        threshold=limit.LOG_WHOLE,
        look=log_is_sampled,
        action="Log all requests for two busy hours, or sample whole sessions; read reuse as a "
        "lower bound until then",
        action_kind="measure",
        production_check="Rows of the log an hour against "
        "increase(vllm:request_success_total[1h]) or increase(sglang:num_requests_total[1h])",
        table="coverage/over_time",
    ),
    Check(
        id="window_too_short",
        title="The window is short",
        question="Does the window hold enough time and enough requests?",
        threshold=thresholds.MIN_SPAN,
        look=by_log.window_too_short,
        action="Log a busy day, or at least an hour with 1 000 requests",
        action_kind="measure",
        production_check="First and last time stamp of the log",
        table="coverage/over_time",
    ),
    Check(
        id="quality_violations",
        title="Rows that break the rules of the data",
        question="Does the data agree with itself?",
        threshold=thresholds.Threshold("violations", 1, "rows", "exact: none is expected"),
        look=by_log.quality_violations,
        action="Look at the rows with `kvtrace query`, and leave out what is wrong at its source",
        action_kind="measure",
        production_check="The named query over the dataset; no row is good",
    ),
    Check(
        id="block_size_hides_reuse",
        title="Large blocks hide reuse",
        question="How much reuse can lie inside blocks that do not match as a whole?",
        threshold=limit.BLOCK_LOSS,
        look=by_log.block_size_hides_reuse,
        action="Read the reuse as a lower bound; hash at the block size of the engine to close it",
        action_kind="measure",
        production_check="Block size at start-up: vLLM `block_size` in cache_config_info, SGLang "
        "--page-size",
        table="reuse/definitions",
    ),
    Check(
        id="clock_coarse",
        title="The clock is coarser than the arrivals",
        question="Is the order of arrivals known from the clock?",
        threshold=thresholds.Threshold(
            "clock_step_over_gap",
            1,
            "times",
            "exact: with more than one arrival a step the order inside it is lost",
        ),
        look=by_log.clock_coarse,
        action="Log arrivals in milliseconds; until then take modelled queues as uncertain",
        action_kind="measure",
        production_check="Digits of the time stamps in the log",
    ),
    Check(
        id="clock_doubtful",
        title="Clocks do not agree, or are guessed",
        question="Do the instants of all rows compare?",
        threshold=thresholds.Threshold("clock_notes", 1, "count", "exact: none is expected"),
        look=clock_doubtful,
        action="State the zone (`--tz`), log in UTC with milliseconds, and analyse files of one "
        "clock together",
        action_kind="measure",
        production_check="The first lines of two files of the same minute, side by side; `kvtrace "
        "sniff` says which clock each file has",
    ),
    Check(
        id="coverage_gaps",
        title="The log has gaps",
        question="Does the log cover its whole span, and say what the figures rest on?",
        threshold=limit.COVERAGE,
        look=coverage_gaps,
        action="Find the missing files (rotation, a stopped collector), or cut the log to the "
        "part that is whole",
        action_kind="measure",
        production_check="increase(vllm:request_success_total[1h]) hour by hour against the rows "
        "of the log",
    ),
    Check(
        id="preemptions_inflate_hits",
        title="Preempted requests count as hits",
        question="Do the printed hit ratios count what a request lost and found again?",
        threshold=limit.PREEMPTED,
        look=preemptions_inflate_hits,
        action="Take printed hit ratios as upper bounds; upgrade (vLLM 0.11.1 keeps them apart), "
        "or give KV more room until nothing is preempted",
        action_kind="measure",
        production_check="PromQL: increase(vllm:num_preemptions_total[1h]); SGLang log field "
        "`#retracted-req`; both are zero in a window that can be trusted",
    ),
    Check(
        id="hits_cancelled",
        title="Matched tokens are computed again",
        question="Do speculative decoding or state checkpoints cancel hits?",
        threshold=limit.LOST_HITS,
        look=hits_cancelled,
        is_replayed=True,
        action="Compare hits with the drafter on and off on one instance; use smaller blocks or "
        "finer checkpoints (vLLM --mamba-cache-mode), or draft without hidden states (ngram)",
        action_kind="measure",
        production_check="PromQL: rate(vllm:prefix_cache_hits_total[5m]) while one prompt is sent "
        "twice: the second time must hit all but its last block",
    ),
)
