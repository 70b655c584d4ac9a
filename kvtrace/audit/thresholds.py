"""Thresholds of the verdict, and those that it shares with findings: value, unit, and why.

Those of findings alone: `kvtrace/audit/findings/limits.py`.

`policy` in a source means that kvtrace chose it; it is stated so that it can be argued with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kvtrace.audit.record import Quantity


@dataclass(frozen=True, slots=True)
class Threshold:
    """A limit with unit and source."""

    id: str
    value: float
    unit: str
    source: str

    def quantity(self) -> Quantity:
        """The threshold as the record shows it."""
        return Quantity(
            id=self.id,
            value=self.value,
            unit=self.unit,
            source=self.source,
            kind="given",
            interval_reason="a chosen limit",
        )


MIN_REQUESTS: Final = Threshold(
    "min_requests",
    1000,
    "requests",
    "policy: a P99 rests on its slowest 1 %; below 1 000 requests those are fewer than ten",
)
MIN_SPAN: Final = Threshold(
    "min_span",
    3300,
    "s",
    "policy: reuse is found only between requests of one log; an hour of capture covers the reuse "
    "gaps of chat turns, and its first and last arrival may lie 55 minutes apart",
)
LONG_SPAN: Final = Threshold(
    "long_span", 86_400, "s", "policy: a day holds the daily peak and the daily trough"
)
BUSY_DAY: Final = Threshold(
    "busy_day",
    82_800,
    "s",
    "policy: a fleet is sized by its busiest hour, which only a day shows; first and last arrival "
    "of a log of a day may lie 23 hours apart",
)
NET_NEGATIVE_SHARE: Final = Threshold(
    "net_negative_share",
    0.05,
    "ratio",
    "policy: one loaded hit in twenty that is slower than recomputing is worth an arbiter",
)
NET_NEGATIVE_DOMINATES: Final = Threshold(
    "net_negative_dominates",
    0.5,
    "ratio",
    "policy: most loaded hits are slower than recomputing them",
)
NEARLY_ALL: Final = Threshold(
    "nearly_all", 0.95, "ratio", "policy: the last twentieth is within the model's error"
)
LITTLE: Final = Threshold(
    "little", 0.02, "ratio", "policy: two points of the prompt tokens are within the model's error"
)
GROWTH_LIMIT: Final = Threshold(
    "growth_limit", 4, "times", "policy: growth beyond four times today's load is another fleet"
)
CLEAR_MARGIN: Final = Threshold(
    "clear_margin",
    2,
    "times",
    "policy: the intervals of value and cost are apart by a factor of two",
)
DOMINATES: Final = Threshold(
    "conversation_dominates",
    0.5,
    "ratio",
    "policy: a conversation that brings half of all reuse decides the answer by itself, and the "
    "next month need not have one like it",
)
PREFILL_BINDS: Final = Threshold(
    "prefill_binds",
    0.5,
    "ratio",
    "policy: prefill keeps the instances busy for half of the time; below that decode, memory or "
    "nothing limits the fleet, and freed prefill need not give a GPU back: a replay on fewer "
    "instances tells",
)
TAIL_TOLERANCE: Final = Threshold(
    "slo_tolerance",
    0.02,
    "ratio",
    "policy: two replays that differ by less are equal; or by the uncertainty of the lookup, if "
    "that is more",
)
FIT_CLOSE: Final = Threshold(
    "fit_close",
    0.1,
    "ratio",
    "policy: a median of predicted over observed times within this of 1 is called close",
)
ENOUGH_IN_FIT: Final = Threshold(
    "fit_bucket_requests",
    20,
    "requests",
    "policy: a median of fewer requests calls no bucket of prompt lengths uneven",
)
TPOT_TOLERANCE: Final = Threshold(
    "slo_tolerance_tpot",
    0.05,
    "ratio",
    "policy: decode is modelled more coarsely than prefill; 5 % of a token's time is not noticed",
)
TODAY_GAP: Final = Threshold(
    "today_over_measured",
    1.5,
    "times",
    "policy: a modelled TTFT of today that is a half longer than the measured one, or as much "
    "shorter, is that of another service; the SLO `no worse than today` then keeps that one's",
)
CLEAR_MISS: Final = Threshold(
    "clear_miss",
    1.1,
    "times",
    "policy: a rival that misses the SLO on fewer instances by less than a tenth is taken to keep "
    "it: a false saving is worse than a missed one",
)
BEYOND_QUANTILE: Final = Threshold(
    "requests_beyond_quantile",
    50,
    "requests",
    "policy: a quantile of one prompt bucket is compared where 50 requests lie beyond it (a p90 "
    "from 500, a p99 from 5 000): with fewer it moves by chance more than the tolerance",
)
BUSY_WINDOW: Final = Threshold(
    "busy_window",
    300,
    "s",
    "policy: a fleet is sized for its busiest five minutes; nobody waits that long for a queue",
)
BURST_WINDOW: Final = Threshold(
    "burst_window",
    20,
    "s",
    "policy: a burst of twenty seconds is felt as TTFT; a fleet may be sized for it",
)
LINK_BINDS: Final = Threshold(
    "link_binds",
    0.7,
    "ratio",
    "policy: in an M/D/1 queue a transfer "
    "waits 1.2 of its own times at 70 % use and 4.5 at 90 %; operators upgrade links from about "
    "there on (NANOG, Link capacity upgrade threshold, 2009)",
)
TIE: Final = Threshold(
    "tie",
    0.01,
    "ratio",
    "policy: options whose margins differ by less than a hundredth of the cost are equal in money",
)
SAME_STEP: Final = Threshold(
    "same_step",
    0.01,
    "ratio",
    "policy: an option whose tail and cost are both within a hundredth of those of a step of the "
    "frontier is no step of its own: less is known of either",
)
FLEET_BUSY_SHARE_LOW: Final = Threshold(
    "fleet_busy_share_low",
    0.5,
    "ratio",
    "policy: a fleet that keeps less than half of its time busy can give GPUs back without a pool",
)
FLEET_BUSY_SHARE: Final = Threshold(
    "fleet_busy_share",
    0.7,
    "ratio",
    "policy: head room of 30 % for peaks and failures",
)
FLEET_BUSY_SHARE_HIGH: Final = Threshold(
    "fleet_busy_share_high",
    1.0,
    "ratio",
    "exact: an instance is busy for no more than all of the time",
)
P_PAYS: Final = Threshold(
    "p_pays",
    0.9,
    "ratio",
    "policy: a pool that loses money in more than one of ten samples pays only under conditions",
)
SURROGATE_ERROR: Final = Threshold(
    "surrogate_error",
    0.1,
    "ratio",
    "policy: a fit that misses replays left out by more than a tenth of the carrying number says "
    "less than the replays themselves",
)
INPUT_MATTERS: Final = Threshold(
    "input_matters",
    0.02,
    "ratio",
    "policy: a constant whose whole range changes a median move by less is kept at its value",
)
REWARMED: Final = Threshold(
    "rewarmed",
    0.02,
    "ratio",
    "policy: a cold cache is warm again once its hits stay within two points of prompt tokens of "
    "those of the warm one",
)
HOT_NODE: Final = Threshold(
    "hot_node_share",
    0.75,
    "ratio",
    "policy: one node of the pool serves three quarters of its traffic, as where the blocks of a "
    "prompt that all requests share are on it; measure the bytes of each node in production",
)
LONG_PROMPT_QUANTILE: Final = Threshold(
    "long_prompt_quantile",
    0.9,
    "ratio",
    "policy: isolation keeps the longest tenth of the prompts apart",
)
LONG_PROMPT_TIMES: Final = Threshold(
    "long_prompt_times_median",
    2.0,
    "times",
    "policy: below twice the median length no prompt stands in the way of others by its length",
)
