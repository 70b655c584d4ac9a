"""What the replayed options do: TTFT, hits that lose, moves against recomputing, links."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from kvtrace.audit.record import AuditRecord, Cell, HitCost, LinkLedger, Option, Table
from kvtrace.report import charts
from kvtrace.report.axes import Axis, Kind, plot_text
from kvtrace.report.charts import Panel, Series
from kvtrace.report.figures.common import (
    MOVE,
    PALETTE,
    PREFILL,
    QUEUE,
    Columns,
    absent,
    largest,
    link_name,
    pick_table,
    show,
)
from kvtrace.report.texts import Texts
from kvtrace.report.view import ChartView, made_table, table_view

TIME_TABLES: Final = ("replay/over_time",)


def _titles(options: Sequence[Option]) -> list[str]:
    return [plot_text(option.title, width=24) for option in options]


def _drawn(record: AuditRecord) -> list[Option]:
    """Of a full comparison those of the quick one, and the frontier; the table has all."""
    return [option for option in record.options if option.is_quick or option.is_on_frontier]


def _carrying(record: AuditRecord) -> list[Option]:
    """Options that carry the load, as times of an overloaded one mean nothing; else all."""
    drawn = _drawn(record)
    return [option for option in drawn if option.is_feasible] or drawn


def _left_out(record: AuditRecord, shown: Sequence[Option], texts: Texts) -> str:
    titles = [option.title for option in _drawn(record) if option not in shown]
    return f" {texts('chart.overloaded', options=', '.join(titles))}" if titles else ""


def ttft_parts(record: AuditRecord, texts: Texts) -> ChartView:
    """Mean TTFT of each option as queue, move and prefill."""
    options = _carrying(record)
    if not options:
        return absent("ttft_parts", texts, "modelled")
    names = _titles(options)
    series = []
    for style, (key, colour, spreads) in enumerate(
        (
            ("queue", QUEUE, [o.queue_s for o in options]),
            ("move", MOVE, [o.move_s for o in options]),
            ("prefill", PREFILL, [o.prefill_s for o in options]),
        )
    ):
        name = texts(f"part.{key}")
        values = [spread.mean for spread in spreads]
        hover = [f"{plot_text(name)}: {show(v, 's', texts)}" for v in values]
        series.append(Series(name, [v or 0.0 for v in values], names, colour, style, hover))
    known = [o for o in options if o.ttft_s.mean is not None]
    best = min(known, key=lambda o: o.ttft_s.mean or 0.0, default=None)
    worst = max(known, key=lambda o: o.ttft_s.mean or 0.0, default=None)
    if best is None or worst is None:
        return absent("ttft_parts", texts, "modelled")
    summary = texts(
        "chart.ttft_parts.summary" if len(known) > 1 else "chart.ttft_parts.one",
        best=best.title,
        worst=worst.title,
        best_value=show(best.ttft_s.mean, "s", texts),
        worst_value=show(worst.ttft_s.mean, "s", texts),
    )
    return ChartView(
        id="ttft_parts",
        title=texts("chart.ttft_parts.title"),
        origin="modelled",
        summary=summary + _left_out(record, options, texts),
        figure=charts.bars(series, x=Axis(texts("axis.ttft_mean"), "seconds")),
        table=table_view(
            _parts_table(record.options, texts), source=texts("source.replay"), origin="modelled"
        ),
    )


def _parts_table(options: Sequence[Option], texts: Texts) -> Table:
    columns = [
        ("option", "name", texts("column.option")),
        ("part", "name", texts("column.part")),
        *((stat, "s", texts("column.seconds")) for stat in ("mean", "p50", "p90", "p99")),
    ]
    rows: list[list[Cell]] = [
        [option.title, texts(f"part.{part}"), spread.mean, spread.p50, spread.p90, spread.p99]
        for option in options
        for part, spread in (
            ("ttft", option.ttft_s),
            ("queue", option.queue_s),
            ("move", option.move_s),
            ("prefill", option.prefill_s),
        )
    ]
    return made_table("ttft_parts", texts("chart.ttft_parts.title"), columns, rows)


def ttft_percentiles(record: AuditRecord, texts: Texts) -> ChartView:
    """P50, P90 and P99 of TTFT by option."""
    options = _carrying(record)
    if not options:
        return absent("ttft_percentiles", texts, "modelled")
    series = []
    for style, (key, values) in enumerate(
        (
            ("P50", [o.ttft_s.p50 for o in options]),
            ("P90", [o.ttft_s.p90 for o in options]),
            ("P99", [o.ttft_s.p99 for o in options]),
        )
    ):
        known = [
            (value, name)
            for value, name in zip(values, _titles(options), strict=True)
            if value is not None and value > 0
        ]
        if known:
            hover = [f"{name}<br>{key}: {show(value, 's', texts)}" for value, name in known]
            series.append(
                Series(
                    key, [v for v, _ in known], [n for _, n in known], PALETTE[style], style, hover
                )
            )
    if not series:
        return absent("ttft_percentiles", texts, "modelled")
    pool = [o for o in options if o.ttft_s.p90 is not None]
    best = min(pool, key=lambda o: o.ttft_s.p90 or 0.0, default=options[0])
    withheld = any(o.ttft_s.p99 is None for o in options)
    summary = texts(
        "chart.ttft_percentiles.summary", best=best.title, value=show(best.ttft_s.p90, "s", texts)
    )
    if withheld:
        summary = f"{summary} {texts('p99_withheld')}"
    summary += _left_out(record, options, texts)
    return ChartView(
        id="ttft_percentiles",
        title=texts("chart.ttft_percentiles.title"),
        origin="modelled",
        summary=summary,
        figure=charts.dots(series, x=Axis(texts("axis.ttft"), "seconds", log=True)),
        table=table_view(
            _percentile_table(record.options, texts),
            source=texts("source.replay"),
            origin="modelled",
        ),
    )


def _percentile_table(options: Sequence[Option], texts: Texts) -> Table:
    columns = [("option", "name", texts("column.option"))]
    columns += [(stat, "s", texts("column.seconds")) for stat in ("p50", "p90", "p99")]
    rows: list[list[Cell]] = [
        [option.title, option.ttft_s.p50, option.ttft_s.p90, option.ttft_s.p99]
        for option in options
    ]
    return made_table("ttft_percentiles", texts("chart.ttft_percentiles.title"), columns, rows)


def net_negative(record: AuditRecord, texts: Texts) -> ChartView:
    """Loaded hits of each option, and those that were slower than recomputing."""
    options = [option for option in _drawn(record) if option.hit_cost.hits > 0]
    if not options:
        return absent("net_negative", texts, "modelled")
    names = _titles(options)
    pairs = (
        ("hits", [o.hit_cost.hits for o in options]),
        ("negative", [o.hit_cost.net_negative_hits for o in options]),
    )
    series = []
    for style, (key, counts) in enumerate(pairs):
        name = texts(f"chart.net_negative.{key}")
        hover = [f"{plot_text(name)}: {show(n, 'requests', texts)}" for n in counts]
        if key == "negative":
            hover = [f"{h}{_range(o.hit_cost, texts)}" for h, o in zip(hover, options, strict=True)]
        colour = (PALETTE[0], MOVE)[style]
        series.append(
            Series(name, [float(n) for n in counts], names, colour, style, hover, faint=style == 0)
        )
    worst = max(options, key=lambda o: o.hit_cost.net_negative_hits)
    table = _hit_table(options, texts)
    return ChartView(
        id="net_negative",
        title=texts("chart.net_negative.title"),
        origin="modelled",
        summary=_hit_summary(worst, texts),
        figure=charts.bars(series, x=Axis(texts("axis.requests"), "count"), mode="overlay"),
        table=table_view(table, source=texts("source.replay"), origin="modelled"),
    )


def _hit_summary(option: Option, texts: Texts) -> str:
    """Its net-negative hits with their range, and what an arbiter would leave of them."""
    cost = option.hit_cost
    summary = texts(
        "chart.net_negative.summary",
        option=option.title,
        negative=show(cost.net_negative_hits, "", texts),
        hits=show(cost.hits, "", texts),
        range=_range(cost, texts),
    )
    if cost.with_arbiter is None:
        return summary
    arbiter = texts(
        "chart.net_negative.arbiter",
        negative=show(cost.with_arbiter.net_negative_hits, "", texts),
        hits=show(cost.with_arbiter.hits, "", texts),
        range=_range(cost.with_arbiter, texts),
    )
    return f"{summary} {arbiter}"


def _range(cost: HitCost, texts: Texts) -> str:
    """Of its net-negative hits; empty where the path's constants make no difference."""
    known = cost.net_negative
    if known is None or known.low is None or known.high is None or known.low == known.high:
        return ""
    low, high = show(known.low, "", texts), show(known.high, "", texts)
    return texts("chart.net_negative.range", low=low, high=high)


def _hit_table(options: Sequence[Option], texts: Texts) -> Table:
    """Loaded hits by option and, where it was replayed, under an arbiter."""
    columns = [
        ("option", "name", texts("column.option")),
        ("loads", "name", texts("column.loads")),
        *((name, unit, texts(f"column.{name}")) for name, unit in _HIT_COLUMNS),
    ]
    rows: list[list[Cell]] = [
        [option.title, texts(f"loads.{loads}"), *_hit_cells(cost)]
        for option in options
        for loads, cost in (("all", option.hit_cost), ("arbiter", option.hit_cost.with_arbiter))
        if cost is not None
    ]
    return made_table("hit_cost", texts("chart.net_negative.title"), columns, rows)


def _hit_cells(cost: HitCost) -> list[Cell]:
    known = cost.net_negative
    ends = {
        "net_negative_low": None if known is None else known.low,
        "net_negative_high": None if known is None else known.high,
    }
    return [ends[name] if name in ends else getattr(cost, name) for name, _ in _HIT_COLUMNS]


_HIT_COLUMNS: Final = (
    ("hits", "requests"),
    ("net_negative_hits", "requests"),
    ("net_negative_low", "requests"),
    ("net_negative_high", "requests"),
    ("net_negative_bytes", "bytes"),
    ("moved_bytes", "bytes"),
    ("ttft_gained_s", "s"),
    ("ttft_lost_s", "s"),
    ("gpu_seconds_freed", "s"),
)


MAX_LINKS: Final = 1
"""Links of one option that the chart shows; the table has all."""


def _busiest(option: Option) -> list[LinkLedger]:
    """The links with the highest use, busiest first, leaving out those that carry nothing."""
    used = [link for link in option.links if link.bytes_read > 0 or link.bytes_written > 0]
    return sorted(used, key=lambda link: (-link.utilisation, link.link_id))[:MAX_LINKS]


def ledger(record: AuditRecord, texts: Texts) -> ChartView:
    """Use and bytes of each link in each option."""
    every = [(option, link) for option in record.options for link in option.links]
    rows = [(option, link) for option in _drawn(record) for link in _busiest(option)]
    if not rows:
        return absent("ledger", texts, "modelled")
    names = [
        f"{plot_text(o.title, width=36)}<br><b>{plot_text(link_name(k.link_id, texts))}</b>"
        for o, k in rows
    ]
    use = Series(
        texts("chart.ledger.utilisation"),
        [k.utilisation for _, k in rows],
        names,
        PALETTE[0],
        0,
        [show(k.utilisation, "ratio", texts) for _, k in rows],
        labels=True,
    )
    read, written = (
        Series(
            texts(f"chart.ledger.{key}"),
            [getattr(k, f"bytes_{key}") for _, k in rows],
            names,
            colour,
            style,
            [show(getattr(k, f"bytes_{key}"), "bytes", texts, name=key) for _, k in rows],
        )
        for key, colour, style in (("read", MOVE, 0), ("written", PALETTE[2], 1))
    )
    busiest = max(rows, key=lambda row: row[1].utilisation)
    columns = [("option", "name", texts("column.option"))]
    columns += [(name, unit, texts(f"column.{name}")) for name, unit in _LINK_COLUMNS]
    table = made_table(
        "ledger",
        texts("chart.ledger.title"),
        columns,
        [
            [o.title, link_name(k.link_id, texts), *(getattr(k, n) for n, _ in _LINK_COLUMNS[1:])]
            for o, k in every
        ],
    )
    return ChartView(
        id="ledger",
        title=texts("chart.ledger.title"),
        origin="modelled",
        summary=texts(
            "chart.ledger.summary",
            link=link_name(busiest[1].link_id, texts),
            option=busiest[0].title,
            value=show(busiest[1].utilisation, "ratio", texts),
        ),
        is_wide=True,
        figure=charts.side_by_side(
            [
                Panel([use], Axis(texts("axis.utilisation"), "ratio", bounds=(0.0, 1.0))),
                Panel([read, written], Axis(texts("axis.bytes_moved"), "traffic")),
            ]
        ),
        table=table_view(table, source=texts("source.replay"), origin="modelled"),
    )


_LINK_COLUMNS: Final = (
    ("link_id", "name"),
    ("links", "links"),
    ("bytes_read", "bytes"),
    ("bytes_written", "bytes"),
    ("utilisation", "ratio"),
    ("usable_bytes_per_s", "bytes/s"),
)


_TIME_PANELS: Final[tuple[tuple[str, str, Kind], ...]] = (
    ("hit_ratio_tokens", "hit_ratio", "ratio"),
    ("moved_bytes", "bytes_moved", "traffic"),
    ("ttft_p50_s", "ttft", "seconds"),
)


def replay_over_time(record: AuditRecord, texts: Texts) -> ChartView:
    """Hit ratio, bytes moved and TTFT of each option on one time axis, in three panels."""
    table = pick_table(record, TIME_TABLES)
    columns = Columns(table) if table else None
    time = columns.find("slice_start_s") if columns else None
    option = columns.find("option_id") if columns else None
    if table is None or columns is None or time is None or option is None:
        return absent("replay_time", texts, "modelled")
    titles = {one.id: one.title for one in record.options}
    shown = _carrying(record)
    left_out = {one.id for one in record.options} - {one.id for one in shown}
    replayed = dict.fromkeys(str(value) for value in columns.cells(option))
    ids = [one for one in replayed if one not in left_out][:6]
    panels: list[Panel] = []
    for name, axis, kind in _TIME_PANELS:
        index = columns.find(name)
        if index is not None:
            lines = [
                _time_line(columns, (option, time, index), one, titles.get(one, one), style)
                for style, one in enumerate(ids)
            ]
            panels.append(Panel(lines, Axis(texts(f"axis.{axis}"), kind), named=not panels))
    ttft = columns.find("ttft_p50_s")
    rows = [row for row in table.rows if str(row[option]) not in left_out]
    if ttft is None or not rows:
        return absent("replay_time", texts, "modelled")
    drawn = Columns(msgspec.structs.replace(table, rows=rows))
    worst = rows[largest(drawn, ttft)]
    return ChartView(
        id="replay_time",
        title=texts("chart.replay_time.title"),
        origin="modelled",
        summary=texts(
            "chart.replay_time.summary",
            option=titles.get(str(worst[option]), str(worst[option])),
            value=show(worst[ttft], "s", texts),
            time=show(worst[time], "s", texts),
        )
        + _left_out(record, shown, texts),
        figure=charts.stacked_panels(panels, x=Axis(texts("axis.replay_time"), "seconds")),
        table=table_view(table, source=texts("source.replay")),
    )


def _time_line(
    columns: Columns, indices: tuple[int, int, int], option_id: str, title: str, style: int
) -> Series:
    option, time, value = indices
    rows = [i for i, cell in enumerate(columns.cells(option)) if str(cell) == option_id]
    x, y = columns.numbers(time), columns.numbers(value)
    shown, at = columns.shown(value), columns.shown(time)
    return Series(
        title,
        [x[i] or 0.0 for i in rows],
        [y[i] for i in rows],
        PALETTE[style % len(PALETTE)],
        style,
        [f"{plot_text(title)}: {shown[i]}<br>{at[i]}" for i in rows],
    )
