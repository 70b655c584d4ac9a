"""What a shorter tail costs: the frontier of cost against TTFT, and the cheapest option in time."""

from __future__ import annotations

from typing import Final

from kvtrace.audit.record import AuditRecord, Cell, Frontier, FrontierStep
from kvtrace.report import charts
from kvtrace.report.axes import Axis, plot_text
from kvtrace.report.charts import Series
from kvtrace.report.figures.common import PALETTE, absent, show
from kvtrace.report.texts import Texts
from kvtrace.report.view import ChartView, TableView, made_table, table_view

_COLUMNS: Final = (
    ("option", "name"),
    ("usd_per_month", "USD"),
    ("saved_usd_per_month", "USD"),
    ("net_usd_per_month", "USD"),
    ("ttft_tail_s", "s"),
    ("usd_per_ms", "USD"),
    ("keeps_slo", "name"),
)


def frontier(record: AuditRecord, texts: Texts) -> ChartView:
    """TTFT against cost of the options that no other beats in both."""
    found = record.frontier
    if found is None or not found.steps:
        return absent("frontier", texts, "modelled")
    titles = {option.id: option.title for option in record.options}
    hover = [_hover(step, titles, texts) for step in found.steps]
    series = Series(
        texts("chart.frontier.line"),
        [step.usd_per_month for step in found.steps],
        [step.ttft_s for step in found.steps],
        PALETTE[0],
        hover=hover,
    )
    return ChartView(
        id="frontier",
        title=texts("chart.frontier.title"),
        origin="modelled",
        summary=_summary(found, titles, texts),
        figure=charts.lines(
            [series],
            x=Axis(texts("axis.usd_month"), "count"),
            y=Axis(texts(f"axis.ttft_{_tail(found)}"), "seconds"),
        ),
        table=_table(found, titles, texts),
    )


def _tail(found: Frontier) -> str:
    return "p90" if found.ttft_is_p90 else "p99"


def _hover(step: FrontierStep, titles: dict[str, str], texts: Texts) -> str:
    title = plot_text(titles.get(step.option, step.option))
    cost, tail = show(step.usd_per_month, "USD", texts), show(step.ttft_s, "s", texts)
    return f"{title}<br>{cost}<br>{tail}"


def cheapest_option(found: Frontier, titles: dict[str, str], texts: Texts) -> str:
    """The cheapest option in time, and with KV as it is where that is another one."""
    if found.cheapest is None:
        said = texts("chart.frontier.none", weighed=str(found.weighed))
    else:
        said = texts(
            "chart.frontier.cheapest",
            option=titles.get(found.cheapest, found.cheapest),
            weighed=str(found.weighed),
        )
    other = found.cheapest_as_it_is
    if other != found.cheapest:
        named = texts("unknown") if other is None else titles.get(other, other)
        said += " " + texts("chart.frontier.as_it_is", option=named)
    return said


def _summary(found: Frontier, titles: dict[str, str], texts: Texts) -> str:
    """The cheapest option, what the figure holds, and who is left."""
    said = cheapest_option(found, titles, texts)
    if found.cheapest_as_it_is != found.cheapest:
        said += " " + texts("options.accuracy")
    said += " " + texts("chart.frontier.figure")
    if found.mixes_most:
        said += " " + texts(
            "chart.frontier.mixes",
            replayed=str(found.mixes_replayed),
            most=str(found.mixes_most),
            left=str(found.mixes_by_surrogate),
        )
    for one in found.promising:
        said += " " + texts(
            "chart.frontier.promising",
            option=one.title,
            cost=show(one.usd_per_month, "USD", texts),
            tail=show(one.ttft_s, "s", texts),
            price=show(one.usd_per_ms, "USD", texts),
        )
    if found.unpriced:
        names = ", ".join(titles.get(one, one) for one in found.unpriced)
        said += " " + texts("chart.frontier.unpriced", options=names)
    return said


def _table(found: Frontier, titles: dict[str, str], texts: Texts) -> TableView:
    columns = [(name, unit, texts(f"column.{name}")) for name, unit in _COLUMNS]
    rows: list[list[Cell]] = [
        [
            titles.get(step.option, step.option),
            step.usd_per_month,
            step.saved_usd_per_month,
            step.net_usd_per_month,
            step.ttft_s,
            step.usd_per_ms,
            texts("unknown" if step.keeps_slo is None else _yes(is_so=step.keeps_slo)),
        ]
        for step in found.steps
    ]
    table = made_table("frontier", texts("chart.frontier.title"), columns, rows)
    return table_view(table, source=texts("source.replay"), origin="modelled")


def _yes(*, is_so: bool) -> str:
    return "options.yes" if is_so else "options.no"
