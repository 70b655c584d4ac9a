"""How sure the money is: the chance, what moves it, where the answer flips, what to settle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvtrace.audit.record import AuditRecord, Cell
from kvtrace.audit.uncertainty.record import OpenInput, Spread, Uncertainty
from kvtrace.report import charts
from kvtrace.report.axes import Axis, plot_text
from kvtrace.report.charts import Series
from kvtrace.report.figures.common import PALETTE, show
from kvtrace.report.questions.part import Part, absent_part, chart_of
from kvtrace.report.texts import Texts
from kvtrace.report.view import TableView, made_table, table_view

_MONEY: Final = "USD"
_NET: Final = "value_minus_cost_usd_per_month"
_MOST_BARS: Final = 12
_SPREADS: Final = (
    ("number", "text"),
    ("middle", "`unit`"),
    ("p10", "`unit`"),
    ("p50", "`unit`"),
    ("p90", "`unit`"),
    ("p10_error", "`unit`"),
    ("p90_error", "`unit`"),
    ("unit", "name"),
    ("how", "text"),
)
_PERCENTILES: Final = tuple((name, "text") for name in ("number", "middle", "p10", "p50", "p90"))
_INPUTS: Final = (
    ("input", "text"),
    ("low", "`unit`"),
    ("value", "`unit`"),
    ("high", "`unit`"),
    ("unit", "name"),
    ("distribution", "text"),
    ("net_at_low", _MONEY),
    ("net_at_high", _MONEY),
    ("switch_value", "`unit`"),
    ("switch", "text"),
    ("worth", _MONEY),
    ("worth_error", _MONEY),
    ("settle", "text"),
    ("line", "text"),
    ("source", "text"),
)


def uncertainty_parts(record: AuditRecord, texts: Texts) -> tuple[Part, ...]:
    """The questions of the section; one line where nothing is known."""
    known = record.uncertainty
    if known is None:
        return (absent_part("sure", texts),)
    return (_sure(known, texts), _swings(known, texts), _worth(known, texts))


def _money(value: float | None, texts: Texts) -> str:
    return show(value, _MONEY, texts)


def _sure(known: Uncertainty, texts: Texts) -> Part:
    sentences = []
    if known.p_pays is not None and known.p_pays_error is not None:
        limit = None if known.threshold is None else known.threshold.value
        sentences.append(
            texts(
                "q.sure.pays",
                share=show(known.p_pays, "ratio", texts),
                error=show(known.p_pays_error, "ratio", texts),
                samples=show(known.samples, "", texts),
                limit=show(limit, "ratio", texts),
            )
        )
    else:
        sentences.append(texts("q.sure.not_sampled"))
    net = next((one for one in known.spreads if one.id == _NET), None)
    if net is not None:
        sentences.append(_net_sentence(net, texts))
    if net is not None and net.p10 is not None:
        sentences.append(texts("q.sure.how", how=net.says))
    if known.resampled is not None:
        units = texts(f"q.sure.{known.resampled}", count=show(known.resampled_units, "", texts))
        sentences.append(texts("q.sure.resampled", units=units))
    table = _spread_table(known.spreads, texts)
    return Part(
        "sure",
        texts("q.sure.title"),
        sentences=tuple(sentences),
        points=tuple(known.notes),
        points_title=texts("q.sure.notes"),
        points_source=table,
        short=(_short_table(known.spreads, texts),),
        tables_first=True,
        folded=(table,),
    )


def _net_sentence(net: Spread, texts: Texts) -> str:
    middle = _money(net.middle, texts)
    if net.p10 is None:
        return texts("q.sure.net_ends", middle=middle)
    shown = {name: _money(getattr(net, name), texts) for name in ("p10", "p50", "p90")}
    return texts("q.sure.net", middle=middle, **shown)


def _short_table(spreads: Sequence[Spread], texts: Texts) -> TableView:
    """Percentiles with their errors, of the numbers that have some."""
    rows: list[list[Cell]] = [
        [
            one.title,
            show(one.middle, one.unit, texts),
            _with_error(one.p10, one.p10_error, one.unit, texts),
            show(one.p50, one.unit, texts),
            _with_error(one.p90, one.p90_error, one.unit, texts),
        ]
        for one in spreads
        if one.p10 is not None
    ]
    return _table("uncertainty_percentiles", _PERCENTILES, rows, texts)


def _with_error(value: float | None, error: float | None, unit: str, texts: Texts) -> str:
    shown = show(value, unit, texts)
    return shown if error is None else f"{shown} ± {show(error, unit, texts)}"


def _spread_table(spreads: Sequence[Spread], texts: Texts) -> TableView:
    rows: list[list[Cell]] = [
        [
            one.title,
            one.middle,
            one.p10,
            one.p50,
            one.p90,
            one.p10_error,
            one.p90_error,
            one.unit,
            one.says,
        ]
        for one in spreads
    ]
    return _table("uncertainty_spreads", _SPREADS, rows, texts)


def _table(
    id: str, columns: Sequence[tuple[str, str]], rows: list[list[Cell]], texts: Texts
) -> TableView:
    heads = [(name, unit, texts(f"column.{name}")) for name, unit in columns]
    table = made_table(id, texts(f"table.{id}"), heads, rows)
    return table_view(table, source=texts("source.uncertainty"), origin="modelled")


def _swings(known: Uncertainty, texts: Texts) -> Part:
    inputs = [one for one in known.inputs if one.net_at_low != one.net_at_high]
    if not inputs:
        return absent_part("swings", texts)
    most = inputs[0]
    flips = [one for one in known.inputs if one.switch_value is not None or one.switch_between]
    sentences = [
        texts(
            "q.swings.most",
            input=most.title,
            low=_money(most.net_at_low, texts),
            high=_money(most.net_at_high, texts),
        )
    ]
    if not flips:
        sentences.append(texts("q.swings.none"))
    table = _input_table(known.inputs, texts)
    return Part(
        "swings",
        texts("q.swings.title"),
        sentences=tuple(sentences),
        points=tuple(_flip(one, texts) for one in flips),
        points_title=texts("q.swings.flips") if flips else "",
        points_source=table if flips else None,
        charts=(
            chart_of(
                "tornado",
                texts,
                _tornado(inputs[:_MOST_BARS], known.net_middle, texts),
                table,
                summary=texts("chart.tornado.summary", middle=_money(known.net_middle, texts)),
                origin="modelled",
                is_wide=True,
            ),
        ),
    )


def _flip(one: OpenInput, texts: Texts) -> str:
    value = show(one.value, one.unit, texts)
    if one.switch_between is None:
        switch = show(one.switch_value, one.unit, texts)
        return texts("q.swings.flip", input=one.title, switch=switch, value=value)
    low, high = (show(end, one.unit, texts) for end in one.switch_between)
    return texts("q.swings.between", input=one.title, low=low, high=high, value=value)


def _tornado(inputs: Sequence[OpenInput], middle: float, texts: Texts) -> str:
    rows = [plot_text(one.title, width=30) for one in inputs]
    series = [
        Series(
            texts(f"chart.tornado.{name}"),
            [getattr(one, f"net_at_{name}") for one in inputs],
            rows,
            PALETTE[style],
            style,
            [
                f"{row}<br>{show(getattr(one, name), one.unit, texts)}: "
                f"{_money(getattr(one, f'net_at_{name}'), texts)}"
                for row, one in zip(rows, inputs, strict=True)
            ],
        )
        for style, name in enumerate(("low", "high"))
    ]
    return charts.swings(
        series,
        middle=middle,
        x=Axis(texts("axis.net"), "count"),
        middle_label=texts("chart.tornado.middle", value=_money(middle, texts)),
        zero_label=texts("chart.tornado.zero"),
    )


def _input_table(inputs: Sequence[OpenInput], texts: Texts) -> TableView:
    rows: list[list[Cell]] = [
        [
            one.title,
            one.low,
            one.value,
            one.high,
            one.unit,
            texts(f"distribution.{one.distribution}"),
            one.net_at_low,
            one.net_at_high,
            one.switch_value,
            texts("switch.found" if _flips(one) else "switch.none"),
            one.worth_usd_per_month,
            one.worth_error,
            one.settle,
            one.line,
            one.source,
        ]
        for one in inputs
    ]
    return _table("uncertainty_inputs", _INPUTS, rows, texts)


def _flips(one: OpenInput) -> bool:
    return one.switch_value is not None or one.switch_between is not None


def _worth(known: Uncertainty, texts: Texts) -> Part:
    if known.worth_of_all is None:
        return absent_part("worth", texts)
    valued = [one for one in known.inputs if one.worth_usd_per_month]
    ordered = sorted(valued, key=lambda one: (-(one.worth_usd_per_month or 0.0), one.id))
    sentences = [texts("q.worth.all", worth=_money(known.worth_of_all, texts))]
    if not ordered:
        sentences.append(texts("q.worth.none"))
    return Part(
        "worth",
        texts("q.worth.title"),
        sentences=tuple(sentences),
        points=tuple(_worth_point(one, texts) for one in ordered[:_MOST_BARS]),
        points_title=texts("q.worth.points") if ordered else "",
        points_source=_input_table(known.inputs, texts) if ordered else None,
    )


def _worth_point(one: OpenInput, texts: Texts) -> str:
    shown = {
        "input": one.title,
        "worth": _money(one.worth_usd_per_month, texts),
        "error": _money(one.worth_error, texts),
    }
    if not one.settle:
        return texts("q.worth.point", **shown)
    settled = texts("q.worth.settled", settle=one.settle, **shown)
    return f"{settled} `{one.line}`" if one.line else settled
