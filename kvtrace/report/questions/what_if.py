"""What is not in the trace: generated tokens kept, and blocks of another size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvtrace.audit.record import AuditRecord
from kvtrace.report import charts
from kvtrace.report.axes import Axis, plot_text
from kvtrace.report.charts import Series
from kvtrace.report.figures.common import PALETTE
from kvtrace.report.questions.facts import Facts, Row, facts
from kvtrace.report.questions.part import Part, absent_part, chart_of, tables
from kvtrace.report.texts import Texts
from kvtrace.report.view import ChartView, table_view

_LOW, _HIGH = "reusable_ratio_tokens_low", "reusable_ratio_tokens_high"
_FOLDED: Final = ("generated/kept_outputs",)


def generated(record: AuditRecord, texts: Texts) -> Part:
    """What would be reusable were the blocks of generated tokens kept."""
    kept = facts(record, "generated/kept_outputs").known("reusable_ratio_tokens")
    alone = kept.where(assumption="prompts_alone").first()
    most = kept.where(assumption="outputs_kept").first()
    if alone is None or most is None:
        return absent_part("generated", texts)
    sentences = [
        texts(
            "q.generated.range",
            low=alone.show("reusable_ratio_tokens", texts),
            high=most.show("reusable_ratio_tokens", texts),
            added=most.show("added_tokens", texts),
            follow_ups=alone.show("follow_ups", texts),
        ),
        texts("q.generated.reasoning"),
    ]
    if most["output_not_fitting_requests"]:
        shown = most.show("output_not_fitting_requests", texts)
        sentences.append(texts("q.generated.stripped", requests=shown))
    by_turn = _by_turn(record, texts)
    return Part(
        "generated",
        texts("q.generated.title"),
        sentences=tuple(sentences),
        charts=(by_turn,) if by_turn else (),
        folded=tables(record, _FOLDED, "computed"),
    )


def _by_turn(record: AuditRecord, texts: Texts) -> ChartView | None:
    rows = facts(record, "generated/by_turn").known(_LOW, _HIGH)
    last = rows.largest("turn_bucket")
    if rows.table is None or last is None or len(rows.rows) < 2:
        return None
    names = [texts("chart.generated.turn", turn=row.text("turn_bucket")) for row in rows]
    return chart_of(
        "generated",
        texts,
        ranges(rows, names, texts),
        table_view(rows.table, origin="computed"),
        summary=texts(
            "chart.generated.summary",
            turn=last.text("turn_bucket"),
            low=last.show(_LOW, texts),
            high=last.show(_HIGH, texts),
        ),
    )


def ranges(rows: Facts, names: Sequence[str], texts: Texts) -> str:
    """Bars from the least that is sure to the most that is possible: one row a bar."""
    places = [plot_text(name, width=22) for name in names]
    hover = [f"{name}<br>{_span(row, texts)}" for name, row in zip(places, rows, strict=True)]
    series = [
        Series(
            texts(f"chart.range.{key}"),
            [row.number(column) or 0.0 for row in rows],
            places,
            PALETTE[0],
            style,
            hover,
            faint=style == 1,
        )
        for style, (key, column) in enumerate((("low", _LOW), ("high", _HIGH)))
    ]
    axis = Axis(texts("axis.reusable_ratio"), "ratio", bounds=(0.0, 1.0))
    return charts.bars(list(reversed(series)), x=axis, mode="overlay")


def _span(row: Row, texts: Texts) -> str:
    low, high = row.show(_LOW, texts), row.show(_HIGH, texts)
    return low if low == high else f"{low} – {high}"


def block_size(record: AuditRecord, texts: Texts) -> Part:
    """What would be reusable in blocks of other sizes."""
    rows = facts(record, "block_size/what_if").known(_LOW, _HIGH)
    first, last = rows.smallest("block_tokens"), rows.largest("block_tokens")
    if rows.table is None or first is None or last is None:
        return absent_part("block_size", texts)
    names = [
        texts(f"chart.block_size.row.{row.text('certainty')}", size=row.show("block_tokens", texts))
        for row in rows
    ]
    chart = chart_of(
        "block_size",
        texts,
        ranges(rows, names, texts),
        table_view(rows.table, origin="computed"),
        summary=texts("chart.block_size.summary"),
    )
    return Part(
        "block_size",
        texts("q.block_size.title"),
        sentences=(
            texts(
                "q.block_size.range",
                own=first.show("trace_block_tokens", texts),
                small=first.show("block_tokens", texts),
                small_range=_span(first, texts),
                large=last.show("block_tokens", texts),
                large_range=_span(last, texts),
            ),
        ),
        charts=(chart,),
    )
