"""What a router reckons that serving a request would take."""

from __future__ import annotations

from collections.abc import Sequence

from kvtrace.replay.chain import Run
from kvtrace.replay.known import KnownCaches
from kvtrace.replay.links import FlowNet
from kvtrace.replay.moves import Move, serial_s
from kvtrace.replay.scenario import Scenario
from kvtrace.replay.state import Requests
from kvtrace.replay.topology import Tier

_Found = tuple[list[tuple[Tier, int]], float]
"""(what each tier adds to a run, in tokens; seconds of the lookups)"""


class ServingPrice:
    """Seconds of move and recompute that a request would take on an instance."""

    def __init__(
        self,
        scenario: Scenario,
        requests: Requests,
        tiers: Sequence[Tier],
        known: KnownCaches,
        net: FlowNet[Move],
    ) -> None:
        self._prefill_s = scenario.prefill.prefill_s
        self._kv_bytes = scenario.kv_bytes_per_token
        self._loads_all = scenario.load_decision == "always"
        self._requests = requests
        self._known = known
        self._net = net
        own = len(tiers)
        while own and tiers[own - 1].spec.scope == "shared":
            own -= 1
        self._own, self._shared = tiers[:own], tiers[own:]
        """The chain up to its last private tier, and what follows: the same for all instances."""
        self._request = 0
        self._blocks = 0
        self._rest_of: dict[int, float] = {}
        self._parts_of: dict[Run, _Found] = {}

    def begin(self, request: int) -> None:
        """The prices asked from now on are those of this request."""
        self._request = request
        self._blocks = self._requests.table.request_blocks[request]
        self._rest_of.clear()
        self._parts_of.clear()

    def on(self, instance: int) -> float:
        """Lookup, move and recompute on the instance, whatever queues there.

        Formula: loads always happen: Σ move_s + prefill_s(rest, hit); else the least of it over the
        leading parts that the tiers hold, none included.
        """
        requests, request = self._requests, self._request
        run = self._known.hbm_run(request, instance)
        hit = requests.tokens(request, run[2])
        parts, lookup_s = self._parts(instance, run)
        least_s = total_s = self._rest_s(hit)
        move_s = 0.0
        for tier, tokens in parts:
            hit += tokens
            move_s += self._move_s(tier, instance, tokens * self._kv_bytes)
            total_s = move_s + self._rest_s(hit)
            least_s = min(least_s, total_s)
        return lookup_s + (total_s if self._loads_all else least_s)

    def _parts(self, instance: int, run: Run) -> _Found:
        """What the tiers add to the run."""
        parts: list[tuple[Tier, int]] = []
        lookup_s = 0.0
        if self._own:
            parts, lookup_s, run = self._walk(self._own, instance, run)
        if not self._shared or run[2] == self._blocks:
            return parts, lookup_s
        found = self._parts_of.get(run)
        if found is None:
            more, more_s, _ = self._walk(self._shared, instance, run)
            found = self._parts_of[run] = more, more_s
        return (parts + found[0] if parts else found[0]), lookup_s + found[1]

    def _walk(
        self, tiers: Sequence[Tier], instance: int, run: Run
    ) -> tuple[list[tuple[Tier, int]], float, Run]:
        """(what each tier adds, in tokens; seconds of the lookups; the run after them)."""
        requests, request = self._requests, self._request
        parts: list[tuple[Tier, int]] = []
        lookup_s = 0.0
        for tier in tiers:
            if run[2] == self._blocks:
                break
            lookup_s += tier.spec.lookup_s
            longer = self._known.tier_run(request, instance, tier.index, run)
            if longer[2] > run[2]:
                tokens = requests.tokens(request, run[2])
                added = requests.tokens(request, longer[2]) - tokens
                if added:
                    parts.append((tier, added))
                run = longer
        return parts, lookup_s, run

    def _rest_s(self, hit: int) -> float:
        """Prefill of what is left after a hit."""
        seconds = self._rest_of.get(hit)
        if seconds is None:
            new = self._requests.prompt[self._request] - hit
            seconds = self._rest_of[hit] = self._prefill_s(new, hit) if new > 0 else 0.0
        return seconds

    def _move_s(self, tier: Tier, instance: int, size: float) -> float:
        """Seconds of a load, links as they are now."""
        return serial_s(tier.reads[instance], size, self._net.fair_rate)
