"""The tier chain below HBM as one request sees it: what is found, and what is worth loading."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kvtrace.replay.links import FlowNet
from kvtrace.replay.moves import Move
from kvtrace.replay.scenario import LoadDecision, PrefillTime
from kvtrace.replay.state import Requests
from kvtrace.replay.topology import NO_ROUTE, Tier

Run = tuple[int, int, int]
"""(at, depth, blocks): a leading run of `blocks` that ends `depth` blocks into atom `at`."""


class Part(NamedTuple):
    """What one tier adds to the leading run of a request."""

    tier: Tier
    run: Run
    """The run after this tier."""
    tokens: int
    """Prompt tokens that this tier adds."""


class Chain:
    """Lookup in chain order, and the load decision."""

    __slots__ = ("_decision", "_kv_bytes", "_net", "_prefill_s", "_requests", "tiers")

    def __init__(
        self,
        tiers: Sequence[Tier],
        requests: Requests,
        net: FlowNet[Move],
        *,
        decision: LoadDecision,
        prefill: PrefillTime,
        kv_bytes_per_token: float,
    ) -> None:
        self.tiers = tiers
        self._requests = requests
        self._net = net
        self._decision = decision
        self._prefill_s = prefill.prefill_s
        self._kv_bytes = kv_bytes_per_token

    def find(self, request: int, instance: int, run: Run) -> tuple[list[Part], float]:
        """The parts to load below a run in HBM, and the seconds of the lookups.

        Each tier that is asked costs its lookup, whether it finds something or not; once the whole
        prompt is found no further tier is asked. An arbiter does not ask a tier from which not even
        all that is missing would be worth loading.
        """
        requests = self._requests
        atoms = requests.table.atoms
        end = requests.table.offset[request + 1]
        total = requests.table.request_blocks[request]
        at, depth, blocks = run
        parts: list[Part] = []
        lookup_s = 0.0
        is_arbiter = self._decision == "arbiter"
        for tier in self.tiers:
            if is_arbiter and not self._may_pay(request, instance, blocks, tier):
                continue
            lookup_s += tier.spec.lookup_s
            at, depth, gained = tier.caches[instance].extend(atoms, at, depth, end)
            if gained:
                before = requests.tokens(request, blocks)
                blocks += gained
                added = requests.tokens(request, blocks) - before
                if added:
                    parts.append(Part(tier, (at, depth, blocks), added))
                if blocks == total:
                    break
        if parts and is_arbiter:
            parts = parts[: self._worth(request, instance, run[2], parts)]
        return parts, lookup_s

    def _may_pay(self, request: int, instance: int, blocks: int, tier: Tier) -> bool:
        """Whether loading all that is missing after `blocks` from the tier would shorten it.

        Prefill costs more per token the later the token, a move does not: what a load gains is
        convex in its length (but for a last few tokens, where a step is bound by reading weights).
        So where the longest does not pay, none does.
        """
        requests = self._requests
        hit = requests.tokens(request, blocks)
        most = requests.tokens(request, requests.table.request_blocks[request])
        size = (most - hit) * self._kv_bytes
        move_s = self._move_s(tier, instance, size)
        return move_s + self._rest_s(request, most) < self._rest_s(request, hit)

    def _move_s(self, tier: Tier, instance: int, size: float) -> float:
        """Seconds of a load, links as they are now."""
        seconds = 0.0
        for leg in tier.reads[instance]:
            seconds += leg.latency_s
            if leg.route != NO_ROUTE:
                seconds += size / self._net.fair_rate(leg.route)
        return seconds

    def _worth(self, request: int, instance: int, blocks: int, parts: Sequence[Part]) -> int:
        """How many of the parts to load so that move + prefill is shortest.

        Formula: move = Σ over legs of latency + bytes / fair rate of the links as they are now;
        prefill of what then remains. The lookup is spent already; ties go to loading less.
        """
        requests = self._requests
        hit = requests.tokens(request, blocks)
        least_s = self._rest_s(request, hit)
        move_s = 0.0
        taken = 0
        for count, part in enumerate(parts, start=1):
            hit += part.tokens
            move_s += self._move_s(part.tier, instance, part.tokens * self._kv_bytes)
            total_s = move_s + self._rest_s(request, hit)
            if total_s < least_s:
                least_s = total_s
                taken = count
        return taken

    def _rest_s(self, request: int, hit: int) -> float:
        prompt = self._requests.prompt[request]
        hit = min(hit, prompt - 1)
        return self._prefill_s(prompt - hit, hit) if prompt else 0.0
