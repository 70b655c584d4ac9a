"""How long requests take and how sure that is, what the tail is made of, and whether hits help."""

from __future__ import annotations

from typing import Final

from kvtrace.audit.record import AuditRecord
from kvtrace.report import charts
from kvtrace.report.axes import Axis, plot_text
from kvtrace.report.charts import Series
from kvtrace.report.figures.common import MOVE, PALETTE, PREFILL, QUEUE, bucket_label
from kvtrace.report.format import format_in, pick_scale
from kvtrace.report.questions.facts import Facts, Row, facts, seconds
from kvtrace.report.questions.part import Part, absent_part, chart_of, choose, tables
from kvtrace.report.texts import Texts
from kvtrace.report.view import ChartView, TableView, table_view

_QUANTILES: Final = ("p50", "p90", "p95", "p99")
_TTFT: Final = ("ttft", "ttft_client")
_METRICS: Final = ("metric", "requests", *(f"{name}_ms" for name in _QUANTILES))
_SMALL_HEIGHT: Final = 340
_EXCESS: Final = (
    ("excess_queue_ms", "queue", QUEUE),
    ("excess_prefill_ms", "prefill", PREFILL),
    ("excess_other_ms", "other", MOVE),
)


def main_traffic(rows: Facts) -> Facts:
    """Production traffic; where there is none, the benchmark."""
    production = rows.where(traffic="production")
    return production or rows.where(traffic="benchmark")


def quantiles(record: AuditRecord, texts: Texts) -> Part:
    """TTFT with its intervals, by prompt length, KV bytes and cached share."""
    every = main_traffic(facts(record, "latency/quantiles")).known("p50_ms")
    if not every:
        return absent_part("quantiles", texts)
    sentences = [
        texts(
            "q.quantiles.metric",
            metric=metric_name(row.text("metric"), texts),
            top=top.upper(),
            requests=row.show("requests", texts),
            **in_one_unit(row, top, texts),
        )
        for row in every
        if (top := _highest(row)) is not None and row.text("metric") in (*_TTFT, "tpot", "e2e")
    ]
    cuts = (
        _cut(record, "prompt", texts),
        _cut(record, "kv_bytes", texts),
        _cut(record, "cached_share", texts),
    )
    return Part(
        "quantiles",
        texts("q.quantiles.title"),
        sentences=tuple(sentences),
        small=tuple(view for view in cuts if view is not None),
        short=(_metrics(every, texts),),
        folded=tables(record, ("latency/quantiles",), "measured"),
    )


def in_one_unit(row: Row, top: str, texts: Texts) -> dict[str, str]:
    """The median, the highest quantile and their intervals, in the unit of the largest."""
    names = [f"{name}{end}_ms" for name in ("p50", top) for end in ("", "_low", "_high")]
    scale = pick_scale("ms", [row[name] for name in names])
    shown = [
        row.show(name, texts) if scale is None else format_in(row[name], scale) or texts("unknown")
        for name in names
    ]
    p50, p50_low, p50_high, value, low, high = shown
    return {
        "p50": p50,
        "p50_range": p50_low if p50_low == p50_high else f"{p50_low} – {p50_high}",
        "value": value,
        "range": low if low == high else f"{low} – {high}",
    }


def _metrics(rows: Facts, texts: Texts) -> TableView:
    """Every metric with its quantiles; the intervals stand in the folded table."""
    table = rows.rows[0].table
    title = texts("q.quantiles.table")
    return table_view(choose(table, f"{table.id} in short", _METRICS, rows.rows, title=title))


def metric_name(code: str, texts: Texts) -> str:
    """A latency in words."""
    key = f"latency_metric.{code}"
    return texts(key) if texts.has(key) else code


def _highest(row: Row) -> str | None:
    """The highest quantile that is not withheld."""
    known = [name for name in _QUANTILES if row[f"{name}_ms"] is not None]
    return known[-1] if known else None


def _span(row: Row, name: str, texts: Texts) -> str:
    low, high = row.show(f"{name}_low_ms", texts), row.show(f"{name}_high_ms", texts)
    return low if low == high else f"{low} – {high}"


def _cut(record: AuditRecord, key: str, texts: Texts) -> ChartView | None:
    """Quantiles of TTFT with their intervals, by one property of the request."""
    rows = main_traffic(facts(record, f"latency/quantiles_by_{key}"))
    table = rows.table
    metric = next((name for name in _TTFT if rows.where(metric=name).known("p50_ms")), None)
    if table is None or metric is None:
        return None
    rows = rows.where(metric=metric).known("p50_ms")
    names: list[float | str] = [_place(row, key, texts) for row in rows]
    series = [_quantile(rows, names, name, style, texts) for style, name in enumerate(_QUANTILES)]
    slow = rows.largest("p50_ms")
    if slow is None:
        return None
    return chart_of(
        f"quantiles_{key}",
        texts,
        charts.lines(
            [one for one in series if any(v is not None for v in one.y)],
            x=Axis(texts(f"axis.quantiles_{key}"), "category"),
            y=Axis(metric_name(metric, texts), "seconds", log=True),
            height=_SMALL_HEIGHT,
        ),
        table_view(table),
        summary=texts(
            "chart.quantiles.summary",
            place=_place(slow, key, texts),
            value=slow.show("p50_ms", texts),
            range=_span(slow, "p50", texts),
            requests=slow.show("requests", texts),
        ),
        origin="measured",
    )


def _place(row: Row, key: str, texts: Texts) -> str:
    if key == "prompt":
        return bucket_label(row["prompt_bucket"])
    if key == "kv_bytes":
        return plot_text(row.show("kv_bytes_bucket", texts))
    if row["cached_share_to"] is None:
        return texts("chart.quantiles.unknown_share")
    if row["cached_share_to"] == 0:
        return texts("chart.quantiles.no_share")
    return f"≤ {row.show('cached_share_to', texts)}"


def _quantile(rows: Facts, names: list[float | str], name: str, style: int, texts: Texts) -> Series:
    """A quantile of 0 has no place on a logarithmic axis."""
    label = name.upper()
    values = [seconds(row, f"{name}_ms") or None for row in rows]
    hover = [
        f"{label}: {row.show(f'{name}_ms', texts)} ({_span(row, name, texts)})<br>"
        f"{row.show('requests', texts)}"
        for row in rows
    ]
    return Series(
        label,
        names,
        values,
        PALETTE[style],
        style,
        hover,
        low=[seconds(row, f"{name}_low_ms") or None for row in rows],
        high=[seconds(row, f"{name}_high_ms") for row in rows],
    )


def tail(record: AuditRecord, texts: Texts) -> Part:
    """What the slowest first tokens take longer, and what goes along with it."""
    split = main_traffic(facts(record, "latency/tail_split")).known("excess_ms").first()
    causes = main_traffic(facts(record, "latency/tail_causes")).known("auc")
    if split is None and not causes:
        return absent_part("tail", texts)
    sentences = []
    if split is not None:
        shown = {name: split.show(name, texts) for name in split.table.columns}
        key = "q.tail.split" if split["queue_share"] is not None else "q.tail.excess"
        sentences.append(texts(key, **shown))
    else:
        sentences.append(texts("q.tail.no_split"))
    top = causes.largest("auc")
    if top is not None:
        shown = {name: top.show(name, texts) for name in top.table.columns}
        shown["cause"] = cause_name(top.text("cause"), texts)
        sentences.append(texts("q.tail.cause", **shown))
    drawn = (_split(split, texts), _causes(causes, texts))
    return Part(
        "tail",
        texts("q.tail.title"),
        sentences=tuple(sentences),
        charts=tuple(view for view in drawn if view is not None),
    )


def cause_name(code: str, texts: Texts) -> str:
    """What may go along with a slow first token, in words."""
    key = f"tail_cause.{code}"
    return texts(key) if texts.has(key) else code


def _split(row: Row | None, texts: Texts) -> ChartView | None:
    if row is None:
        return None
    known = [part for part in _EXCESS if row.number(part[0]) is not None]
    only = known[0][1] if len(known) == 1 else "row"
    series = []
    for style, (column, key, colour) in enumerate(known):
        name = texts(f"chart.tail_split.{key}")
        hover = [f"{plot_text(name)}: {row.show(column, texts)}"]
        place = [plot_text(texts(f"chart.tail_split.{only}"))]
        series.append(Series(name, [seconds(row, column) or 0.0], place, colour, style, hover))
    if not series:
        return None
    return chart_of(
        "tail_split",
        texts,
        charts.bars(series, x=Axis(texts("axis.excess"), "seconds")),
        table_view(row.table),
        summary=texts(
            "chart.tail_split.summary",
            tail=row.show("tail_ttft_mean_ms", texts),
            rest=row.show("rest_ttft_mean_ms", texts),
        ),
        origin="measured",
    )


def _causes(rows: Facts, texts: Texts) -> ChartView | None:
    if rows.table is None or not rows:
        return None
    ordered = sorted(rows, key=lambda row: -(row.number("auc") or 0.0))
    names = [plot_text(cause_name(row.text("cause"), texts), width=24) for row in ordered]
    hover = [
        f"{name}: {row.show('auc', texts)} "
        f"({row.show('auc_low', texts)} – {row.show('auc_high', texts)})"
        for name, row in zip(names, ordered, strict=True)
    ]
    series = Series(
        texts("axis.auc"),
        [row.number("auc") or 0.0 for row in ordered],
        names,
        PALETTE[0],
        0,
        hover,
        low=[row.number("auc_low") for row in ordered],
        high=[row.number("auc_high") for row in ordered],
    )
    axis = Axis(texts("axis.auc"), "ratio", bounds=(0.0, 1.0))
    return chart_of(
        "tail_causes",
        texts,
        charts.dots([series], x=axis),
        table_view(rows.table),
        summary=texts("chart.tail_causes.summary"),
        origin="measured",
    )


def hits_help(record: AuditRecord, texts: Texts) -> Part:
    """How much sooner the first token comes for a cached token, at equal length and load."""
    every = main_traffic(facts(record, "latency/ttft_by_cached_share"))
    found = {name: every.where(outcome=name) for name in _OUTCOMES}
    wholes = {name: rows.where(prompt_bucket=None).first() for name, rows in found.items()}
    told = {
        name: row
        for name, row in wholes.items()
        if row is not None and row["saved_ms_per_1000_cached"] is not None
    }
    first = next(iter(told.values()), None)
    if every.table is None or first is None:
        return absent_part("hits_help", texts)
    held = "held" if first["is_load_held"] is True else "not_held"
    drawn = (_saved(found[name], name, texts) for name in told)
    return Part(
        "hits_help",
        texts("q.hits_help.title"),
        sentences=(
            *(_with_hits(row, name, texts) for name, row in told.items()),
            texts(f"q.hits_help.{held}"),
        ),
        small=tuple(view for view in drawn if view is not None),
        folded=(table_view(every.table),),
    )


_OUTCOMES: Final = ("ttft", "after_queue")


def _with_hits(row: Row, outcome: str, texts: Texts) -> str:
    shown = {name: row.show(name, texts) for name in row.table.columns}
    shown["outcome"] = texts(f"outcome.{outcome}")
    verdict = row.text("with_hits").replace(" ", "_")
    return texts(f"q.hits_help.{verdict}", **shown)


def _saved(rows: Facts, outcome: str, texts: Texts) -> ChartView | None:
    table = rows.table
    rows = rows.known("prompt_bucket", "saved_ms_per_1000_cached")
    if table is None or not rows:
        return None
    value = "saved_ms_per_1000_cached"
    hover = [
        f"{row.show(value, texts)} ({row.show('saved_low_ms', texts)} – "
        f"{row.show('saved_high_ms', texts)})<br>{row.show('requests', texts)}"
        for row in rows
    ]
    series = Series(
        texts("axis.saved"),
        [bucket_label(row["prompt_bucket"]) for row in rows],
        [seconds(row, value) for row in rows],
        PALETTE[2],
        0,
        hover,
        low=[seconds(row, "saved_low_ms") for row in rows],
        high=[seconds(row, "saved_high_ms") for row in rows],
    )
    return chart_of(
        f"saved_{outcome}",
        texts,
        charts.lines(
            [series],
            x=Axis(texts("axis.bucket"), "category"),
            y=Axis(texts("axis.saved"), "seconds"),
            height=320,
        ),
        table_view(choose(table, f"{table.id} {outcome}", table.columns, rows.rows)),
        summary=texts(f"chart.saved_{outcome}.summary"),
        origin="measured",
    )
