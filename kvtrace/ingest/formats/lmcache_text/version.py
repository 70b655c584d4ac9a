"""Which LMCache version wrote a log, bounded by the wording of its lines.

Bounds lie between releases whose source was read: 0.3.1, 0.3.7, 0.3.13, 0.4.7, 0.5.6.
"""

from __future__ import annotations

from typing import Final

from kvtrace.ingest.contract import ReadContext
from kvtrace.ingest.formats.lmcache_text.messages import Feature

Version = tuple[int, int, int]

FEATURES: Final[dict[Feature, tuple[Version | None, Version | None, str]]] = {
    # feature: (at least, below, what was seen)
    "computed_tokens": ((0, 4, 0), None, "`Inference Engine computed tokens` in look-ups"),
    "no_computed_tokens": (None, (0, 4, 0), "look-ups without `Inference Engine computed tokens`"),
    "pending": ((0, 3, 7), None, "look-ups that are pending (`None`)"),
    "negative_load": (None, (0, 4, 0), "a negative `need to load`"),
    "old_retrieved": (None, (0, 3, 7), "`Retrieved … out of total`"),
    "new_retrieved": ((0, 3, 2), None, "`required tokens (from … total tokens)`"),
    "id_in_front": ((0, 4, 0), None, "`[req_id=…]` in front of moves"),
    "no_id": (None, (0, 4, 0), "moves without a request id"),
    "mp_server": ((0, 4, 0), None, "lines of the multiprocess server"),
    "copy_stats": ((0, 5, 0), None, "`L0<->L1 stats`"),
}


class VersionEvidence:
    """Collects features while a file is read."""

    def __init__(self) -> None:
        self._seen: dict[Feature, None] = {}

    def saw(self, *features: Feature) -> None:
        """A line has these features."""
        for feature in features:
            self._seen[feature] = None

    def fill(self, context: ReadContext) -> None:
        """Write the bounds and what they are drawn from into the context."""
        if not self._seen:
            return
        found = [FEATURES[feature] for feature in self._seen]
        lowest = max((low for low, _, _ in found if low is not None), default=None)
        below = min((high for _, high, _ in found if high is not None), default=None)
        reasons = "; ".join(reason for _, _, reason in found)
        if lowest is not None and below is not None and lowest >= below:
            context.engine_version_reason = f"lines of several versions: {reasons}"
            return
        parts = [f">={_text(lowest)}"] if lowest is not None else []
        parts += [f"<{_text(below)}"] if below is not None else []
        context.engine_version = ",".join(parts) or None
        context.engine_version_reason = reasons


def _text(version: Version) -> str:
    return ".".join(str(number) for number in version)
