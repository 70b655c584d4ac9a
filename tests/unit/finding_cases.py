"""From small tables or small replays to findings, by the real code all the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kvtrace.audit.build import build_audit
from kvtrace.audit.inputs import AuditInput
from kvtrace.audit.record import Finding
from kvtrace.duckdb_session import Session
from kvtrace.query.catalog import load_catalog
from kvtrace.replay.engine import simulate
from kvtrace.replay.scenario import Scenario
from kvtrace.schema.arrays import RequestTrace
from tests.queries.cases import fill
from tests.unit.audit_fakes import make_input, reuse_queries

CATALOG = load_catalog()
MS = 1_000_000


def asked(names: Sequence[str], spec: dict[str, Any]) -> dict[str, Any]:
    """The named queries over a dataset of these rows."""
    with Session(threads=1) as session:
        fill(session, spec)
        return {name: CATALOG.run(session, name, spec.get("params")) for name in names}


def found_by(inputs: AuditInput, ident: str) -> Finding | None:
    """The finding of that id in the audit."""
    return next((one for one in build_audit(inputs).findings if one.id == ident), None)


def found_in_rows(ident: str, *names: str, **spec: Any) -> Finding | None:
    """The finding of that id where the named queries see these rows."""
    return found_by(make_input(queries=reuse_queries() | asked(names, spec)), ident)


def replayed(
    trace: RequestTrace, *scenarios: Scenario, warmup: int = 0, **changes: Any
) -> AuditInput:
    """The audit's input with these replays of the trace."""
    results = tuple(simulate(trace, one, warmup_requests=warmup) for one in scenarios)
    scored = trace if not warmup else window_of(trace, warmup)
    return make_input(replays=results, trace=scored, **changes)


def window_of(trace: RequestTrace, first: int) -> RequestTrace:
    """The requests from `first` on."""
    at = int(trace.run_offset[first])
    return replace(
        trace,
        request_key=trace.request_key[first:],
        arrived_at_ns=trace.arrived_at_ns[first:],
        prompt_tokens=trace.prompt_tokens[first:],
        output_tokens=trace.output_tokens[first:],
        session=trace.session[first:],
        run_offset=trace.run_offset[first:] - at,
        run_start=trace.run_start[at:],
        run_blocks=trace.run_blocks[at:],
    )


def value(finding: Finding | None, ident: str) -> Any:
    """A piece of its evidence."""
    assert finding is not None
    return next(one.value for one in finding.evidence if one.id == ident)
