"""Which vLLM version wrote a log: printed, or bounded by the features of its lines.

The meaning of numbers depends on it: the printed hit rate counts blocks up to 0.8 and tokens from
0.9.1 on, under the same words. Bounds are those of the releases whose source was read.
"""

from __future__ import annotations

import re
from typing import Final

from kvtrace.ingest.contract import ReadContext

Version = tuple[int, int, int]
_NUMBERS = re.compile(r"v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?")

FEATURES: Final[dict[str, tuple[Version | None, Version | None, str]]] = {
    # slug: (at least, below, what was seen)
    "plain_prefix": (None, (0, 8, 0), "`file.py:NN]` without an opening bracket"),
    "bracket_prefix": ((0, 8, 0), None, "`[file.py:NN]` in brackets"),
    "process_prefix": ((0, 10, 1), None, "`(APIServer pid=N)` in front of lines"),
    "v0_stats": (None, (0, 11, 0), "statistics of the V0 engine"),
    "v1_stats": ((0, 7, 0), None, "statistics of the V1 engine"),
    "engine_label": ((0, 8, 0), None, "`Engine 000:` in statistics"),
    "sampling_params": (None, (0, 5, 5), "`sampling_params:` in Received lines"),
    "no_embeds": (None, (0, 9, 0), "Received lines with a prompt but no `prompt_embeds shape`"),
    "embeds": ((0, 9, 1), None, "`prompt_embeds shape` in Received lines"),
    "prompt_adapter": ((0, 5, 5), (0, 9, 3), "`prompt_adapter_request` in Received lines"),
    "received_prompt": (None, (0, 11, 1), "the prompt in Received lines"),
    "received_bare": ((0, 11, 1), None, "Received lines without the prompt"),
    "details": ((0, 11, 1), None, "`Request … details` lines"),
    "id_suffix": ((0, 14, 0), None, "engine ids with eight hex digits behind the request id"),
    "response": ((0, 10, 0), None, "`Generated response` lines"),
    "external_hit": ((0, 11, 1), None, "an external or multi-modal hit rate in statistics"),
    "aggregated": ((0, 11, 1), None, "`N Engines Aggregated` in statistics"),
    "deferred": ((0, 20, 0), None, "`Deferred` in statistics"),
    "kv_fetch": ((0, 30, 0), None, "`KV fetch` in statistics"),
    "device_name": ((0, 30, 0), None, "a device other than GPU in `KV cache usage`"),
    "kv_transfer": ((0, 11, 0), None, "`KV Transfer metrics` lines"),
    "iteration": ((0, 14, 0), None, "`Iteration(N)` lines"),
    "iteration_usage": ((0, 26, 0), None, "KV usage in `Iteration(N)` lines"),
    "one_line_capacity": ((0, 30, 0), None, "capacity and concurrency on one line"),
}
"""What a feature of the text says about the version. Bounds lie between releases that were read."""


def parse_version(text: str) -> Version | None:
    """The first three numbers of `0.6.3.post1`, `v0.11.0rc2` and the like."""
    match = _NUMBERS.match(text)
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match is not None else None


def _text(version: Version) -> str:
    return ".".join(str(number) for number in version)


class VersionEvidence:
    """Collects printed versions and features while a file is read."""

    def __init__(self) -> None:
        self._printed: dict[str, None] = {}
        self._seen: dict[str, None] = {}

    def printed(self, text: str) -> None:
        """A banner or engine line named the version."""
        self._printed[text] = None

    def saw(self, feature: str) -> None:
        """A line has this feature (a key of `FEATURES`)."""
        self._seen[feature] = None

    def bounds(self) -> tuple[Version | None, Version | None]:
        """(at least, below), from features alone."""
        found = [FEATURES[slug] for slug in self._seen]
        lowest = max((low for low, _, _ in found if low is not None), default=None)
        highest = min((high for _, high, _ in found if high is not None), default=None)
        return lowest, highest

    def hit_unit(self) -> str | None:
        """What a V1 hit rate counts, or None where the version leaves it open."""
        if self._printed:
            units = {_unit_of(parse_version(text)) for text in self._printed}
            return units.pop() if len(units) == 1 else None
        lowest, highest = self.bounds()
        if highest is not None and highest <= (0, 9, 0):
            return "blocks"
        return "tokens" if lowest is not None and lowest >= (0, 9, 1) else None

    def prompt_rate_counts(self) -> str | None:
        """What the printed prompt throughput counts, or None where the version leaves it open.

        Up to 0.15 all prompt tokens of requests that got their first token, cached ones too; from
        0.17 on only computed tokens.
        """
        found = {parse_version(text) for text in self._printed}
        lows, highs = found, found
        if not found:
            lowest, highest = self.bounds()
            lows, highs = {lowest}, {(highest[0], highest[1] - 1, 999) if highest else None}
        if all(low is not None and low >= (0, 17, 0) for low in lows):
            return "computed_tokens"
        if all(high is not None and high < (0, 16, 0) for high in highs):
            return "prompt_tokens"
        return None

    def fill(self, context: ReadContext) -> None:
        """Write version and reason into the context."""
        if self._printed:
            context.engine_version = ", ".join(self._printed)
            context.engine_version_reason = "printed in the log"
            if len(self._printed) > 1:
                context.note("engine_version_changed", "The log holds more than one vLLM version.")
            return
        lowest, highest = self.bounds()
        if lowest is None and highest is None:
            return
        why = "; ".join(FEATURES[slug][2] for slug in self._seen)
        if lowest is not None and highest is not None and lowest >= highest:
            context.note("engine_version_unclear", f"Lines of several vLLM versions: {why}.")
            return
        low = f">={_text(lowest)}" if lowest is not None else ""
        high = f"<{_text(highest)}" if highest is not None else ""
        context.engine_version = ",".join(part for part in (low, high) if part)
        context.engine_version_reason = f"not printed; guessed from {why}"


def _unit_of(version: Version | None) -> str | None:
    if version is None:
        return None
    if version < (0, 9, 0):
        return "blocks"
    return "tokens" if version >= (0, 9, 1) else None
