"""The agenda of events, and what carries bytes: loads of requests, writes to tiers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from heapq import heappush

from kvtrace.replay.blocks import HbmCache
from kvtrace.replay.links import FlowNet
from kvtrace.replay.state import Requests
from kvtrace.replay.topology import NO_ROUTE, Leg, Tier, Topology
from kvtrace.replay.writes import FineWrites

Handler = Callable[[float], None]
"""Takes the time of its event."""


class Agenda:
    """Events in time order; those of one time in the order in which they were added."""

    __slots__ = ("_sequence", "heap")

    def __init__(self) -> None:
        self.heap: list[tuple[float, int, Handler]] = []
        self._sequence = 0

    def add(self, time_s: float, handler: Handler) -> None:
        """Call `handler` at `time_s`."""
        self._sequence += 1
        heappush(self.heap, (time_s, self._sequence, handler))


class Move:
    """A load of one request, or a write of its blocks to one tier: legs, one after the other."""

    __slots__ = ("began_s", "is_booked", "is_over", "is_write", "leg", "legs", "on_done", "request")

    def __init__(
        self,
        request: int,
        legs: Sequence[tuple[Leg, float]],
        on_done: Handler,
        *,
        is_write: bool,
        is_booked: bool = True,
    ) -> None:
        self.request = request
        self.legs = legs
        """(leg, bytes)"""
        self.leg = 0
        self.began_s = 0.0
        """When the present leg began, its latency included."""
        self.on_done = on_done
        self.is_write = is_write
        self.is_booked = is_booked and not is_write
        """Its time is the request's pull and load."""
        self.is_over = False
        """It was stopped."""


def serial_s(legs: Sequence[Leg], size: float, rate: Callable[[int], float]) -> float:
    """Seconds of `size` bytes over legs one after the other, at `rate` bytes/s of each route."""
    seconds = 0.0
    for leg in legs:
        seconds += leg.latency_s
        if leg.route != NO_ROUTE:
            seconds += size / rate(leg.route)
    return seconds


class Mover:
    """Carries moves over the links, leg by leg, and keeps the writers of all tiers busy."""

    __slots__ = (
        "_agenda",
        "_below_hbm",
        "_kv_bytes",
        "_requests",
        "fine",
        "hbm",
        "is_worth",
        "net",
        "on_room",
    )

    def __init__(
        self, topology: Topology, requests: Requests, agenda: Agenda, kv_bytes_per_token: float
    ) -> None:
        self.net: FlowNet[Move] = FlowNet(
            topology.bytes_per_s,
            topology.routes,
            flow_bytes_per_s=topology.flow_bytes_per_s,
        )
        self._requests = requests
        self._agenda = agenda
        self._kv_bytes = kv_bytes_per_token
        self._below_hbm = topology.below_hbm
        self.hbm: Sequence[HbmCache] = ()
        """By instance; they hold prompts for tiers that need it."""
        self.on_room: Callable[[int, float], None] = _ignore
        """(instance, time): HBM of the instance has let go of a prompt."""
        self.is_worth: Callable[[int, Tier, int], bool] | None = None
        """Whether a request's prompt is written to a tier, by an instance; None: always."""
        self.fine: FineWrites | None = None
        """For tiers whose caches work block by block, where there are any."""
        if topology.block_map is not None:
            self.fine = FineWrites(
                topology,
                topology.block_map,
                requests,
                self._send_write,
                kv_bytes_per_token=kv_bytes_per_token,
                on_written=self._written,
            )

    def go(self, move: Move, now: float) -> None:
        """Begin the present leg (first its latency, then its flow), or end the move."""
        if move.leg == len(move.legs):
            move.on_done(now)
            return
        move.began_s = now
        latency_s = move.legs[move.leg][0].latency_s
        if latency_s > 0.0:
            self._agenda.add(now + latency_s, partial(self._send, move))
        else:
            self._send(move, now)

    def _send(self, move: Move, now: float) -> None:
        if move.is_over:
            return
        leg, size = move.legs[move.leg]
        if leg.route == NO_ROUTE:
            self.end_leg(move, now)
        else:
            self.net.start(now, leg.route, size, move, write=move.is_write)

    def end_leg(self, move: Move, now: float) -> None:
        """The present leg has crossed its links; a load books its time."""
        if move.is_booked:
            self._book(move, now)
        move.leg += 1
        self.go(move, now)

    def _book(self, move: Move, now: float) -> None:
        requests = self._requests
        is_pull = move.legs[move.leg][0].kind == "pull"
        spent = requests.pull_s if is_pull else requests.load_s
        spent[move.request] += now - move.began_s

    def stop(self, move: Move, now: float) -> float:
        """Stop a move that is under way; the bytes that its last leg has moved."""
        leg, size = move.legs[move.leg]
        is_flowing = leg.route != NO_ROUTE and now > move.began_s + leg.latency_s
        moved = 0.0
        if is_flowing:
            moved = size - self.net.stop(now, leg.route, move, write=move.is_write)
        if move.is_booked:
            self._book(move, now)
        move.is_over = True
        return moved if move.leg == len(move.legs) - 1 else 0.0

    def write(self, request: int, tiers: Sequence[Tier], instance: int, now: float) -> None:
        """Write what the tiers lack of the request's prompt; each writer takes one at a time.

        A number behind those of the requests stands for what a request generated (`AtomTable`).
        """
        for tier in tiers:
            is_prompt = request < self._requests.count
            if is_prompt and self.is_worth and not self.is_worth(request, tier, instance):
                continue
            if tier.holds_hbm:
                self._hold(request, instance)
            if tier.fine and self.fine is not None:
                self.fine.publish(request, tier, instance, now)
                continue
            writer = tier.writers[instance]
            writer.waiting.append(request)
            if not writer.is_busy:
                self._write_next(tier, instance, now)

    def demote(self, hbm: HbmCache, instance: int, now: float) -> None:
        """Write what HBM of the instance has evicted to the tier that is given it."""
        if self.fine is not None and self._below_hbm is not None and hbm.victims:
            victims = hbm.victims[:]
            hbm.victims.clear()
            self.fine.evict_from_hbm(self._below_hbm, instance, victims, now)

    def _written(self, request: int, tier: Tier, instance: int, now: float) -> None:
        if tier.holds_hbm:
            self._let_go(request, instance)
            self._agenda.add(now, partial(self.on_room, instance))

    def _send_write(
        self, request: int, legs: list[tuple[Leg, float]], done: Handler, now: float
    ) -> None:
        self.go(Move(request, legs, done, is_write=True), now)

    def _write_next(self, tier: Tier, instance: int, now: float) -> None:
        writer = tier.writers[instance]
        cache = tier.plain[instance]
        requests = self._requests
        atoms = requests.table.atoms
        offset = requests.table.offset
        writer.is_busy = False
        while writer.waiting and not writer.is_busy:
            request = writer.waiting.popleft()
            lo, end = offset[request], offset[request + 1]
            blocks, lacks_last = cache.missing(atoms, lo, end)
            if not blocks or not writer.legs:
                cache.touch(atoms, lo, end)
                if tier.holds_hbm:
                    self._let_go(request, instance)
                continue
            tokens = blocks * requests.block_tokens - (requests.pad[request] if lacks_last else 0)
            writer.is_busy = True
            done = partial(self._end_write, tier, instance, request)
            size = tokens * self._kv_bytes
            legs = [(leg, size) for leg in writer.legs]
            self.go(Move(request, legs, done, is_write=True), now)

    def _end_write(self, tier: Tier, instance: int, request: int, now: float) -> None:
        """The blocks are in the tier; they count as just used, tail before head."""
        table = self._requests.table
        tier.plain[instance].touch(table.atoms, table.offset[request], table.offset[request + 1])
        if tier.holds_hbm:
            self._let_go(request, instance)
        self._write_next(tier, instance, now)
        if tier.holds_hbm:
            self.on_room(instance, now)

    def _hold(self, request: int, instance: int) -> None:
        table = self._requests.table
        hbm = self.hbm[instance]
        hbm.pin(table.atoms, table.offset[request], table.offset[request + 1])
        hbm.writes += 1

    def _let_go(self, request: int, instance: int) -> None:
        """HBM need not keep the prompt any more."""
        table = self._requests.table
        hbm = self.hbm[instance]
        hbm.let_go(table.atoms, table.offset[request], table.offset[request + 1], 0)
        hbm.writes -= 1


def _ignore(instance: int, now: float) -> None:
    """Nobody waits for room."""
