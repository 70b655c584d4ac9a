"""Figures: what is drawn, thinned, escaped and said."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from kvtrace.audit.record import AuditRecord
from kvtrace.report import charts
from kvtrace.report.axes import Axis, plot_text
from kvtrace.report.charts import Mark, Panel, Series
from kvtrace.report.figures import all_charts, running
from kvtrace.report.texts import load_texts
from kvtrace.report.view import ChartView
from tests.report.records import make_bare_record, make_record, quantity

EN = load_texts("en")
AXIS = Axis("x", "count")


def parsed(figure: str | None) -> dict[str, Any]:
    assert figure is not None
    result: dict[str, Any] = json.loads(figure)
    return result


def test_long_series_are_thinned_with_both_ends_kept() -> None:
    picked = charts.thin(range(100_000))
    assert len(picked) == 2_000
    assert (picked[0], picked[-1]) == (0, 99_999)
    assert charts.thin([1, 2, 3]) == [1, 2, 3]


def test_no_colour_is_fixed_so_that_both_themes_work() -> None:
    for view in all_charts(make_record(), EN).values():
        for trace in parsed(view.figure)["data"]:
            assert trace["marker"]["color"].startswith("var(--")


def test_colour_is_doubled_by_dash_symbol_or_pattern() -> None:
    view = all_charts(make_record(), EN)["ttft_parts"]
    shapes = [t["marker"]["pattern"]["shape"] for t in parsed(view.figure)["data"]]
    assert len(set(shapes)) == 3
    view = all_charts(make_record(), EN)["curve"]
    traces = parsed(view.figure)["data"]
    assert len({t["line"]["dash"] for t in traces}) == 2
    assert len({t["marker"]["symbol"] for t in traces}) == 2


def test_no_figure_has_two_y_axes_over_each_other() -> None:
    for view in all_charts(make_record(), EN).values():
        assert '"overlaying"' not in (view.figure or "")


def test_labels_are_literal_text() -> None:
    figure = parsed(
        charts.bars([Series("<b>x</b>", [1.0], [plot_text("<i>&")], "var(--c-1)")], x=AXIS)
    )
    assert figure["data"][0]["name"] == "&lt;b&gt;x&lt;/b&gt;"
    assert figure["data"][0]["y"] == ["&lt;i&gt;&amp;"]


def test_long_labels_wrap_and_stop() -> None:
    assert plot_text("one two three four", width=9) == "one two<br>three<br>four"


def test_byte_ticks_are_round_in_their_own_unit() -> None:
    series = [Series("s", [0.0, 2.6 * 2**40], ["a", "b"], "var(--c-1)")]
    ticks = parsed(charts.bars(series, x=Axis("held", "bytes")))["layout"]["xaxis"]["ticktext"]
    assert [tick.replace("\u00a0", " ") for tick in ticks][:3] == ["0 TiB", "0.5 TiB", "1 TiB"]


def test_stacked_bars_have_ticks_to_their_end() -> None:
    series = [Series(str(i), [3.0], ["a"], "var(--c-1)", i) for i in range(3)]
    ticks = parsed(charts.bars(series, x=Axis("t", "seconds")))["layout"]["xaxis"]["tickvals"]
    assert max(ticks) >= 9.0


def test_small_counts_have_whole_ticks() -> None:
    figure = parsed(charts.bars([Series("s", [1.0], ["a"], "var(--c-1)")], x=AXIS))
    assert figure["layout"]["xaxis"]["dtick"] == 1


def test_logarithmic_axis_keeps_finer_ticks_in_a_narrow_range() -> None:
    series = [Series("s", ["a", "b"], [0.2, 0.9], "var(--c-1)")]
    axis = Axis("t", "seconds", log=True)
    layout = parsed(charts.lines(series, x=Axis("k", "category"), y=axis))["layout"]
    assert layout["yaxis"]["tickvals"] == [0.2, 0.5, 1.0]


def test_marks_stand_on_a_logarithmic_axis_where_they_belong() -> None:
    series = [Series("s", [1.0, 100.0], [0.1, 0.2], "var(--c-1)")]
    figure = parsed(
        charts.lines(series, x=Axis("n", "count", log=True), y=AXIS, marks=[Mark(10.0, "HBM")])
    )
    assert figure["layout"]["shapes"][0]["x0"] == 10.0
    assert figure["layout"]["annotations"][0]["x"] == 1.0


def test_one_series_a_panel_needs_no_legend() -> None:
    one = Series("s", [1.0], ["a"], "var(--c-1)")
    assert parsed(charts.side_by_side([Panel([one], AXIS)]))["layout"]["showlegend"] is False
    assert parsed(charts.bars([one, one], x=AXIS))["layout"]["showlegend"] is True


def test_tier_sizes_among_the_assumptions_are_marked_on_the_curve() -> None:
    record = make_record()
    record.assumptions.append(
        quantity("hbm_cache_bytes", 3e12, "bytes", title="HBM for cache, all instances")
    )
    layout = parsed(all_charts(record, EN)["curve"].figure)["layout"]
    assert [one["text"] for one in layout["annotations"]] == ["HBM for KV, 2.73\u00a0TiB"]


def test_curve_without_bytes_counts_blocks() -> None:
    record = make_record()
    for point in record.reuse.hit_curve:
        point.capacity_bytes = None
    view = all_charts(record, EN)["curve"]
    assert parsed(view.figure)["data"][0]["x"][0] == 1_000
    assert "1,000\u00a0blocks" in view.summary


def test_summaries_pick_numbers_of_the_record() -> None:
    views = all_charts(make_record(), EN)
    assert "5,930 of 8,211" in views["net_negative"].summary
    assert "TCP port of a GPU node" in views["ledger"].summary
    assert "88\u00a0%" in views["ledger"].summary
    assert "60.0\u00a0s" in views["latency"].summary


def test_ledger_draws_the_busiest_links_and_tables_all() -> None:
    record = make_record()
    tcp = next(option for option in record.options if option.id == "pool_dram_tcp")
    tcp.links.append(tcp.links[0].__class__(**_idle_link()))
    view = all_charts(record, EN)["ledger"]
    assert "idle_link" not in (view.figure or "")
    assert view.table is not None
    assert any(row[1].text == "idle_link" for row in view.table.rows)


def _idle_link() -> dict[str, Any]:
    return {
        "link_id": "idle_link",
        "links": 1,
        "bytes_read": 0.0,
        "bytes_written": 0.0,
        "utilisation": 0.0,
        "usable_bytes_per_s": 1e9,
    }


def test_moves_stand_in_one_figure_a_panel_an_option_on_shared_axes() -> None:
    view = all_charts(make_record(), EN)["move"]
    figure = parsed(view.figure)
    titles = [one["text"].replace("<br>", " ") for one in figure["layout"]["annotations"]]
    assert titles == [
        "HBM + idle host DRAM",
        "Pool in DRAM over TCP",
        "Pool in DRAM over RDMA, GPU-direct",
    ]
    assert {trace["yaxis"] for trace in figure["data"]} == {"y"}
    assert [trace["showlegend"] for trace in figure["data"]] == [True] * 2 + [False] * 4
    assert "slower than recomputing in Pool in DRAM over TCP (buckets from" in view.summary
    assert "HBM + idle host DRAM (" not in view.summary


def test_moves_that_are_never_slower_are_said_to_be_faster() -> None:
    record = make_record()
    table = record.tables["replay/move_by_prompt_bucket"]
    again = table.columns.index("recompute_p50_s")
    for row in table.rows:
        row[again] = 1e6
    summary = all_charts(record, EN)["move"].summary
    assert "faster than recomputing at every prompt length, in each of 3 options" in summary


def test_latency_axis_is_logarithmic_only_when_it_must_be() -> None:
    record = make_record()
    layout = parsed(all_charts(record, EN)["latency"].figure)["layout"]
    assert layout["yaxis"]["type"] == "log"
    table = record.tables["latency/by_prompt_bucket"]
    for row in table.rows:
        row[2] = 0.0
        row[6] = row[4]
    view = all_charts(record, EN)["latency"]
    assert parsed(view.figure)["layout"]["yaxis"]["type"] == "linear"


def test_time_axis_shows_dates_only_for_wall_clocks() -> None:
    record = make_record()
    view = all_charts(record, EN)["over_time"]
    assert parsed(view.figure)["layout"]["xaxis"]["type"] == "date"
    table = record.tables["latency/hit_and_ttft_over_time"]
    for i, row in enumerate(table.rows):
        row[0] = i * 150 * 10**9
    layout = parsed(all_charts(record, EN)["over_time"].figure)["layout"]
    assert layout["xaxis"]["type"] == "linear"


def test_a_gap_in_the_data_stays_a_gap() -> None:
    traces = parsed(all_charts(make_record(), EN)["over_time"].figure)["data"]
    assert traces[0]["y"][7] is None
    assert traces[0]["connectgaps"] is False


def test_bare_record_has_no_figure_and_a_reason_each() -> None:
    record = make_bare_record()
    views = all_charts(record, EN).values()
    assert all(view.figure is None and view.missing for view in views)


TIMES = "latency/hit_and_ttft_over_time"


def without(record: AuditRecord, *columns: str) -> None:
    """Make the columns of the time table unknown."""
    table = record.tables[TIMES]
    for name in columns:
        for row in table.rows:
            row[table.columns.index(name)] = None


def test_without_latencies_the_time_figure_is_computed_and_has_no_empty_panel() -> None:
    record = make_record()
    without(record, "ttft_p50_ms", "ttft_p90_ms", "queue_p50_ms")
    without(record, "cached_ratio_tokens", "engine_prefix_hit_ratio")
    view = all_charts(record, EN)["over_time"]
    assert (view.title, view.origin, view.origin_too) == ("Hit ratio over time", "computed", None)
    assert "yaxis2" not in parsed(view.figure)["layout"]


def test_measured_and_computed_series_are_both_badged() -> None:
    view = all_charts(make_record(), EN)["over_time"]
    assert (view.origin, view.origin_too) == ("measured", "computed")


def test_external_and_combined_ratios_of_the_engine_are_drawn() -> None:
    record = make_record()
    table = record.tables[TIMES]
    for name in ("engine_external_hit_ratio", "engine_combined_hit_ratio"):
        table.columns.append(name)
        table.units.append("ratio")
        table.meanings.append("")
        for row in table.rows:
            row.append(0.5)
    names = [t["name"] for t in parsed(all_charts(record, EN)["over_time"].figure)["data"]]
    assert "local and external together (measured)" in names
    assert "engine's external cache (measured)" in names


def test_axis_ticks_are_all_in_one_unit() -> None:
    for top, log in ((75.0, False), (0.4, False), (75.0, True)):
        series = [Series("s", [0.005, top], ["a", "b"], "var(--c-1)")]
        axis = parsed(charts.dots(series, x=Axis("t", "seconds", log=log)))["layout"]["xaxis"]
        assert len({tick.split("\u00a0")[1] for tick in axis["ticktext"]}) == 1
        assert not any("e" in tick for tick in axis["ticktext"])


def test_tiers_far_beyond_the_curve_are_not_marked() -> None:
    record = make_record()
    record.assumptions.append(quantity("fleet.pool_dram_bytes", 1e18, "bytes"))
    assert "annotations" not in parsed(all_charts(record, EN)["curve"].figure)["layout"]


def test_labels_of_marks_stand_above_the_plot_on_lines_of_their_own() -> None:
    record = make_record()
    record.assumptions += [
        quantity("x.dram_idle_bytes_per_instance", 1e12, "bytes"),
        quantity("x.hbm_cache_bytes", 5e11, "bytes"),
    ]
    notes = parsed(all_charts(record, EN)["curve"].figure)["layout"]["annotations"]
    assert [one["y"] for one in notes] == [1, 1]
    assert notes[0]["text"].startswith("HBM")
    assert notes[0]["yshift"] - notes[1]["yshift"] >= 14
    assert all("textangle" not in one for one in notes)


def running_views(record: AuditRecord) -> dict[str, ChartView]:
    return {view.id: view for view in running(record, EN)}


def test_hit_ratios_of_different_windows_never_share_a_panel() -> None:
    view = running_views(make_record())["running_hits"]
    figure = parsed(view.figure)
    titles = [one["text"] for one in figure["layout"]["annotations"]]
    assert titles == [
        "hit ratio (of tokens, over the interval between observations)",
        "hit ratio (of tokens, over the last 1,000 requests)",
    ]
    panels = {trace["name"]: trace["yaxis"] for trace in figure["data"][:2]}
    assert set(panels.values()) == {"y"}
    assert figure["data"][2]["yaxis"] == "y2"
    assert view.origin == "measured"
    # 0.4 + 47 × 0.005
    assert "from 40 % to 63.50 %" in view.summary.replace("\u00a0", " ")


def test_one_panel_says_its_window_in_the_title_of_the_figure() -> None:
    record = make_record()
    table = record.tables["samples/hit_ratio_over_time"]
    table.rows = [row for row in table.rows if row[3] == "last_1000_requests"]
    view = running_views(record)["running_hits"]
    assert view.title == (
        "Hit ratios that engines report, over time (of tokens, over the last 1,000 requests)"
    )


def test_a_hit_ratio_of_unknown_unit_and_window_says_so() -> None:
    record = make_record()
    for row in record.tables["samples/hit_ratio_over_time"].rows:
        row[2] = row[3] = None
    titles = parsed(running_views(record)["running_hits"].figure)["layout"]["annotations"]
    assert titles[0]["text"] == (
        "hit ratio (of a unit that is not said, over a window that is not said)"
    )


def test_links_are_drawn_by_kind_and_way() -> None:
    figure = parsed(running_views(make_record())["running_links"].figure)
    assert [one["text"] for one in figure["layout"]["annotations"]] == [
        "received a second (PCIe of a GPU)",
        "received a second (RDMA port)",
        "sent a second (PCIe of a GPU)",
        "sent a second (RDMA port)",
    ]
    assert figure["data"][0]["name"] == "host 1 gpu 0"


def test_the_largest_of_many_lines_are_drawn_and_the_table_has_all() -> None:
    record = make_record()
    table = record.tables["links/measured_bytes"]
    table.rows = [
        ["pcie", 0, f"gpu {number}", 10**18, None, 1e9 * number] for number in range(1, 10)
    ]
    view = running_views(record)["running_links"]
    names = [trace["name"] for trace in parsed(view.figure)["data"]]
    assert names == [f"gpu {number}" for number in range(4, 10)]
    assert view.table is not None
    assert view.table.row_count == 9


def test_nothing_is_drawn_where_nothing_was_observed() -> None:
    record = make_record()
    for name in list(record.tables):
        if name.startswith(("samples/", "links/")):
            del record.tables[name]
    assert running(record, EN) == []
    record.tables["samples/kv_usage"] = next(iter(record.tables.values()))  # other columns
    assert running(record, EN) == []


def test_without_hit_ratios_the_time_figure_is_of_ttft_alone() -> None:
    record = make_record()
    without(record, "cached_ratio_tokens", "reusable_ratio_tokens", "engine_prefix_hit_ratio")
    view = all_charts(record, EN)["over_time"]
    assert (view.title, view.origin, view.origin_too) == ("TTFT over time", "measured", None)


def test_a_single_option_has_no_shortest_and_longest() -> None:
    record = make_record()
    record.options = record.options[:1]
    assert all_charts(record, EN)["ttft_parts"].summary.startswith("Mean TTFT of HBM only: ")


def test_net_negative_hits_have_their_range_and_what_an_arbiter_leaves() -> None:
    record = make_record()
    cost = next(one for one in record.options if one.id == "pool_dram_tcp").hit_cost
    bounds = {"low": 12, "high": 8_000}
    cost.net_negative = quantity("net_negative_hits", 5_930, "requests", **bounds)
    cost.with_arbiter = msgspec.structs.replace(
        cost, hits=2_281, net_negative_hits=7, net_negative=None
    )
    view = all_charts(record, EN)["net_negative"]
    summary = view.summary.replace("\u00a0", " ")
    assert "5,930 of 8,211 loaded hits (12 – 8,000 over the range" in summary
    assert "below recomputing: 7 of 2,281." in summary
    assert view.table is not None
    rows = [[cell.text for cell in row[:6]] for row in view.table.rows]
    assert rows[1] == [
        "Pool in DRAM over TCP",
        "every hit",
        "8,211",
        "5,930",
        "12",
        "8,000",
    ]
    assert rows[2] == ["Pool in DRAM over TCP", "with an arbiter", "2,281", "7", None, None]


def test_overloaded_options_are_named_instead_of_drawn() -> None:
    record = make_record()
    record.options[0].is_feasible = False
    record.options[0].ttft_s.mean = 9_000.0
    views = all_charts(record, EN)
    for id in ("ttft_parts", "ttft_percentiles", "replay_time"):
        assert "Not drawn, as they cannot carry the load: HBM only." in views[id].summary, id
        assert "HBM only" not in (views[id].figure or ""), id
    assert "9,000" not in views["ttft_parts"].summary
    for option in record.options:
        option.is_feasible = False
    assert "HBM only" in (all_charts(record, EN)["ttft_parts"].figure or "")


def test_every_drawn_chart_has_a_summary_and_its_table() -> None:
    drawn = [view for view in all_charts(make_record(), EN).values() if view.figure is not None]
    assert len(drawn) > 8
    assert [view.id for view in drawn if view.table is None or not view.summary] == []
