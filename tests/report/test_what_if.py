"""The what-if of the page: the script is the Python, and the page is the script."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kvtrace.audit.record import AuditRecord
from kvtrace.audit.what_if.formulas import evaluate
from kvtrace.audit.what_if.record import WhatIfModel
from kvtrace.report.format import format_value
from kvtrace.report.html import render_html
from kvtrace.report.texts import load_texts, read_asset
from kvtrace.report.what_if import what_if_view
from tests.report.chromium import Chromium, Events
from tests.report.records import make_bare_record
from tests.unit.audit_fakes import make_result
from tests.what_if_cases import what_if_record

POINTS = 250
_CALL = "kvtraceWhatIf.evaluate(models[name], at)"


@pytest.fixture(scope="module")
def record() -> AuditRecord:
    return what_if_record()


@pytest.fixture(scope="module")
def models(record: AuditRecord) -> dict[str, WhatIfModel]:
    """All that the model may lack: a pool, money, a curve; links that are full; hours of a day."""
    assert record.what_if is not None
    whole = record.what_if.model
    assert whole.fleet is not None
    assert whole.money is not None
    replays = (make_result("hbm_only", title="HBM only", hits={"hbm": 2000}),)
    alone = what_if_record(replays=replays, fewer=(), ends=(), options=()).what_if
    assert alone is not None
    change = msgspec.structs.replace
    busy = [change(link, bytes_read=link.bytes_read * 900) for link in whole.links]
    day = [0.2, 0.35, 0.5, 0.8, 1.0, 0.61]
    return {
        "whole": whole,
        "no_pool": alone.model,
        "no_money": change(whole, money=None),
        "no_curve": change(whole, curve_bytes=[], curve_ratio=[]),
        "busy": change(whole, links=busy),
        "day": change(
            whole,
            money=change(whole.money, profile=day, rival_usd=120.0, rival_usd_per_dram_usd=31.0),
            fleet=change(whole.fleet, whole_share=1.0, instances=23),
        ),
        "no_flops": change(whole, hit=None, lengths=None),
    }


def grid(model: WhatIfModel, points: int = POINTS) -> list[dict[str, int]]:
    """The base, both ends of each slider, and places drawn from a fixed seed."""
    draw = random.Random(11)
    ends = [{one.id: place} for one in model.sliders for place in (0, len(one.values) - 1)]
    drawn = [
        {one.id: draw.randrange(len(one.values)) for one in model.sliders}
        for _ in range(points - len(ends) - 1)
    ]
    return [{}, *ends, *drawn]


def in_script(body: str) -> Any:
    """What the page's script makes of `body`: by node, or in a browser where there is none."""
    source = read_asset("what_if.js")
    node = shutil.which("node")
    if node is not None:
        program = f"{source};\nprocess.stdout.write(JSON.stringify((() => {{ {body} }})()));"
        done = subprocess.run(
            [node, "-"], input=program, capture_output=True, text=True, check=True, timeout=120
        )
        return json.loads(done.stdout)
    with Chromium() as browser:
        return browser.evaluate(f"{source};\n(() => {{ {body} }})()")


def same(here: Any, there: Any, where: str) -> None:
    """Equal to 1e-9 of the number, null where the other is."""
    if isinstance(here, dict):
        assert here.keys() == there.keys(), where
        for key in here:
            same(here[key], there[key], f"{where}.{key}")
    elif isinstance(here, list):
        assert len(here) == len(there), where
        for place, (one, two) in enumerate(zip(here, there, strict=True)):
            same(one, two, f"{where}.{place}")
    elif isinstance(here, str) or here is None or there is None:
        assert here == there, where
    else:
        assert there == pytest.approx(here, rel=1e-9, abs=1e-12), where


def test_the_script_gives_what_python_gives_over_a_grid(models: dict[str, WhatIfModel]) -> None:
    asked = [(name, at) for name, model in models.items() for at in grid(model)]
    data = {name: msgspec.to_builtins(model) for name, model in models.items()}
    found = in_script(
        f"const models = {json.dumps(data)}; const asked = {json.dumps(asked)};"
        f"return asked.map(([name, at]) => {_CALL});"
    )
    assert len(found) == len(asked) >= 200 * len(models)
    distinct = set()
    for (name, at), theirs in zip(asked, found, strict=True):
        ours = msgspec.to_builtins(evaluate(models[name], at))
        same(ours, theirs, f"{name} {at}")
        distinct.add(json.dumps(ours, sort_keys=True))
    assert len(distinct) > len(asked) / 2  # the sliders do something


@pytest.mark.parametrize(
    ("unit", "values"),
    [
        ("USD/month", (-4842.516, 100.5, 101.5, 0.0, 0.0421, 99.96, 1234567.8)),
        ("USD/GB", (14.0, 0.5)),
        ("bytes/s", (1_534_915_822.6, 12.0, 7.25e12, 999.6e6)),
        ("bytes", (754_974_720.0, 17.3 * 2**40, 100.0)),
        ("s", (0.0998, 3.4567, 75.25, 1234.5, 5e-5, 2.5e-8, 20_000.0)),
        ("ratio", (0.6471, 0.00028, -0.1284, 1.0, 0.0)),
        ("instances", (0, 1, 4, 0.12017, 12.3456)),
        ("tokens", (35, 131_072)),
        ("GPU-hours/month", (0.0, 23_360.0, 1_234.56)),
    ],
)
def test_the_script_writes_numbers_as_the_page_does(unit: str, values: tuple[float, ...]) -> None:
    found = in_script(
        f"return {json.dumps(values)}.map((one) => kvtraceWhatIf.write(one, {json.dumps(unit)}));"
    )
    assert found == [format_value(value, unit) for value in values]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_figure_slider_and_reason_has_words(
    lang: Any, models: dict[str, WhatIfModel]
) -> None:
    texts = load_texts(lang)
    for model in models.values():
        for slider in model.sliders:
            assert texts(f"what_if.slider.{slider.id}")
            assert texts(f"what_if.means.{slider.id}")
    for reason in ("no_pool", "no_curve", "no_money", "no_size", "no_worth", "no_dram"):
        assert texts(f"what_if.fixed.{reason}")


def test_a_record_without_it_says_so() -> None:
    bare = make_bare_record()
    assert what_if_view(bare, load_texts("en")) is None
    assert "run <code>kvtrace analyze</code> again" in render_html(bare, lang="en")


def test_the_page_tells_that_whole_instances_are_those_of_the_replays(record: AuditRecord) -> None:
    view = what_if_view(record, load_texts("en"))
    assert view is not None
    rows = {row.id: row for row in view.checks}
    assert rows["instances"].is_same
    assert not rows["move"].is_same  # the fake replay's path is not the ledger's
    assert [row.id for row in view.differ] == ["move", "tokens"]
    assert "some numbers differ from the audit" in render_html(record, lang="en")


# --- in the browser ---------------------------------------------------------------------------

_OUTPUTS = (
    "Object.fromEntries([...document.querySelectorAll('#what-if output')]"
    ".map((one) => [one.dataset.out ?? one.dataset.of, one.hidden ? null : one.textContent]))"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium() as running:
        yield running


@pytest.fixture(scope="module")
def page(record: AuditRecord, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("what_if") / "report.html"
    path.write_text(render_html(record, lang="en"), encoding="utf-8")
    return path


def move(browser: Chromium, slider: str, place: int) -> None:
    browser.evaluate(
        f"(() => {{ const one = document.getElementById('what-if-{slider}'); one.value = {place};"
        " one.dispatchEvent(new Event('input', { bubbles: true })); })()"
    )


@pytest.mark.browser
def test_sliders_recompute_the_page_and_reset_brings_it_back(
    browser: Chromium, page: Path, record: AuditRecord
) -> None:
    part = record.what_if
    assert part is not None
    view = what_if_view(record, load_texts("en"))
    assert view is not None
    browser.open(page)
    base = browser.evaluate(_OUTPUTS)
    for _, figures in view.groups:
        for figure in figures:
            assert base[figure.key] == figure.number.text
    places = {"load": 10, "pool_size": 12, "link_speed": 5, "gpu_price": 0, "kv_dtype": 1}
    for slider, place in places.items():
        move(browser, slider, place)
    expected = evaluate(part.model, places)
    shown = browser.evaluate(_OUTPUTS)
    assert shown["net_usd"] == format_value(expected.net_usd, "USD/month") != base["net_usd"]
    assert shown["hit_ratio"] == format_value(expected.hit_ratio, "ratio") != base["hit_ratio"]
    assert shown["break_even_tokens"] == format_value(expected.break_even_tokens, "tokens")
    use = expected.links[1].p99_utilisation
    assert shown["links.1.p99_utilisation"] == format_value(use, "ratio")
    label = "document.getElementById('what-if-load')"
    assert browser.evaluate(f"{label}.getAttribute('aria-valuetext')") == shown["load"]
    browser.evaluate("document.querySelector('#what-if [data-reset]').click()")
    assert browser.evaluate(_OUTPUTS) == base
    assert browser.evaluate("document.activeElement.id") == "what-if-link_speed"
    assert browser.events == Events()


@pytest.mark.browser
def test_a_key_moves_a_slider(browser: Chromium, page: Path) -> None:
    browser.open(page)
    before = browser.evaluate(_OUTPUTS)
    browser.evaluate("document.getElementById('what-if-dram_price').focus()")
    for kind in ("keyDown", "keyUp"):
        browser.call(
            "Input.dispatchKeyEvent", type=kind, key="ArrowRight", code="ArrowRight",
            windowsVirtualKeyCode=39,
        )  # fmt: skip
    after = browser.evaluate(_OUTPUTS)
    assert after["dram_price"] != before["dram_price"]
    assert after["cost_usd"] != before["cost_usd"]


@pytest.mark.browser
def test_paper_has_the_position_of_the_audit(browser: Chromium, page: Path, tmp_path: Path) -> None:
    browser.open(page)
    base = browser.evaluate(_OUTPUTS)
    move(browser, "load", 12)
    moved = browser.evaluate(_OUTPUTS)
    browser.evaluate(
        f"window.addEventListener('beforeprint', () => {{ window.onPaper = {_OUTPUTS}; }})"
    )
    browser.print_pdf(tmp_path / "report.pdf")
    assert browser.evaluate("window.onPaper") == base
    assert browser.evaluate(_OUTPUTS) == moved != base


@pytest.mark.browser
def test_a_slider_that_means_nothing_here_says_why(browser: Chromium, tmp_path: Path) -> None:
    replays = (make_result("hbm_only", title="HBM only", hits={"hbm": 2000}),)
    alone = what_if_record(replays=replays, fewer=(), ends=(), options=())
    path = tmp_path / "report.html"
    path.write_text(render_html(alone, lang="zh"), encoding="utf-8")
    browser.open(path, width=390)
    state = browser.evaluate(
        "Object.fromEntries([...document.querySelectorAll('#what-if input')].map((one) =>"
        " [one.name, [one.disabled,"
        " document.getElementById(one.getAttribute('aria-describedby')).textContent]]))"
    )
    assert not state["link_speed"][0]
    assert state["pool_size"][0]
    assert state["pool_size"][1].startswith("不可调整")
    assert browser.evaluate("document.documentElement.scrollWidth") <= 390
    assert browser.events == Events()
