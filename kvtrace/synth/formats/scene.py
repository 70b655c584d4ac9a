"""What every writer needs of the story: its requests, its clock, and names for its blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

import msgspec

from kvtrace.synth.profile import Profile
from kvtrace.synth.story import Served, Story, StoryEngine
from kvtrace.synth.writers import MONOTONIC_START_S, START, by_last_token
from kvtrace.units import NS_PER_MS, NS_PER_S, NS_PER_US

START_NS: Final = int(START.timestamp()) * NS_PER_S
"""Epoch time at the start of the story."""
_ENCODER: Final = msgspec.json.Encoder(decimal_format="number")
_MASK: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Scene:
    """One story to be written down."""

    story: Story

    @property
    def profile(self) -> Profile:
        """What the service is asked."""
        return self.story.profile

    @property
    def engine(self) -> StoryEngine:
        """What serves it."""
        return self.story.engine

    @property
    def block_size_tokens(self) -> int:
        """Tokens a block."""
        return self.story.profile.block_size_tokens

    def served(self) -> Iterator[Served]:
        """The requests in order of arrival."""
        return self.story.served()

    def chunk_blocks(self) -> int:
        """Blocks of one chunk of the pool."""
        return self.engine.pool_chunk_tokens // self.block_size_tokens


def json_line(fields: object) -> str:
    """One JSON value; Decimals are written as numbers, digit for digit."""
    return _ENCODER.encode(fields).decode()


Lines = Callable[[Scene], Iterator[str]]
"""The lines of a file, told anew each time."""


def at_the_end(fields_of: Callable[[Served, Scene], object]) -> Lines:
    """One JSON value a request, written when the request has ended."""

    def lines(scene: Scene) -> Iterator[str]:
        for one in by_last_token(scene.served()):
            yield json_line(fields_of(one, scene))

    return lines


def by_arrival(fields_of: Callable[[Served, Scene], object]) -> Lines:
    """One JSON value a request, in order of arrival."""

    def lines(scene: Scene) -> Iterator[str]:
        for one in scene.served():
            yield json_line(fields_of(one, scene))

    return lines


def table(header: str, cells_of: Callable[[Served, Scene], tuple[object, ...]]) -> Lines:
    """A CSV file: its header, then one line a request in order of arrival; no cell is quoted."""

    def lines(scene: Scene) -> Iterator[str]:
        yield header
        for one in scene.served():
            yield ",".join(map(str, cells_of(one, scene)))

    return lines


def document(
    head_of: Callable[[Scene], str], entry_of: Callable[[Served, Scene], object], tail: str
) -> Lines:
    """One JSON document with a list of requests in order of arrival, an entry a line."""

    def lines(scene: Scene) -> Iterator[str]:
        yield head_of(scene)
        comma = ""
        for one in scene.served():
            yield comma + json_line(entry_of(one, scene))
            comma = ","
        yield tail

    return lines


def e2e_ns(one: Served) -> int:
    """Arrival to last token."""
    return one.last_token_at_ns - one.arrived_at_ns


def total_tokens(one: Served) -> int:
    """Prompt and reply."""
    return one.request.prompt_tokens + one.request.output_tokens


def openai_usage(one: Served) -> dict[str, object]:
    """The usage object of OpenAI and of engines that speak its protocol."""
    return {
        "prompt_tokens": one.request.prompt_tokens,
        "completion_tokens": one.request.output_tokens,
        "total_tokens": total_tokens(one),
        "prompt_tokens_details": {"cached_tokens": one.cached_tokens},
    }


def gaps_us(one: Served) -> list[int]:
    """Microseconds between tokens, as even as whole numbers can be; their sum is exact."""
    count = one.request.output_tokens - 1
    if count < 1:
        return []
    gap, longer = divmod((one.last_token_at_ns - one.first_token_at_ns) // NS_PER_US, count)
    return [gap + 1] * longer + [gap] * (count - longer)


def whole_ms(duration_ns: int) -> int:
    """Nanoseconds as whole milliseconds, cut."""
    return duration_ns // NS_PER_MS


def cut_seconds(duration_ns: int) -> Decimal:
    """Nanoseconds as decimal seconds, cut to the millisecond."""
    return Decimal(duration_ns // NS_PER_MS).scaleb(-3)


def seconds_of(duration_ns: int) -> Decimal:
    """Nanoseconds as decimal seconds, to the microsecond that the story keeps."""
    return Decimal(duration_ns // NS_PER_US).scaleb(-6)


def epoch_s(at_ns: int) -> Decimal:
    """A time of the story as epoch seconds."""
    return seconds_of(START_NS + at_ns)


def steady_s(at_ns: int) -> Decimal:
    """A time of the story on the monotonic clock of its machine, in seconds."""
    return Decimal(str(MONOTONIC_START_S)) + seconds_of(at_ns)


def ms_of(duration_ns: int) -> Decimal:
    """Nanoseconds as decimal milliseconds, to the microsecond."""
    return Decimal(duration_ns // NS_PER_US).scaleb(-3)


def wall(at_ns: int) -> datetime:
    """A time of the story in UTC."""
    return START + timedelta(microseconds=at_ns // NS_PER_US)


def bracket_stamp(at_ns: int) -> str:
    """`2026-03-10 08:00:00`, without a zone."""
    return f"{wall(at_ns):%Y-%m-%d %H:%M:%S}"


def ms_stamp(at_ns: int) -> str:
    """`2026-03-10 08:00:00,000`, without a zone, as Python's logging writes it."""
    return f"{wall(at_ns):%Y-%m-%d %H:%M:%S},{at_ns // NS_PER_MS % 1000:03d}"


def iso_stamp(at_ns: int) -> str:
    """`2026-03-10T08:00:00.000000`, without a zone."""
    return wall(at_ns).replace(tzinfo=None).isoformat(timespec="microseconds")


def zulu_stamp(at_ns: int) -> str:
    """`2026-03-10T08:00:00.000Z`."""
    return f"{wall(at_ns):%Y-%m-%dT%H:%M:%S}.{at_ns // NS_PER_MS % 1000:03d}Z"


def session_name(one: Served) -> str:
    """The conversation of a request."""
    return f"session-{one.request.session}"


def hashed(block: int) -> int:
    """A 64-bit hash of a block, different for every block.

    Source: the finaliser of splitmix64, which is a bijection.
    """
    z = (block + 1) * 0x9E3779B97F4A7C15 & _MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK
    return z ^ z >> 31
