"""A calibration as lines for a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from kvtrace.cost.calibration import Calibration, ErrorOfMetric, Fitted, Residual, identified
from kvtrace.report.text.table import text_table

_PARAMETERS = ("parameter", "constant", "model", "fitted", "90 % interval", "unit")
_ERRORS = (
    "metric", "rows", "mean before", "after", "P99 before", "after", "median error before", "after",
)  # fmt: skip
_RESIDUALS = ("metric", "bucket", "rows", "median", "P90")


def summary_lines(
    calibrations: Sequence[Calibration],
    provenance: Mapping[str, str | int | None],
    path: Path | None,
) -> list[str]:
    """Parameters, refusals, errors on the later half, residuals, notes."""
    served = ", ".join(f"{key} {value}" for key, value in provenance.items() if value is not None)
    lines = [f"Calibration: {served}"]
    for one in calibrations:
        lines += ["", *_lines(one)]
    if path is not None:
        lines += ["", _written(calibrations, path)]
    return lines


def _written(calibrations: Sequence[Calibration], path: Path) -> str:
    if not identified(calibrations):
        return f"Profile written to {path}; no constant was fitted: it predicts as without it"
    return f"Profile written to {path}; use it with `--hardware {path}`"


def _lines(calibration: Calibration) -> list[str]:
    lines = [
        f"{calibration.subject.capitalize()}: {calibration.fitted_rows:,} of the earlier half "
        f"fitted, {calibration.held_rows:,} of the later half held against the fit"
    ]
    known = [one for one in calibration.parameters if one.refusal is None]
    if known:
        lines.append(text_table(_PARAMETERS, [_parameter(one) for one in known]))
    lines += [
        f"  {one.parameter.name}: not identified: {one.refusal}"
        for one in calibration.parameters
        if one.refusal is not None
    ]
    if calibration.errors:
        lines += ["", "Predicted against observed, later half"]
        lines.append(text_table(_ERRORS, [_error(one) for one in calibration.errors]))
        lines += ["", "Residuals after the fit, later half"]
        lines.append(text_table(_RESIDUALS, [_residual(one) for one in calibration.residuals]))
    lines += [f"  note: {note}" for note in calibration.notes]
    return lines


def _parameter(one: Fitted) -> list[object]:
    constant = one.parameter.constant
    interval = "" if one.low is None or one.high is None else f"{one.low:.4g} to {one.high:.4g}"
    return [
        one.parameter.name,
        constant.id,
        f"{constant.value:.4g}",
        f"{one.value:.4g}",
        interval,
        constant.unit,
    ]


def _error(one: ErrorOfMetric) -> list[object]:
    return [
        one.metric,
        one.rows,
        _signed(one.mean_before),
        _signed(one.mean_after),
        _signed(one.p99_before),
        _signed(one.p99_after),
        f"{100 * one.median_before:.1f} %",
        f"{100 * one.median_after:.1f} %",
    ]


def _residual(one: Residual) -> list[object]:
    bucket = f"{one.by} {one.least:,.0f} to {2 * one.least:,.0f}"
    return [one.metric, bucket, one.rows, _signed(one.median), f"{100 * one.p90:.1f} %"]


def _signed(value: float | None) -> str:
    return "" if value is None else f"{100 * value:+.1f} %"
