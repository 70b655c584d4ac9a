"""Every threshold that a finding or the verdict uses: value, unit, and why it is that value.

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
NEARLY_ALL: Final = Threshold(
    "nearly_all", 0.95, "ratio", "policy: the last twentieth is within the model's error"
)
LITTLE: Final = Threshold(
    "little", 0.02, "ratio", "policy: two points of the prompt tokens are within the model's error"
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
GROWTH_LIMIT: Final = Threshold(
    "growth_limit", 4, "times", "policy: growth beyond four times today's load is another fleet"
)
CLEAR_MARGIN: Final = Threshold(
    "clear_margin",
    2,
    "times",
    "policy: the intervals of value and cost are apart by a factor of two",
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
TPOT_TOLERANCE: Final = Threshold(
    "slo_tolerance_tpot",
    0.05,
    "ratio",
    "policy: decode is modelled more coarsely than prefill; 5 % of a token's time is not noticed",
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
    "link_binds", 0.7, "ratio", "policy: queues on a link grow fast above 70 % use"
)
TIE: Final = Threshold(
    "tie",
    0.01,
    "ratio",
    "policy: options whose margins differ by less than a hundredth of the cost are equal in money",
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
