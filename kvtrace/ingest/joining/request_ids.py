"""What engines add to the id of a request: suffixes, and the index of one child of a call.

Read from the sources of vLLM 0.4 to 0.33: from 0.14 on the engine's id is the caller's with `-` and
8 hex digits; prompts of one completion call get `-0`, `-1`, …; n answers get `0_`, `1_`, ….
"""

from __future__ import annotations

import re
from typing import Final

_SUFFIX: Final = re.compile(r"-[0-9a-f]{8}\Z")
_ANSWER: Final = re.compile(r"[0-9]{1,4}_")
_PROMPT: Final = re.compile(r"-[0-9]{1,4}\Z")


def may_have_parts(request_id: str) -> bool:
    """Whether the functions below may find something; a quick no for most ids."""
    return "-" in request_id[-9:] or "_" in request_id[:5]


def without_suffix(request_id: str) -> str | None:
    """The id without the 8-hex suffix of newer vLLM engines; None where it has none."""
    found = _SUFFIX.search(request_id)
    return None if found is None or found.start() == 0 else request_id[: found.start()]


def call_id(request_id: str) -> str | None:
    """The id of the call that this is one child of; None where it looks like no child."""
    whole = without_suffix(request_id) or request_id
    answer = _ANSWER.match(whole)
    rest = whole if answer is None else whole[answer.end() :]
    prompt = _PROMPT.search(rest)
    rest = rest if prompt is None else rest[: prompt.start()]
    return rest if rest and rest != whole else None
