"""What a row says of its run: who hits with and without the tier, and how requests queue."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from kvtrace.cost.validation.bench import Bench
from kvtrace.units import parse_bytes

_NUMBER: Final = r"(\d+(?:\.\d+)?)\s*(%)?"
_HITS: Final = re.compile(
    rf"\bhits?(?: rates?| shares?| ratios?)?\s*(?:from|of|=|:)?\s*{_NUMBER}"
    rf"(?:\s*(?:to|->|→)\s*{_NUMBER})?"
)
_SET: Final = re.compile(
    r"(\d+(?:\.\d+)?)\s*([km])?(?:\s*(?:-|to|–)\s*(\d+(?:\.\d+)?)\s*([km])?)?\s*"
    r"tokens?\s+working[ -]set"
)
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([gt]i?b)\b")
LOOP_OUTPUT_TOKENS: Final = 256
"""Output tokens of a request of a served loop that does not say; assumed."""
LOOP_CLIENTS: Final = 32
"""Requests at once of a served system that does not say; assumed."""
_MOST_SERVED: Final = 512
"""A row of more requests at once is a batch that is worked off, its outputs left aside."""
_SCALES: Final = {"": 1.0, "k": 1e3, "m": 1e6}
_MOST_CLIENTS: Final = 256
"""Beyond it a closed loop is as full as with it."""


@dataclass(frozen=True, slots=True)
class HitShares:
    """Share of the requests that find their cached part: with the tier, and without it."""

    off: float
    on: float


def read_hits(bench: Bench) -> HitShares | None:
    """The shares that a row states, or that follow from its working set; null where neither is.

    `hit 40 to 80 %` is off and on; one number is that with the tier. A working set of W tokens in
    caches of C tokens: min(1, C / W), as for requests that draw evenly from it.
    """
    words = f"{bench.point.words} {bench.point.path.lower()}"
    stated = stated_hits(words)
    if stated is not None:
        return stated
    asked = working_set_tokens(words)
    if not asked:
        return None
    each = bench.deployment.kv_bytes_per_token
    hbm = bench.deployment.hbm_cache_bytes / each
    tier = max(_tier_bytes(bench), hbm * each) / each
    return HitShares(min(1.0, hbm / asked), min(1.0, max(hbm, tier) / asked))


def stated_hits(words: str) -> HitShares | None:
    """Hit shares in the words of a row, `hit 40 to 80 %` or `hit rate 0.9`; null without."""
    found = _HITS.search(words)
    if found is None:
        return None
    first, last = found.group(1), found.group(3)
    scale = 0.01 if found.group(2) or found.group(4) else 1.0
    values = [scale * float(text) for text in (first, last) if text]
    off, on = (values[0], values[1]) if len(values) == 2 else (0.0, values[0])
    return HitShares(off, on) if 0 <= off <= 1 and 0 < on <= 1 else None


def working_set_tokens(words: str) -> float | None:
    """Tokens of the working set in the words of a row; of a range, its geometric mean."""
    found = _SET.search(words)
    if found is None:
        return None
    low, low_scale, high, high_scale = found.groups()
    least = float(low) * _SCALES[low_scale or high_scale or ""]
    most = least if high is None else float(high) * _SCALES[high_scale or ""]
    return float((least * most) ** 0.5)


def _tier_bytes(bench: Bench) -> float:
    """Bytes of the tier: as stated in the path, else the free host memory of the node."""
    stated = _SIZE.search(bench.point.path.lower())
    if stated is not None:
        number, unit = stated.groups()
        return float(parse_bytes(f"{number}{unit[0].upper()}{unit[1:].replace('b', 'B')}"))
    hardware = bench.hardware
    return hardware.dram_bytes_per_node.value * hardware.dram_idle_share.value


@dataclass(frozen=True, slots=True)
class Loop:
    """A closed loop of requests: what each holds of the GPUs besides its prefill."""

    clients: int
    slots: int
    """Of them, those whose KV fits in HBM at once; the others wait."""
    decode_s: float
    """GPU seconds of one request's output, its share of the steps."""
    think_s: float
    """Seconds from the first token to the last."""

    def wait_s(self, prefill_s: float) -> float:
        """Seconds that a request waits before its prefill of `prefill_s` GPU seconds.

        Formula: (N - slots) requests ahead at the rate of the GPUs, and others' prefills among
        those in the slots.
        """
        ahead = (self.clients - self.slots) * (prefill_s + self.decode_s)
        return ahead + loop_wait_s(prefill_s, self.think_s, self.slots)


def read_loop(bench: Bench, *, is_system: bool) -> Loop | None:
    """The loop of a row; null for a request alone, or a batch that is worked off.

    `is_system` says that the row is about a whole system without counts of tokens: it gets
    stand-ins for what it leaves open.
    """
    point = bench.point
    states_output = bench.stated_output_tokens is not None
    clients = bench.batch
    if is_system and clients == 1:
        clients = LOOP_CLIENTS
    if not states_output and not 2 <= clients <= _MOST_SERVED:
        return None
    output = bench.stated_output_tokens or LOOP_OUTPUT_TOKENS
    context = (point.new_tokens or 0) + bench.cached_tokens + output / 2
    fitting = bench.deployment.hbm_cache_bytes / bench.deployment.kv_bytes_per_token / context
    slots = max(1, min(clients, int(fitting)))
    step_s = bench.software("decode") * bench.decode.step_s(slots, slots * context)
    return Loop(clients, slots, output * step_s / slots, output * step_s)


def loop_wait_s(service_s: float, think_s: float, clients: int) -> float:
    """Seconds that a request waits for others' prefills in a closed loop of `clients`.

    Formula: mean value analysis of one server and a delay: R_n = S (1 + Q_{n-1}),
    Q_n = n R_n / (R_n + Z); the wait is R - S.
    Source: Reiser and Lavenberg, J. ACM 27 (2), 1980.
    """
    queue, residence = 0.0, service_s
    for n in range(1, min(clients, _MOST_CLIENTS) + 1):
        residence = service_s * (1.0 + queue)
        cycle = residence + think_s
        queue = n * residence / cycle if cycle > 0 else 0.0
    return residence - service_s
