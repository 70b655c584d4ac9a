"""Findings on who shares a cache: what one tenant can learn of another by TTFT."""

from __future__ import annotations

from kvtrace.audit.findings.check import Evidence, Hit, known_only, measured
from kvtrace.audit.findings.limits import TENANTS_ON_ONE_CACHE
from kvtrace.audit.quantity import Quantity
from kvtrace.audit.sharing.record import SharingScope
from kvtrace.audit.sharing.scopes import SCOPES_QUERY
from kvtrace.audit.words import percent


def shared_cache_leaks_timing(evidence: Evidence) -> Hit | None:
    """Two tenants (or users) and more on caches that do not tell them apart."""
    named = (one for one in evidence.sharing if one.scope in ("tenant", "user") and one.groups)
    scope = next(named, None)
    if scope is None or (scope.groups or 0) < TENANTS_ON_ONE_CACHE.value:
        return None
    lost = scope.lost_tokens or 0
    return Hit(
        severity="warning" if lost else "info",
        confidence="medium",
        message=_message(scope, lost),
        evidence=_evidence(scope),
    )


def _message(scope: SharingScope, lost: int) -> str:
    who = scope.scope
    known = f"{scope.known_requests:,} of {scope.requests:,} requests"
    if not lost:
        return (
            f"{scope.groups:,} {who}s (named by {known}) share no token in this trace, so that a "
            "salt for each costs no reuse; without one, any of them can guess a prefix of another "
            "and read from its TTFT whether it is cached"
        )
    return (
        f"{scope.groups:,} {who}s (named by {known}): {lost:,} reusable tokens "
        f"({percent(scope.lost_ratio_tokens or 0.0)} of theirs), in "
        f"{scope.reaching_requests or 0:,} requests, were held only by another {who}'s requests "
        f"before. Where caches do not tell {who}s apart these hits are faster, which shows one "
        f"{who} by its TTFT what another has sent. A salt for each {who} gives up this reuse"
        f"{_price(scope.isolation)}"
    )


def _price(isolation: Quantity | None) -> str:
    if isolation is None or not isinstance(isolation.value, int | float):
        return "; its price is unknown: no price of a prefill, or a window too short for a month"
    return f", ${isolation.value:,.0f} of GPU time a month (modelled, unlimited cache)"


def _evidence(scope: SharingScope) -> tuple[Quantity, ...]:
    who = scope.scope
    told = known_only(
        measured(f"{who}s", scope.groups, f"{who}s", SCOPES_QUERY),
        measured(f"cross_{who}_reusable_tokens", scope.lost_tokens, "tokens", SCOPES_QUERY),
        measured(f"cross_{who}_requests", scope.reaching_requests, "requests", SCOPES_QUERY),
    )
    return told if scope.isolation is None else (*told, scope.isolation)
