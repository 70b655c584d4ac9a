"""Which vLLM version wrote a log: printed, or bounded by the features of its lines.

The meaning of numbers depends on it: the printed hit rate counts blocks up to 0.8 and tokens from
0.9.1 on, under the same words. Bounds lie behind the last release that was read without a feature
and before the first one that was read without it again.
"""

from __future__ import annotations

import re
from typing import Final

from kvtrace.ingest.contract import ReadContext

Version = tuple[int, int, int]
_TOKENS_SOONEST: Final = (0, 9, 0)
"""First release whose hit rate may count tokens."""
_TOKENS_LATEST: Final = (0, 9, 1)
"""From here on it surely does."""
_MAX_WRITERS: Final = 1024
_NUMBERS = re.compile(r"v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?")

FEATURES: Final[dict[str, tuple[Version | None, Version | None, str]]] = {
    # slug: (at least, below, what was seen)
    "plain_prefix": (None, (0, 8, 0), "`file.py:NN]` without an opening bracket"),
    "bracket_prefix": ((0, 8, 0), None, "`[file.py:NN]` in brackets"),
    "process_prefix": ((0, 10, 1), None, "`(APIServer pid=N)` in front of lines"),
    "v0_stats": (None, (0, 11, 0), "statistics of the V0 engine"),
    "v1_stats": ((0, 7, 0), None, "statistics of the V1 engine"),
    "engine_label": ((0, 8, 1), None, "`Engine 000:` in statistics"),
    "sampling_params": (None, (0, 5, 5), "`sampling_params:` in Received lines"),
    "no_embeds": (None, (0, 9, 0), "Received lines with a prompt but no `prompt_embeds shape`"),
    "embeds": ((0, 9, 1), None, "`prompt_embeds shape` in Received lines"),
    "prompt_adapter": ((0, 5, 5), (0, 9, 3), "`prompt_adapter_request` in Received lines"),
    "received_prompt": (None, (0, 11, 1), "the prompt in Received lines"),
    "received_bare": ((0, 11, 1), None, "Received lines without the prompt"),
    "details": ((0, 11, 1), None, "`Request … details` lines"),
    "id_suffix": ((0, 14, 0), None, "engine ids with eight hex digits behind the request id"),
    "added": ((0, 4, 3), None, "`Added request` lines"),
    "finished": (None, (0, 11, 0), "`Finished request` lines"),
    "aborted_list": ((0, 10, 0), None, "`Aborted request(s)` lines"),
    "response": ((0, 10, 0), None, "`Generated response` lines"),
    "response_details": ((0, 30, 0), None, "token ids of responses on lines of their own"),
    "init_blocks": ((0, 9, 0), None, "`cache_config_info with initialization` lines"),
    "external_hit": ((0, 11, 1), None, "an external or multi-modal hit rate in statistics"),
    "aggregated": ((0, 11, 1), None, "`N Engines Aggregated` in statistics"),
    "deferred": ((0, 20, 0), None, "`Deferred` in statistics"),
    "kv_fetch": ((0, 30, 0), None, "`KV fetch` in statistics"),
    "device_name": ((0, 30, 0), None, "a device other than GPU in `KV cache usage`"),
    "kv_transfer": ((0, 11, 0), None, "`KV Transfer metrics` lines"),
    "kv_failures": ((0, 30, 0), None, "failures in `KV Transfer metrics` lines"),
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
        self._of_writer: dict[str | None, str] = {}
        self._seen: dict[str, None] = {}
        self.changes = 0
        """Grows with every new piece of evidence."""

    def printed(self, text: str, writer: str | None) -> None:
        """A banner or engine line of this process named the version."""
        self._printed[text] = None
        if len(self._of_writer) < _MAX_WRITERS:
            self._of_writer[writer] = text
        self.changes += 1

    def saw(self, feature: str) -> None:
        """A line has this feature (a key of `FEATURES`)."""
        if feature not in self._seen:
            self._seen[feature] = None
            self.changes += 1

    def has_seen(self, feature: str) -> bool:
        """Whether a line had this feature."""
        return feature in self._seen

    def bounds(self) -> tuple[Version | None, Version | None]:
        """(at least, below), from features alone."""
        found = [FEATURES[slug] for slug in self._seen]
        lowest = max((low for low, _, _ in found if low is not None), default=None)
        highest = min((high for _, high, _ in found if high is not None), default=None)
        return lowest, highest

    def hit_unit(self, writer: str | None) -> str | None:
        """What a V1 hit rate of this process counts, or None where the version leaves it open.

        By the version that the process printed last, else the only one in the log so far.
        """
        text = self._of_writer.get(writer)
        if text is None and len(self._printed) == 1:
            text = next(iter(self._printed))
        if self._printed:
            return None if text is None else _unit_of(parse_version(text))
        lowest, highest = self.bounds()
        if highest is not None and highest <= _TOKENS_SOONEST:
            return "blocks"
        return "tokens" if lowest is not None and lowest >= _TOKENS_LATEST else None

    def is_surely_from(self, version: Version) -> bool:
        """Whether nothing in the log is older than this."""
        found = [parse_version(text) for text in self._printed]
        if not found:
            found = [self.bounds()[0]]
        return all(low is not None and low >= version for low in found)

    def is_surely_below(self, version: Version) -> bool:
        """Whether everything in the log is older than this."""
        if self._printed:
            found = [parse_version(text) for text in self._printed]
            return all(high is not None and high < version for high in found)
        highest = self.bounds()[1]
        return highest is not None and highest <= version

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
    if version < _TOKENS_SOONEST:
        return "blocks"
    return "tokens" if version >= _TOKENS_LATEST else None
