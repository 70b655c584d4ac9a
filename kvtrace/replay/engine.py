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

The idealised mode is the bound of the reuse facts: every request is in every cache as soon as it
has arrived, nothing is pinned, running requests take no HBM, writes cost nothing, loads are async.

Ties: what ends at a time comes before what arrives at it; events of one time keep the order in
which they were made. No clock, no randomness: the same input gives the same bits.
"""

from __future__ import annotations

from functools import partial
from heapq import heappop, heappush
from math import inf

from kvtrace.replay.chain import Chain, Part, Run
from kvtrace.replay.collect import collect
from kvtrace.replay.moves import Agenda, Move, Mover
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.scenario import Scenario
from kvtrace.replay.state import Instance, Requests
from kvtrace.replay.topology import Leg, build_topology, check_scenario
from kvtrace.schema.arrays import RequestTrace


def simulate(trace: RequestTrace, scenario: Scenario) -> ReplayResult:
    """Replay `trace` on `scenario`: one timeline per request and the ledger of every link.

    A trace without a clock arrives all at once: its hits mean something, its times do not.

    Raises:
        ModelError: the scenario cannot be replayed.
    """
    check_scenario(scenario)
    return _Replay(trace, scenario).run()


class _Replay:
    """One run. Handlers take the time of their event; `_settle` ends each of them."""

    def __init__(self, trace: RequestTrace, scenario: Scenario) -> None:
        kv_bytes = scenario.kv_bytes_per_token
        self._trace = trace
        self._scenario = scenario
        self._kv_bytes = kv_bytes
        self._prefill_s = scenario.prefill.prefill_s
        self._chunk = scenario.prefill_chunk_tokens
        self._is_ideal = scenario.idealised
        self._is_sync = scenario.load_mode == "sync" and not scenario.idealised
        requests = self._requests = Requests(trace, scenario)
        table = requests.table
        self._atoms = table.atoms
        self._offset = table.offset
        self._blocks = table.request_blocks
        self._topology = build_topology(
            scenario, atom_blocks=table.blocks, block_tokens=requests.block_tokens
        )
        self._tiers = self._topology.tiers
        self._tier_hits = [[0] * requests.count for _ in self._tiers]
        self._agenda = Agenda()
        self._mover = Mover(self._topology, requests, self._agenda, kv_bytes)
        self._chain = Chain(
            self._tiers,
            requests,
            self._mover.net,
            decision=scenario.load_decision,
            prefill=scenario.prefill,
            kv_bytes_per_token=kv_bytes,
        )
        self._instances = [
            Instance(index, scenario, table, requests.block_tokens)
            for index in range(scenario.instances)
        ]
        self._turn = 0
        self._oversized = 0

    # ---------------------------------------------------------------- the loop

    def run(self) -> ReplayResult:
        """Play all events in time order until nothing is left to happen."""
        heap = self._agenda.heap
        mover = self._mover
        net = mover.net
        arrived_s = [*self._requests.arrived_s, inf]
        arrive = self._arrive_ideal if self._is_ideal else self._arrive
        upcoming = 0
        while True:
            next_s = heap[0][0] if heap else inf
            arrival_s = arrived_s[upcoming]
            if net.next_at <= next_s and net.next_at <= arrival_s:
                now = net.next_at
                if now == inf:
                    return self._collect()
                for move in net.finish():
                    mover.end_leg(move, now)
            elif next_s <= arrival_s:
                now, _, handler = heappop(heap)
                handler(now)
            else:
                arrive(upcoming, arrival_s)
                upcoming += 1

    def _settle(self, instance: Instance, now: float) -> None:
        """Let the instance take its next request, and set the pace of its decode batch."""
        if not instance.is_busy and (instance.waiting or instance.loaded):
            self._take_next(instance, now)
        if instance.is_dirty:
            instance.is_dirty = False
            decode = instance.decode
            end_s = decode.next_end(instance.steps_per_s)
            if end_s < inf:
                self._agenda.add(end_s, partial(self._end_decode, instance, decode.version))

    # ---------------------------------------------------------------- arrival

    def _route(self, request: int) -> Instance:
        """round_robin: in turn; least_loaded: least queued prefill, in turn among equals."""
        instances = self._instances
        count = len(instances)
        turn = self._turn
        if count > 1 and self._scenario.routing == "least_loaded":
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
        requests.hbm_hit[request] = requests.tokens(request, run[2])
        parts: list[Part] = []
        lookup_s = 0.0
        if run[2] < self._blocks[request]:
            parts, lookup_s = self._chain.find(request, instance.index, run)
            requests.lookup_s[request] = lookup_s
        instance.ideal_hbm.touch(self._atoms, lo, end)
        for tier in self._tiers:
            tier.caches[instance.index].touch(self._atoms, lo, end)
        found = requests.tokens(request, parts[-1].run[2] if parts else run[2])
        prompt = requests.prompt[request]
        hit = min(found, max(0, prompt - 1))
        requests.computed[request] = prompt - hit
        self._enqueue(request, instance, hit)
        self._begin_load(request, instance, parts, now + lookup_s)

    def _run_in_hbm(self, request: int, instance: Instance) -> Run:
        offset = self._offset
        return instance.hbm.extend(self._atoms, offset[request], 0, offset[request + 1])

    def _enqueue(self, request: int, instance: Instance, hit: int) -> None:
        """Add the request's prefill, as it looks now, to what its instance has to do."""
        new = self._requests.prompt[request] - hit
        seconds = self._prefill_s(new, hit) if new > 0 else 0.0
        self._requests.guess[request] = (hit, seconds)
        instance.queued += 1
        instance.queued_s += seconds

    # ---------------------------------------------------------------- lookup and load

    def _look_below(self, request: int, instance: Instance, run: Run, now: float) -> bool:
        """Look up the tiers below HBM; True when the request is away (lookup or load).

        Where something is to be loaded but HBM has no room, `wants_lookup` stays set.
        """
        requests = self._requests
        parts, lookup_s = self._chain.find(request, instance.index, run)
        if parts and not self._admit(request, instance, run):
            requests.wants_lookup[request] = 1
            return False
        requests.wants_lookup[request] = 0
        requests.lookup_s[request] = lookup_s
        if parts:
            requests.planned[request] = parts[-1].run[2]
            self._begin_load(request, instance, parts, now + lookup_s)
        elif lookup_s > 0.0:
            self._agenda.add(now + lookup_s, partial(self._come_back, request, instance))
        else:
            return False
        return True

    def _come_back(self, request: int, instance: Instance, now: float) -> None:
        """The lookup found nothing to load."""
        heappush(instance.waiting, request)
        self._settle(instance, now)

    def _admit(self, request: int, instance: Instance, run: Run) -> bool:
        """Take HBM for all KV of the request; False when there is no room now.

        A request that does not fit an instance on which nobody holds HBM never will: it is let in
        and counted.
        """
        requests = self._requests
        hbm = instance.hbm
        at, depth, blocks = run
        lo = self._offset[request]
        held = at + 1 if depth else at
        rest = self._blocks[request] - blocks
        room = rest * requests.block_tokens + requests.private[request]
        if not hbm.fits(room, self._atoms, lo, held):
            if instance.holders:
                return False
            self._oversized += 1
        hbm.pin(self._atoms, lo, held)
        hbm.reserve(room)
        instance.holders += 1
        requests.hold(request, run)
        requests.hbm_hit[request] = requests.tokens(request, blocks)
        return True

    def _begin_load(
        self, request: int, instance: Instance, parts: list[Part], start_s: float
    ) -> None:
        """Move what `parts` name, tier after tier, from `start_s` on."""
        requests = self._requests
        legs: list[tuple[Leg, float]] = []
        for tier, run, tokens in parts:
            size = tokens * self._kv_bytes
            reads = tier.reads[instance.index]
            legs += [(leg, size) for leg in reads]
            self._tier_hits[tier.index][request] = tokens
            if reads:
                requests.moved_bytes[request] += size
            if not self._is_ideal:
                end = run[0] + 1 if run[1] else run[0]
                tier.caches[instance.index].renew(self._atoms, self._offset[request], end)
        done = partial(self._end_load, request, instance, parts[-1].run if parts else None)
        move = Move(request, legs, done, is_write=False)
        self._agenda.add(start_s, partial(self._mover.go, move))

    def _end_load(self, request: int, instance: Instance, run: Run | None, now: float) -> None:
        """What was loaded is in HBM, pinned; the request may prefill."""
        if run is not None and not self._is_ideal:
            requests = self._requests
            at, depth, blocks = run
            hbm = instance.hbm
            hbm.reserved -= (blocks - requests.run[request]) * requests.block_tokens
            hbm.fill(self._atoms, requests.at[request], requests.held[request], at, depth)
            requests.hold(request, run)
        if self._is_sync:
            self._begin_prefill(request, instance, now)
        else:
            heappush(instance.loaded, request)
        self._settle(instance, now)

    # ---------------------------------------------------------------- prefill

    def _take_next(self, instance: Instance, now: float) -> None:
        """Give the free GPU to the oldest request that is ready and finds room."""
        waiting = instance.waiting
        loaded = instance.loaded
        while not instance.is_busy:
            if waiting and not (loaded and loaded[0] < waiting[0]):
                request = heappop(waiting)
                instance.is_blocked = not self._enter(request, instance, now)
                if not instance.is_blocked:
                    continue
                heappush(waiting, request)
            if not loaded:
                return
            request = heappop(loaded)
            if not self._is_ideal:
                self._extend_held(request, instance)
            self._begin_prefill(request, instance, now)

    def _enter(self, request: int, instance: Instance, now: float) -> bool:
        """Admit a waiting request and start it (or its load); False when it finds no room."""
        requests = self._requests
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

    def _load_in_step(self, request: int, instance: Instance, run: Run, now: float) -> None:
        """Sync load: the GPU, and the batch that decodes on it, wait for lookup and move."""
        requests = self._requests
        parts, lookup_s = self._chain.find(request, instance.index, run)
        requests.lookup_s[request] = lookup_s
        requests.gpu_from_s[request] = now
        instance.is_busy = True
        instance.is_dirty = True
        instance.decode.serve(now)
        instance.steps_per_s = 0.0
        self._begin_load(request, instance, parts, now + lookup_s)

    def _extend_held(self, request: int, instance: Instance) -> None:
        """Use what others have put into HBM while the request waited with its load."""
        requests = self._requests
        start = requests.at[request]
        at, depth, gained = instance.hbm.extend(
            self._atoms, start, requests.depth[request], self._offset[request + 1]
        )
        if gained:
            held = at + 1 if depth else at
            blocks = requests.run[request] + gained
            instance.hbm.pin(self._atoms, requests.held[request], held)
            instance.hbm.reserved -= gained * requests.block_tokens
            before = requests.tokens(request, requests.run[request])
            requests.hbm_hit[request] += requests.tokens(request, blocks) - before
            requests.hold(request, (at, depth, blocks))

    def _begin_prefill(self, request: int, instance: Instance, now: float) -> None:
        requests = self._requests
        new = requests.computed[request]
        hit = requests.prompt[request] - new
        guessed, pure_s = requests.guess[request]
        if guessed != hit:
            pure_s = self._prefill_s(new, hit)
        requests.pure_s[request] = pure_s
        requests.started_s[request] = now
        if requests.gpu_from_s[request] < 0.0:
            requests.gpu_from_s[request] = now
        instance.is_busy = True
        decode = instance.decode
        wall_s = pure_s
        if decode.size:
            decode.serve(now)
            steps = max(1, -(-new // self._chunk)) if self._chunk else 1
            wall_s += steps * decode.step_s()
            instance.steps_per_s = steps / wall_s
            instance.is_dirty = True
        self._agenda.add(now + wall_s, partial(self._end_prefill, request, instance))

    def _end_prefill(self, request: int, instance: Instance, now: float) -> None:
        """First token: publish the blocks, decode or leave, and take the next request."""
        requests = self._requests
        instance.is_busy = False
        requests.first_token_s[request] = now
        instance.queued -= 1
        left_s = instance.queued_s - requests.guess[request][1]
        instance.queued_s = left_s if instance.queued else 0.0
        decode = instance.decode
        decode.serve(now)
        instance.steps_per_s = None
        if not self._is_ideal and self._blocks[request]:
            self._publish(request, instance, now)
        output = requests.output[request]
        if output > 1:
            decode.join(request, output - 1, requests.prompt[request] + output / 2)
        else:
            self._complete(request, instance, now)
        instance.is_dirty = decode.size > 0
        self._settle(instance, now)

    def _publish(self, request: int, instance: Instance, now: float) -> None:
        """The prompt's blocks are computed: usable in HBM now, below once written."""
        requests = self._requests
        end = self._offset[request + 1]
        rest = self._blocks[request] - requests.run[request]
        instance.hbm.reserved -= rest * requests.block_tokens
        instance.hbm.fill(self._atoms, requests.at[request], requests.held[request], end)
        requests.held[request] = end
        if self._tiers:
            self._mover.write(request, self._tiers, instance.index, now)

    # ---------------------------------------------------------------- decode

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
        if not self._is_ideal:
            lo, held = self._offset[request], requests.held[request]
            instance.hbm.let_go(self._atoms, lo, held, requests.private[request])
            instance.holders -= 1

    # ---------------------------------------------------------------- the result

    def _collect(self) -> ReplayResult:
        caches = [one.ideal_hbm if self._is_ideal else one.hbm for one in self._instances]
        return collect(
            self._trace,
            self._scenario,
            requests=self._requests,
            topology=self._topology,
            tier_hits=self._tier_hits,
            net=self._mover.net,
            evicted_blocks=sum(cache.evicted for cache in caches),
            oversized=self._oversized,
        )
