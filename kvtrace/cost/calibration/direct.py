"""Seconds of prefills and decodes, each from what the log says the engine did meanwhile.

No queue is modelled: a prefill is timed from its first step, a decode from its first token. What a
request shared its steps with comes from the intervals of all requests (`exposure`).

Formula: prefill = the steps that held the tokens prefilled between its first step and its first
token (its own, and what others put there), with their attention, beside the batch that decoded.
Engines that schedule a step while the one before runs stamp the first step so much too early: a
request that meets a batch then waits for `ahead_steps` steps of it besides.
Decode = (output - 1) steps of the mean batch and context, and what the prefills inside added.
Assumes: steps of `chunk_tokens`; no request was preempted; of `instances` engines each has as much
of the other requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Final

import numpy as np

from kvtrace.cost.calibration.exposure import (
    Exposure,
    Timeline,
    decoding_between,
    spread_between,
    timeline_of,
)
from kvtrace.cost.calibration.observations import (
    Floats,
    RequestTimes,
    decode_seconds,
    spent_prefill_s,
)
from kvtrace.cost.calibration.parameters import with_values
from kvtrace.cost.deployment import Deployment

MOST_ROWS: Final = 2000
"""Requests that are predicted, evenly spread over the log; what they shared counts all of them."""
_GRID: Final = 48
"""Prompt lengths at which the price of others' prefills is worked out, between them linear."""


@dataclass(frozen=True, slots=True)
class Seconds:
    """(requests,) seconds of the prefill and of the decode; NaN where they cannot be told."""

    prefill_s: Floats
    decode_s: Floats


def measured(times: RequestTimes) -> Seconds:
    """What the log says."""
    return Seconds(spent_prefill_s(times), decode_seconds(times))


class DirectModel:
    """Predicts the seconds of requests with constants at other values."""

    def __init__(
        self,
        deployment: Deployment,
        times: RequestTimes,
        *,
        chunk_tokens: int,
        instances: int = 1,
    ) -> None:
        self.ahead_steps = 0.0
        """Steps of the batch that a prefill waits for after its stamp."""
        self.timeline: Timeline = timeline_of(times)
        """When each request began, had its first token, and ended."""
        self._deployment = deployment
        self._chunk = chunk_tokens
        self._steps = times.output_tokens - 1.0
        self._new = times.prompt_tokens - times.cached_tokens
        line = self.timeline
        attention_s = deployment.step.work_s
        self._work = np.array(
            [
                attention_s(new, cached) if new > 0 else 0.0
                for new, cached in zip(
                    self._new.tolist(), times.cached_tokens.tolist(), strict=True
                )
            ]
        )
        self._instances = instances
        self._prefilled = self._of_one(self._during_prefill(self._new), self._new)
        self._attended = self._of_one(self._during_prefill(self._work), self._work)
        beside = decoding_between(line, times, line.start_s, line.first_s)
        self._beside = self._exposed(beside, 0.0, np.zeros(times.requests))
        decoding = decoding_between(line, times, line.first_s, line.end_s)
        own = times.prompt_tokens + times.output_tokens / 2
        self.decoding: Exposure = self._exposed(decoding, 1.0, own)
        """Batch and context that each request decoded in."""
        count = times.requests
        self._rows = np.unique(np.linspace(0, count - 1, min(count, MOST_ROWS)).astype(int))

    def predict(self, values: Mapping[str, float]) -> Seconds:
        """The seconds with these constants (by id) at other values; NaN for rows left out."""
        deployment = with_values(self._deployment, values)
        return Seconds(self._prefills(deployment), self._decodes(deployment))

    def _during_prefill(self, amount: Floats) -> Floats:
        line = self.timeline
        return self._shared(amount, line.start_s, line.first_s)

    def _shared(self, amount: Floats, since: Floats, until: Floats) -> Floats:
        line = self.timeline
        return spread_between(line.start_s, line.first_s, amount, since, until)

    def _of_one(self, total: Floats, own: Floats) -> Floats:
        """Of what all engines did, what the request's own engine did."""
        return own + (total - own) / self._instances

    def _exposed(self, found: Exposure, batch: float, context: Floats) -> Exposure:
        own = np.full(len(context), batch)
        return Exposure(
            found.seconds,
            self._of_one(found.batch, own),
            self._of_one(found.context_tokens, context),
        )

    def _prefills(self, deployment: Deployment) -> Floats:
        added, step_s = deployment.step.added_s, deployment.decode.step_s
        found = np.full(len(self._new), np.nan)
        for index in self._rows.tolist():
            new, work = float(self._prefilled[index]), float(self._attended[index])
            if not new > 0:
                continue
            batch = float(self._beside.batch[index])
            steps, riding = max(1, ceil(new / self._chunk)), round(batch)
            seconds = added(new, work, steps=steps, is_start=True, batch=riding)
            if riding:
                context = float(self._beside.context_tokens[index])
                seconds += (steps + self.ahead_steps) * step_s(batch, context)
            found[index] = seconds
        return found

    def _decodes(self, deployment: Deployment) -> Floats:
        step_s, line = deployment.decode.step_s, self.timeline
        inside = self._shared(self._added(deployment), line.first_s, line.end_s) / self._instances
        pace = np.full(len(self._new), np.nan)
        for index in self._rows.tolist():
            batch = float(self.decoding.batch[index])
            if batch > 0:
                pace[index] = step_s(batch, float(self.decoding.context_tokens[index]))
        return np.asarray(self._steps * pace + inside)

    def _added(self, deployment: Deployment) -> Floats:
        """(requests,) seconds that each prefill adds to the steps of the usual batch."""
        added = deployment.step.added_s
        known = self._new[self._new > 0]
        if not len(known):
            return np.zeros_like(self._new)
        batches = self._beside.batch[np.isfinite(self._beside.batch)]
        riding = max(1, round(float(np.median(batches)))) if len(batches) else 1
        grid = np.geomspace(max(1.0, known.min()), max(2.0, known.max()), _GRID)
        price = [
            added(new, 0.0, steps=max(1, ceil(new / self._chunk)), is_start=True, batch=riding)
            for new in grid.tolist()
        ]
        return np.where(self._new > 0, np.interp(self._new, grid, price) + self._work, 0.0)
