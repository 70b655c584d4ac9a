"""Who may share a cache: what the record and the finding say of the rows of `sharing/scopes`."""

from __future__ import annotations

from typing import Any

import pytest

from kvtrace.audit.build import build_audit
from kvtrace.audit.record import Finding
from kvtrace.audit.sharing.scopes import build_scopes
from kvtrace.audit.sizing.worth import ReuseValue
from kvtrace.audit.uncertainty.ranges import Range
from tests.unit.audit_fakes import make_input, query

WORTH = ReuseValue(
    gpu_s_per_token=Range.exact(0.001), usd_per_token=Range(1e-6, 2e-6, 5e-6), tokens=1000
)


def rows(**tenant: Any) -> Any:
    """Three scopes; tenants as given."""
    known = {
        "groups": 3,
        "known_requests": 90,
        "requests": 100,
        "reusable_tokens": 600,
        "lost_tokens": 200,
        "lost_ratio_tokens": 0.25,
        "reaching_requests": 12,
        "worth_usd_per_month": 60.0,
        "isolation_usd_per_month": 20.0,
    }
    unknown = dict.fromkeys(known, None) | {"known_requests": 0, "requests": 100}
    whole = known | {"groups": 1, "lost_tokens": 0, "isolation_usd_per_month": 0.0}
    return query(
        [
            {"scope": "global", **whole},
            {"scope": "tenant", **known, **tenant},
            {"scope": "user", **unknown},
        ]
    )


def finding_of(scopes: Any) -> Finding | None:
    inputs = make_input()
    queries = {**inputs.queries, "sharing/scopes": scopes}
    record = build_audit(make_input(queries=queries, reuse_value=WORTH))
    return next((f for f in record.findings if f.id == "shared_cache_leaks_timing"), None)


def test_isolation_has_the_interval_of_a_token_s_worth() -> None:
    # $20 at $2e-6 a token; at $1e-6 half of it, at $5e-6 two and a half times.
    [whole, tenant, _] = build_scopes({"sharing/scopes": rows()}, WORTH)
    assert tenant.isolation is not None
    assert tenant.isolation.low == pytest.approx(10.0)
    assert tenant.isolation.value == 20.0
    assert tenant.isolation.high == pytest.approx(50.0)
    assert whole.isolation is None


def test_a_scope_that_nobody_names_is_unknown_and_says_what_would_tell() -> None:
    [_, _, user] = build_scopes({"sharing/scopes": rows()}, WORTH)
    assert user.lost_tokens is None
    assert user.isolation is None
    assert user.unknown_reason is not None
    assert user.flag is not None
    assert "--mapping" in user.flag


def test_without_a_price_reuse_is_known_and_money_is_not() -> None:
    [_, tenant, _] = build_scopes({"sharing/scopes": rows()}, None)
    assert tenant.lost_tokens == 200
    assert tenant.isolation is None


def test_tenants_on_one_cache_are_a_finding_with_the_price_of_a_salt() -> None:
    found = finding_of(rows())
    assert found is not None
    assert found.severity == "warning"
    assert "200 reusable tokens (25.0 % of theirs), in 12 requests" in found.message
    assert "this reuse, $20 of GPU time a month" in found.message
    assert "cache_salt" in found.action
    assert "CVE-2025-46570" in found.threshold.source
    assert found.table == "sharing/scopes"
    assert {q.id: q.value for q in found.evidence}["cross_tenant_reusable_tokens"] == 200


def test_tenants_that_share_nothing_are_told_that_a_salt_is_free() -> None:
    found = finding_of(rows(lost_tokens=0, isolation_usd_per_month=0.0))
    assert found is not None
    assert found.severity == "info"
    assert "costs no reuse" in found.message


@pytest.mark.parametrize("groups", [None, 1])
def test_one_tenant_or_an_unknown_one_is_no_finding(groups: int | None) -> None:
    assert finding_of(rows(groups=groups)) is None


def test_users_on_one_cache_are_named_as_users() -> None:
    [whole, tenant, user] = rows().frame.to_dicts()
    swapped = [whole, {**user, "scope": "tenant"}, {**tenant, "scope": "user"}]
    found = finding_of(query(swapped))
    assert found is not None
    assert found.message.startswith("3 users (named by 90 of 100 requests)")
    assert found.evidence[0].unit == "users"
