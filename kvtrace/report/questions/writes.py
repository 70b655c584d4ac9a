"""What a cache that stores everything writes, against what is read again."""

from __future__ import annotations

from typing import Final

from kvtrace.audit.record import AuditRecord
from kvtrace.report import charts
from kvtrace.report.axes import Axis, plot_text
from kvtrace.report.charts import Series
from kvtrace.report.figures.common import MOVE, PREFILL, show
from kvtrace.report.questions.facts import Facts, facts
from kvtrace.report.questions.part import Part, absent_part, chart_of, tables
from kvtrace.report.texts import Texts
from kvtrace.report.view import ChartView, table_view

_FOLDED: Final = ("writes/summary", "writes/endurance")


def writes(record: AuditRecord, texts: Texts) -> Part:
    """Written against read, what is never read again, and what a second-use rule saves."""
    summary = facts(record, "writes/summary").known("written_blocks", "read_blocks").first()
    if summary is None:
        return absent_part("writes", texts)
    unit = "bytes" if summary["written_bytes"] is not None else "tokens"
    sentences = [
        texts(
            "q.writes.summary",
            written=summary.show(f"written_{unit}", texts),
            read=summary.show(f"read_{unit}", texts),
            reads=show(summary["reads_per_written_block"], "times", texts),
            never=summary.show("never_read_blocks", texts),
            blocks=summary.show("written_blocks", texts),
            never_ratio=summary.show("never_read_ratio_blocks", texts),
        )
    ]
    admission = facts(record, "writes/second_use")
    second = admission.where(admission="second_use").first()
    if second is not None:
        shown = {name: second.show(name, texts) for name in second.table.columns}
        sentences.append(texts("q.writes.second_use", **shown))
    sentences += _endurance(record, texts)
    chart = _admission(admission, unit, texts)
    return Part(
        "writes",
        texts("q.writes.title"),
        sentences=tuple(sentences),
        charts=(chart,) if chart else (),
        folded=tables(record, _FOLDED, "computed"),
    )


def _endurance(record: AuditRecord, texts: Texts) -> list[str]:
    rows = facts(record, "writes/endurance")
    row = rows.where(cache="unlimited").first()
    second = rows.where(cache="unlimited_second_use").first()
    if row is None or second is None or row["drive_bytes_per_day"] is None:
        return []
    day = texts(
        "q.writes.endurance",
        day=row.show("drive_bytes_per_day", texts),
        second=second.show("drive_bytes_per_day", texts),
        span=row.show("span_s", texts),
    )
    if row["life_years"] is None:
        return [day, texts("q.writes.endurance_how")]
    years = texts(
        "q.writes.life",
        years=row.show("life_years", texts),
        second=second.show("life_years", texts),
    )
    return [day, years]


def _admission(rows: Facts, unit: str, texts: Texts) -> ChartView | None:
    """Written and read, by the use at which a block is stored."""
    table = rows.table
    read = "read_bytes" if unit == "bytes" else "hit_tokens"
    rows = rows.known(f"written_{unit}", read)
    if table is None or not rows:
        return None
    names = [plot_text(texts(f"chart.writes.{row.text('admission')}")) for row in rows]
    series = []
    for style, (key, column, colour) in enumerate(
        (("written", f"written_{unit}", MOVE), ("read", read, PREFILL))
    ):
        name = texts(f"chart.writes.{key}")
        hover = [row.show(column, texts) for row in rows]
        values = [row.number(column) for row in rows]
        series.append(Series(name, names, values, colour, style, hover, labels=True))
    axis = Axis(texts(f"axis.writes_{unit}"), "traffic" if unit == "bytes" else "count")
    return chart_of(
        "writes",
        texts,
        charts.columns(series, x=Axis(texts("axis.admission"), "category"), y=axis, height=300),
        table_view(table, origin="computed"),
        summary=texts("chart.writes.summary"),
    )
