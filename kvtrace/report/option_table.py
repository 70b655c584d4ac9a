"""What the table of options leaves out, as a second table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvtrace.audit.record import Cell, Option
from kvtrace.report.figures.common import link_name
from kvtrace.report.format import safe_text
from kvtrace.report.texts import Texts
from kvtrace.report.view import TableView, made_table, table_view

_COLUMNS: Final = (
    ("option", "name"),
    ("id", "name"),
    ("family", "name"),
    ("place", "name"),
    ("wire", "name"),
    ("instances", "instances"),
    ("offered_load", ""),
    ("prefill_utilisation", "ratio"),
    ("binds", "name"),
    ("slo_figures", "text"),
    ("move_p90_s", "s"),
    ("prefill_p90_s", "s"),
    ("tpot_p90_s", "s"),
    ("instances_freed", "instances"),
    ("saving_known_by", "text"),
)


def option_details(options: Sequence[Option], texts: Texts) -> TableView:
    """Where the time goes, what limits each option and how its saving is known."""
    columns = [(name, unit, texts(f"column.{name}")) for name, unit in _COLUMNS]
    rows: list[list[Cell]] = [
        [
            option.title,
            option.id,
            option.family and texts.or_code("family", option.family),
            option.place and texts.or_code("place", option.place),
            option.wire and texts.or_code("wire", option.wire),
            option.instances,
            option.offered_load,
            option.prefill_utilisation,
            binds_text(option, texts),
            safe_text((option.slo or "").removeprefix(f"{option.title}: ")) or None,
            option.move_s.p90,
            option.prefill_s.p90,
            option.tpot_s.p90,
            None if option.instances_saved is None else option.instances_saved.value,
            None if option.whole_instances_saved is None else option.whole_instances_saved.source,
        ]
        for option in options
    ]
    table = made_table("option_details", texts("options.details"), columns, rows)
    return table_view(table, source=texts("source.replay"), origin="modelled")


def binds_text(option: Option, texts: Texts) -> str:
    """What limits the option, in words."""
    if option.binds is None:
        return texts("unknown")
    kind, _, link = option.binds.partition(":")
    named = texts("binds.link", link=link_name(link, texts))
    return named if link else texts.or_code("binds", kind)
