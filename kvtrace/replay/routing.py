"""Which instance takes a request.

A router knows the queue of every instance as it is now, in prefill seconds of the requests that
have no first token yet. Those that follow caches also know what the instances held
`Scenario.metadata_age_s` ago, in HBM and in their private tiers; blocks that a prefill under way
will leave are not known. A shared tier serves every instance alike and is known as it is.

Nothing is drawn: equals are taken in turn, from the instance after the last one taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from kvtrace.replay.homes import FOLLOWS_CACHES, groups_of
from kvtrace.replay.known import KnownCaches
from kvtrace.replay.links import FlowNet
from kvtrace.replay.moves import Move
from kvtrace.replay.pricing import ServingPrice
from kvtrace.replay.scenario import Scenario
from kvtrace.replay.state import Instance, Requests
from kvtrace.replay.topology import Tier


class InTurn:
    """round_robin: one after the other."""

    def __init__(self, instances: Sequence[Instance], turn: int) -> None:
        self._instances = instances
        self._turn = turn % len(instances)

    def choose(self, request: int, now: float) -> Instance:
        """The next one."""
        return self._take(self._turn)

    def _take(self, place: int) -> Instance:
        self._turn = place + 1 if place + 1 < len(self._instances) else 0
        return self._instances[place]


class LeastLoaded(InTurn):
    """least_loaded: least queued prefill."""

    def choose(self, request: int, now: float) -> Instance:
        """The first of the least loaded."""
        queued = [instance.queued_s for instance in self._instances]
        least = min(queued)
        place = self._turn
        while queued[place] != least:
            place = place + 1 if place + 1 < len(queued) else 0
        return self._take(place)


class SessionSticky(LeastLoaded):
    """session_sticky: where the session's first request went, wherever its blocks are now.

    A session opens on the least loaded instance; so does every request of no known session.
    """

    def __init__(
        self,
        instances: Sequence[Instance],
        turn: int,
        session: Sequence[int],
        homes: dict[int, Instance],
    ) -> None:
        super().__init__(instances, turn)
        self._session = session
        self._homes = homes

    def choose(self, request: int, now: float) -> Instance:
        """The home of the request's session."""
        session = self._session[request]
        home = self._homes.get(session)
        if home is None:
            home = super().choose(request, now)
            if session >= 0:
                self._homes[session] = home
        return home


class PrefixAffinity(InTurn):
    """prefix_affinity: where most of the prefix is, unless too many already queue there.

    Formula: most leading blocks in HBM and private tiers among the instances with
    `queued < factor · (queued of all + 1) / instances`; of equals the least queued prefill.
    With a factor of at least 1 the instance with fewest is always among them.
    Source: Mirrokni, Thorup, Zadimoghaddam, "Consistent Hashing with Bounded Loads" (2016), for the
    bound.
    """

    def __init__(
        self,
        instances: Sequence[Instance],
        turn: int,
        known: KnownCaches,
        factor: float,
    ) -> None:
        super().__init__(instances, turn)
        self._known = known
        self._factor = factor

    def choose(self, request: int, now: float) -> Instance:
        """The one with most of the prefix among those with room."""
        known, instances = self._known, self._instances
        known.catch_up(now)
        count = len(instances)
        limit = self._factor * (sum(one.queued for one in instances) + 1) / count
        best, most, least_s = -1, -1, inf
        for place in (*range(self._turn, count), *range(self._turn)):
            instance = instances[place]
            if instance.queued < limit:
                blocks = known.private_blocks(request, instance.index)
                if blocks > most or (blocks == most and instance.queued_s < least_s):
                    best, most, least_s = place, blocks, instance.queued_s
        return self._take(best)


class KvCentric(InTurn):
    """kv_centric: where queue, move and recompute together take least.

    Formula: argmin over instances of queued prefill seconds + move_s + prefill_s(rest, hit): the
    hit in HBM as the router knows it, continued through the tiers below; move_s = Σ over legs of
    latency + bytes / fair rate of the links as they are. The parts are all that the tiers hold if
    loads always happen, else the leading ones that make it least. Of equal sums the least queue.
    A load that will hide behind the queue counts in full.
    """

    def __init__(
        self,
        instances: Sequence[Instance],
        turn: int,
        known: KnownCaches,
        price: ServingPrice,
    ) -> None:
        super().__init__(instances, turn)
        self._known = known
        self._price = price

    def choose(self, request: int, now: float) -> Instance:
        """The one with the least sum."""
        known, instances, price = self._known, self._instances, self._price
        known.catch_up(now)
        count = len(instances)
        best, least_s, least_queue_s = self._turn, inf, inf
        price.begin(request)
        for place in (*range(self._turn, count), *range(self._turn)):
            queued_s = instances[place].queued_s
            if queued_s > least_s:
                continue
            total_s = queued_s + price.on(instances[place].index)
            if total_s < least_s or (total_s == least_s and queued_s < least_queue_s):
                best, least_s, least_queue_s = place, total_s, queued_s
        return self._take(best)


class Router:
    """The routing of a scenario: long prompts to instances of their own where it has such."""

    def __init__(
        self,
        scenario: Scenario,
        session: Sequence[int],
        *,
        requests: Requests,
        instances: Sequence[Instance],
        tiers: Sequence[Tier],
        net: FlowNet[Move],
        turn: int = 0,
        homes: Mapping[int, int] | None = None,
    ) -> None:
        """`session` (requests,): -1 where unknown; `homes`: instances of sessions seen before.

        Turns start at instance `turn`.
        """
        self._scenario = scenario
        self._requests = requests
        self._session = session
        self._homes = homes or {}
        self.known: KnownCaches | None = None
        """What the router knows of the caches; None: it does not ask."""
        self._price: ServingPrice | None = None
        if scenario.routing in FOLLOWS_CACHES:
            age_s, is_ideal = scenario.metadata_age_s, scenario.idealised
            known = KnownCaches(requests, instances, tiers, age_s=age_s, is_ideal=is_ideal)
            self.known = known
            self._price = ServingPrice(scenario, requests, tiers, known, net)
        spec = scenario.isolation
        has_own = spec is not None and spec.long_instances
        self._most = spec.long_prompt_tokens if spec is not None and has_own else inf
        """Most prompt tokens of a request that goes to the first group."""
        first, apart = groups_of(scenario)
        self._any = self._policy([instances[index] for index in first], turn)
        self._long = (
            self._policy([instances[index] for index in apart], turn) if apart else self._any
        )

    def route(self, request: int, now: float) -> Instance:
        """The instance that takes the request."""
        requests = self._requests
        policy = self._long if requests.prompt[request] > self._most else self._any
        instance = policy.choose(request, now)
        requests.instance[request] = instance.index
        return instance

    def _policy(self, group: Sequence[Instance], turn: int) -> InTurn:
        """The routing among some instances; one alone takes everything."""
        scenario = self._scenario
        if len(group) == 1 or scenario.routing == "round_robin":
            return InTurn(group, turn)
        if scenario.routing == "session_sticky":
            of_index = {one.index: one for one in group}
            homes = {s: of_index[i] for s, i in self._homes.items() if i in of_index}
            return SessionSticky(group, turn, self._session, homes)
        if self.known is None or self._price is None:
            return LeastLoaded(group, turn)
        if scenario.routing == "prefix_affinity":
            return PrefixAffinity(group, turn, self.known, scenario.affinity_load_factor)
        return KvCentric(group, turn, self.known, self._price)
