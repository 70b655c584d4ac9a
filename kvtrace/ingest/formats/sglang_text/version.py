"""Which SGLang version wrote a log: printed, or bounded by the features of its lines."""

from __future__ import annotations

from typing import Final

from kvtrace.ingest.contract import ReadContext

Version = tuple[int, int, int]

FEATURES: Final[dict[str, tuple[Version | None, Version | None, str]]] = {
    # slug: (at least, below, what was seen); bounds lie between releases whose source was read
    "hit_rate_alone": (None, (0, 3, 0), "`cache hit rate` without `token usage` in batch lines"),
    "hit_rate_and_usage": ((0, 3, 0), (0, 4, 3), "`cache hit rate` in batch lines"),
    "no_hit_rate": ((0, 4, 3), None, "prefill lines without `cache hit rate`"),
    "unbootstrapped": ((0, 4, 6), (0, 5, 3), "`#unbootstrapped-req` in batch lines"),
    "comma_end": ((0, 5, 3), (0, 5, 10), "batch lines that end in a comma"),
    "comma_head": ((0, 5, 6), None, "`batch,` with a comma"),
    "prefill_graph": ((0, 5, 10), None, "`cuda graph` in prefill lines"),
    "pending": ((0, 5, 11), None, "`#pending-token` in batch lines"),
    "text_requests": ((0, 4, 3), None, "request lines as Python reprs"),
    "json_requests": ((0, 5, 7), None, "request lines as JSON events"),
    "cached_details": ((0, 5, 10), None, "`cached_tokens_details` in meta_info"),
    "old_time_stats": (None, (0, 5, 11), "`Req Time Stats(` lines"),
    "new_time_stats": ((0, 5, 10), None, "`ReqTimeStats(` lines"),
}
"""What a feature of the text says about the version."""


class VersionEvidence:
    """Collects printed versions and features while a file is read."""

    def __init__(self) -> None:
        self._printed: dict[str, None] = {}
        self._seen: dict[str, None] = {}

    def printed(self, text: str) -> None:
        """A line named the version."""
        self._printed[text] = None

    def saw(self, feature: str) -> None:
        """A line has this feature (a key of `FEATURES`)."""
        self._seen[feature] = None

    def fill(self, context: ReadContext) -> None:
        """Write version and reason into the context."""
        if self._printed:
            context.engine_version = ", ".join(self._printed)
            context.engine_version_reason = "printed in the log"
            if len(self._printed) > 1:
                context.note("engine_version_changed", "The log holds several SGLang versions.")
            return
        found = [FEATURES[slug] for slug in self._seen]
        lowest = max((low for low, _, _ in found if low is not None), default=None)
        highest = min((high for _, high, _ in found if high is not None), default=None)
        if lowest is None and highest is None:
            return
        why = "; ".join(words for _, _, words in found)
        if lowest is not None and highest is not None and lowest >= highest:
            context.note("engine_version_unclear", f"Lines of several SGLang versions: {why}.")
            return
        low = f">={_text(lowest)}" if lowest is not None else ""
        high = f"<{_text(highest)}" if highest is not None else ""
        context.engine_version = ",".join(part for part in (low, high) if part)
        context.engine_version_reason = f"not printed; guessed from {why}"


def _text(version: Version) -> str:
    return ".".join(str(number) for number in version)
