"""What the numbers of a vLLM log mean, which its version decides: facts and notes for the audit.

Read from the sources and issues of vLLM 0.6 to 0.33: the same words changed what they count.
"""

from __future__ import annotations

from typing import Final

from kvtrace.ingest.contract import ReadContext
from kvtrace.ingest.formats.vllm_text.version import Version, VersionEvidence

_PREEMPTIONS_APART: Final[Version] = (0, 11, 1)
_ALL_PROMPT_TOKENS_BELOW: Final[Version] = (0, 16, 0)
_COMPUTED_TOKENS_FROM: Final[Version] = (0, 17, 0)
_WAITING_INCLUDES_DEFERRED_FROM: Final[Version] = (0, 30, 0)
"""Of the releases that were read, 0.29 does not and 0.33 does."""


def describe_meaning(version: VersionEvidence, context: ReadContext, *, has_hits: bool) -> None:
    """Write what the log's numbers count into the facts and notes of the context."""
    if has_hits:
        _describe_hits(version, context)
    _describe_throughput(version, context)
    _describe_requests(version, context)
    if version.has_seen("iteration"):
        context.note(
            "iteration_times_overlap",
            "Where vLLM schedules asynchronously, the elapsed time of a single iteration means"
            " nothing; only sums over many iterations do.",
        )
    if version.has_seen("kv_transfer"):
        context.note(
            "transfer_time_pooled",
            "vLLM prints KV transfers pooled over all ranks: seconds are summed over ranks and"
            " transfers, so bytes over seconds is the rate of one rank, not of the instance.",
        )


def _describe_hits(version: VersionEvidence, context: ReadContext) -> None:
    facts = context.engine_facts
    unit = "blocks" if version.has_seen("v0_stats") else version.hit_unit(None)
    if unit is not None:
        facts["prefix_hit_ratio_counts"] = unit
    facts["last_prompt_position_can_hit"] = "no"
    counted = "unknown"
    if version.is_surely_from(_PREEMPTIONS_APART):
        counted = "no"
    elif version.is_surely_below(_PREEMPTIONS_APART):
        counted = "yes"
    facts["preemptions_counted_as_hits"] = counted
    if counted != "no":
        context.note(
            "preemptions_counted_as_hits",
            "Before 0.11.1 vLLM counts the blocks that a preempted request finds again as hits;"
            f" whether this log is older is {'certain' if counted == 'yes' else 'not known'}."
            " Printed hit ratios are upper bounds.",
            severity="warning" if counted == "yes" else "info",
        )
    if version.has_seen("external_hit"):
        facts["external_prefix_hit_ratio_of"] = "prompt_minus_local_hits"
        context.note(
            "external_hit_denominator",
            "The external hit ratio is a share of what HBM missed, not of the prompt: the two"
            " printed ratios do not add. Look-ups that a request skips count as external misses.",
        )


def _describe_throughput(version: VersionEvidence, context: ReadContext) -> None:
    """The printed prompt throughput: all prompt tokens up to 0.15, computed ones from 0.17 on."""
    if version.is_surely_from(_COMPUTED_TOKENS_FROM):
        context.engine_facts["prompt_tokens_per_s_counts"] = "computed_tokens"
    elif version.is_surely_below(_ALL_PROMPT_TOKENS_BELOW):
        context.engine_facts["prompt_tokens_per_s_counts"] = "prompt_tokens"


def _describe_requests(version: VersionEvidence, context: ReadContext) -> None:
    if version.is_surely_from(_WAITING_INCLUDES_DEFERRED_FROM):
        context.engine_facts["waiting_includes_deferred"] = "yes"
        if version.has_seen("deferred"):
            context.note(
                "waiting_includes_deferred",
                "Waiting requests include the deferred ones; the two do not add.",
            )
    if version.has_seen("v1_stats") and version.is_surely_from(_PREEMPTIONS_APART):
        context.engine_facts["preemptions_shown"] = "no"  # reset before they are printed
    if version.has_seen("aggregated"):
        context.note(
            "engines_aggregated",
            "Lines of several engines together: requests and tokens are sums, KV usage is a mean.",
        )
