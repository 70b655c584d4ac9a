"""The replay: arrivals, caches, moves, prefill and decode as discrete events.

A request is routed when it arrives. If tiers below HBM may hold more of its prefix than HBM, they
are looked up at once and the load starts while the request queues (async), provided that its KV
finds room in HBM; otherwise this happens when its turn comes. Each instance prefills one request at
a time, oldest arrival first among those that are ready. From admission to completion a request
holds HBM for its whole prompt and output; there is no preemption. Its blocks become usable by
others when its prefill ends, in HBM at once and in the tiers below when their write has crossed the
links. Sync loads keep the GPU, and with it the decode batch, waiting.

While a prefill of `P` seconds runs beside `b` decoding requests, each of its `s` chunks carries one
decode step along: it lasts P + s · step_s(b, context), and the decoders make `s` tokens meanwhile.

Ties: what ends at a time comes before what arrives at it; events of one time keep the order in
which they were made. No clock, no randomness: the same input gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from math import inf

from kvtrace.replay.collect import collect
from kvtrace.replay.links import FlowNet
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.scenario import Scenario
from kvtrace.replay.state import Instance, Move, Part, Requests
from kvtrace.replay.topology import NO_ROUTE, Leg, Tier, build_topology, check_scenario
from kvtrace.schema.arrays import RequestTrace


def simulate(trace: RequestTrace, scenario: Scenario) -> ReplayResult:
    """Replay `trace` on `scenario`: one timeline per request and the ledger of every link.

    Raises:
        ModelError: the scenario cannot be replayed.
    """
    check_scenario(scenario)
    return _Replay(trace, scenario).run()


class _Replay:
    """One run. Handlers take the time of their event; `_settle` ends each of them."""

    def __init__(self, trace: RequestTrace, scenario: Scenario) -> None:
        self._trace = trace
        self._scenario = scenario
        self._kv_bytes = scenario.kv_bytes_per_token
        self._prefill_s = scenario.prefill.prefill_s
        self._chunk = scenario.prefill_chunk_tokens
        requests = self._requests = Requests(trace, scenario)
        table = requests.table
        self._atoms = table.atoms
        self._offset = table.offset
        self._blocks = table.request_blocks
        self._topology = build_topology(
            scenario,
            atom_blocks=table.blocks,
            block_bytes=self._kv_bytes * requests.block_tokens,
        )
        self._tiers = self._topology.tiers
        self._tier_hits = [[0] * requests.count for _ in self._tiers]
        self._net: FlowNet[Move] = FlowNet(self._topology.bytes_per_s, self._topology.routes)
        self._instances = [
            Instance(index, scenario, table, requests.block_tokens)
            for index in range(scenario.instances)
        ]
        self._is_sync = scenario.load_mode == "sync"
        self._heap: list[tuple[float, int, Callable[[float], None]]] = []
        self._sequence = 0
        self._turn = 0
        self._oversized = 0
        self._busy_s = 0.0

    # ---------------------------------------------------------------- the loop

    def run(self) -> ReplayResult:
        """Play all events in time order until nothing is left to happen."""
        heap = self._heap
        net = self._net
        arrived_s = [*self._requests.arrived_s, inf]
        arrive = self._arrive_ideal if self._scenario.idealised else self._arrive
        upcoming = 0
        while True:
            next_s = heap[0][0] if heap else inf
            arrival_s = arrived_s[upcoming]
            if net.next_at <= next_s and net.next_at <= arrival_s:
                now = net.next_at
                if now == inf:
                    break
                for move in net.finish():
                    self._end_leg(move, now)
            elif next_s <= arrival_s:
                now, _, handler = heappop(heap)
                handler(now)
            else:
                arrive(upcoming, arrival_s)
                upcoming += 1
        return self._collect()

    def _at(self, time_s: float, handler: Callable[[float], None]) -> None:
        self._sequence += 1
        heappush(self._heap, (time_s, self._sequence, handler))

    def _settle(self, instance: Instance, now: float) -> None:
        """Let the instance take its next request, and set the pace of its decode batch."""
        if not instance.is_busy and (instance.waiting or instance.loaded):
            self._take_next(instance, now)
        if instance.is_dirty:
            instance.is_dirty = False
            decode = instance.decode
            end_s = decode.next_end(instance.steps_per_s)
            if end_s < inf:
                self._at(end_s, partial(self._end_decode, instance, decode.version))

    # ---------------------------------------------------------------- arrival

    def _route(self, request: int) -> Instance:
        """round_robin: in turn; least_loaded: least queued prefill, in turn among equals."""
        instances = self._instances
        count = len(instances)
        turn = self._turn
        if self._scenario.routing == "least_loaded" and count > 1:
            queued = [instance.queued_s for instance in instances]
            least = min(queued)
            while queued[turn] != least:
                turn = turn + 1 if turn + 1 < count else 0
        self._turn = turn + 1 if turn + 1 < count else 0
        self._requests.instance[request] = turn
        return instances[turn]

    def _arrive(self, request: int, now: float) -> None:
        instance = self._route(request)
        requests = self._requests
        run = self._run_in_hbm(request, instance)
        requests.planned[request] = run[2]
        is_away = False
        if self._tiers and run[2] < self._blocks[request]:
            if self._is_sync or instance.is_blocked:
                requests.wants_lookup[request] = 1
            else:
                is_away = self._look_below(request, instance, run, now)
        if not is_away:
            heappush(instance.waiting, request)
        self._enqueue(request, instance, requests.tokens(request, requests.planned[request]))
        self._settle(instance, now)

    def _arrive_ideal(self, request: int, now: float) -> None:
        """Look the whole request up, then hold it in every cache at once; nothing is pinned."""
        instance = self._route(request)
        requests = self._requests
        lo, end = self._offset[request], self._offset[request + 1]
        run = instance.ideal_hbm.extend(self._atoms, lo, 0, end)
        parts: list[Part] = []
        lookup_s = 0.0
        if run[2] < self._blocks[request]:
            parts, lookup_s = self._find(request, instance, run)
            parts = self._choose(request, instance, run[2], parts)
        instance.ideal_hbm.touch(self._atoms, lo, end)
        for tier in self._tiers:
            tier.caches[instance.index].touch(self._atoms, lo, end)
        requests.hbm_hit[request] = requests.tokens(request, run[2])
        requests.lookup_s[request] = lookup_s
        planned = parts[-1].blocks if parts else run[2]
        prompt = requests.prompt[request]
        hit = min(requests.tokens(request, planned), max(0, prompt - 1))
        requests.computed[request] = prompt - hit
        self._enqueue(request, instance, hit)
        self._begin_load(request, instance, parts, now + lookup_s)

    def _run_in_hbm(self, request: int, instance: Instance) -> tuple[int, int, int]:
        """(at, depth, blocks) of the leading run that HBM holds."""
        offset = self._offset
        return instance.hbm.extend(self._atoms, offset[request], 0, offset[request + 1])

    def _enqueue(self, request: int, instance: Instance, hit: int) -> None:
        """Add the request's prefill, as it looks now, to what its instance has to do."""
        seconds = self._price(self._requests.prompt[request] - hit, hit)
        self._requests.guess[request] = (hit, seconds)
        instance.queued += 1
        instance.queued_s += seconds

    def _price(self, new: int, cached: int) -> float:
        return self._prefill_s(new, cached) if new > 0 else 0.0

    # ---------------------------------------------------------------- lookup and load

    def _look_below(
        self, request: int, instance: Instance, run: tuple[int, int, int], now: float
    ) -> bool:
        """Look up the tiers below HBM; True when the request is away (lookup or load).

        Where something is to be loaded but HBM has no room, `wants_lookup` stays set.
        """
        requests = self._requests
        parts, lookup_s = self._find(request, instance, run)
        parts = self._choose(request, instance, run[2], parts)
        if parts and not self._admit(request, instance, run):
            requests.wants_lookup[request] = 1
            return False
        requests.wants_lookup[request] = 0
        requests.lookup_s[request] = lookup_s
        if parts:
            requests.planned[request] = parts[-1].blocks
            self._begin_load(request, instance, parts, now + lookup_s)
        elif lookup_s > 0.0:
            self._at(now + lookup_s, partial(self._come_back, request, instance))
        else:
            return False
        return True

    def _find(
        self, request: int, instance: Instance, run: tuple[int, int, int]
    ) -> tuple[list[Part], float]:
        """What each tier in chain order adds to the run, and the seconds of the lookups."""
        at, depth, blocks = run
        end = self._offset[request + 1]
        total = self._blocks[request]
        tokens = self._requests.tokens
        parts: list[Part] = []
        lookup_s = 0.0
        for tier in self._tiers:
            lookup_s += tier.spec.lookup_s
            cache = tier.caches[instance.index]
            at, depth, gained = cache.extend(self._atoms, at, depth, end)
            if gained:
                before = tokens(request, blocks)
                blocks += gained
                added = tokens(request, blocks) - before
                if added:
                    parts.append(Part(tier, at, depth, blocks, added))
                if blocks == total:
                    break
        return parts, lookup_s

    def _choose(
        self, request: int, instance: Instance, blocks: int, parts: list[Part]
    ) -> list[Part]:
        """The tiers to load. arbiter: the leading tiers that make move + prefill shortest."""
        if not parts or self._scenario.load_decision == "always":
            return parts
        requests = self._requests
        prompt = requests.prompt[request]
        hit = requests.tokens(request, blocks)
        least_s = self._price(prompt - hit, hit)
        taken = 0
        move_s = 0.0
        for count, part in enumerate(parts, start=1):
            hit += part.tokens
            size = part.tokens * self._kv_bytes
            for leg in part.tier.reads[instance.index]:
                move_s += leg.latency_s
                if leg.route != NO_ROUTE:
                    move_s += size / self._net.fair_rate(leg.route)
            if hit < prompt or prompt == 0:
                compute_s = self._price(prompt - hit, hit)
            else:
                compute_s = self._price(1, hit - 1)
            if move_s + compute_s < least_s:
                least_s = move_s + compute_s
                taken = count
        return parts[:taken]

    def _admit(self, request: int, instance: Instance, run: tuple[int, int, int]) -> bool:
        """Take HBM for all KV of the request; False when there is no room now."""
        requests = self._requests
        hbm = instance.hbm
        at, depth, blocks = run
        lo = self._offset[request]
        held = at + 1 if depth else at
        room = (self._blocks[request] - blocks) * requests.block_tokens + requests.private[request]
        if not hbm.fits(room, self._atoms, lo, held):
            if instance.holders:
                return False
            self._oversized += 1
        hbm.pin(self._atoms, lo, held)
        hbm.reserve(room)
        instance.holders += 1
        requests.at[request] = at
        requests.depth[request] = depth
        requests.run[request] = blocks
        requests.held[request] = held
        requests.hbm_hit[request] = requests.tokens(request, blocks)
        return True

    def _begin_load(
        self, request: int, instance: Instance, parts: list[Part], start_s: float
    ) -> None:
        """Move what `parts` name, tier after tier, from `start_s` on."""
        legs: list[tuple[Leg, float]] = []
        for part in parts:
            tier = part.tier
            size = part.tokens * self._kv_bytes
            reads = tier.reads[instance.index]
            legs += [(leg, size) for leg in reads]
            self._tier_hits[tier.index][request] = part.tokens
            if reads:
                self._requests.moved_bytes[request] += size
            if not self._scenario.idealised:
                end = part.at + 1 if part.depth else part.at
                tier.caches[instance.index].renew(self._atoms, self._offset[request], end)
        last = parts[-1] if parts else None
        move = Move(request, legs, partial(self._end_load, request, instance, last), is_write=False)
        self._at(start_s, partial(self._go, move))

    def _end_load(self, request: int, instance: Instance, last: Part | None, now: float) -> None:
        """What was loaded is in HBM, pinned; the request may prefill."""
        if last is not None and not self._scenario.idealised:
            requests = self._requests
            at = requests.at[request]
            instance.hbm.reserved -= (last.blocks - requests.run[request]) * requests.block_tokens
            instance.hbm.fill(self._atoms, at, requests.held[request], last.at, last.depth)
            requests.at[request] = last.at
            requests.depth[request] = last.depth
            requests.run[request] = last.blocks
            requests.held[request] = last.at + 1 if last.depth else last.at
        if self._is_sync and not self._scenario.idealised:
            self._begin_prefill(request, instance, now)
        else:
            heappush(instance.loaded, request)
        self._settle(instance, now)

    def _come_back(self, request: int, instance: Instance, now: float) -> None:
        """The lookup found nothing to load."""
        heappush(instance.waiting, request)
        self._settle(instance, now)

    # ---------------------------------------------------------------- moves

    def _go(self, move: Move, now: float) -> None:
        """Begin the present leg: first its latency, then its flow."""
        if move.leg == len(move.legs):
            move.on_done(now)
            return
        move.began_s = now
        leg, _ = move.legs[move.leg]
        if leg.latency_s > 0.0:
            self._at(now + leg.latency_s, partial(self._send, move))
        else:
            self._send(move, now)

    def _send(self, move: Move, now: float) -> None:
        leg, size = move.legs[move.leg]
        if leg.route == NO_ROUTE:
            self._end_leg(move, now)
        else:
            self._net.start(now, leg.route, size, move, write=move.is_write)

    def _end_leg(self, move: Move, now: float) -> None:
        if not move.is_write:
            requests = self._requests
            is_pull = move.legs[move.leg][0].kind == "pull"
            spent = requests.pull_s if is_pull else requests.load_s
            spent[move.request] += now - move.began_s
        move.leg += 1
        self._go(move, now)

    def _publish(self, request: int, instance: Instance, now: float) -> None:
        """The prompt's blocks are computed: usable in HBM now, below once written."""
        requests = self._requests
        end = self._offset[request + 1]
        hbm = instance.hbm
        rest = self._blocks[request] - requests.run[request]
        hbm.reserved -= rest * requests.block_tokens
        hbm.fill(self._atoms, requests.at[request], requests.held[request], end)
        requests.held[request] = end
        for tier in self._tiers:
            writer = tier.writers[instance.index]
            writer.waiting.append(request)
            if not writer.is_busy:
                self._write_next(tier, instance.index, now)

    def _write_next(self, tier: Tier, instance: int, now: float) -> None:
        """Write the oldest waiting request's blocks that the tier lacks, one request at a time."""
        writer = tier.writers[instance]
        cache = tier.caches[instance]
        requests = self._requests
        writer.is_busy = False
        while writer.waiting and not writer.is_busy:
            request = writer.waiting.popleft()
            lo, end = self._offset[request], self._offset[request + 1]
            blocks, lacks_last = cache.missing(self._atoms, lo, end)
            tokens = blocks * requests.block_tokens - (requests.pad[request] if lacks_last else 0)
            if not blocks or not writer.legs:
                cache.touch(self._atoms, lo, end)
                continue
            size = tokens * self._kv_bytes
            writer.is_busy = True
            done = partial(self._end_write, tier, instance, request)
            legs = [(leg, size) for leg in writer.legs]
            self._at(now, partial(self._go, Move(request, legs, done, is_write=True)))

    def _end_write(self, tier: Tier, instance: int, request: int, now: float) -> None:
        lo, end = self._offset[request], self._offset[request + 1]
        tier.caches[instance].touch(self._atoms, lo, end)
        self._write_next(tier, instance, now)

    # ---------------------------------------------------------------- prefill and decode

    def _take_next(self, instance: Instance, now: float) -> None:
        """Give the free GPU to the oldest request that is ready and finds room."""
        waiting = instance.waiting
        loaded = instance.loaded
        while not instance.is_busy:
            if loaded and (not waiting or loaded[0] < waiting[0]):
                self._begin_prefill(heappop(loaded), instance, now)
            elif not waiting:
                return
            else:
                request = heappop(waiting)
                instance.is_blocked = not self._enter(request, instance, now)
                if instance.is_blocked:
                    heappush(waiting, request)
                    if not loaded:
                        return
                    self._begin_prefill(heappop(loaded), instance, now)

    def _enter(self, request: int, instance: Instance, now: float) -> bool:
        """Admit a waiting request and start it (or its load); False when it finds no room."""
        requests = self._requests
        if self._scenario.idealised:
            self._begin_prefill(request, instance, now)
            return True
        run = self._run_in_hbm(request, instance)
        is_due = requests.wants_lookup[request] and run[2] < self._blocks[request]
        if is_due and not self._is_sync:
            if self._look_below(request, instance, run, now):
                return True
            if requests.wants_lookup[request]:
                return False
        if not self._admit(request, instance, run):
            return False
        if is_due and self._is_sync:
            self._load_in_step(request, instance, run, now)
        else:
            self._begin_prefill(request, instance, now)
        return True

    def _load_in_step(
        self, request: int, instance: Instance, run: tuple[int, int, int], now: float
    ) -> None:
        """Sync load: the GPU, and the batch that decodes on it, wait for lookup and move."""
        parts, lookup_s = self._find(request, instance, run)
        parts = self._choose(request, instance, run[2], parts)
        self._requests.lookup_s[request] = lookup_s
        instance.is_busy = True
        instance.is_dirty = True
        instance.decode.serve(now)
        instance.steps_per_s = 0.0
        self._requests.stall_s[request] = -now
        self._begin_load(request, instance, parts, now + lookup_s)

    def _begin_prefill(self, request: int, instance: Instance, now: float) -> None:
        requests = self._requests
        if not self._scenario.idealised:
            self._extend_held(request, instance)
        new = requests.computed[request]
        hit = requests.prompt[request] - new
        guessed, seconds = requests.guess[request]
        pure_s = seconds if guessed == hit else self._price(new, hit)
        requests.pure_s[request] = pure_s
        requests.started_s[request] = now
        if requests.stall_s[request]:
            requests.stall_s[request] += now
        instance.is_busy = True
        decode = instance.decode
        if decode.size:
            decode.serve(now)
            steps = max(1, -(-new // self._chunk)) if self._chunk else 1
            wall_s = pure_s + steps * decode.step_s()
            instance.steps_per_s = steps / wall_s
            instance.is_dirty = True
        else:
            wall_s = pure_s
        self._at(now + wall_s, partial(self._end_prefill, request, instance))

    def _extend_held(self, request: int, instance: Instance) -> None:
        """Use what others have put into HBM meanwhile, and settle what is to be computed."""
        requests = self._requests
        at, depth, gained = instance.hbm.extend(
            self._atoms, requests.at[request], requests.depth[request], self._offset[request + 1]
        )
        run = requests.run[request]
        hit = requests.tokens(request, run)
        if gained:
            held = at + 1 if depth else at
            instance.hbm.pin(self._atoms, requests.held[request], held)
            instance.hbm.reserved -= gained * requests.block_tokens
            more = requests.tokens(request, run + gained) - hit
            hit += more
            requests.hbm_hit[request] += more
            requests.at[request] = at
            requests.depth[request] = depth
            requests.run[request] = run + gained
            requests.held[request] = held
        requests.computed[request] = requests.prompt[request] - hit

    def _end_prefill(self, request: int, instance: Instance, now: float) -> None:
        """First token: publish the blocks, decode or leave, and take the next request."""
        requests = self._requests
        started_s = requests.started_s[request]
        instance.is_busy = False
        self._busy_s += now - started_s + requests.stall_s[request]
        requests.prefill_s[request] = now - started_s
        requests.first_token_s[request] = now
        instance.queued -= 1
        left_s = instance.queued_s - requests.guess[request][1]
        instance.queued_s = left_s if instance.queued else 0.0
        decode = instance.decode
        decode.serve(now)
        instance.steps_per_s = None
        if not self._scenario.idealised and self._blocks[request]:
            self._publish(request, instance, now)
        output = requests.output[request]
        if output > 1:
            decode.join(request, output - 1, requests.prompt[request] + output / 2)
        else:
            self._complete(request, instance, now)
        instance.is_dirty = decode.size > 0
        self._settle(instance, now)

    def _end_decode(self, instance: Instance, version: int, now: float) -> None:
        decode = instance.decode
        if version != decode.version:
            return
        decode.serve(now)
        for request in decode.pop_first():
            self._complete(request, instance, now)
        instance.is_dirty = True
        self._settle(instance, now)

    def _complete(self, request: int, instance: Instance, now: float) -> None:
        """Last token: the request gives its HBM back."""
        requests = self._requests
        requests.e2e_s[request] = now - requests.arrived_s[request]
        if not self._scenario.idealised:
            lo = self._offset[request]
            held = requests.held[request]
            instance.hbm.let_go(self._atoms, lo, held, requests.private[request])
            instance.holders -= 1

    # ---------------------------------------------------------------- the result

    def _collect(self) -> ReplayResult:
        ideal = self._scenario.idealised
        caches = [one.ideal_hbm if ideal else one.hbm for one in self._instances]
        return collect(
            self._trace,
            self._scenario,
            requests=self._requests,
            topology=self._topology,
            tier_hits=self._tier_hits,
            net=self._net,
            busy_s=self._busy_s,
            evicted_blocks=sum(cache.evicted for cache in caches),
            oversized=self._oversized,
        )
