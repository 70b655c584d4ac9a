"""A constant text in front of vLLM's prefix (`VLLM_LOGGING_PREFIX`), learned from the lines.

The text may be anything, so it is believed only if it is the same, to the letter, in most of the
lines that follow its first sight, and if none of them has vLLM's prefix without it. A text with a
quote in it is never believed: it would open somebody's words.
"""

from __future__ import annotations

import re
from typing import Final

from kvtrace.ingest.files.layers import PeeledLine
from kvtrace.ingest.textlog.prefixes import NONE, VLLM, Prefix, parse_prefix

WINDOW_LINES: Final = 64
"""Lines held back to judge a text by."""
_MAX_WINDOWS: Final = 3
_MIN_LINES: Final = 3
_MAX_LINES: Final = 100_000
"""Lines without a known prefix after which nothing more is expected."""
_TEXT = re.compile(r"[^'\"`\\{}\x00-\x1f]{1,64}")
_LOOK_CHARS: Final = 240


class PrefixLearner:
    """Holds lines back while a text is judged; afterwards takes it off."""

    def __init__(self) -> None:
        self._known: str | None = None
        self._held: list[tuple[PeeledLine, Prefix]] = []
        self._windows = 0
        self._lines = 0

    @property
    def is_holding(self) -> bool:
        """Whether lines wait for the judgement: the next ones must wait behind them."""
        return bool(self._held)

    @property
    def is_full(self) -> bool:
        """Whether enough lines wait to judge."""
        return len(self._held) >= WINDOW_LINES

    def peel(self, line: PeeledLine) -> Prefix | None:
        """The prefix behind the learned text, which is then taken off; None if it is not there."""
        if self._known is None or not line.text.startswith(self._known):
            return None
        behind = line.text[len(self._known) :]
        found = parse_prefix(behind, has_instant=line.instant is not None)
        if found.kind != "vllm":
            return None
        line.text = behind
        return found

    def holds(self, line: PeeledLine, prefix: Prefix) -> bool:
        """Whether the line has to wait; `prefix` is the one that it has as it stands."""
        if not self._held:
            if prefix is not NONE or self._known is not None or self._windows >= _MAX_WINDOWS:
                return False
            self._lines += 1
            if self._lines > _MAX_LINES or _text_before(line.text) is None:
                return False
        self._held.append((line, prefix))
        return True

    def settle(self) -> list[tuple[PeeledLine, Prefix]]:
        """Judge the text; the lines that waited, in order, with their prefixes."""
        held, self._held = self._held, []
        if not held:
            return held
        self._windows += 1
        texts = [_text_before(line.text) if prefix is NONE else None for line, prefix in held]
        votes = {text: texts.count(text) for text in texts if text is not None}
        best = max(votes, key=lambda text: votes[text], default=None)
        if best is None or any(prefix.kind == "vllm" for _, prefix in held):
            return held
        if votes[best] < _MIN_LINES or votes[best] * 2 <= len(held):
            return held
        self._known = best
        return [(line, self.peel(line) or prefix) for line, prefix in held]


def _text_before(text: str) -> str | None:
    """What stands before the first prefix of vLLM in the line, if it can be a constant."""
    match = VLLM.search(text[:_LOOK_CHARS])
    before = "" if match is None else text[: match.start()]
    return before if _TEXT.fullmatch(before) else None
