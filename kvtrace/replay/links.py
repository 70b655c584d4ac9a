"""Links that flows share max-min fairly.

A flow crosses all links of its route at once. Flows on the same route always have the same rate, so
each route keeps one running total of bytes served per flow ("virtual time") and a heap of end
marks; a change of rate costs nothing per flow. Only the routes that are connected by shared links
are shared out again when a flow starts or ends.

Formula (progressive filling): a link whose `free bytes/s / open flows` is the least on the way of
each of its flows gives them that rate for good; subtract it from their other links; repeat.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from math import inf
from typing import Generic, TypeVar

from kvtrace.replay.ledger import LinkLedger

Owner = TypeVar("Owner")


class _Route(Generic[Owner]):
    """One set of links with the flows that cross all of it."""

    __slots__ = (
        "booked",
        "cap",
        "component",
        "flows",
        "links",
        "narrow",
        "rate",
        "served",
        "writes",
    )

    def __init__(self, links: tuple[int, ...], cap: float) -> None:
        self.links = links
        self.cap = cap
        """Bytes/s of the narrowest link."""
        self.component: _Component[Owner]
        self.flows: list[tuple[float, int, Owner, bool]] = []
        """Heap of (end mark, sequence, owner, whether it writes)."""
        self.narrow = -1
        """The link that holds it back."""
        self.served = 0.0
        """Bytes that a flow present since the route was last empty has got."""
        self.rate = 0.0
        """Bytes/s of each flow now."""
        self.writes = 0
        """Of the flows, those that write."""
        self.booked = 0.0
        """Of `served`, what the ledger has."""


class _Component(Generic[Owner]):
    """Routes that are connected through shared links."""

    __slots__ = ("active", "at", "edge", "first", "index", "stretch")
    first: _Route[Owner]
    """The route whose first flow ends next; set while a route is active."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.active: list[_Route[Owner]] = []
        self.at = 0.0
        """Time up to which `served` of the active routes is right."""
        self.edge = -inf
        """When the stretch of the ledger ends in which that time lies."""
        self.stretch = 0


class FlowNet(Generic[Owner]):
    """All links of a replay and the flows on them.

    `next_at` is the time at which the next flow ends (inf: none); call `finish` then.
    """

    __slots__ = (
        "_bound",
        "_busy_from",
        "_caps",
        "_components",
        "_deadlines",
        "_flows_on",
        "_free",
        "_most",
        "_of_index",
        "_open_on",
        "_sequence",
        "busy_s",
        "ledger",
        "next_at",
        "read_bytes",
        "written_bytes",
    )

    def __init__(
        self,
        bytes_per_s: Sequence[float],
        routes: Sequence[tuple[int, ...]],
        *,
        flow_bytes_per_s: float = inf,
    ) -> None:
        """No flow gets more than `flow_bytes_per_s`, however idle its links are."""
        self._most = flow_bytes_per_s
        self._caps = [float(rate) for rate in bytes_per_s]
        links = len(self._caps)
        self._flows_on = [0] * links
        self._busy_from = [0.0] * links
        self._free = [0.0] * links
        self._open_on = [0] * links
        self._bound = [0] * (links + 1)
        """The last one is of flows that no link holds back."""
        self.busy_s = [0.0] * links
        """Seconds with at least one flow, per link."""
        self.read_bytes = [0.0] * links
        self.written_bytes = [0.0] * links
        self.ledger: LinkLedger | None = None
        """Where it is set, every byte is booked there when it crosses."""
        self._sequence = 0
        self._of_index, self._components = self._join(routes)
        self._deadlines = [inf] * len(self._components)
        self.next_at = inf

    def _join(
        self, routes: Sequence[tuple[int, ...]]
    ) -> tuple[list[_Route[Owner]], list[_Component[Owner]]]:
        """Routes by index (equal sets of links are one route), and the components they form."""
        root = list(range(len(self._caps)))

        def find(link: int) -> int:
            while root[link] != link:
                root[link] = root[root[link]]
                link = root[link]
            return link

        sets = [tuple(sorted(set(links))) for links in routes]
        for links in sets:
            for link in links[1:]:
                root[find(link)] = find(links[0])
        components: dict[int, _Component[Owner]] = {}
        by_links: dict[tuple[int, ...], _Route[Owner]] = {}
        for links in sets:
            if links not in by_links:
                route = _Route[Owner](links, min(self._caps[link] for link in links))
                group = find(links[0])
                if group not in components:
                    components[group] = _Component(len(components))
                route.component = components[group]
                by_links[links] = route
        return [by_links[links] for links in sets], list(components.values())

    def start(self, now: float, route: int, size: float, owner: Owner, *, write: bool) -> None:
        """Put a flow of `size` bytes on a route at time `now` (never before the last event)."""
        on = self._of_index[route]
        component = on.component
        self._serve(component, now)
        if self.ledger is not None:
            self._book(on)
        if not on.flows:
            on.served = on.booked = 0.0
            component.active.append(on)
        self._sequence += 1
        heappush(on.flows, (on.served + size, self._sequence, owner, write))
        on.writes += write
        flows_on = self._flows_on
        total = self.written_bytes if write else self.read_bytes
        for link in on.links:
            total[link] += size
            if not flows_on[link]:
                self._busy_from[link] = now
            flows_on[link] += 1
        self._share(component)

    def finish(self) -> list[Owner]:
        """End the flows that are due at `next_at`, and say whose they were."""
        now = self.next_at
        component = self._components[self._deadlines.index(now)]
        self._serve(component, now)
        first = component.first
        flows = first.flows
        mark = flows[0][0]
        first.served = mark
        if self.ledger is not None:
            self._book(first)
        done: list[Owner] = []
        while flows and flows[0][0] <= mark:
            _, _, owner, is_write = heappop(flows)
            done.append(owner)
            first.writes -= is_write
        if not flows:
            component.active.remove(first)
        for link in first.links:
            left = self._flows_on[link] - len(done)
            self._flows_on[link] = left
            if not left:
                self.busy_s[link] += now - self._busy_from[link]
        self._share(component)
        return done

    def stop(self, now: float, route: int, owner: Owner, *, write: bool) -> float:
        """Take the owner's flow off a route; the bytes that it had left, gone from the ledger."""
        on = self._of_index[route]
        component = on.component
        self._serve(component, now)
        if self.ledger is not None:
            self._book(on)
        place = next(i for i, flow in enumerate(on.flows) if flow[2] == owner)
        left = max(0.0, on.flows.pop(place)[0] - on.served)
        on.writes -= write
        heapify(on.flows)
        if not on.flows:
            component.active.remove(on)
        total = self.written_bytes if write else self.read_bytes
        for link in on.links:
            total[link] -= left
            self._flows_on[link] -= 1
            if not self._flows_on[link]:
                self.busy_s[link] += now - self._busy_from[link]
        self._share(component)
        return left

    def fair_rate(self, route: int) -> float:
        """Bytes/s that one more flow on the route could count on, were all others to stay.

        Formula: min over links of bytes/s / (flows + 1), and what one flow may get at most; a lower
        bound of the max-min share.
        """
        flows_on = self._flows_on
        caps = self._caps
        fair = min(caps[link] / (flows_on[link] + 1) for link in self._of_index[route].links)
        return min(fair, self._most)

    def full_rate(self, route: int) -> float:
        """Bytes/s of a flow that is alone on the route."""
        return min(self._of_index[route].cap, self._most)

    def _serve(self, component: _Component[Owner], now: float) -> None:
        if self.ledger is not None and now >= component.edge:
            self._turn_pages(component, self.ledger, now)
        passed = now - component.at
        if passed > 0.0:
            for route in component.active:
                route.served += route.rate * passed
        component.at = now

    def _turn_pages(self, component: _Component[Owner], ledger: LinkLedger, now: float) -> None:
        """Serve up to each end of a stretch before `now`, and book what crossed in it."""
        while component.active and now >= component.edge > component.at:
            passed = component.edge - component.at
            for route in component.active:
                route.served += route.rate * passed
                self._book(route)
            component.at = component.edge
            component.stretch += 1
            component.edge = ledger.end_of(component.stretch)
        if now >= component.edge:
            component.stretch = ledger.stretch_at(now)
            component.edge = ledger.end_of(component.stretch)

    def _book(self, route: _Route[Owner]) -> None:
        """Book what crossed on the route since it was last booked; its flows were the same."""
        served = route.served - route.booked
        if served and self.ledger is not None:
            route.booked = route.served
            self.ledger.book(
                route.links,
                route.component.stretch,
                read=served * (len(route.flows) - route.writes),
                written=served * route.writes,
            )

    def _share(self, component: _Component[Owner]) -> None:
        """Give every active route of the component its max-min rate, and find the next end."""
        active = component.active
        wait = inf
        if len(active) == 1:
            only = active[0]
            flows = only.flows
            rate = only.cap / len(flows)
            only.rate = rate = rate if rate < self._most else self._most
            left = (flows[0][0] - only.served) / rate
            if left < wait:
                wait = left
                component.first = only
        elif active:
            self._fill(active)
            for route in active:
                left = (route.flows[0][0] - route.served) / route.rate
                if left < wait:
                    wait = left
                    component.first = route
        deadlines = self._deadlines
        deadlines[component.index] = component.at + wait if wait > 0.0 else component.at
        self.next_at = min(deadlines)

    def _fill(self, active: list[_Route[Owner]]) -> None:
        """Max-min rates, round by round.

        A link is settled when it is the narrowest one for all flows that cross it; all such links
        of a round are settled at once. Ties go to the lower link, so at least one is. So are flows
        that get the most that one may.
        """
        caps, flows_on = self._caps, self._flows_on
        free, open_on, bound = self._free, self._open_on, self._bound
        for route in active:
            for link in route.links:
                free[link] = caps[link]
                open_on[link] = flows_on[link]
                bound[link] = 0
        routes = active
        while True:
            for route in routes:
                share = self._most
                route.narrow = -1
                for link in route.links:
                    fair = free[link] / open_on[link]
                    if fair < share:
                        share = fair
                        route.narrow = link
                route.rate = share
                bound[route.narrow] += len(route.flows)
            left = [
                route
                for route in routes
                if route.narrow >= 0 and bound[route.narrow] != open_on[route.narrow]
            ]
            if not left:
                return
            for route in routes:
                if route not in left:
                    flows = len(route.flows)
                    for link in route.links:
                        free[link] -= route.rate * flows
                        open_on[link] -= flows
            for route in left:
                for link in route.links:
                    bound[link] = 0
            routes = left
