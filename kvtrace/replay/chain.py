"""The tier chain below HBM as one request sees it: what is found, and what is worth loading."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kvtrace.cost.split import best_split
from kvtrace.replay.blockmap import whole_blocks
from kvtrace.replay.links import FlowNet
from kvtrace.replay.moves import Move, serial_s
from kvtrace.replay.scenario import Scenario
from kvtrace.replay.state import Requests
from kvtrace.replay.topology import Tier, Topology

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

    __slots__ = (
        "_always",
        "_clock",
        "_decision",
        "_is_layerwise",
        "_kv_bytes",
        "_layers",
        "_net",
        "_prefill_s",
        "_requests",
        "_threshold",
        "heads",
        "prunes",
        "tiers",
    )

    def __init__(
        self, topology: Topology, requests: Requests, net: FlowNet[Move], scenario: Scenario
    ) -> None:
        self.tiers = topology.tiers
        self._clock = topology.clock
        self._requests = requests
        self._net = net
        is_split = scenario.load_decision == "split"
        self._decision = "always" if is_split and scenario.idealised else scenario.load_decision
        self._always = self._decision == "always"
        self.heads: dict[int, int] = {}
        """Tokens after the HBM hit that a request computes while the parts last found for it load;
        decision `split` alone."""
        self._threshold = scenario.load_threshold_tokens
        is_layerwise = scenario.overlap == "layerwise" and scenario.layers > 1
        self._is_layerwise = is_layerwise and not scenario.idealised
        self._layers = scenario.layers
        self.prunes = self._decision == "arbiter" and not self._is_layerwise
        """Where the longest load does not pay, none does, and none is prepared."""
        self._prefill_s = scenario.prefill.prefill_s
        self._kv_bytes = scenario.kv_bytes_per_token

    def find(self, request: int, instance: int, run: Run, now: float) -> tuple[list[Part], float]:
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
        self._clock.now = now
        for tier in self.tiers:
            if self.prunes and not self._may_pay(request, instance, blocks, tier):
                continue
            tails = tier.tails
            if tails is None:
                lookup_s += tier.spec.lookup_s
            else:
                lookup_s += tails.lookup_s[request]
                if tails.lookup_fails[request]:
                    continue
            found = tier.caches[instance].extend(atoms, at, depth, end)
            if found[2] and tier.spec.match_tokens:
                found = self._match(request, tier, (at, depth, blocks), found)
            if found[2]:
                at, depth, gained = found
                before = requests.tokens(request, blocks)
                blocks += gained
                added = requests.tokens(request, blocks) - before
                if added:
                    parts.append(Part(tier, (at, depth, blocks), added))
                if blocks == total:
                    break
        if parts and not self._always:
            parts = self._decide(request, instance, run, parts)
        return parts, lookup_s

    def _match(
        self, request: int, tier: Tier, run: Run, found: tuple[int, int, int]
    ) -> tuple[int, int, int]:
        """What is found, cut down to whole match units of leading prompt tokens."""
        requests = self._requests
        blocks = run[2] + found[2]
        tokens = min(blocks * requests.block_tokens, requests.prompt[request])
        whole = whole_blocks(tokens, tier.spec.match_tokens, requests.block_tokens)
        if whole >= blocks:
            return found
        at, depth, _ = self.cut(request, run, max(whole, run[2]))
        return at, depth, max(whole, run[2]) - run[2]

    def cut(self, request: int, run: Run, blocks: int) -> Run:
        """The run of a request that goes on from `run` and has so many leading blocks."""
        table = self._requests.table
        at, depth, have = run
        while have < blocks:
            step = table.blocks[table.atoms[at]] - depth
            if have + step > blocks:
                return at, depth + blocks - have, blocks
            at, depth, have = at + 1, 0, have + step
        return at, depth, have

    # ---------------------------------------------------------------- the decision

    def _decide(self, request: int, instance: int, run: Run, parts: list[Part]) -> list[Part]:
        """The parts to load of those found; what is declined is noted, with both its prices."""
        found = sum(part.tokens for part in parts)
        if self._decision == "threshold":
            taken = parts if found >= self._threshold else []
        elif self._decision == "split":
            taken = self._split(request, instance, run, parts)
        else:
            taken = parts[: self._worth(request, instance, run[2], parts)]
        requests = self._requests
        is_cut = self._decision == "split" and bool(taken)
        left = [] if is_cut else parts[len(taken) :]
        hit = requests.tokens(request, run[2]) + found
        declined = sum(part.tokens for part in left)
        requests.declined[request] = declined
        requests.declined_move_s[request] = sum(
            self._move_s(part.tier, instance, part.tokens * self._kv_bytes) for part in left
        )
        requests.declined_recompute_s[request] = (
            self._rest_s(request, hit - declined) - self._rest_s(request, hit) if declined else 0.0
        )
        return taken

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

    def is_worth_writing(self, request: int, tier: Tier, instance: int) -> bool:
        """Whether loading the whole prompt over empty links would be sooner than computing it.

        Assumes: loads in series, so that where the longest load does not pay none does.
        """
        requests = self._requests
        prompt = requests.prompt[request]
        size = prompt * self._kv_bytes
        move_s = serial_s(tier.reads[instance], size, self._net.full_rate)
        return move_s + self._rest_s(request, prompt) < self._rest_s(request, 0)

    def _move_s(self, tier: Tier, instance: int, size: float) -> float:
        """Seconds of a load, links as they are now."""
        return serial_s(tier.reads[instance], size, self._net.fair_rate)

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
            total_s = self._total_s(move_s, self._rest_s(request, hit))
            if total_s < least_s:
                least_s = total_s
                taken = count
        return taken

    def _total_s(self, move_s: float, rest_s: float) -> float:
        """Seconds of a load and the prefill after it.

        Formula: move + rest; layer-wise d + (L - 1) · max(c, d) + c, d = move / L, c = rest / L.
        """
        if not self._is_layerwise:
            return move_s + rest_s
        layers = self._layers
        return (move_s + rest_s + (layers - 1) * max(move_s, rest_s)) / layers

    def _split(self, request: int, instance: int, run: Run, parts: list[Part]) -> list[Part]:
        """The parts that make up the tail of what was found, where the cut is the best one.

        Nothing is loaded where computing all is as soon as any cut.
        """
        requests = self._requests
        hit = requests.tokens(request, run[2])
        ends = [hit]
        for part in parts:
            ends.append(ends[-1] + part.tokens)
        tokens = ends[-1] - hit
        size = requests.block_tokens

        def load_s(tail: int) -> float:
            """Of the last `tail` tokens."""
            return sum(
                self._move_s(
                    part.tier, instance, (end - max(start, ends[-1] - tail)) * self._kv_bytes
                )
                for part, start, end in zip(parts, ends, ends[1:], strict=False)
                if end > ends[-1] - tail
            )

        cut = best_split(
            tokens,
            compute_s=lambda head: self._prefill_s(head, hit),
            load_s=load_s,
            step_tokens=size,
        )
        self.heads.pop(request, None)
        whole_s = self._rest_s(request, hit)
        if not cut.loaded_tokens or cut.seconds + self._rest_s(request, ends[-1]) >= whole_s:
            return []
        self.heads[request] = cut.computed_tokens
        kept: list[Part] = []
        for part, end in zip(parts, ends[1:], strict=True):
            tail = min(part.tokens, end - hit - cut.computed_tokens)
            if tail > 0:
                kept.append(part._replace(tokens=tail))
        return kept

    def _rest_s(self, request: int, hit: int) -> float:
        prompt = self._requests.prompt[request]
        hit = min(hit, prompt - 1)
        return self._prefill_s(prompt - hit, hit) if prompt else 0.0
