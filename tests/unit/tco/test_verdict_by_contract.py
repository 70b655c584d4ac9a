"""The same service under three contracts of its GPUs: the verdict follows what they give back."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest

from kvtrace.audit.build import build_audit
from kvtrace.audit.record import AuditRecord
from kvtrace.cost.fleet import ContractKind
from tests.unit.audit_fakes import make_fleet, make_input

NEXT_DAY = "2027-07-01T00:00:00+00:00"
EARLIER = "2026-06-30T00:00:00+00:00"


def audited(
    kind: ContractKind, until: date | None = None, on: str | None = None, *, is_stated: bool = True
) -> AuditRecord:
    fleet = make_fleet()
    answer = fleet.contract.kind.given(
        kind, kind="given" if is_stated else "assumed", source="fleet.toml"
    )
    contract = replace(fleet.contract, kind=answer, until=until)
    return build_audit(make_input(fleet=replace(fleet, contract=contract), generated_at=on))


def test_elastic_gpus_are_given_back_and_the_pool_pays() -> None:
    verdict = audited("elastic").verdict
    assert verdict.outcome == "pays"
    assert any("paid by the hour" in reason for reason in verdict.reasons)


def test_a_contract_that_nobody_stated_caps_the_verdict() -> None:
    verdict = audited("elastic", is_stated=False).verdict
    assert verdict.outcome == "pays_only_if"
    assert any("GPU contract" in reason for reason in verdict.confidence_reasons)


def test_owned_gpus_save_the_interest_on_their_price() -> None:
    # One instance: 8 x 3.0 x 730 x 14 months at 8 % a year is $1,635 a month; the pool is $4,968.
    verdict = audited("owned").verdict
    assert verdict.outcome != "pays"
    assert any("saves $1,635 a month" in reason for reason in verdict.reasons)


@pytest.mark.parametrize("on", [None, EARLIER])
def test_reserved_gpus_save_nothing_before_their_last_day(on: str | None) -> None:
    verdict = audited("reserved", date(2027, 6, 30), on).verdict
    assert verdict.outcome == "does_not_pay"
    assert any("saves $0 a month" in reason for reason in verdict.reasons)
    assert any(
        "over, after 2027-06-30: from then on it saves $17,520 a month" in condition
        for condition in verdict.conditions
    )


def test_after_their_last_day_reserved_gpus_are_given_back() -> None:
    record = audited("reserved", date(2027, 6, 30), NEXT_DAY)
    assert record.verdict.outcome == "pays"
    assert record.economics is not None
    assert record.economics.paid_until is None
