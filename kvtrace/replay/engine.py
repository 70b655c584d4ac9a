"""The replay: arrivals, caches, moves, prefill and decode as discrete events.

A request is routed when it arrives (`kvtrace.replay.routing`). If tiers below HBM may hold more of
its prefix than HBM, they are asked at once and the load starts while the request queues (async),
provided that its KV finds room in HBM. They are asked again when the scheduler takes the request
(`lookup_moment`), since much may have been written while it queued: what is found then is loaded
first, while the GPU serves others; if nothing is, its step waits for the answer. A request asks at
most twice, and its second load continues from the run that it has.

The GPU works in steps. A step takes the prompts that are ready, oldest arrival first, up to
`prefill_chunk_tokens`; a prompt that does not fit goes on in the next step, and full steps of one
prompt are one event. All requests whose last prompt token is in a step get their first token at its
end. A prompt whose next block is being computed in the step waits for the next one, to find it.
Every step carries one decode step of the running requests along. Where long prompts queue apart,
short ones go first, and a long one takes one step at a time. Where decode has instances of its own,
prompts move there after their first token (`kvtrace.replay.handoff`).

From admission to completion a request holds HBM for its whole prompt and output, unless room is
taken as needed (`kvtrace.replay.preemption`). Its blocks become usable by others when its prefill
ends, in HBM at once and in the tiers below when their write has crossed the links. Sync loads keep
the GPU, and with it the decode batch, waiting.

The idealised mode is the bound of the reuse facts: every request is in every cache as soon as it
has arrived, nothing is pinned, running requests take no HBM, writes cost nothing, loads are async
and tiers are asked on arrival alone.

Ties: what ends at a time comes before what arrives at it; events of one time keep the order in
which they were made. No clock, no randomness: the same input gives the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from heapq import heappop, heappush
from math import inf

from kvtrace.replay.blocks import AtomHistory
from kvtrace.replay.chain import Part, Run
from kvtrace.replay.closed_loop import ClosedLoop
from kvtrace.replay.collect import collect
from kvtrace.replay.homes import homes_of
from kvtrace.replay.layout import check_layout
from kvtrace.replay.ledger import LinkLedger
from kvtrace.replay.moves import Agenda
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.routing import Router
from kvtrace.replay.scenario import Scenario
from kvtrace.replay.scheduler import Scheduler
from kvtrace.replay.state import Instance, Requests
from kvtrace.replay.topology import build_topology, check_scenario
from kvtrace.replay.warmup import warm_caches
from kvtrace.schema.arrays import RequestTrace


def simulate(
    trace: RequestTrace,
    scenario: Scenario,
    *,
    warmup_requests: int = 0,
    ledger: LinkLedger | None = None,
    loop: ClosedLoop | None = None,
) -> ReplayResult:
    """Replay `trace` on `scenario`: one timeline per request and the ledger of every link.

    The first `warmup_requests` only fill the caches (`kvtrace.replay.warmup`): the timeline has a
    row for each request after them, and nothing in the result counts them.
    A trace without a clock arrives all at once: its hits mean something, its times do not.
    `ledger` is filled with what crossed each link when, from the first arrival on.
    With a `loop`, later turns of a session wait for the ones before; it is filled with the arrivals
    that follow, and nothing is said of the offered load, which depends on the fleet then.

    Raises:
        ModelError: the scenario cannot be replayed.
    """
    check_scenario(scenario)
    check_layout(scenario)
    replay = _Replay(trace, scenario, min(max(warmup_requests, 0), trace.requests), ledger)
    return replay.run() if loop is None else replay.run_closed(loop)


class _Replay:
    """One run: the loop over events, and what happens when a request arrives."""

    def __init__(
        self, trace: RequestTrace, scenario: Scenario, first: int, ledger: LinkLedger | None
    ) -> None:
        self._scenario = scenario
        self._output_known = trace.output_known
        self._prefill_s = scenario.prefill.prefill_s
        requests = self._requests = Requests(trace, scenario, first)
        table = requests.table
        self._atoms = table.atoms
        self._offset = table.offset
        self._blocks = table.request_blocks
        self._topology = build_topology(
            scenario,
            table,
            block_tokens=requests.block_tokens,
            pad=requests.pad,
            first=first,
        )
        self._tiers = self._topology.tiers
        self._agenda = Agenda()
        scheduler = Scheduler(scenario, requests, self._topology, self._agenda)
        self._scheduler = scheduler
        self._chain = scheduler.chain
        self._instances = scheduler.instances
        if ledger is not None and requests.count:
            topology = self._topology
            ledger.open(topology.link_ids, topology.bytes_per_s, requests.arrived_s[0])
            scheduler.mover.net.ledger = ledger
        homes: dict[int, int] = {}
        if first and requests.history is not None:
            homes = self._warm(trace, requests.history)
        self._router = Router(
            scenario,
            trace.session[first:].tolist(),
            requests=requests,
            instances=self._instances,
            tiers=self._tiers,
            net=scheduler.mover.net,
            turn=first,
            homes=homes,
        )
        self._first = first

    def _warm(self, trace: RequestTrace, history: AtomHistory) -> dict[int, int]:
        """Fill the caches with what the history leaves in them; the instance of each session."""
        scenario = self._scenario
        homes = homes_of(scenario, trace, history)
        warm_caches(history, homes, self._instances, self._tiers, is_ideal=scenario.idealised)
        return dict(zip(trace.session[: len(homes)].tolist(), homes.tolist(), strict=True))

    # ---------------------------------------------------------------- the loop

    def run_closed(self, loop: ClosedLoop) -> ReplayResult:
        """The same with turns that wait for the ones before."""
        arrived_s = self._requests.arrived_s
        arrive = self._arrive_ideal if self._scheduler.is_ideal else self._arrive

        def come(turn: int, now: float) -> None:
            arrived_s[turn] = now
            arrive(turn, now)

        def follow(request: int, now: float) -> None:
            turn = loop.after[request]
            if turn >= 0:
                self._agenda.add(now + loop.think_s[turn], partial(come, turn))

        self._scheduler.on_complete = follow
        result = self.run(loop.openers)
        loop.arrived_s = arrived_s.tolist()
        return replace(result, offered_load=None, is_overloaded=False)

    def run(self, comers: Sequence[int] | None = None) -> ReplayResult:
        """Play all events in time order until nothing is left to happen.

        `comers` arrive when they were logged, in this order; null: all requests do.
        """
        heap = self._agenda.heap
        mover = self._scheduler.mover
        net = mover.net
        comers = range(self._requests.count) if comers is None else comers
        arrived_s = [*(self._requests.arrived_s[request] for request in comers), inf]
        arrive = self._arrive_ideal if self._scheduler.is_ideal else self._arrive
        known = self._router.known
        news = known.news if known is not None else []
        upcoming = 0
        while True:
            next_s = heap[0][0] if heap else inf
            arrival_s = arrived_s[upcoming]
            flow_s = net.next_at
            if flow_s <= next_s and flow_s <= arrival_s:
                now = flow_s
                if now == inf:
                    return self._collect()
                for move in net.finish():
                    mover.end_leg(move, now)
            elif next_s <= arrival_s:
                now, _, handler = heappop(heap)
                handler(now)
            else:
                now = arrival_s
                arrive(comers[upcoming], now)
                upcoming += 1
            if news and known is not None:
                known.hear(now)

    # ---------------------------------------------------------------- arrival

    def _arrive(self, request: int, now: float) -> None:
        instance = self._router.route(request, now)
        requests = self._requests
        run = self._scheduler.run_in_hbm(request, instance)
        requests.planned[request] = run[2]
        is_away = False
        if self._tiers and run[2] < self._blocks[request]:
            if self._scheduler.asks_late or instance.is_blocked:
                requests.wants_lookup[request] = 1
            else:
                is_away = self._look_below(request, instance, run, now)
        if not is_away:
            heappush(instance.waiting, requests.place[request])
        self._enqueue(request, instance, requests.tokens(request, requests.planned[request]))
        self._scheduler.settle(instance, now)

    def _arrive_ideal(self, request: int, now: float) -> None:
        """Look the whole request up, then hold it in every cache at once; nothing is pinned."""
        instance = self._router.route(request, now)
        requests = self._requests
        lo, end = self._offset[request], self._offset[request + 1]
        run = instance.ideal_hbm.extend(self._atoms, lo, 0, end)
        requests.hbm_hit[request] = requests.tokens(request, run[2])
        parts: list[Part] = []
        lookup_s = 0.0
        if run[2] < self._blocks[request]:
            parts, lookup_s = self._chain.find(request, instance.index, run, now)
            requests.lookup_s[request] = lookup_s
        instance.ideal_hbm.touch(self._atoms, lo, end)
        for tier in self._tiers:
            if tier.plain:
                tier.plain[instance.index].touch(self._atoms, lo, end)
        if self._scheduler.ideal_writes is not None:
            self._scheduler.ideal_writes.hold(request, instance.index, instance.ideal_hbm.victims)
        found = requests.tokens(request, parts[-1].run[2] if parts else run[2])
        prompt = requests.prompt[request]
        hit = min(found, max(0, prompt - 1))
        requests.computed[request] = prompt - hit
        self._enqueue(request, instance, hit)
        self._scheduler.begin_load(request, instance, parts, now + lookup_s)

    def _enqueue(self, request: int, instance: Instance, hit: int) -> None:
        """Add the request's prefill, as it looks now, to what its instance has to do."""
        new = self._requests.prompt[request] - hit
        seconds = self._prefill_s(new, hit) if new > 0 else 0.0
        self._requests.guessed_hit[request] = hit
        self._requests.guessed_s[request] = seconds
        instance.queued += 1
        instance.queued_s += seconds

    def _look_below(self, request: int, instance: Instance, run: Run, now: float) -> bool:
        """Ask the tiers below HBM on arrival; True when the request is away (lookup or load).

        Where something is to be loaded but HBM has no room, `wants_lookup` is set.
        """
        requests = self._requests
        parts, lookup_s = self._chain.find(request, instance.index, run, now)
        if parts and not self._scheduler.admit(request, instance, run):
            requests.wants_lookup[request] = 1
            return False
        requests.lookup_s[request] = lookup_s
        requests.answered_s[request] = now + lookup_s
        if parts:
            requests.planned[request] = parts[-1].run[2]
            self._scheduler.begin_load(request, instance, parts, now + lookup_s)
        elif lookup_s > 0.0:
            self._agenda.add(now + lookup_s, partial(self._come_back, request, instance))
        else:
            return False
        return True

    def _come_back(self, request: int, instance: Instance, now: float) -> None:
        """The lookup found nothing to load."""
        heappush(instance.waiting, self._requests.place[request])
        self._scheduler.settle(instance, now)

    # ---------------------------------------------------------------- the result

    def _collect(self) -> ReplayResult:
        caches = [one.ideal_hbm if self._scheduler.is_ideal else one.hbm for one in self._instances]
        return collect(
            self._scenario,
            requests=self._requests,
            output_known=self._output_known,
            topology=self._topology,
            tier_hits=self._scheduler.tier_hits,
            net=self._scheduler.mover.net,
            evicted_blocks=sum(cache.evicted for cache in caches),
            oversized=self._scheduler.oversized,
            busy_s=self._scheduler.busy_s,
            warmup_requests=self._first,
        )
