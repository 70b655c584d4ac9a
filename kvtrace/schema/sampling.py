"""How a dataset says that its log holds a part of the requests only."""

from __future__ import annotations

from typing import Final, Literal

SamplingKind = Literal["none", "requests", "sessions", "slow_only", "lost_lines"]
"""requests: some are missing inside conversations, or it is not known which; sessions: whole
conversations are missing; slow_only: those below a duration are missing; lost_lines: the way from
the engine to the log drops lines."""
SAMPLING_BIAS: Final = "sampling_bias"
"""Note: requests are missing whose absence lowers the reuse of those that are there."""
SESSION_SAMPLED: Final = "session_sampled"
"""Note: whole conversations are missing: ratios hold, load and totals are those of a part."""
KIND_FACT: Final = "log_sampling"
"""Engine fact of the headline source: the `SamplingKind`; absent for a log that seems whole."""
KEPT_FACT: Final = "log_kept_share"
"""Engine fact: share of the service's requests (0..1) that the log holds, where it is known."""
LOST_REUSE_FACT: Final = "log_lost_reuse_share"
"""Engine fact: share of the blocks of logged requests that a missing one had computed before."""
