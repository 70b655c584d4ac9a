"""Sharing scopes as the record holds them."""

from __future__ import annotations

import msgspec

from kvtrace.audit.quantity import Quantity


class SharingScope(msgspec.Struct, kw_only=True):
    """One scope within which requests may share a cache; unlimited caches (idealised)."""

    scope: str
    """global | tenant | user | session."""
    groups: int | None
    """Groups that would have a cache each; null: no request names one."""
    known_requests: int
    requests: int
    reusable_tokens: int | None
    """Held before by a request of the same group; of the requests whose group is known."""
    lost_tokens: int | None
    """Of what anybody held before, reusable only of another group's request."""
    lost_ratio_tokens: float | None
    """lost_tokens / what the same requests could reuse of anybody's."""
    reaching_requests: int | None
    """Requests that begin with tokens which only another group held before."""
    worth: Quantity | None = None
    """GPU time that the reuse within the scope frees, USD a month, by the second."""
    isolation: Quantity | None = None
    """What isolating the groups gives up of it, USD a month, by the second."""
    unknown_reason: str | None = None
    """Why the figures are null."""
    flag: str | None = None
    """What would supply the group."""
