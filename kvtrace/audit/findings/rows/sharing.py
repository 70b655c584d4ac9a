"""Findings on who shares a cache."""

from __future__ import annotations

from typing import Final

from kvtrace.audit.findings import limits as limit
from kvtrace.audit.findings.check import Check
from kvtrace.audit.findings.sharing import shared_cache_leaks_timing
from kvtrace.audit.sharing.scopes import SCOPES_QUERY

CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="shared_cache_leaks_timing",
        title="Tenants can probe each other's prefixes by TTFT",
        question="Do several tenants share caches that may serve one the prefix of another?",
        threshold=limit.TENANTS_ON_ONE_CACHE,
        look=shared_cache_leaks_timing,
        action="Decide who may share. Where tenants may not, let the gateway (not the client) set "
        "a secret salt for each tenant (vLLM: `cache_salt` of every request, V1 engine, "
        "docs/design/prefix_caching.md), and check that the keys of the pool carry it, too; "
        "prefixes that are public by design may share one salt",
        action_kind="other",
        production_check="Send one prompt of more than a block twice as tenant A, then once as "
        "tenant B: with salts B is as slow as A was at first (cached_tokens 0 in its usage), and "
        "A's second is not",
        table=SCOPES_QUERY,
    ),
)
