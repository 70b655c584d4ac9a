"""What the decisions of a replay lost against the better choice, known afterwards."""

from __future__ import annotations

import numpy as np

from kvtrace.replay.result import ReplayResult
from kvtrace.replay.summary import move_seconds
from kvtrace.schema.arrays import FloatArray


def regret_s(result: ReplayResult) -> FloatArray:
    """(requests,) seconds to the first token that the other choice would have spared; 0 if none.

    Formula: loaded: max(0, move - recompute of what it brought). Declined: max(0, recompute - move
    of what was found), the move at the links' rates of that moment.
    Assumes: the other choice would have changed nothing for other requests.
    """
    timeline = result.timeline
    below = [hits for tier, hits in timeline.hit_tokens.items() if tier != "hbm"]
    loaded = sum(below, start=np.zeros(len(timeline.ttft_s), dtype=np.int64))
    lost_s = np.where(loaded > 0, move_seconds(result) - timeline.recompute_hit_s, 0.0)
    missed_s = timeline.declined_recompute_s - timeline.declined_move_s
    return np.asarray(np.maximum(lost_s, 0.0) + np.maximum(missed_s, 0.0), dtype=np.float64)
