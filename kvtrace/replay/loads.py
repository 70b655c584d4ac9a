"""Loads of requests from the tiers below HBM: part after part, stopped, failed, or left open.

An open load runs beside the prefill of its request: layer by layer, or its tail while its head is
computed. The step that the request begins in then cannot end before the load has, and what has to
follow it. Until its prefill has ended, what an open load brings is nobody else's.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf

from kvtrace.replay.chain import Chain, Part, Run
from kvtrace.replay.moves import Agenda, Handler, Move, Mover
from kvtrace.replay.scenario import Scenario
from kvtrace.replay.state import Instance, Requests
from kvtrace.replay.topology import NO_ROUTE, Leg, Topology

OnEnd = Callable[[int, Instance, Run | None, float], None]
"""(request, instance, the run that is in HBM now or None, time): the request may go on."""


@dataclass(slots=True)
class _Load:
    """What one request loads, and how far that has come."""

    request: int
    instance: Instance
    parts: Sequence[Part]
    start: Run
    """The run in HBM before."""
    starts_s: float
    at: int = 0
    """The part that loads."""
    move: Move | None = None
    run: Run | None = None
    """The run that has come."""
    is_over: bool = False


@dataclass(slots=True)
class _Open:
    """A load beside the prefill of its request."""

    after_s: float
    """Prefill that has to follow the load."""
    left: list[tuple[Part, float]] = field(default_factory=list)
    """(part, its share of bytes that comes now), in order."""
    move: Move | None = None
    done_s: float = inf
    resume: Handler | None = None
    """Ends the step that waits for it."""


class Loads:
    """Begins and ends loads, and keeps their ledger by request."""

    def __init__(
        self,
        scenario: Scenario,
        requests: Requests,
        topology: Topology,
        agenda: Agenda,
        *,
        mover: Mover,
        chain: Chain,
        on_end: OnEnd,
    ) -> None:
        self._requests = requests
        self._agenda = agenda
        self._mover = mover
        self._chain = chain
        self._on_end = on_end
        self._map = topology.block_map
        self._kv_bytes = scenario.kv_bytes_per_token
        self._prefill_s = scenario.prefill.prefill_s
        self._is_ideal = scenario.idealised
        is_layerwise = scenario.overlap == "layerwise" and not scenario.idealised
        self._layers = scenario.layers if is_layerwise else 1
        self.is_stopped_early = scenario.prefetch == "best_effort" and not scenario.idealised
        """Loads end when the GPU would stand idle for them."""
        self._is_plain = scenario.idealised or not (
            self.is_stopped_early
            or self._layers > 1
            or scenario.load_decision == "split"
            or any(_is_special(tier.spec.timeout_s, tier.tails) for tier in topology.tiers)
            or any(tier.spec.inclusion == "exclusive" for tier in topology.tiers)
        )
        self.tier_hits = [array("q", bytes(8 * requests.count)) for _ in topology.tiers]
        """(tiers, requests) tokens served."""
        self.open: dict[int, _Open] = {}
        """By request: loads beside a prefill that has not ended."""
        self._running: dict[int, dict[int, _Load]] = {}
        """By instance, by request: loads that may be stopped."""
        self.waits_since: dict[int, float] = {}
        """By instance: since when its step waits for an open load."""

    def begin(
        self, request: int, instance: Instance, parts: Sequence[Part], start_s: float
    ) -> None:
        """Move what `parts` name, tier after tier, from `start_s` on."""
        if not self._is_ideal:
            self._renew(request, instance, parts)
        if self._is_plain or not parts:
            self._begin_plain(request, instance, parts, start_s)
        elif self._chain.heads.get(request):
            self._begin_split(request, instance, parts, start_s)
        else:
            requests = self._requests
            held = requests.at[request], requests.depth[request], requests.run[request]
            load = _Load(request, instance, parts, held, start_s)
            self._running.setdefault(instance.index, {})[request] = load
            self._agenda.add(start_s, partial(self._next, load))

    def _renew(self, request: int, instance: Instance, parts: Sequence[Part]) -> None:
        table = self._requests.table
        for tier, run, _ in parts:
            end = run[0] + 1 if run[1] else run[0]
            tier.caches[instance.index].renew(table.atoms, table.offset[request], end)

    def _begin_plain(
        self, request: int, instance: Instance, parts: Sequence[Part], start_s: float
    ) -> None:
        legs: list[tuple[Leg, float]] = []
        for part in parts:
            self._credit(request, instance, part, part.tokens)
            size = part.tokens * self._kv_bytes
            legs += [(leg, size) for leg in part.tier.reads[instance.index]]
        done = partial(self._on_end, request, instance, parts[-1].run if parts else None)
        move = Move(request, legs, done, is_write=False)
        self._agenda.add(start_s, partial(self._mover.go, move))

    def _credit(self, request: int, instance: Instance, part: Part, tokens: int) -> None:
        self.tier_hits[part.tier.index][request] += tokens
        if part.tier.reads[instance.index]:
            self._requests.moved_bytes[request] += tokens * self._kv_bytes

    # ---------------------------------------------------------------- part after part

    def _next(self, load: _Load, now: float) -> None:
        """Begin the next part, or what follows the last one."""
        if load.is_over:
            return
        if load.at == len(load.parts):
            self._finish(load, now)
            return
        part = load.parts[load.at]
        legs = self._legs(load.request, load.instance, part, 1.0 / self._layers)
        load.move = Move(load.request, legs, partial(self._end_part, load), is_write=False)
        timeout_s = part.tier.spec.timeout_s
        if timeout_s is not None:
            self._agenda.add(now + timeout_s, partial(self._time_out, load, load.at))
        self._mover.go(load.move, now)

    def _legs(
        self, request: int, instance: Instance, part: Part, share: float
    ) -> list[tuple[Leg, float]]:
        """The legs of a part's first (or only) share, its own delay before them."""
        reads = part.tier.reads[instance.index]
        size = part.tokens * self._kv_bytes * share
        legs = [(leg, size) for leg in reads]
        if part.tier.tails is not None and reads:
            legs.insert(0, (Leg(reads[0].kind, part.tier.tails.delay_s[request], NO_ROUTE), 0.0))
        return legs

    def _end_part(self, load: _Load, now: float) -> None:
        part = load.parts[load.at]
        tails = part.tier.tails
        if tails is not None and tails.read_fails[load.request]:
            self._give_up(load, now)
            return
        if self._layers == 1:
            self._credit(load.request, load.instance, part, part.tokens)
        load.run = part.run
        load.at += 1
        self._next(load, now)

    def _time_out(self, load: _Load, at: int, now: float) -> None:
        if not load.is_over and load.at == at:
            self.stop(load, now)
            self._requests.asked_again[load.request] = 1

    def _give_up(self, load: _Load, now: float) -> None:
        """The rest of the load does not come."""
        self._requests.asked_again[load.request] = 1
        load.parts = load.parts[: load.at]
        self._finish(load, now)

    def stop(self, load: _Load, now: float) -> None:
        """End the load with the whole blocks that have come."""
        request = load.request
        part = load.parts[load.at]
        fails = part.tier.tails is not None and part.tier.tails.read_fails[request]
        moved = 0.0
        if load.move is None:
            asked_s = self._requests.lookup_s[request] - max(0.0, load.starts_s - now)
            self._requests.lookup_s[request] = max(0.0, asked_s)
        else:
            moved = self._mover.stop(load.move, now)
        load.parts = load.parts[: load.at]
        if self._layers == 1 and not fails:
            self._keep(load, part, int(moved / self._kv_bytes))
        self._finish(load, now)

    def _keep(self, load: _Load, part: Part, tokens: int) -> None:
        requests, request = self._requests, load.request
        before = load.run or load.start
        blocks = before[2] + tokens // requests.block_tokens
        if before[2] < blocks < part.run[2]:
            load.run = self._chain.cut(request, before, blocks)
            come = requests.tokens(request, blocks) - requests.tokens(request, before[2])
            self._credit(request, load.instance, part, come)

    def stop_oldest(self, instance: Instance, now: float) -> None:
        """The GPU of the instance is idle: go on with the request that arrived first."""
        running = self._running.get(instance.index)
        if running:
            self.stop(running[min(running)], now)

    def _finish(self, load: _Load, now: float) -> None:
        """The request may go on: with what has come, or beside the rest of it."""
        load.is_over = True
        request, instance = load.request, load.instance
        del self._running[instance.index][request]
        run = load.run
        self._leave_exclusive(request, instance, load.start, load.parts)
        if self._layers > 1 and load.parts:
            share = (self._layers - 1) / self._layers
            run = None
            self._leave_open(request, [(part, share) for part in load.parts])
            hit = self._requests.prompt[request] - self._requests.computed[request]
            after_s = self._prefill_s(self._requests.computed[request], hit) / self._layers
            self.open[request].after_s = after_s
            self._next_open(request, instance, now)
        self._on_end(request, instance, run, now)

    def _leave_exclusive(
        self, request: int, instance: Instance, start: Run, parts: Sequence[Part]
    ) -> None:
        """Blocks that were loaded from an exclusive tier are in HBM alone."""
        before = start
        for part in parts:
            if part.tier.spec.inclusion == "exclusive" and self._map is not None:
                blocks = self._map.of_run(request, before[:2], part.run[:2])
                part.tier.fine[instance.index].drop(blocks)
            before = part.run

    # ---------------------------------------------------------------- beside a prefill

    def _begin_split(
        self, request: int, instance: Instance, parts: Sequence[Part], start_s: float
    ) -> None:
        """Load the tail while the head is computed; the request may prefill from the start on."""
        requests = self._requests
        held = requests.at[request], requests.depth[request], requests.run[request]
        self._leave_exclusive(request, instance, held, parts)
        self._leave_open(request, [(part, 1.0) for part in parts])
        found = requests.tokens(request, parts[-1].run[2])
        rest = requests.prompt[request] - found
        self.open[request].after_s = self._prefill_s(rest, found) if rest > 0 else 0.0
        self._agenda.add(start_s, partial(self._start_split, request, instance))

    def _start_split(self, request: int, instance: Instance, now: float) -> None:
        self._next_open(request, instance, now)
        self._on_end(request, instance, None, now)

    def _leave_open(self, request: int, left: list[tuple[Part, float]]) -> None:
        """The request computes what its open load does not bring."""
        self.open[request] = _Open(0.0, left)
        self._requests.computed[request] -= sum(part.tokens for part, _ in left)

    def _next_open(self, request: int, instance: Instance, now: float) -> None:
        """Begin the next part of an open load, or end it."""
        load = self.open[request]
        if load.left:
            part, share = load.left.pop(0)
            self._credit(request, instance, part, part.tokens)
            if share == 1.0:
                legs = self._legs(request, instance, part, share)
            else:
                size = part.tokens * self._kv_bytes * share
                reads = part.tier.reads[instance.index]
                legs = [(leg._replace(latency_s=0.0), size) for leg in reads]
            done = partial(self._next_open, request, instance)
            load.move = Move(request, legs, done, is_write=False, is_booked=False)
            self._mover.go(load.move, now)
        else:
            load.done_s = now
            if load.resume is not None:
                self._agenda.add(now, load.resume)
                load.resume = None

    def is_awaited(
        self, instance: Instance, members: Sequence[tuple[int, float]], resume: Handler, now: float
    ) -> bool:
        """Whether a step that computes for `members` cannot end yet; `resume` is called when.

        Formula: the end of the load and what has to follow it.
        """
        for request, _ in members:
            load = self.open.get(request)
            if load is None:
                continue
            if load.done_s == inf:
                load.resume = resume
            else:
                del self.open[request]
                ready_s = load.done_s + load.after_s
                if ready_s <= now:
                    continue
                self._agenda.add(ready_s, resume)
            self.waits_since.setdefault(instance.index, now)
            return True
        return False

    def end_wait(
        self, instance: Instance, members: Sequence[tuple[int, float]], now: float
    ) -> float:
        """Seconds that the step that ends now has waited for open loads."""
        waited_s = now - self.waits_since.pop(instance.index, now)
        if waited_s > 0.0:
            for request, _ in members:
                self._requests.stall_s[request] += waited_s
                self._requests.gpu_s[request] += waited_s / len(members)
        return waited_s


def _is_special(timeout_s: float | None, tails: object) -> bool:
    return timeout_s is not None or tails is not None
