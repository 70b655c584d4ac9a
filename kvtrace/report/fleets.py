"""How large the fleet has to be: instances by load, what binds, three views, degraded pools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kvtrace.audit.fleet.record import Binding, Degraded, DegradedState, FleetSizes, OptionNeed
from kvtrace.audit.record import AuditRecord, Cell
from kvtrace.report import charts
from kvtrace.report.axes import Axis, plot_text
from kvtrace.report.charts import Series
from kvtrace.report.figures.common import MOVE, PALETTE, PREFILL, link_name, show
from kvtrace.report.format import safe_text
from kvtrace.report.questions.part import Part, absent_part, chart_of
from kvtrace.report.texts import Texts
from kvtrace.report.view import TableView, made_table, table_view

Titles = Mapping[str, str]
LADDER: Final = "fleet_binds"
"""The question of what binds: it stands with the findings."""
_VIEWS: Final = (
    ("option", "name"),
    ("gpus_at_slo", "count"),
    ("groups_saved", "count"),
    ("whole_groups_saved", "count"),
    ("need_basis", "text"),
    ("requests_within", "requests"),
    ("ttft_p99_s", "s"),
    ("load_at_slo", "times"),
    ("load_basis", "text"),
    ("why_none", "text"),
)
_BINDS: Final = (
    ("option", "name"),
    ("replayed_on", "instances"),
    ("slo_kept_there", "text"),
    ("binds", "text"),
    ("binds_next", "text"),
    ("binds_basis", "text"),
    ("used_prefill", "ratio"),
    ("used_decode", "ratio"),
    ("used_hbm", "ratio"),
    ("used_link", "ratio"),
    ("why", "text"),
)
_STATES: Final = (
    ("option", "name"),
    ("state", "text"),
    ("instances_of_state", "instances"),
    ("requests_within", "requests"),
    ("of_requests", "requests"),
    ("carries_load", "text"),
    ("hit_ratio_tokens", "ratio"),
    ("ttft_p99_s", "s"),
    ("rewarm_s", "s"),
    ("within_rewarming", "requests"),
    ("requests_rewarming", "requests"),
    ("slo_figures", "text"),
    ("state_basis", "text"),
)


def fleet_parts(record: AuditRecord, texts: Texts) -> tuple[Part, ...]:
    """The questions of the section; one line where no fleet could be judged."""
    fleets = record.fleets
    if fleets is None:
        return (absent_part("fleet", texts),)
    titles = {option.id: option.title for option in record.options}
    return (
        _needs(fleets, titles, texts),
        _views(fleets, titles, texts),
        _binds(fleets, titles, texts),
        _degraded(fleets, titles, texts),
    )


def _title(titles: Titles, option_id: str) -> str:
    return safe_text(titles.get(option_id, option_id))


def _table(
    id: str, columns: Sequence[tuple[str, str, str]], rows: list[list[Cell]], texts: Texts
) -> TableView:
    table = made_table(id, texts(f"table.{id}"), columns, rows)
    return table_view(table, source=texts("source.replay"), origin="modelled")


def _heads(columns: Sequence[tuple[str, str]], texts: Texts) -> list[tuple[str, str, str]]:
    return [(name, unit, texts(f"column.{name}")) for name, unit in columns]


# --- instances by load ---------------------------------------------------------------------------


def _needs(fleets: FleetSizes, titles: Titles, texts: Texts) -> Part:
    shown = {
        "slo": safe_text(fleets.slo),
        "reference": safe_text(fleets.reference),
        "instances": show(fleets.instances, "", texts),
        "within": show(fleets.within_today, "", texts),
        "requests": show(fleets.requests, "", texts),
    }
    sentences = [
        texts("q.fleet.slo", **shown),
        *_today(fleets, texts),
        texts(
            "q.fleet.window",
            requests=show(fleets.requests, "", texts),
            tokens=show(fleets.uncached_tokens, "", texts),
        ),
        texts("q.fleet.searched" if fleets.is_searched else "q.fleet.surrogate"),
        *_error(fleets, texts),
        *_day(fleets, texts),
    ]
    return Part(
        "fleet",
        texts("q.fleet.title"),
        sentences=tuple(sentences),
        short=(_need_table(fleets, titles, texts),),
        tables_first=True,
    )


def _today(fleets: FleetSizes, texts: Texts) -> list[str]:
    """TTFT of today as modelled, which is the SLO where none is stated, and as measured."""
    shown = {
        name: show(getattr(fleets, f"{name.replace('_p', '_ttft_p')}_s"), "s", texts)
        for name in ("today_p50", "today_p90", "measured_p50", "measured_p90")
    }
    is_known = fleets.measured_ttft_p50_s is not None
    return [texts("q.fleet.today_measured" if is_known else "q.fleet.today_modelled", **shown)]


def _error(fleets: FleetSizes, texts: Texts) -> list[str]:
    check = fleets.surrogate
    if check is None:
        return []
    counts = {
        name: show(getattr(check, name), "", texts)
        for name in ("checked", "equal", "most_over", "most_under", "unfounded")
    }
    more = [texts("q.fleet.unfounded", count=counts["unfounded"])] if check.unfounded else []
    return [texts("q.fleet.error", **counts), *more]


def _day(fleets: FleetSizes, texts: Texts) -> list[str]:
    if fleets.peak_factor is not None:
        return [texts("q.fleet.peak_factor", factor=show(fleets.peak_factor, "", texts))]
    return [] if fleets.covers_a_day else [texts("q.fleet.no_day")]


def _need_table(fleets: FleetSizes, titles: Titles, texts: Texts) -> TableView:
    """One row an option, one column a load."""
    loads = sorted({need.load for need in fleets.needs})
    columns = [
        ("option", "name", texts("column.option")),
        *(
            (f"instances_x{load:g}", "instances", texts("column.need_at_load", load=f"{load:g}"))
            for load in loads
        ),
        ("basis_1", "text", texts("column.need_basis")),
        ("basis_grown", "text", texts("column.need_basis_grown")),
        ("missed", "text", texts("column.need_missed")),
    ]
    rows: list[list[Cell]] = []
    for option in dict.fromkeys(need.option for need in fleets.needs):
        mine = {need.load: need for need in fleets.needs if need.option == option}
        first, last = mine[loads[0]], mine[loads[-1]]
        rows.append(
            [
                _title(titles, option),
                *(mine[load].instances for load in loads),
                _basis(first, texts),
                _basis(last, texts),
                safe_text(first.reason),
            ]
        )
    return _table("fleet_needs", columns, rows, texts)


def _basis(need: OptionNeed, texts: Texts) -> str:
    return texts("basis.infeasible" if need.is_infeasible else f"basis.{need.basis}")


# --- three views ---------------------------------------------------------------------------------


def _views(fleets: FleetSizes, titles: Titles, texts: Texts) -> Part:
    saving = [view for view in fleets.views if (view.whole_groups_saved or 0) > 0]
    sentences = [texts("q.fleet_views.note", reference=safe_text(fleets.reference))]
    if not saving:
        sentences.append(texts("q.fleet_views.none"))
    if fleets.most_any_pool_saves is not None:
        key = "q.fleet_views.free" if fleets.is_searched else "q.fleet_views.free_one"
        if fleets.most_any_pool_saves == 0:
            key = "q.fleet_views.free_none"
        count = show(fleets.most_any_pool_saves, "", texts)
        sentences.append(texts(key, count=count, reference=safe_text(fleets.reference)))
    rows: list[list[Cell]] = [
        [
            _title(titles, view.option),
            view.gpus,
            view.groups_saved,
            view.whole_groups_saved,
            texts(f"basis.{view.basis}"),
            view.within,
            view.ttft_p99_s,
            view.load_at_slo,
            texts(f"basis.{view.load_basis}"),
            safe_text(view.reason),
        ]
        for view in fleets.views
    ]
    table = _table("fleet_views", _heads(_VIEWS, texts), rows, texts)
    return Part(
        "fleet_views",
        texts("q.fleet_views.title"),
        sentences=tuple(sentences),
        short=(table,),
        tables_first=True,
    )


# --- what binds ----------------------------------------------------------------------------------


def resource(name: str, texts: Texts) -> str:
    """What limits an option, in words."""
    kind, _, link = name.partition(":")
    named = texts("binds.link", link=link_name(link, texts))
    return named if link else texts.or_code("binds", kind)


def _binds(fleets: FleetSizes, titles: Titles, texts: Texts) -> Part:
    rows: list[list[Cell]] = []
    for one in fleets.binds:
        links = [share for name, share in one.used.items() if name.startswith("link:")]
        rows.append(
            [
                _title(titles, one.option),
                one.instances,
                texts("options.no" if one.is_missed else "options.yes"),
                resource(one.binds, texts),
                resource(one.next, texts),
                texts(f"binds_basis.{one.basis}"),
                one.used.get("prefill"),
                one.used.get("decode"),
                one.used.get("hbm_capacity"),
                max(links, default=None),
                safe_text(one.why),
            ]
        )
    table = _table("fleet_binds", _heads(_BINDS, texts), rows, texts)
    ladder = chart_of(
        "ladder",
        texts,
        _ladder(fleets.binds, titles, texts),
        table,
        summary=_ladder_summary(fleets, titles, texts),
        origin="modelled",
    )
    return Part(
        LADDER,
        texts("q.fleet_binds.title"),
        sentences=(texts("q.fleet_binds.note"),),
        charts=(ladder,),
    )


_USED: Final = (
    ("prefill", PREFILL),
    ("decode", PALETTE[2]),
    ("hbm_capacity", PALETTE[3]),
    ("link", MOVE),
)
"""Resources of the ladder, and their colours."""


def _use(one: Binding, resource: str) -> float | None:
    if resource != "link":
        return one.used.get(resource)
    return max((v for name, v in one.used.items() if name.startswith("link:")), default=None)


def _ladder(binds: Sequence[Binding], titles: Titles, texts: Texts) -> str:
    """How much of each resource every option uses: what stands furthest right binds first."""
    names = [plot_text(_title(titles, one.option), width=34) for one in binds]
    series = []
    for style, (key, colour) in enumerate(_USED):
        known = [
            (use, name)
            for one, name in zip(binds, names, strict=True)
            if (use := _use(one, key)) is not None
        ]
        label = texts(f"ladder.{key}")
        hover = [f"{n}<br>{plot_text(label)}: {show(v, 'ratio', texts)}" for v, n in known]
        x, y = [v for v, _ in known], [n for _, n in known]
        if known:
            series.append(Series(label, x, y, colour, style, hover))
    return charts.dots(series, x=Axis(texts("axis.used"), "ratio"))


def _ladder_summary(fleets: FleetSizes, titles: Titles, texts: Texts) -> str:
    """What binds today's option and the others, in groups."""
    groups: dict[tuple[str, str], list[str]] = {}
    for one in fleets.binds:
        key = (resource(one.binds, texts), resource(one.next, texts))
        groups.setdefault(key, []).append(_title(titles, one.option))
    ordered = sorted(groups.items(), key=lambda group: -len(group[1]))
    said = texts("chart.ladder.join").join(
        texts(
            "chart.ladder.group" if len(names) > 2 else "chart.ladder.named",
            binds=binds,
            next=then,
            count=str(len(names)),
            options=", ".join(names[:2]),
        )
        for (binds, then), names in ordered[:_MOST_GROUPS]
    )
    return f"{said[:1].upper()}{said[1:]}"


_MOST_GROUPS: Final = 3


# --- degraded ------------------------------------------------------------------------------------


def _degraded(fleets: FleetSizes, titles: Titles, texts: Texts) -> Part:
    if not fleets.degraded:
        return absent_part("fleet_degraded", texts)
    rows = [
        _state_row(one, state, titles, texts) for one in fleets.degraded for state in one.states
    ]
    first = fleets.degraded[0]
    sentences = [
        texts(
            "q.fleet_degraded.note",
            share=show(first.hot_share, "ratio", texts),
            nodes=show(first.pool_nodes, "", texts),
        )
    ]
    replayed = [one for one in fleets.degraded if one.is_replayed]
    if len(replayed) < len(fleets.degraded):
        key = "q.fleet_degraded.some" if fleets.is_searched else "q.fleet_degraded.one"
        sentences.append(texts(key, most=show(fleets.degraded_most_replayed, "", texts)))
    table = _table("fleet_degraded", _heads(_STATES, texts), rows, texts)
    return Part(
        "fleet_degraded",
        texts("q.fleet_degraded.title"),
        sentences=tuple(sentences),
        points=tuple(
            point for one in replayed for point in _points(one, _title(titles, one.option), texts)
        ),
        points_title=texts("q.fleet_degraded.points"),
        points_source=table,
        short=(table,),
        tables_first=True,
    )


def _points(one: Degraded, title: str, texts: Texts) -> list[str]:
    """What is kept as a reserve, and what releases cost."""
    key = "unknown" if one.reserve_instances is None else "known"
    points = [
        texts(
            f"q.fleet_degraded.reserve_{key}",
            option=title,
            need=show(one.instances, "", texts),
            reserve=show(one.reserve_instances, "", texts),
            at_slo=show(one.reserve_at_slo, "", texts),
            saved=show(one.saved, "", texts),
            kept=show(one.saved_with_reserve, "", texts),
        )
    ]
    if one.cold_s_per_month is not None and one.late_requests_per_month is not None:
        points.append(
            texts(
                "q.fleet_degraded.releases",
                option=title,
                releases=show(one.releases_per_month, "", texts),
                cold=show(one.cold_s_per_month, "s", texts),
                late=show(one.late_requests_per_month, "", texts),
                gpu_hours=show(one.recomputed_gpu_hours_per_month, "", texts),
            )
        )
    return points


def _state_row(one: Degraded, state: DegradedState, titles: Titles, texts: Texts) -> list[Cell]:
    is_cold = state.is_rewarmed is not None
    return [
        _title(titles, one.option),
        texts(f"state_of_pool.{state.state}"),
        one.instances,
        state.within,
        state.requests,
        texts("options.yes" if state.carries_load else "options.no"),
        state.hit_ratio_tokens,
        state.ttft_p99_s,
        state.rewarm_s,
        state.within_rewarming if is_cold else None,
        state.requests_rewarming if is_cold else None,
        safe_text(state.slo),
        texts(f"basis.{state.basis}"),
    ]
