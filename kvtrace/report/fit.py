"""How far the model is off: predicted against observed, by prompt length."""

from __future__ import annotations

from typing import Final

from kvtrace.audit.fit.record import Fit
from kvtrace.audit.record import AuditRecord
from kvtrace.report import charts
from kvtrace.report.axes import Axis, plot_text
from kvtrace.report.charts import Series
from kvtrace.report.figures.common import MOVE, PREFILL, show
from kvtrace.report.format import format_value, safe_text
from kvtrace.report.questions.part import Part, absent_part
from kvtrace.report.texts import Texts
from kvtrace.report.view import ChartView, made_table, table_view

_COLUMNS: Final = (
    ("prompt_bucket", "tokens"),
    ("requests", "requests"),
    ("predicted_p50_s", "s"),
    ("observed_p50_s", "s"),
    ("predicted_p90_s", "s"),
    ("observed_p90_s", "s"),
    ("predicted_over_observed", "times"),
)


def fit_parts(record: AuditRecord, texts: Texts) -> tuple[Part, ...]:
    """TTFT and Prefill; one line with the flags where nothing was measured or replayed."""
    if not record.fits:
        return (absent_part("fit_ttft", texts, missing=texts("q.fit.not_replayed")),)
    return tuple(_part(fit, texts) for fit in record.fits)


def _part(fit: Fit, texts: Texts) -> Part:
    id = f"fit_{fit.what}"
    if not fit.buckets:
        missing = texts("q.fit.other_load") if fit.says == "other_load" else None
        return absent_part(id, texts, missing=missing)
    return Part(
        id,
        texts(f"q.{id}.title"),
        sentences=(
            texts(
                f"q.fit.{fit.says}",
                what=texts(f"part.{fit.what}"),
                option=safe_text(fit.title),
                ratio=show(fit.ratio_p50, "times", texts),
                low=show(fit.ratio_p10, "times", texts),
                high=show(fit.ratio_p90, "times", texts),
                requests=format_value(fit.requests, ""),
                whole=format_value(fit.of_requests, "requests"),
                tolerance=format_value(fit.tolerance, "ratio"),
                least=show(min(one.ratio_p50 for one in fit.buckets), "times", texts),
                most=show(max(one.ratio_p50 for one in fit.buckets), "times", texts),
            ),
            texts("q.fit.note"),
        ),
        charts=(_chart(fit, texts),),
    )


def _chart(fit: Fit, texts: Texts) -> ChartView:
    table = made_table(
        f"fit/{fit.what}",
        texts(f"q.fit_{fit.what}.title"),
        [(name, unit, texts(f"column.{name}")) for name, unit in _COLUMNS],
        [
            [
                one.prompt_bucket,
                one.requests,
                one.predicted_p50_s,
                one.observed_p50_s,
                one.predicted_p90_s,
                one.observed_p90_s,
                one.ratio_p50,
            ]
            for one in fit.buckets
        ],
    )
    names = [format_value(one.prompt_bucket, "") or "" for one in fit.buckets]
    predicted = [one.predicted_p50_s for one in fit.buckets]
    observed = [one.observed_p50_s for one in fit.buckets]
    worst = max(fit.buckets, key=lambda one: abs(one.ratio_p50 - 1.0))
    positive = [value for value in (*predicted, *observed) if value > 0]
    is_log = bool(positive) and max(positive) > 100 * min(positive)
    return ChartView(
        id=f"fit_{fit.what}",
        title=texts("chart.fit.title", what=texts(f"part.{fit.what}")),
        origin="modelled",
        origin_too="measured",
        summary=texts(
            "chart.fit.summary",
            bucket=show(worst.prompt_bucket, "tokens", texts),
            predicted=show(worst.predicted_p50_s, "s", texts),
            observed=show(worst.observed_p50_s, "s", texts),
            ratio=show(worst.ratio_p50, "times", texts),
        ),
        figure=charts.lines(
            [
                _series(texts("chart.fit.predicted"), names, predicted, MOVE, 0, texts),
                _series(texts("chart.fit.observed"), names, observed, PREFILL, 1, texts),
            ],
            x=Axis(texts("axis.bucket"), "category"),
            y=Axis(texts("axis.seconds_p50"), "seconds", log=is_log),
        ),
        table=table_view(table, origin="modelled"),
    )


def _series(
    name: str, buckets: list[str], values: list[float], colour: str, style: int, texts: Texts
) -> Series:
    hover = [
        f"{plot_text(name)} P50: {show(value, 's', texts)}<br>≥ {bucket}"
        for bucket, value in zip(buckets, values, strict=True)
    ]
    return Series(name, buckets, values, colour, style, hover)
