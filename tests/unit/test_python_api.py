"""An audit as Python and notebooks see it: typed, quiet, escaped."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import get_type_hints

import msgspec
import polars as pl
import pytest

import kvtrace
from kvtrace import api
from kvtrace.api.results import Audit
from kvtrace.api.stated import Stated, settings_with
from kvtrace.config import SETTINGS, resolve_settings
from kvtrace.errors import UsageError
from kvtrace.exec.progress import SilentProgress, ToldProgress, watched
from tests.conftest import REPO, Analysed


@pytest.fixture(scope="module")
def audit(samples: Analysed) -> Audit:
    return kvtrace.load_audit(samples.folder)


def test_tables_are_the_records_as_frames(audit: Audit) -> None:
    assert list(audit.tables) == sorted(audit.record.tables)
    for name, frame in audit.tables.items():
        table = audit.record.tables[name]
        assert frame.columns == table.columns
        assert frame.height == len(table.rows)
    curve = audit.record.tables["reuse/capacity_curve"]
    assert audit.tables["reuse/capacity_curve"].rows() == [tuple(row) for row in curve.rows]
    with pytest.raises(UsageError, match="no table `reuse/sumary`") as caught:
        audit.tables["reuse/sumary"]
    assert "reuse/summary" in (caught.value.hint or "")


def test_sql_runs_a_select_or_a_query_by_name(audit: Audit) -> None:
    count = audit.sql("select count(*) as n from requests")
    assert isinstance(count, pl.DataFrame)
    assert count.item() == audit.record.data.requests
    assert audit.sql("reuse/summary").columns == list(
        api.query(audit.directory or "", "reuse/summary").result.columns
    )
    limited = audit.sql("reuse/capacity_curve", capacities="10,1000")
    assert limited["capacity_blocks"].to_list() == [10, 1000]


def test_an_audit_without_a_folder_has_no_dataset_to_ask(audit: Audit) -> None:
    with pytest.raises(UsageError, match="no folder"):
        replace(audit, directory=None).sql("select 1 as one")


def test_a_figure_is_drawn_by_the_notebook_in_colours_that_it_knows(audit: Audit) -> None:
    assert len(audit.figures) >= 5
    for name in audit.figures:
        figure = audit.figure(name)
        bundle = figure._repr_mimebundle_()
        spec = bundle["application/vnd.plotly.v1+json"]
        assert set(spec) >= {"data", "layout"}  # type: ignore[call-overload]
        assert "var(" not in json.dumps(spec)
        assert figure.title in str(bundle["text/plain"])
    with pytest.raises(UsageError, match="no figure `capacity_curv`"):
        audit.figure("capacity_curv")


class Tags(HTMLParser):
    """The elements and attributes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes |= {name for name, _ in attrs}


def test_the_card_says_the_verdict_and_carries_nothing_that_acts(audit: Audit) -> None:
    evil = "<img src=x onerror=alert(1)> & \u202eevil"
    record = msgspec.convert(msgspec.to_builtins(audit.record), type(audit.record))
    record.verdict.headline = evil
    record.findings[0].title = evil
    card = Audit(record)._repr_html_()
    tags = Tags()
    tags.feed(card)
    assert set(tags.names) <= {"section", "div", "small", "strong", "p", "ul", "li", "code"}
    assert tags.attributes <= {"style", "lang"}
    assert "&lt;img" in card
    assert "\u202e" not in card
    assert not re.search(r"https?:|url\(", card)
    plain = audit._repr_html_()
    assert audit.verdict.headline.split("'")[0][:40] in plain
    assert len(plain) < 10_000
    assert repr(audit).startswith(f"<Audit: {audit.verdict.outcome}")


def test_texts_for_people_come_from_the_audit(audit: Audit) -> None:
    assert audit.to_adr().startswith("# ")
    assert audit.to_adr() != audit.to_adr(lang="zh")


def test_settings_by_name_are_all_there_is_and_win() -> None:
    names = {spec.name for spec in SETTINGS}
    assert set(Stated.__annotations__) == names
    kinds = get_type_hints(Stated)
    for spec in SETTINGS:
        assert spec.kind in kinds[spec.name].__args__
    base = resolve_settings({"llm": "a", "tp": 2}, environment={})
    merged = settings_with(base, {"tp": 4, "year": None})
    assert (merged.text("llm"), merged.integer("tp"), merged["tp"].origin) == ("a", 4, "flag")
    with pytest.raises(UsageError, match="`tp`"):
        settings_with(None, {"tp": 100_000})


def test_progress_may_be_a_function() -> None:
    told: list[tuple[str, float | None]] = []
    watch = watched(lambda stage, share: told.append((stage, share)))
    assert isinstance(watch, ToldProgress)
    watch.start("ingest", total_bytes=200)
    watch.advance(byte_count=50)
    watch.advance(rows=7)
    watch.advance(byte_count=250)
    watch.finish("done")
    watch.start("reuse")
    assert told == [
        *(("ingest", 0.0), ("ingest", 0.25), ("ingest", 1.0), ("ingest", 1.0)),
        ("reuse", None),
    ]
    silent = SilentProgress()
    assert watched(silent) is silent
    assert isinstance(watched(None), SilentProgress)


def test_the_example_runs_cell_by_cell_and_prints_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = (REPO / "examples" / "notebook.py").read_text(encoding="utf-8")
    cells = re.split(r"^# %%.*$", text, flags=re.MULTILINE)
    assert len(cells) >= 8
    space: dict[str, object] = {"__file__": str(REPO / "examples" / "notebook.py")}
    for cell in cells:
        exec(compile(cell, "notebook", "exec"), space)
    assert capsys.readouterr() == ("", "")
    assert {"ingest", "reuse", "report"} <= set(space["stages"])  # type: ignore[call-overload]
    assert isinstance(space["curve"], pl.DataFrame)
    assert space["longest"].height == 5  # type: ignore[attr-defined]
    assert not Path(space["folder"].name).exists()  # type: ignore[attr-defined]
