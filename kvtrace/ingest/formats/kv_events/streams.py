"""The numbered batches of each engine: what was lost, what came twice, when a process started anew.

A publisher numbers its batches from the start of its process. It drops batches when its queue is
full; a subscriber may ask for them again and then gets those too that it has.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import Final, Literal

from kvtrace.ingest.contract import ReadContext

Arrival = Literal["next", "late", "replayed", "restart"]
"""next: in order (perhaps behind a gap); late: fills a gap; replayed: had before; restart: the
first one seen of a new process."""
_MAX_GAPS: Final = 4096
_MAX_INSTANCES: Final = 4096
_DATE: Final = r"\d{4}-?\d\d-?\d\d(?:[T_-]?\d{2,6})?"
_PACKED: Final = re.compile(r"\.(?:gz|zst|zstd|bz2|xz)\Z")
_AT_END: Final = re.compile(rf"(?:\.\d{{1,4}}|[._-]{_DATE})\Z")
_BEFORE_SUFFIX: Final = re.compile(rf"[._-]{_DATE}(?=\.[A-Za-z]{{2,6}}\Z)")
_MIXED_SHARE: Final = 0.02


def log_name(path: str) -> str:
    """A file's name without what rotation adds, `kv.jsonl.1` and `kv-20260102.jsonl.gz` alike.

    `engine-0.jsonl` and `engine-1.jsonl` stay two: they are more likely two engines.
    """
    name = path
    for added in (_PACKED, _AT_END, _PACKED, _BEFORE_SUFFIX):
        name = added.sub("", name)
    return name or path


@dataclass(slots=True)
class Stream:
    """The batches of one engine (and data-parallel rank) of a file."""

    instance: str
    last: int | None = None
    """Number of the newest batch."""
    last_ns: int | None = None
    """Its time."""
    gaps: list[tuple[int, int]] = field(default_factory=list)
    """Numbers that are missing, first and last."""
    received: int = 0
    restarts: int = 0
    lost_before: int = 0
    """Batches lost of processes that have ended, and of gaps that are not kept apart any more."""

    @property
    def lost(self) -> int:
        """Batches that were published and never seen."""
        return self.lost_before + sum(last - first + 1 for first, last in self.gaps)

    def place(self, number: int | None, at_ns: int | None) -> Arrival:
        """What the batch with this number is; takes it into the account."""
        arrival = self._judge(number, at_ns)
        if arrival == "replayed":
            return arrival
        self.received += 1
        if arrival == "restart":
            self.restarts += 1
            self.lost_before, self.gaps = self.lost, []
        if arrival != "late":
            self.last = number if number is not None else self.last
            self.last_ns = at_ns if at_ns is not None else self.last_ns
        return arrival

    def _judge(self, number: int | None, at_ns: int | None) -> Arrival:
        if number is None or self.last is None:
            return "next"
        if number > self.last:
            if number > self.last + 1:
                self._miss(self.last + 1, number - 1)
            return "next"
        is_newer = at_ns is not None and self.last_ns is not None and at_ns > self.last_ns
        if is_newer or (at_ns is None and number == 0 and self.last > 0):
            return "restart"
        return "late" if self._fill(number) else "replayed"

    def _miss(self, first: int, last: int) -> None:
        self.gaps.append((first, last))
        if len(self.gaps) > _MAX_GAPS:
            oldest = self.gaps.pop(0)
            self.lost_before += oldest[1] - oldest[0] + 1

    def _fill(self, number: int) -> bool:
        for at, (first, last) in enumerate(self.gaps):
            if first <= number <= last:
                rest = [(first, number - 1), (number + 1, last)]
                self.gaps[at : at + 1] = [gap for gap in rest if gap[0] <= gap[1]]
                return True
        return False


@dataclass(slots=True)
class StreamBook:
    """All streams of one file."""

    path: str
    streams: dict[tuple[str, int | None], Stream] = field(default_factory=dict)
    _topics: dict[str, str] = field(default_factory=dict)

    def stream(self, topic: str, rank: int | None) -> Stream:
        """The stream of a topic and a rank."""
        found = self.streams.get((topic, rank))
        if found is None:
            if len(self.streams) >= _MAX_INSTANCES:  # no fleet: a field that is no topic
                return next(reversed(self.streams.values()))
            ranked = "" if rank is None else f" dp {rank}"
            found = Stream(f"{self._log_label(topic)}{ranked}")
            self.streams[topic, rank] = found
        return found

    def _log_label(self, topic: str) -> str:
        """The file's name and, as topics often hold a host, 16 bits of the topic."""
        name = log_name(self.path)
        if not topic:
            return name
        label = self._topics.get(topic)
        if label is None:
            digest = hashlib.blake2b(topic.encode("utf-8", "surrogatepass"), digest_size=2)
            label = digest.hexdigest()
            if label in self._topics.values():
                label = f"{label}-{len(self._topics)}"
            self._topics[topic] = label
        return f"{name} topic {label}"

    def describe(self, context: ReadContext, what: str) -> None:
        """Leave notes of what was lost and what started anew; `what` is a batch or an event."""
        streams = list(self.streams.values())
        received, lost = (sum(one.received for one in streams), sum(one.lost for one in streams))
        restarts = sum(one.restarts for one in streams)
        if lost:
            hit = sum(one.lost > 0 for one in streams)
            context.note(
                "kv_events_lost",
                f"{lost:,} of {received + lost:,} {what} are missing or damaged, by their numbers,"
                f" in {hit} of {len(streams)} instances: the blocks stored or removed in them are"
                " not known, so that tokens computed again are a lower bound.",
                severity="warning",
            )
        if restarts:
            context.note(
                "kv_events_restarts",
                f"The numbers of {what} started anew (times: {restarts:,}): the engine's process"
                " did, and what it held is taken as gone.",
            )
        if restarts > max(3, _MIXED_SHARE * received):
            context.note(
                "kv_events_mixed_publishers",
                "The numbers go back again and again: several engines may share one topic. Capture"
                " each on a topic or into a file of its own, or one cannot be told from another.",
                severity="warning",
            )
